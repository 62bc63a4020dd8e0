//! Lists the events that are marked, shows one of them, and forgets it after a confirmation.

use axum::extract::{Query, State};
use axum::response::Response;
use http::StatusCode;
use ichido_core::Timestamp;
use ichido_history::Repeats;
use ichido_ledger::{Listing, MarkPage, MarkQuery};
use maud::{Markup, html};
use serde::Deserialize;
use tokio::time::Instant;

use super::Console;
use super::claim::metadata;
use super::claims::{ROWS, TIMEOUT, describe};
use super::form::OperatorForm;
use super::page::{Section, View, facts, link, number, table_under_heading, time};
use super::translations::Translations;
use crate::browser::see_other;
use crate::operator::{EventView, Operator, REASON_CHARS_MAX, Refusal, instance, is_reason};
use ichido_serve::visible;

#[derive(Debug, Default, Deserialize)]
pub(super) struct Search {
    #[serde(default)]
    prefix: String,
    cursor: Option<String>,
    /// The result of an action, shown once.
    result: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct EventQuery {
    key: String,
}

pub(super) async fn events(
    view: View,
    State(console): State<Console>,
    Query(search): Query<Search>,
) -> Response {
    let t = view.t;
    let found = find(&console, &search).await;
    let scan = console.app.admin.ledger.capabilities().listing == Listing::Scan;
    let body = html! {
        @if let Some(result) = search.result.as_deref().and_then(|result| t.action_result(result)) {
            p.notice.good role="status" { (result) }
        }
        form.search method="get" action="/events" role="search" {
            div {
                label for="prefix" { (t.key_prefix) }
                input #prefix type="search" name="prefix" value=(search.prefix) maxlength="1024" autocomplete="off" spellcheck="false";
            }
            button type="submit" { (t.search) }
        }
        @match &found {
            Ok(page) => {
                @if page.degraded { p.notice.bad role="alert" { (t.events_local_only) } }
                @if page.marks.is_empty() { p.empty { (nothing(&search, page, t)) } }
                @else { (rows(page, t)) }
                (pager(&search, page, scan, t))
            },
            Err(refusal) => { p.notice.bad role="alert" { (visible(refusal)) } },
        }
    };
    let status = if found.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    view.page_with_status(status, Section::Events, t.events, body)
}

/// A page of events. If a prefix skips many events, several pages of the ledger make one.
async fn find(console: &Console, search: &Search) -> Result<MarkPage, String> {
    let started = Instant::now();
    let operator = console.app.operator();
    let prefix = Some(search.prefix.clone()).filter(|prefix| !prefix.is_empty());
    let mut found = MarkPage { cursor: search.cursor.clone(), ..MarkPage::default() };
    loop {
        let limit = ROWS - found.marks.len();
        let query = MarkQuery { prefix: prefix.clone(), limit, cursor: found.cursor.take() };
        let page = operator.list_events(&query).await.map_err(describe)?;
        found.marks.extend(page.marks);
        found.cursor = page.cursor;
        found.degraded |= page.degraded;
        if found.cursor.is_none() || found.marks.len() >= ROWS || started.elapsed() > TIMEOUT {
            return Ok(found);
        }
    }
}

/// Why the list is empty, and what to do.
fn nothing(search: &Search, page: &MarkPage, t: &Translations) -> &'static str {
    match page.cursor {
        Some(_) => t.none_found_yet,
        None if search.prefix.is_empty() && search.cursor.is_none() => t.no_events,
        None => t.no_match,
    }
}

fn rows(page: &MarkPage, t: &Translations) -> Markup {
    let rows = page.marks.iter().map(|event| {
        vec![
            html! { a.key href=(link("/events/one", &[("key", &event.key)])) { (visible(&event.key)) } @if event.local { " " (t.not_handed_over) } },
            first_seen(event.first_seen),
            html! { @if let Some(instance) = instance(event) { span.key { (visible(instance)) } } },
            html! { @if let Some(at) = event.expires_at { (time(at)) } },
        ]
    });
    let rows: Vec<_> = rows.collect();
    table_under_heading(t.events_caption, &[t.key, t.first_seen, t.instance, t.expires_at], &rows)
}

/// Another program may have written no time.
fn first_seen(at: Timestamp) -> Markup {
    html! { @if at > Timestamp(0) { (time(at)) } }
}

fn pager(search: &Search, page: &MarkPage, scan: bool, t: &Translations) -> Markup {
    let mut query = vec![("prefix", search.prefix.as_str())];
    query.retain(|(_, value)| !value.is_empty());
    let first = link("/events", &query);
    let next = page.cursor.as_deref();
    let next = next.map(|cursor| link("/events", &[query.as_slice(), &[("cursor", cursor)]].concat()));
    // Nothing was found yet. The script may continue by itself if the search does not need a scan.
    let continues = page.marks.is_empty() && !scan;
    html! {
        @if next.is_some() || search.cursor.is_some() {
            nav.pager aria-label=(t.pages) {
                @if search.cursor.is_some() { a href=(first) { (t.first_page) } }
                @if let Some(next) = next {
                    a rel="next" href=(next) data-go-on[continues] { (if page.marks.len() < ROWS { t.continue_search } else { t.next_page }) }
                }
            }
        }
    }
}

/// Shows one event.
pub(super) async fn event(
    view: View,
    State(console): State<Console>,
    Query(query): Query<EventQuery>,
) -> Response {
    let t = view.t;
    let shown = match console.app.operator().show_event(&query.key).await {
        Ok(shown) => shown,
        Err(refusal) => return refused(&view, refusal),
    };
    let event = &shown.event;
    let body = html! {
        (facts(&about(&shown, t)))
        (view.timeline_link(&event.index))
        @if view.may_act() {
            section aria-labelledby="again" {
                h2 #again { (t.run_again_heading) }
                ul.choices {
                    li {
                        a.button href=(link("/events/forget", &[("key", &event.key)])) { (t.forget_event) "…" }
                        span.hint { (t.forget_event_means) }
                    }
                }
            }
        }
        (metadata(&event.metadata, t))
        p { a href="/events" { (t.back_to_events) } }
    };
    view.page(Section::Events, t.event_details, body)
}

/// Asks for confirmation.
pub(super) async fn confirm(
    view: View,
    State(console): State<Console>,
    Query(query): Query<EventQuery>,
) -> Response {
    let t = view.t;
    if !view.may_act() {
        return view.error_page(StatusCode::FORBIDDEN, Section::Events, t.read_only);
    }
    let shown = match console.app.operator().show_event(&query.key).await {
        Ok(shown) => shown,
        Err(refusal) => return refused(&view, refusal),
    };
    let event = &shown.event;
    let body = html! {
        (facts(&about(&shown, t)))
        p.notice.warn { (t.forget_event_means) }
        form.confirm method="post" action="/events/forget" {
            (view.csrf_field())
            input type="hidden" name="key" value=(event.key);
            input type="hidden" name="first_seen" value=(event.first_seen.0);
            label for="reason" { (t.forget_event_reason) }
            input #reason type="text" name="reason" maxlength=(REASON_CHARS_MAX) autocomplete="off";
            div.choice {
                button.strong type="submit" { (t.forget_event) }
                a href=(link("/events/one", &[("key", &event.key)])) { (t.cancel) }
            }
        }
    };
    view.page(Section::Events, t.are_you_sure, body)
}

/// Carries out the confirmed action.
pub(super) async fn forget(view: View, State(console): State<Console>, form: OperatorForm) -> Response {
    let t = view.t;
    let text = |name: &str| form.text(name).unwrap_or_default().to_owned();
    let reason = Some(text("reason")).filter(|reason| !reason.trim().is_empty());
    if reason.as_deref().is_some_and(|reason| !is_reason(reason)) {
        return view.error_page(StatusCode::BAD_REQUEST, Section::Events, t.invalid_request);
    }
    // The operator confirmed this mark, not one that was made since.
    let now = console.app.operator().show_event(&text("key")).await;
    if now.is_ok_and(|shown| shown.event.first_seen.0.to_string() != text("first_seen")) {
        return view.error_page(StatusCode::CONFLICT, Section::Events, t.event_changed);
    }
    let result = console.app.forget_event(view.actor(), text("key"), reason).await;
    console.sampler.refresh_soon();
    match result {
        Ok(_) => see_other(&link("/events", &[("result", "forget-event")])),
        Err(refusal) => refused(&view, refusal),
    }
}

fn about(shown: &EventView, t: &'static Translations) -> Vec<(&'static str, Markup)> {
    let EventView { event, repeats } = shown;
    let mut rows = vec![(
        t.key,
        html! { span.key { (visible(&event.key)) } @if event.local { " " (t.not_handed_over) } },
    )];
    rows.push((t.first_seen, first_seen(event.first_seen)));
    rows.extend(instance(event).map(|instance| (t.instance, html! { span.key { (visible(instance)) } })));
    rows.push((
        t.repeats,
        html! {
            @match repeats {
                Some(Repeats { count, is_complete: true }) => (number(*count)),
                Some(Repeats { count, is_complete: false }) => { (t.at_least) " " (number(*count)) },
                None => (t.unknown),
            }
        },
    ));
    rows.extend(event.expires_at.map(|at| (t.expires_at, time(at))));
    rows.push((t.index, html! { code.key { (event.index) } }));
    rows
}

fn refused(view: &View, refusal: Refusal) -> Response {
    match refusal {
        Refusal::NoSuchEvent => view.error_page(StatusCode::NOT_FOUND, Section::Events, view.t.no_such_event),
        other @ (Refusal::NoSuchClaim
        | Refusal::Ambiguous { .. }
        | Refusal::Running
        | Refusal::NotCompleted(_)
        | Refusal::WrongState(_)
        | Refusal::Changed
        | Refusal::CannotAsk(_)
        | Refusal::Ledger(_)
        | Refusal::AuditUnavailable(_)
        | Refusal::AuditIncomplete(_)
        | Refusal::Failed(_)) => {
            view.error_page(StatusCode::SERVICE_UNAVAILABLE, Section::Events, &describe(other))
        }
    }
}
