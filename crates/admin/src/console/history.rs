//! What was decided in the last 7 or 30 days: when, from which sources, how fast, and while the ledger was unavailable.

mod charts;
mod report;

use axum::extract::{Query, State};
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use serde::Deserialize;

use self::report::Report;
use super::Console;
use super::page::{Section, View, link, number};
use super::translations::Translations;
use crate::histories::Unavailable;
use ichido_serve::visible;

/// The periods, in days. The first is the default.
const PERIODS: [usize; 2] = [7, 30];

#[derive(Debug, Deserialize)]
pub(super) struct Period {
    days: Option<usize>,
}

pub(super) async fn history(
    view: View,
    State(console): State<Console>,
    Query(period): Query<Period>,
) -> Response {
    let t = view.t;
    let days = period.days.filter(|days| PERIODS.contains(days)).unwrap_or(PERIODS[0]);
    let now = console.app.admin.ledger.settings().clock.now();
    let report = console.app.admin.histories.read(move |history| Report::read(history, now.0, days)).await;
    let report = match report {
        Ok(report) => report,
        Err(error) => return unavailable(&view, &error),
    };
    let body = html! {
        (search_form("", t))
        nav.tabs aria-label=(t.period) {
            @for choice in PERIODS {
                a href=(link("/history", &[("days", &choice.to_string())])) aria-current=[(choice == days).then_some("page")] { (t.days(choice)) }
            }
        }
        @if report.is_empty() { p.empty { (t.nothing_recorded) } }
        (tiles(&report, t))
        div.plots.history {
            (charts::heat_map(&report, t))
            (charts::latency(&report, t))
            (charts::sources(&report, t))
            (charts::degraded(&report, t))
        }
    };
    view.page(Section::History, t.history, body)
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

fn tiles(report: &Report, t: &Translations) -> Markup {
    let all = report.total();
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
