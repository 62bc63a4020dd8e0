//! What was decided in the last 7 or 30 days: when, from which sources, how fast, and while the ledger was unavailable.

mod charts;
mod report;

use axum::extract::{Query, State};
use axum::response::Response;
use http::StatusCode;
use ichido_history::OfRoute;
use maud::{Markup, html};
use serde::Deserialize;

use self::report::{Hour, Report};
use super::page::{Section, View, hour_label, link, number};
use super::translations::{Translations, fill};
use super::{Console, anomalies};
use crate::histories::Unavailable;
use ichido_serve::visible;

/// The periods, in days. The first is the default.
const PERIODS: [usize; 2] = [7, 30];

/// What to show. The links of anomalies name all of it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Wanted {
    days: Option<usize>,
    /// Only decisions on this route, and of them those of a source or an instance.
    route: Option<String>,
    source: Option<String>,
    instance: Option<String>,
    /// A moment in the hour to look at, in milliseconds since 1970.
    at: Option<u64>,
}

impl Wanted {
    fn of_route(&self) -> Option<OfRoute> {
        let Self { route, source, instance, .. } = self.clone();
        Some(OfRoute { route: route?, source, instance })
    }

    /// All sources of a route take long to add up, so that only a week is offered.
    fn periods(&self) -> &'static [usize] {
        if self.route.is_some() && self.source.is_none() { &PERIODS[..1] } else { &PERIODS }
    }

    fn link(&self, days: usize) -> String {
        let (days, at) = (days.to_string(), self.at.map(|at| at.to_string()));
        let fields = [
            ("days", Some(&days)),
            ("route", self.route.as_ref()),
            ("source", self.source.as_ref()),
            ("instance", self.instance.as_ref()),
            ("at", at.as_ref()),
        ];
        let query: Vec<_> =
            fields.into_iter().filter_map(|(name, value)| Some((name, value?.as_str()))).collect();
        link("/history", &query)
    }
}

pub(super) async fn history(
    view: View,
    State(console): State<Console>,
    Query(wanted): Query<Wanted>,
) -> Response {
    let t = view.t;
    let days = wanted.days.filter(|days| wanted.periods().contains(days)).unwrap_or(PERIODS[0]);
    let now = console.app.admin.ledger.settings().clock.now();
    let of_route = wanted.of_route();
    let read = move |history: &_| Report::read(history, now.0, days, of_route.as_ref());
    let report = match console.app.admin.histories.read(read).await {
        Ok(report) => report,
        Err(error) => return unavailable(&view, &error),
    };
    let marked = wanted.at.and_then(|at| report.slot_of(at));
    let body = html! {
        (search_form("", t))
        nav.tabs aria-label=(t.period) {
            @for choice in wanted.periods() {
                a href=(wanted.link(*choice)) aria-current=[(*choice == days).then_some("page")] { (t.days(*choice)) }
            }
        }
        (only(&wanted, t))
        @if let Some(slot) = marked {
            section aria-labelledby="hour" {
                h2 #hour { (fill(t.hour_from, hour_label(report.start_of(slot), "%Y-%m-%d %H:%M"))) }
                (tiles(&report.hours[slot], t))
            }
        }
        @if report.is_empty() { p.empty { (t.nothing_recorded) } }
        @if marked.is_some() { h2 { (t.days(days)) } }
        (tiles(&report.total(), t))
        div.plots.history {
            (charts::heat_map(&report, marked, t))
            (charts::latency(&report, t))
            @if wanted.route.is_none() { (charts::sources(&report, t)) }
            (charts::degraded(&report, t))
        }
        (anomalies::all(&view, &console))
    };
    view.page(Section::History, t.history, body)
}

/// What the page is limited to.
fn only(wanted: &Wanted, t: &Translations) -> Markup {
    let Wanted { route, source, instance, .. } = wanted;
    let limits = [(t.route, route), (t.source, source), (t.instance, instance)];
    html! {
        @if route.is_some() {
            p {
                (t.only)
                @for (name, value) in limits {
                    @if let Some(value) = value.as_deref().filter(|value| !value.is_empty()) { " " (name) " " span.key { (visible(value)) } }
                }
                " " a href="/history" { (t.show_everything) }
            }
        }
    }
}

/// Finds the timeline of a key.
pub(super) fn search_form(text: &str, t: &Translations) -> Markup {
    html! {
        form.search method="get" action="/history/timeline" role="search" {
            div {
                label for="find" { (t.find_in_history) }
                input #find type="search" name="find" value=(text) required maxlength="1024" autocomplete="off" spellcheck="false";
            }
            button type="submit" { (t.show_timeline) }
        }
    }
}

/// The page if the history cannot be read.
pub(super) fn unavailable(view: &View, error: &Unavailable) -> Response {
    let t = view.t;
    let why = match error {
        Unavailable::Off => t.history_off.to_owned(),
        Unavailable::Failed(_) | Unavailable::Interrupted(_) => error.to_string(),
    };
    let body = html! { p.notice.bad role="alert" { (visible(&why)) } };
    view.page_with_status(StatusCode::SERVICE_UNAVAILABLE, Section::History, t.history, body)
}

fn tiles(all: &Hour, t: &Translations) -> Markup {
    let tile = |label: &str, value: String, hint: &str| {
        html! { div { dt { (label) } dd { span.value { (value) } span.hint { (hint) } } } }
    };
    html! {
        dl.figures {
            (tile(t.received, number(all.received), t.received_hint))
            (tile(t.repeats, number(all.repeats), t.repeats_hint))
            (tile(t.duplicate_rate, charts::percent(all.repeats, all.received), t.repeat_rate_hint))
            (tile(t.in_doubt, number(all.in_doubt), t.doubts_hint))
            (tile(t.without_ledger, number(all.fallback + all.unavailable), t.without_ledger_hint))
        }
    }
}
