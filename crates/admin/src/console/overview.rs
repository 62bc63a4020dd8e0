//! The first page: what happened once, what was repeated, what waits, what nobody knows.

use axum::extract::State;
use axum::response::Response;
use ichido_ledger::Capabilities;
use maud::{Markup, html};

use super::Console;
use super::health::Health;
use super::page::{Section, View, facts, link, number, table, time};
use super::plot::Plot;
use super::sampler::{Known, Sample};
use super::translations::Words;
use crate::delivery_control::{By, Run};
use ichido_serve::visible;

pub(super) async fn overview(view: View, State(console): State<Console>) -> Response {
    let known = console.sampler.look();
    let w = view.w;
    let figures = figures(&console, &known, w);
    let body = html! {
        div #live .live data-source="/live" {
            p.status { span.dot aria-hidden="true" {} span role="status" data-live-state data-on=(w.live) data-off=(w.not_live) data-paused=(w.paused) {} }
            button.quiet type="button" hidden data-live-pause data-pause=(w.pause) data-go-on=(w.go_on) { (w.pause) }
        }
        (health(&console, &known, w).draw())
        section aria-labelledby="figures" {
            h2 #figures { (w.since_start) }
            dl.figures { @for figure in &figures { (figure.draw()) } }
        }
        section.plots aria-label=(w.over_time) { @for plot in plots(&console, &known, w) { (plot.draw(w)) } }
        section aria-labelledby="ledger" {
            h2 #ledger { (w.ledger) }
            (facts(&capabilities(&console.served.admin.ledger.capabilities(), w)))
        }
        @if let Some(desk) = console.desk() { (runs(&desk.runs(), w)) }
    };
    view.page(Section::Overview, w.overview, body)
}

/// What a page that is open replaces.
pub(super) fn live(view: &View, console: &Console) -> Vec<(String, String)> {
    let known = console.sampler.look();
    let figures = figures(console, &known, view.w).into_iter();
    let mut live: Vec<_> = figures.map(|figure| (figure.name.to_owned(), figure.value)).collect();
    for plot in plots(console, &known, view.w) {
        live.extend(plot.live());
    }
    live.extend(health(console, &known, view.w).live());
    live
}

/// A number with its name, and where to look closer.
struct Figure {
    name: &'static str,
    label: &'static str,
    value: String,
    hint: &'static str,
    to: Option<String>,
}

impl Figure {
    fn draw(&self) -> Markup {
        html! {
            div {
                dt { @match &self.to { Some(to) => { a href=(to) { (self.label) } }, None => { (self.label) } } }
                dd { span.value data-live=(self.name) { (self.value) } span.hint { (self.hint) } }
            }
        }
    }
}

fn figures(console: &Console, known: &Known, w: &'static Words) -> Vec<Figure> {
    let counted = &known.figures;
    let plain = |name, label, value: u64, hint| Figure { name, label, value: number(value), hint, to: None };
    let rate =
        counted.duplicate_rate().map_or_else(|| "–".to_owned(), |rate| format!("{:.1} %", rate * 100.0));
    let depth = |count: Option<u64>| count.map_or_else(|| "–".to_owned(), number);
    let in_doubt = known.stats.as_ref().and_then(|stats| stats.in_doubt);
    let mut figures = vec![
        plain("requests", w.requests, counted.requests(), w.requests_hint),
        plain("effects", w.effects, counted.effects, w.effects_hint),
        plain("replays", w.replays, counted.replays, w.replays_hint),
        plain("conflicts", w.conflicts, counted.conflicts, w.conflicts_hint),
        plain("refused", w.refusals, counted.refused, w.refusals_hint),
        plain("errors", w.errors, counted.errors, w.errors_hint),
        plain("unprotected", w.unprotected, counted.unprotected, w.unprotected_hint),
        Figure { name: "rate", label: w.duplicate_rate, value: rate, hint: w.duplicate_rate_hint, to: None },
        Figure {
            name: "in-doubt",
            label: w.in_doubt,
            value: depth(in_doubt),
            hint: if in_doubt.is_some() { w.in_doubt_hint } else { w.not_counted },
            to: Some(link("/claims", &[("state", "in-doubt")])),
        },
        Figure {
            name: "fallback",
            label: w.fallback,
            value: match (counted.degraded, counted.has_fallback) {
                (true, _) => w.fallback_answers,
                (false, true) => w.fallback_stands_by,
                (false, false) => w.fallback_none,
            }
            .to_owned(),
            hint: w.fallback_hint,
            to: None,
        },
    ];
    if counted.suspected_twice > 0 {
        figures.push(plain("twice", w.suspected_twice, counted.suspected_twice, w.suspected_twice_hint));
    }
    if let Some((spool, failed)) = &console.sampler.shelves {
        for (name, label, hint, shelf, to) in [
            ("spool", w.spool, w.spool_hint, spool, "/delivery"),
            ("failed", w.failed, w.failed_hint, failed, "/delivery?place=failed"),
        ] {
            let value = depth(shelf.last().map(|survey| survey.count));
            figures.push(Figure { name, label, value, hint, to: Some(to.to_owned()) });
        }
    }
    figures
}

fn plots(console: &Console, known: &Known, w: &'static Words) -> Vec<Plot> {
    let samples = &known.samples;
    let rates = Plot::new("rates", w.per_second, samples)
        .rate(w.effects, samples, |sample: &Sample| sample.effects)
        .rate(w.replays, samples, |sample| sample.replays)
        .rate(w.conflicts, samples, |sample| sample.conflicts)
        .rate(w.errors, samples, |sample| sample.errors);
    let mut waiting =
        Plot::new("waiting", w.what_waits, samples)
            .depth(w.in_doubt, samples, |sample: &Sample| sample.in_doubt);
    if console.desk().is_some() {
        waiting = waiting
            .depth(w.spool, samples, |sample| sample.spool)
            .depth(w.failed, samples, |sample| sample.failed);
    }
    vec![rates, waiting]
}

fn health(console: &Console, known: &Known, w: &'static Words) -> Health {
    Health::of(&console.sampler.parts(), known, w)
}

fn capabilities(of: &Capabilities, w: &'static Words) -> Vec<(&'static str, Markup)> {
    let survives = match of.survives.is_empty() {
        true => w.nothing.to_owned(),
        false => {
            of.survives.iter().map(|what| w.promise(&what.to_string())).collect::<Vec<_>>().join(w.comma)
        }
    };
    let word = |word: String| html! { (w.promise(&word)) };
    vec![
        (w.backend, html! { code { (of.backend) } }),
        (w.reach, word(of.reach.to_string())),
        (w.survives, html! { (survives) }),
        (w.expiry, word(of.expiry.to_string())),
        (w.listing, word(of.listing.to_string())),
        (w.clock_of_leases, word(of.clock.to_string())),
        (w.outcomes_up_to, html! { (number(of.outcome_bytes as u64)) " " (w.bytes) }),
    ]
}

/// The last passes over the spool.
pub(super) fn runs(runs: &[Run], w: &'static Words) -> Markup {
    let rows = runs.iter().map(|run| {
        vec![
            time(run.began),
            html! { @match run.by { By::Schedule => (w.by_schedule), By::Operator => (w.by_operator) } },
            html! { (number(run.taken)) },
            html! { (number(run.arrived)) },
            html! { (number(run.to_spool)) },
            html! { (number(run.to_failed)) },
            html! { (run.ended.0.saturating_sub(run.began.0)) " ms" @if let Some(trouble) = &run.trouble { " · " (visible(trouble)) } },
        ]
    });
    let rows: Vec<_> = rows.collect();
    html! {
        section aria-labelledby="runs" {
            h2 #runs { (w.last_runs) }
            @if rows.is_empty() { p.empty { (w.no_runs) } } @else {
                (table(w.last_runs_caption, &[w.began, w.wanted_by, w.tried, w.arrived, w.to_spool, w.to_failed, w.took], &rows))
            }
        }
    }
}
