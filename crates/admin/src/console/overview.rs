//! The overview: effects, replays, claims in doubt, undelivered batches, and health.

use axum::extract::State;
use axum::response::Response;
use ichido_ledger::Capabilities;
use maud::{Markup, html};

use super::attention::Attention;
use super::health::Health;
use super::page::{Section, View, facts, link, number, table, time};
use super::plot::Plot;
use super::sampler::{Sample, Snapshot};
use super::translations::Translations;
use super::{Console, anomalies};
use crate::delivery_control::{Pass, Trigger};
use ichido_serve::visible;

pub(super) async fn overview(view: View, State(console): State<Console>) -> Response {
    let snapshot = console.sampler.snapshot();
    let t = view.t;
    let tiles = tiles(&console, &snapshot, t);
    let health = health(&console, &snapshot, t);
    let body = html! {
        div #live .live data-source="/live" {
            p.status { span.dot aria-hidden="true" {} span role="status" data-live-state data-on=(t.live) data-off=(t.not_live) data-paused=(t.paused) {} }
            button.quiet type="button" hidden data-live-pause data-pause=(t.pause) data-go-on=(t.resume) { (t.pause) }
        }
        (Attention::of(&console, &snapshot, &health, t).draw())
        (health.draw())
        section aria-labelledby="figures" {
            h2 #figures { (t.since_start) }
            dl.figures { @for tile in &tiles { (tile.draw()) } }
        }
        section.plots aria-label=(t.over_time) { @for plot in plots(&console, &snapshot, t) { (plot.draw(t)) } }
        (anomalies::newest(&view, &console))
        @if let Some(delivery_control) = console.delivery_control() { (passes(&delivery_control.passes(), t)) }
    };
    view.page(Section::Overview, t.overview, body)
}

/// What live pages replace.
pub(super) fn live(view: &View, console: &Console) -> Vec<(String, String)> {
    let snapshot = console.sampler.snapshot();
    let tiles = tiles(console, &snapshot, view.t).into_iter();
    let mut live: Vec<_> = tiles.map(|tile| (tile.name.to_owned(), tile.value)).collect();
    for plot in plots(console, &snapshot, view.t) {
        live.extend(plot.live());
    }
    let health = health(console, &snapshot, view.t);
    live.extend(Attention::of(console, &snapshot, &health, view.t).live());
    live.extend(health.live());
    live
}

/// What does not change while the process runs: the ledger and what it guarantees.
pub(super) async fn system(view: View, State(console): State<Console>) -> Response {
    let t = view.t;
    let process = [
        (t.version, html! { code { (env!("CARGO_PKG_VERSION")) } }),
        (t.process, html! { code { (std::process::id()) } }),
    ];
    let body = html! {
        section aria-labelledby="process" { h2 #process { (t.process) } (facts(&process)) }
        section aria-labelledby="ledger" {
            h2 #ledger { (t.ledger) }
            (facts(&capabilities(&console.app.admin.ledger.capabilities(), t)))
        }
    };
    view.page(Section::System, t.system, body)
}

/// A number with its label, and a link to its details.
struct Tile {
    name: &'static str,
    label: &'static str,
    value: String,
    hint: &'static str,
    to: Option<String>,
}

impl Tile {
    fn draw(&self) -> Markup {
        html! {
            div {
                dt { @match &self.to { Some(to) => { a href=(to) { (self.label) } }, None => { (self.label) } } }
                dd { span.value data-live=(self.name) { (self.value) } span.hint { (self.hint) } }
            }
        }
    }
}

fn tiles(console: &Console, snapshot: &Snapshot, t: &'static Translations) -> Vec<Tile> {
    let totals = &snapshot.totals;
    let plain = |name, label, value: u64, hint| Tile { name, label, value: number(value), hint, to: None };
    let rate =
        totals.duplicate_rate().map_or_else(|| "–".to_owned(), |rate| format!("{:.1} %", rate * 100.0));
    let depth = |count: Option<u64>| count.map_or_else(|| "–".to_owned(), number);
    let in_doubt = snapshot.stats.as_ref().and_then(|stats| stats.in_doubt);
    let mut tiles = vec![
        plain("requests", t.requests, totals.requests(), t.requests_hint),
        plain("effects", t.effects, totals.effects, t.effects_hint),
        plain("replays", t.replays, totals.replays, t.replays_hint),
        plain("conflicts", t.conflicts, totals.conflicts, t.conflicts_hint),
        plain("refused", t.refused_requests, totals.refused, t.refused_requests_hint),
        plain("errors", t.errors, totals.errors, t.errors_hint),
        plain("unprotected", t.unprotected, totals.unprotected, t.unprotected_hint),
        Tile { name: "rate", label: t.duplicate_rate, value: rate, hint: t.duplicate_rate_hint, to: None },
        Tile {
            name: "in-doubt",
            label: t.in_doubt,
            value: depth(in_doubt),
            hint: if in_doubt.is_some() { t.in_doubt_hint } else { t.not_counted },
            to: Some(link("/claims", &[("state", "in-doubt")])),
        },
        Tile {
            name: "fallback",
            label: t.fallback,
            value: match (totals.degraded, totals.has_fallback) {
                (true, _) => t.fallback_active,
                (false, true) => t.fallback_standby,
                (false, false) => t.fallback_none,
            }
            .to_owned(),
            hint: t.fallback_hint,
            to: None,
        },
    ];
    if totals.suspected_twice > 0 {
        tiles.push(plain("twice", t.suspected_twice, totals.suspected_twice, t.suspected_twice_hint));
    }
    if let Some((spool, failed)) = &console.sampler.directories {
        for (name, label, hint, directory, to) in [
            ("spool", t.spool, t.spool_hint, spool, "/delivery"),
            ("failed", t.failed, t.failed_hint, failed, "/delivery?dir=failed"),
        ] {
            let value = depth(directory.cached().map(|listing| listing.count));
            tiles.push(Tile { name, label, value, hint, to: Some(to.to_owned()) });
        }
    }
    tiles
}

fn plots(console: &Console, snapshot: &Snapshot, t: &'static Translations) -> Vec<Plot> {
    let samples = &snapshot.samples;
    let rates = Plot::new("rates", t.per_second, samples)
        .rate(t.effects, samples, |sample: &Sample| sample.effects)
        .rate(t.replays, samples, |sample| sample.replays)
        .rate(t.conflicts, samples, |sample| sample.conflicts)
        .rate(t.errors, samples, |sample| sample.errors);
    let mut waiting =
        Plot::new("waiting", t.waiting, samples)
            .depth(t.in_doubt, samples, |sample: &Sample| sample.in_doubt);
    if console.delivery_control().is_some() {
        waiting = waiting
            .depth(t.spool, samples, |sample| sample.spool)
            .depth(t.failed, samples, |sample| sample.failed);
    }
    vec![rates, waiting]
}

fn health(console: &Console, snapshot: &Snapshot, t: &'static Translations) -> Health {
    Health::of(&console.sampler.checks(), snapshot, t)
}

fn capabilities(of: &Capabilities, t: &'static Translations) -> Vec<(&'static str, Markup)> {
    let survives = match of.survives.is_empty() {
        true => t.nothing.to_owned(),
        false => {
            of.survives.iter().map(|what| t.capability(&what.to_string())).collect::<Vec<_>>().join(t.comma)
        }
    };
    let text = |label: String| html! { (t.capability(&label)) };
    vec![
        (t.backend, html! { code { (of.backend) } }),
        (t.reach, text(of.reach.to_string())),
        (t.survives, html! { (survives) }),
        (t.expiry, text(of.expiry.to_string())),
        (t.listing, text(of.listing.to_string())),
        (t.lease_clock, text(of.clock.to_string())),
        (t.largest_outcome, html! { (number(of.outcome_bytes as u64)) " " (t.bytes) }),
    ]
}

/// The last passes over the spool.
pub(super) fn passes(passes: &[Pass], t: &'static Translations) -> Markup {
    let rows = passes.iter().map(|pass| {
        vec![
            time(pass.began),
            html! { @match pass.trigger { Trigger::Schedule => (t.by_schedule), Trigger::Operator => (t.by_operator) } },
            html! { (number(pass.tried)) },
            html! { (number(pass.arrived)) },
            html! { (number(pass.to_spool)) },
            html! { (number(pass.to_failed)) },
            html! { (pass.ended.0.saturating_sub(pass.began.0)) " ms" @if let Some(problem) = &pass.problem { " · " (visible(problem)) } },
        ]
    });
    let rows: Vec<_> = rows.collect();
    html! {
        section aria-labelledby="runs" {
            h2 #runs { (t.recent_passes) }
            @if rows.is_empty() { p.empty { (t.no_passes) } } @else {
                (table(t.recent_passes_caption, &[t.started, t.trigger, t.attempted, t.delivered, t.to_spool, t.to_failed, t.duration], &rows))
            }
        }
    }
}
