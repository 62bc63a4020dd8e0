//! Usage: what a meter counted, by day and model, apps and users.

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

use self::chart::{Bars, model_of};
use super::Frame;
use super::page::{Section, View, link, number, table, table_under_heading};
use super::totals::Figures;
use super::translations::Words;
use crate::browser::secured;
use crate::state::Usage;
use ichido_serve::visible;

/// Days that are shown unless someone says otherwise, and at most.
const DAYS: i32 = 30;
const MOST_DAYS: i32 = 366;
/// Apps and users that are shown: those with the most tokens.
const TOP: usize = 10;
/// Rows of the table under the bars; the rest is in the download.
const ROWS: usize = 200;
/// Columns of the download.
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
struct Counted {
    frame: Frame,
    usage: Usage,
    meters: PrometheusHandle,
}

impl FromRef<Counted> for Frame {
    fn from_ref(counted: &Counted) -> Self {
        counted.frame.clone()
    }
}

pub(super) fn routes(frame: Frame, usage: Usage, meters: PrometheusHandle) -> Router {
    Router::new().route("/usage", get(page)).route("/usage.csv", get(download)).with_state(Counted {
        frame,
        usage,
        meters,
    })
}

#[derive(Debug, Default, Deserialize)]
struct Asked {
    #[serde(default)]
    tenant: String,
    #[serde(default)]
    from: String,
    #[serde(default)]
    to: String,
    /// What records are sums of: days are not added to months.
    #[serde(default)]
    method: String,
}

/// What is looked at: checked.
struct Chosen<'a> {
    store: &'a dyn Store,
    tenant: String,
    from: Date,
    to: Date,
}

impl Asked {
    fn check<'a>(&self, usage: &'a Usage) -> Chosen<'a> {
        let today = i64::try_from(SystemClock::default().now().0).unwrap_or_default();
        let today = jiff::Timestamp::from_millisecond(today).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        let to = self.to.parse().unwrap_or_else(|_| today.to_zoned(jiff::tz::TimeZone::UTC).date());
        let before = |days: i32| to.saturating_sub((days - 1).days());
        let from: Date = self.from.parse().unwrap_or_else(|_| before(DAYS));
        let known = usage.tenants.iter().find(|tenant| **tenant == self.tenant);
        let tenant = known.or(usage.tenants.first()).cloned().unwrap_or_default();
        Chosen { store: &*usage.store, tenant, from: from.clamp(before(MOST_DAYS), to), to }
    }
}

impl Chosen<'_> {
    async fn report(&self, by: &[GroupBy]) -> Result<Vec<Group>, String> {
        let query = report::ReportQuery {
            tenant: self.tenant.clone(),
            from: Some(self.from),
            to: Some(self.to),
            group_by: by.to_vec(),
        };
        self.store.report(&query).await.map_err(|error| error.to_string())
    }
}

async fn page(view: View, State(counted): State<Counted>, Query(asked): Query<Asked>) -> Response {
    let w = view.w;
    let chosen = asked.check(&counted.usage);
    let reports = tokio::try_join!(
        chosen.report(&[]),
        chosen.report(&[GroupBy::Day, GroupBy::Model]),
        chosen.report(&[GroupBy::App]),
        chosen.report(&[GroupBy::User]),
    );
    let (sums, models, apps, users) = match reports {
        Ok(reports) => reports,
        Err(why) => return view.refusal(StatusCode::SERVICE_UNAVAILABLE, Section::Usage, &why),
    };
    let methods = methods(&sums);
    let method = methods.iter().find(|method| **method == asked.method).or(methods.first()).cloned();
    let of = |groups: Vec<Group>| -> Vec<Group> {
        groups.into_iter().filter(|group| Some(&group.aggregation_method) == method.as_ref()).collect()
    };
    let (sums, models) = (of(sums), of(models));
    let repeated = Figures::read(&counted.meters.render()).records_repeated;
    let bars = Bars::new(chosen.from, chosen.to, &models);
    let body = html! {
        (form(&counted.usage, &chosen, &methods, method.as_deref(), w))
        (figures(&sums, repeated, w))
        @if models.is_empty() { p.empty { (w.no_usage) } } @else {
            (bars.draw(w, &by_day(&models, w)))
            p { a href=(csv_href(&chosen, method.as_deref())) { (w.csv) } }
            div.plots {
                (top(w.top_apps, w.app, &of(apps), |group| group.app_name.clone().filter(|name| !name.is_empty()).or_else(|| group.app_id.clone()), w))
                (top(w.top_users, w.user, &of(users), |group| group.user_id.clone(), w))
            }
        }
    };
    view.page(Section::Usage, w.usage, body)
}

async fn download(view: View, State(counted): State<Counted>, Query(asked): Query<Asked>) -> Response {
    let chosen = asked.check(&counted.usage);
    let groups = match chosen.report(&[GroupBy::Day, GroupBy::Model]).await {
        Ok(groups) => groups,
        Err(why) => return view.refusal(StatusCode::SERVICE_UNAVAILABLE, Section::Usage, &why),
    };
    let groups =
        groups.iter().filter(|group| asked.method.is_empty() || group.aggregation_method == asked.method);
    let name = format!("attachment; filename=\"usage-{}-{}.csv\"", chosen.from, chosen.to);
    let fields = [(header::CONTENT_TYPE, "text/csv; charset=utf-8"), (header::CONTENT_DISPOSITION, &name)];
    secured((fields, csv::table(&CSV_COLUMNS, groups)).into_response())
}

/// What records are sums of; that of the most records first.
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

fn form(usage: &Usage, chosen: &Chosen<'_>, methods: &[String], method: Option<&str>, w: &Words) -> Markup {
    html! {
        form.search.days method="get" action="/usage" {
            @if usage.tenants.len() > 1 {
                div {
                    label for="tenant" { (w.tenant) }
                    select #tenant name="tenant" {
                        @for tenant in &usage.tenants { option value=(tenant) selected[*tenant == chosen.tenant] { (tenant) } }
                    }
                }
            }
            div { label for="from" { (w.from_day) } input #from type="date" name="from" value=(chosen.from); }
            div { label for="to" { (w.to_day) } input #to type="date" name="to" value=(chosen.to); }
            @if methods.len() > 1 {
                div {
                    label for="method" { (w.sums_of) }
                    select #method name="method" {
                        @for known in methods { option value=(known) selected[Some(known.as_str()) == method] { (known) } }
                    }
                }
            }
            button type="submit" { (w.show) }
        }
    }
}

fn figures(sums: &[Group], repeated: u64, w: &Words) -> Markup {
    let total =
        |of: fn(&Group) -> i64| number(sums.iter().map(|sum| u64::try_from(of(sum)).unwrap_or(0)).sum());
    let cost = sums
        .iter()
        .map(|sum| format!("{} {}", sum.cost_actual, sum.currency))
        .collect::<Vec<_>>()
        .join(" + ");
    let tiles = [
        (w.cost, if cost.is_empty() { "–".to_owned() } else { cost }, w.cost_hint),
        (w.tokens, total(|sum| sum.total_tokens), w.tokens_hint),
        (w.calls, total(|sum| sum.request_count), w.calls_hint),
        (w.records, total(|sum| sum.records), w.records_hint),
        (w.repeated, number(repeated), w.repeated_hint),
    ];
    html! {
        dl.figures {
            @for (label, value, hint) in tiles { div { dt { (label) } dd { span.value.long { (value) } span.hint { (hint) } } } }
        }
    }
}

/// The numbers under the bars, the latest day first.
fn by_day(models: &[Group], w: &Words) -> Markup {
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
    let rows: Vec<_> = sorted.iter().take(ROWS).map(row).collect();
    table(w.by_day_caption, &[w.day, w.model, w.calls, w.tokens_in, w.tokens_out, w.cost], &rows)
}

fn top(title: &str, head: &str, groups: &[Group], name: fn(&Group) -> Option<String>, w: &Words) -> Markup {
    let mut sorted: Vec<&Group> = groups.iter().collect();
    sorted.sort_by_key(|group| std::cmp::Reverse(group.total_tokens));
    let rows: Vec<_> = sorted
        .into_iter()
        .take(TOP)
        .map(|group| {
            let name =
                name(group).filter(|name| !name.is_empty()).unwrap_or_else(|| w.all_together.to_owned());
            vec![
                html! { span.key { (visible(&name)) } },
                html! { (number(u64::try_from(group.total_tokens).unwrap_or(0))) },
                html! { span.amount { (group.cost_actual) " " (group.currency) } },
            ]
        })
        .collect();
    html! { section { h2 { (title) } (table_under_heading(title, &[head, w.tokens, w.cost], &rows)) } }
}

fn csv_href(chosen: &Chosen<'_>, method: Option<&str>) -> String {
    let (from, to) = (chosen.from.to_string(), chosen.to.to_string());
    let query = [
        ("tenant", chosen.tenant.as_str()),
        ("from", &from),
        ("to", &to),
        ("method", method.unwrap_or_default()),
    ];
    link("/usage.csv", &query)
}
