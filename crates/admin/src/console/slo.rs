//! The six criteria of delivery for a month.

use axum::extract::{Query, State};
use axum::response::Response;
use http::StatusCode;
use ichido_delivery::slo::{Against, Comparison, Criterion, Name, Unit, Verdict};
use maud::{Markup, html};
use serde::Deserialize;

use super::Console;
use super::page::{Section, View, facts, link, number, table_under_heading, time_of};
use super::translations::{Translations, fill};
use crate::slo::{Days, Interventions, Report, report};
use crate::trace::Place;
use ichido_core::error_chain;
use ichido_serve::visible;

#[derive(Debug, Default, Deserialize)]
pub(super) struct Wanted {
    /// Such as `2026-11`.
    #[serde(default)]
    month: String,
}

pub(super) async fn slo(
    view: View,
    State(console): State<Console>,
    Query(wanted): Query<Wanted>,
) -> Response {
    let t = view.t;
    let Some(delivery) = console.delivery_control() else {
        return view.error_page(StatusCode::NOT_FOUND, Section::None, t.no_delivery);
    };
    let now = console.app.admin.ledger.settings().clock.now();
    let days = Days::month(&wanted.month).unwrap_or_else(|| Days::month_of(now));
    let (layout, audit) = (delivery.layout.clone(), console.app.audit.clone());
    // Held until the files were read, even if nobody waits for the page any more.
    let permit = console.app.searches.clone().acquire_owned().await;
    let read = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        report(&layout, &audit, days, now)
    })
    .await;
    match read {
        Ok(report) => view.page(Section::Delivery, t.slo, body(&report, days, t)),
        Err(error) => {
            view.error_page(StatusCode::INTERNAL_SERVER_ERROR, Section::Delivery, &error_chain(&error))
        }
    }
}

fn body(report: &Report, days: Days, t: &'static Translations) -> Markup {
    let month = |days: Days| days.as_month().unwrap_or_default();
    let page = |days: Days| link("/delivery/slo", &[("month", &month(days))]);
    html! {
        nav.tabs aria-label=(t.period) {
            @for days in [days.shifted(-1), days, days.shifted(1)] {
                a href=(page(days)) aria-current=[(days.as_month() == month_of(report)).then_some("page")] { (month(days)) }
            }
        }
        @if report.criteria.iter().all(|criterion| criterion.verdict == Verdict::NoData) { p.empty { (t.slo_empty) } }
        (criteria(&report.criteria, t))
        (interventions(&report.manual_interventions, t))
        @for criterion in report.criteria.iter().filter(|criterion| !criterion.batches.is_empty()) {
            section {
                h2 { (t.criterion(criterion.name)) }
                (against(criterion, t))
            }
        }
        @if !report.notes.is_empty() {
            h2 { (t.slo_notes) }
            ul { @for note in &report.notes { li { (visible(note)) } } }
        }
        p { a href="/delivery" { (t.back_to_delivery) } }
    }
}

fn month_of(report: &Report) -> Option<String> {
    report.from.get(..7).map(ToOwned::to_owned)
}

fn criteria(criteria: &[Criterion], t: &'static Translations) -> Markup {
    let row = |criterion: &Criterion| {
        let counts = criterion.counts.iter().map(|(name, count)| format!("{name}={count}"));
        vec![
            html! { (t.criterion(criterion.name)) },
            html! { (verdict(criterion.verdict, t)) },
            html! { span.amount { (criterion.value.map_or_else(|| "–".to_owned(), |value| shown(value, criterion.unit))) } },
            html! { span.amount {
                (match criterion.comparison { Comparison::AtLeast => "≥ ", Comparison::Below => "< " })
                (shown(criterion.target, criterion.unit))
            } },
            html! { span.detail { (counts.collect::<Vec<_>>().join(" ")) } },
        ]
    };
    let heads = [t.slo_criterion, t.slo_verdict, t.slo_value, t.slo_target, t.details];
    table_under_heading(t.slo, &heads, &criteria.iter().map(row).collect::<Vec<_>>())
}

fn verdict(verdict: Verdict, t: &'static Translations) -> Markup {
    let (class, text) = match verdict {
        Verdict::Met => ("mark done", t.slo_met),
        Verdict::Missed => ("mark in-doubt", t.slo_missed),
        Verdict::NoData => ("mark running", t.slo_no_data),
    };
    html! { span class=(class) { (text) } }
}

/// A share as a percentage, a time in the unit that people read.
fn shown(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Ratio => format!("{:.2} %", value * 100.0),
        Unit::Seconds if value >= 3_600.0 => format!("{:.1} h", value / 3_600.0),
        Unit::Seconds => format!("{value:.2} s"),
    }
}

fn interventions(interventions: &Interventions, t: &'static Translations) -> Markup {
    let Interventions { target, count, by_action, verdict: reached } = interventions;
    let count = count.map_or_else(|| "–".to_owned(), number);
    let mut rows = vec![
        (t.slo_verdict, verdict(*reached, t)),
        (t.slo_value, html! { (count) }),
        (t.slo_target, html! { "≤ " (number(*target)) }),
    ];
    if !by_action.is_empty() {
        let actions = html! { @for (action, count) in by_action { span.key { (visible(action)) } " " (number(*count)) " " } };
        rows.push((t.details, actions));
    }
    html! { h2 { (t.slo_interventions) } (facts(&rows)) }
}

fn against(criterion: &Criterion, t: &'static Translations) -> Markup {
    let row = |against: &Against| {
        let batch = &against.batch;
        vec![
            time_of(&against.at),
            html! { a.key href=(link("/trace", &[("id", batch)])) { (visible(&batch.chars().take(12).collect::<String>())) } },
            html! { span.detail { (visible(t.trace_event(Place::Receipts, &against.what))) } },
        ]
    };
    let rows: Vec<_> = criterion.batches.iter().map(row).collect();
    html! {
        (table_under_heading(t.criterion(criterion.name), &[t.time, t.batch, t.details], &rows))
        @if criterion.more_batches > 0 { p.hint { (fill(t.slo_more, number(criterion.more_batches))) } }
    }
}

impl Translations {
    fn criterion(&self, name: Name) -> &'static str {
        match name {
            Name::SendSuccess => self.slo_send_success,
            Name::RetrySuccess => self.slo_retry_success,
            Name::ResendSuccess => self.slo_resend_success,
            Name::SendLatencyP95 => self.slo_latency,
            Name::SpoolAgeP95 => self.slo_spool_age,
            Name::FailedShare => self.slo_failed,
        }
    }
}
