//! Usage that the meter has counted: by day and model, by app, and by user.

mod budgets;
mod chart;

use axum::Router;
use axum::extract::{FromRef, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};
use ichido_core::{Clock, SystemClock};
use ichido_meter::report::{self, Group, GroupBy};
use ichido_meter::{Store, csv};
use jiff::ToSpan;
use jiff::civil::Date;
use maud::{Markup, html};
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Deserialize;

use self::chart::{BarChart, model_of};
use super::PageContext;
use super::page::{Section, View, link, number, table, table_under_heading};
use super::totals::Totals;
use super::translations::Translations;
use crate::browser::with_security_headers;
use crate::state::UsageSource;
use ichido_serve::visible;

/// The days that are shown by default, and at most.
const DAYS_DEFAULT: i32 = 30;
const DAYS_MAX: i32 = 366;
/// The most apps and users that are shown; those with the most tokens come first.
const TOP_MAX: usize = 10;
/// The most rows of the table below the chart. The CSV file has all of them.
const ROWS_MAX: usize = 200;
/// Columns of the CSV file.
const CSV_COLUMNS: [&str; 10] = [
    "usage_date",
    "provider",
    "model",
    "aggregation_method",
    "request_count",
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "cost_actual",
    "currency",
];

#[derive(Clone, Debug)]
struct UsageContext {
    page: PageContext,
    usage: UsageSource,
    metrics: PrometheusHandle,
}

impl FromRef<UsageContext> for PageContext {
    fn from_ref(context: &UsageContext) -> Self {
        context.page.clone()
    }
}

pub(super) fn routes(page: PageContext, usage: UsageSource, metrics: PrometheusHandle) -> Router {
    Router::new().route("/usage", get(show)).route("/usage.csv", get(download)).with_state(UsageContext {
        page,
        usage,
        metrics,
    })
}

#[derive(Debug, Default, Deserialize)]
struct UsageQuery {
    #[serde(default)]
    tenant: String,
    #[serde(default)]
    from: String,
    #[serde(default)]
    to: String,
    /// The aggregation method. Daily sums are not added to monthly ones.
    #[serde(default)]
    method: String,
}

/// A checked query.
struct UsageFilter<'a> {
    store: &'a dyn Store,
    tenant: String,
    from: Date,
    to: Date,
}

impl UsageQuery {
    fn check<'a>(&self, usage: &'a UsageSource) -> UsageFilter<'a> {
        let today = i64::try_from(SystemClock::default().now().0).unwrap_or_default();
        let today = jiff::Timestamp::from_millisecond(today).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        let to = self.to.parse().unwrap_or_else(|_| today.to_zoned(jiff::tz::TimeZone::UTC).date());
        let before = |days: i32| to.saturating_sub((days - 1).days());
        let from: Date = self.from.parse().unwrap_or_else(|_| before(DAYS_DEFAULT));
        let known = usage.tenants.iter().find(|tenant| **tenant == self.tenant);
        let tenant = known.or(usage.tenants.first()).cloned().unwrap_or_default();
        UsageFilter { store: &*usage.store, tenant, from: from.clamp(before(DAYS_MAX), to), to }
    }
}

impl UsageFilter<'_> {
    async fn report(&self, by: &[GroupBy]) -> Result<Vec<Group>, String> {
        let query = report::ReportQuery {
            tenant: self.tenant.clone(),
            from: Some(self.from),
            to: Some(self.to),
            group_by: by.to_vec(),
            ..report::ReportQuery::default()
        };
        self.store.report(&query).await.map_err(|error| error.to_string())
    }
}

async fn show(view: View, State(context): State<UsageContext>, Query(query): Query<UsageQuery>) -> Response {
    let t = view.t;
    let filter = query.check(&context.usage);
    let reports = tokio::try_join!(
        filter.report(&[]),
        filter.report(&[GroupBy::Day, GroupBy::Model]),
        filter.report(&[GroupBy::App]),
        filter.report(&[GroupBy::User]),
    );
    let (sums, models, apps, users) = match reports {
        Ok(reports) => reports,
        Err(why) => return view.error_page(StatusCode::SERVICE_UNAVAILABLE, Section::Usage, &why),
    };
    let budgets = match budgets::read(&context.usage, &filter.tenant, filter.to).await {
        Ok(budgets) => budgets,
        Err(why) => return view.error_page(StatusCode::SERVICE_UNAVAILABLE, Section::Usage, &why),
    };
    let methods = methods(&sums);
    let method = methods.iter().find(|method| **method == query.method).or(methods.first()).cloned();
    let of = |groups: Vec<Group>| -> Vec<Group> {
        groups.into_iter().filter(|group| Some(&group.aggregation_method) == method.as_ref()).collect()
    };
    let (sums, models) = (of(sums), of(models));
    let duplicates = Totals::read(&context.metrics.render()).records_repeated;
    let chart = BarChart::new(filter.from, filter.to, &models);
    let body = html! {
        (form(&context.usage, &filter, &methods, method.as_deref(), t))
        (figures(&sums, duplicates, t))
        (budgets::section(&budgets, t))
        @if models.is_empty() { p.empty { (t.no_usage) } } @else {
            (chart.draw(t, &by_day(&models, t)))
            p { a href=(csv_href(&filter, method.as_deref())) { (t.csv) } }
            div.plots {
                (top(t.top_apps, t.app, &of(apps), |group| group.app_name.clone().filter(|name| !name.is_empty()).or_else(|| group.app_id.clone()), t))
                (top(t.top_users, t.user, &of(users), |group| group.user_id.clone(), t))
            }
        }
    };
    view.page(Section::Usage, t.usage, body)
}

async fn download(
    view: View,
    State(context): State<UsageContext>,
    Query(query): Query<UsageQuery>,
) -> Response {
    let filter = query.check(&context.usage);
    let groups = match filter.report(&[GroupBy::Day, GroupBy::Model]).await {
        Ok(groups) => groups,
        Err(why) => return view.error_page(StatusCode::SERVICE_UNAVAILABLE, Section::Usage, &why),
    };
    let groups =
        groups.iter().filter(|group| query.method.is_empty() || group.aggregation_method == query.method);
    let name = format!("attachment; filename=\"usage-{}-{}.csv\"", filter.from, filter.to);
    let fields = [(header::CONTENT_TYPE, "text/csv; charset=utf-8"), (header::CONTENT_DISPOSITION, &name)];
    with_security_headers((fields, csv::table(&CSV_COLUMNS, groups)).into_response())
}

/// The aggregation methods; the one with the most records comes first.
fn methods(sums: &[Group]) -> Vec<String> {
    let mut methods: Vec<(i64, String)> = Vec::new();
    for sum in sums {
        match methods.iter_mut().find(|(_, method)| *method == sum.aggregation_method) {
            Some((records, _)) => *records += sum.records,
            None => methods.push((sum.records, sum.aggregation_method.clone())),
        }
    }
    methods.sort_by(|one, other| other.cmp(one));
    methods.into_iter().map(|(_, method)| method).collect()
}

fn form(
    usage: &UsageSource,
    filter: &UsageFilter<'_>,
    methods: &[String],
    method: Option<&str>,
    t: &Translations,
) -> Markup {
    html! {
        form.search.days method="get" action="/usage" {
            @if usage.tenants.len() > 1 {
                div {
                    label for="tenant" { (t.tenant) }
                    select #tenant name="tenant" {
                        @for tenant in &usage.tenants { option value=(tenant) selected[*tenant == filter.tenant] { (tenant) } }
                    }
                }
            }
            div { label for="from" { (t.from_day) } input #from type="date" name="from" value=(filter.from); }
            div { label for="to" { (t.to_day) } input #to type="date" name="to" value=(filter.to); }
            @if methods.len() > 1 {
                div {
                    label for="method" { (t.aggregation) }
                    select #method name="method" {
                        @for known in methods { option value=(known) selected[Some(known.as_str()) == method] { (known) } }
                    }
                }
            }
            button type="submit" { (t.show) }
        }
    }
}

fn figures(sums: &[Group], duplicates: u64, t: &Translations) -> Markup {
    let total =
        |of: fn(&Group) -> i64| number(sums.iter().map(|sum| u64::try_from(of(sum)).unwrap_or(0)).sum());
    let cost = sums
        .iter()
        .map(|sum| format!("{} {}", sum.cost_actual, sum.currency))
        .collect::<Vec<_>>()
        .join(" + ");
    let tiles = [
        (t.cost, if cost.is_empty() { "–".to_owned() } else { cost }, t.cost_hint),
        (t.tokens, total(|sum| sum.total_tokens), t.tokens_hint),
        (t.calls, total(|sum| sum.request_count), t.calls_hint),
        (t.records, total(|sum| sum.records), t.records_hint),
        (t.duplicates_ignored, number(duplicates), t.duplicates_ignored_hint),
    ];
    html! {
        dl.figures {
            @for (label, value, hint) in tiles { div { dt { (label) } dd { span.value.long { (value) } span.hint { (hint) } } } }
        }
    }
}

/// The table below the chart, latest day first.
fn by_day(models: &[Group], t: &Translations) -> Markup {
    let mut sorted: Vec<&Group> = models.iter().collect();
    sorted.sort_by(|one, other| {
        other.usage_date.cmp(&one.usage_date).then(other.total_tokens.cmp(&one.total_tokens))
    });
    let cell = |value: i64| html! { (number(u64::try_from(value).unwrap_or(0))) };
    let row = |group: &&Group| {
        vec![
            html! { (group.usage_date.as_deref().unwrap_or_default()) },
            html! { span.key { (visible(&model_of(group))) } },
            cell(group.request_count),
            cell(group.input_tokens),
            cell(group.output_tokens),
            html! { span.amount { (group.cost_actual) " " (group.currency) } },
        ]
    };
    let rows: Vec<_> = sorted.iter().take(ROWS_MAX).map(row).collect();
    table(t.by_day_caption, &[t.day, t.model, t.calls, t.tokens_in, t.tokens_out, t.cost], &rows)
}

fn top(
    title: &str,
    head: &str,
    groups: &[Group],
    name: fn(&Group) -> Option<String>,
    t: &Translations,
) -> Markup {
    let mut sorted: Vec<&Group> = groups.iter().collect();
    sorted.sort_by_key(|group| std::cmp::Reverse(group.total_tokens));
    let rows: Vec<_> = sorted
        .into_iter()
        .take(TOP_MAX)
        .map(|group| {
            let name =
                name(group).filter(|name| !name.is_empty()).unwrap_or_else(|| t.not_specified.to_owned());
            vec![
                html! { span.key { (visible(&name)) } },
                html! { (number(u64::try_from(group.total_tokens).unwrap_or(0))) },
                html! { span.amount { (group.cost_actual) " " (group.currency) } },
            ]
        })
        .collect();
    html! { section { h2 { (title) } (table_under_heading(title, &[head, t.tokens, t.cost], &rows)) } }
}

fn csv_href(filter: &UsageFilter<'_>, method: Option<&str>) -> String {
    let (from, to) = (filter.from.to_string(), filter.to.to_string());
    let query = [
        ("tenant", filter.tenant.as_str()),
        ("from", &from),
        ("to", &to),
        ("method", method.unwrap_or_default()),
    ];
    link("/usage.csv", &query)
}
