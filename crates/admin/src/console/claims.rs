//! Lists claims by key prefix or state, page by page.

use std::time::Duration;

use axum::extract::{Query, State};
use axum::response::Response;
use http::StatusCode;
use ichido_ledger::{Conflict, ConflictKind, Listing, Page, StateName, Summary};
use maud::{Markup, html};
use serde::Deserialize;
use tokio::time::Instant;

use super::Console;
use super::page::{Section, View, link, table, table_under_heading, time};
use super::translations::Translations;
use crate::operator::{Operator, Refusal};
use ichido_serve::visible;

/// Claims on a page.
pub(super) const ROWS: usize = 25;
/// How long a search with few matches continues before the page offers to go on.
pub(super) const TIMEOUT: Duration = Duration::from_millis(10);

#[derive(Debug, Default, Deserialize)]
pub(super) struct Search {
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    state: String,
    cursor: Option<String>,
    /// The result of an action, shown once.
    result: Option<String>,
}

pub(super) const STATES: [StateName; 3] = [StateName::InDoubt, StateName::Running, StateName::Done];

pub(super) async fn claims(
    view: View,
    State(console): State<Console>,
    Query(search): Query<Search>,
) -> Response {
    let t = view.t;
    let state = STATES.into_iter().find(|state| state.as_str() == search.state);
    let found = find(&console, &search, state).await;
    let fallback = console.app.admin.ledger.fallback_status().await;
    let scan = console.app.admin.ledger.capabilities().listing == Listing::Scan;
    let body = html! {
        @if let Some(result) = search.result.as_deref().and_then(|result| t.action_result(result)) {
            p.notice.good role="status" { (result) }
        }
        (form(&search, state, t))
        p { a href="/claims/triage" { (t.triage_link) } }
        @match &found {
            Ok(page) => {
                @if page.degraded { p.notice.bad role="alert" { (t.local_only) } }
                @if page.claims.is_empty() { p.empty { (nothing(&search, page, t)) } }
                @else { (rows(page, t)) }
                (pager(&search, page, scan, t))
                (conflicts(&fallback.map(|status| status.conflicts).unwrap_or_default(), t))
            },
            Err(describe) => { p.notice.bad role="alert" { (visible(describe)) } },
        }
    };
    let status = if found.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    view.page_with_status(status, Section::Claims, t.claims, body)
}

/// A page of claims. If a filter skips many claims, several pages of the ledger make one.
async fn find(console: &Console, search: &Search, state: Option<StateName>) -> Result<Page, String> {
    let started = Instant::now();
    let operator = console.app.operator();
    let mut query = ichido_ledger::Query {
        state,
        prefix: Some(search.prefix.clone()).filter(|prefix| !prefix.is_empty()),
        limit: ROWS,
        cursor: search.cursor.clone(),
    };
    let mut found = Page::default();
    loop {
        query.limit = ROWS - found.claims.len();
        let page = operator.list(&query).await.map_err(describe)?;
        found.claims.extend(page.claims);
        found.cursor = page.cursor;
        found.degraded |= page.degraded;
        if found.cursor.is_none() || found.claims.len() >= ROWS || started.elapsed() > TIMEOUT {
            return Ok(found);
        }
        query.cursor = found.cursor.clone();
    }
}

/// The ledger's error in one line.
pub(super) fn describe(refusal: Refusal) -> String {
    match refusal {
        Refusal::Ledger(error) => ichido_core::error_chain(&error),
        Refusal::AuditUnavailable(detail) | Refusal::AuditIncomplete(detail) => detail,
        Refusal::Failed(failure) => failure.to_string(),
        Refusal::CannotAsk(why) => why,
        other @ (Refusal::NoSuchClaim
        | Refusal::Changed
        | Refusal::Ambiguous { .. }
        | Refusal::NoSuchEvent
        | Refusal::Running
        | Refusal::NotCompleted(_)
        | Refusal::WrongState(_)) => other.code().to_owned(),
    }
}

fn form(search: &Search, state: Option<StateName>, t: &Translations) -> Markup {
    html! {
        form.search method="get" action="/claims" role="search" {
            div {
                label for="prefix" { (t.key_prefix) }
                input #prefix type="search" name="prefix" value=(search.prefix) maxlength="1024" autocomplete="off" spellcheck="false";
            }
            div {
                label for="state" { (t.state) }
                select #state name="state" {
                    option value="" { (t.any_state) }
                    @for known in STATES {
                        option value=(known.as_str()) selected[state == Some(known)] { (t.state_of(known)) }
                    }
                }
            }
            button type="submit" { (t.search) }
        }
    }
}

/// Why the list is empty, and what to do.
fn nothing(search: &Search, page: &Page, t: &Translations) -> &'static str {
    let is_whole_list = search.prefix.is_empty() && search.cursor.is_none();
    match (&page.cursor, search.state.as_str()) {
        (Some(_), _) => t.none_found_yet,
        (None, "") if is_whole_list => t.no_claims,
        (None, "in-doubt") if is_whole_list => t.no_doubts,
        (None, _) => t.no_match,
    }
}

fn rows(page: &Page, t: &Translations) -> Markup {
    let rows = page.claims.iter().map(|claim| {
        let key = html! { a.key href=(href("/claims/one", claim, &[])) { (visible(&claim.key)) } };
        vec![
            key,
            html! { (state_mark(claim.state, t)) @if claim.local { " " (t.not_handed_over) } },
            html! { span.key { (visible(&claim.route)) } },
            html! { (claim.attempt) },
            time(claim.claimed_at),
            html! { @if let Some(at) = claim.doubt_since.or(claim.completed_at).or(claim.lease_until) { (time(at)) } },
        ]
    });
    let rows: Vec<_> = rows.collect();
    table_under_heading(
        t.claims_caption,
        &[t.key, t.state, t.route, t.attempt, t.claimed_at, t.since_or_until],
        &rows,
    )
}

/// Keys that another instance used as well during an outage.
fn conflicts(conflicts: &[Conflict], t: &Translations) -> Markup {
    let rows: Vec<_> = conflicts
        .iter()
        .map(|conflict| {
            vec![
                html! { span.key { (visible(&conflict.key)) } },
                html! { span.key { (visible(&conflict.route)) } },
                html! { @if let ConflictKind::Claim { local_state } = conflict.kind { (state_mark(local_state, t)) } },
                html! { (conflict.count) },
                time(conflict.found_at),
            ]
        })
        .collect();
    html! {
        @if !rows.is_empty() {
            (table(t.keys_in_conflict, &[t.key, t.route, t.state, t.conflict_count, t.found_at], &rows))
        }
    }
}

pub(super) fn state_mark(state: StateName, t: &Translations) -> Markup {
    html! { span class={ "mark " (state.as_str()) } { (t.state_of(state)) } }
}

/// The link to a page about one claim.
pub(super) fn href(path: &str, claim: &Summary, more: &[(&str, &str)]) -> String {
    let selector =
        [("key", claim.key.as_str()), ("tenant", claim.tenant.as_str()), ("route", claim.route.as_str())];
    link(path, &[&selector, more].concat())
}

fn pager(search: &Search, page: &Page, scan: bool, t: &Translations) -> Markup {
    let mut query = vec![("prefix", search.prefix.as_str()), ("state", search.state.as_str())];
    query.retain(|(_, value)| !value.is_empty());
    let first = link("/claims", &query);
    let next = page
        .cursor
        .as_deref()
        .map(|cursor| link("/claims", &[query.as_slice(), &[("cursor", cursor)]].concat()));
    // Nothing was found yet. The script may continue by itself if the search does not need a scan.
    let continues = page.claims.is_empty() && !scan;
    html! {
        @if next.is_some() || search.cursor.is_some() {
            nav.pager aria-label=(t.pages) {
                @if search.cursor.is_some() { a href=(first) { (t.first_page) } }
                @if let Some(next) = next {
                    a rel="next" href=(next) data-go-on[continues] { (if page.claims.len() < ROWS { t.continue_search } else { t.next_page }) }
                }
            }
        }
    }
}
