//! What was decided about one key. An operator decides from this page whether an effect happened.

use axum::extract::{Query, State};
use axum::response::Response;
use ichido_core::Timestamp;
use ichido_history::{Entry, Find, History, is_first, parse_hash};
use maud::{Markup, html};
use serde::Deserialize;

use super::Console;
use super::history::{search_form, unavailable};
use super::page::{Section, View, exact_time, facts, number, table_under_heading};
use super::translations::{Translations, fill};
use ichido_serve::visible;

/// The decisions in the table: the newest ones.
const ROWS: usize = 500;

/// What to look for.
#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    /// The hash of a key.
    hash: Option<String>,
    /// A key, a hash or the id of a request.
    #[serde(default)]
    find: String,
}

pub(super) async fn timeline(
    view: View,
    State(console): State<Console>,
    Query(wanted): Query<Wanted>,
) -> Response {
    let t = view.t;
    let text = wanted.find.clone();
    let hash = wanted.hash.as_deref().and_then(parse_hash);
    let read = move |history: &History| match &hash {
        Some(hash) => history.timeline(Find::Hash(hash)),
        None => history.search(&wanted.find),
    };
    let entries = match console.app.admin.histories.read(read).await {
        Ok(entries) => entries,
        Err(error) => return unavailable(&view, &error),
    };
    let body = html! {
        (search_form(&text, t))
        @if entries.is_empty() { p.empty { (t.nothing_found) } }
        @else {
            (facts(&summary(&entries, t)))
            h2 { (t.decisions) }
            @if entries.len() > ROWS { p.hint { (fill(t.newest_only, number(entries.len() as u64))) } }
            (rows(&entries, t))
        }
        p { a href="/history" { (t.back_to_history) } }
    };
    view.page(Section::History, t.timeline, body)
}

/// What an operator needs to know first.
fn summary(entries: &[Entry], t: &'static Translations) -> Vec<(&'static str, Markup)> {
    let last = |results: &[&str]| entries.iter().rev().find(|entry| results.contains(&&*entry.result));
    let with_detail = |entry: &Entry| {
        html! { (exact_time(Timestamp(entry.at))) @if let Some(detail) = &entry.detail { " · " (visible(detail)) } }
    };
    let mut keys: Vec<_> = entries.iter().map(|entry| &*entry.key).collect();
    keys.sort_unstable();
    keys.dedup();
    let first = entries.iter().find(|entry| is_first(&entry.result));
    let repeats = entries.iter().filter(|entry| entry.is_repeat()).count() as u64;
    let mut rows = vec![(t.key, html! { @for key in keys { span.key { (visible(key)) } " " } })];
    rows.push((
        t.first_seen,
        html! { @match first { Some(first) => (exact_time(Timestamp(first.at))), None => (t.first_not_recorded) } },
    ));
    rows.push((t.repeats, html! { (number(repeats)) }));
    rows.extend(last(&["completed"]).map(|entry| (t.completed_at, with_detail(entry))));
    rows.extend(last(&["declared-in-doubt", "in-doubt"]).map(|entry| (t.in_doubt, with_detail(entry))));
    let resolved = last(&["resolved-as-done", "resolved-as-absent", "released-by-operator", "forgotten"]);
    rows.extend(
        resolved.map(|entry| (t.resolved, html! { (t.decision(&entry.result)) " · " (with_detail(entry)) })),
    );
    rows
}

fn rows(entries: &[Entry], t: &'static Translations) -> Markup {
    let newest = &entries[entries.len().saturating_sub(ROWS)..];
    let rows = newest.iter().map(|entry| {
        let optional = |text: &Option<String>| {
            html! { @if let Some(text) = text { span.key { (visible(text)) } } }
        };
        #[allow(clippy::cast_precision_loss, reason = "rounded to a tenth of a millisecond")]
        let ms = entry.latency_us as f64 / 1_000.0;
        vec![
            exact_time(Timestamp(entry.at)),
            html! { (visible(t.decision(&entry.result))) @if entry.degraded { (t.in_parentheses(t.fallback)) } },
            html! { span.key { (visible(&entry.route)) } },
            optional(&entry.source),
            html! { span.key { (visible(&entry.instance)) } },
            html! { span.amount { (format!("{ms:.1} ms")) } },
            optional(&entry.request_id),
            html! { @if let Some(detail) = &entry.detail { span.detail { (visible(detail)) } } },
        ]
    });
    let heads = [t.time, t.decision_head, t.route, t.source, t.instance, t.latency, t.request_id, t.details];
    table_under_heading(t.decisions, &heads, &rows.collect::<Vec<_>>())
}
