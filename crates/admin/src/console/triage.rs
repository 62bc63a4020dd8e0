//! Claims in doubt, oldest first, with counts by route and reason. Those on the page are resolved together: choose, then confirm.
//!
//! The form carries each claim with the version that the page showed, so exactly these are resolved.

use std::time::Duration;

use axum::extract::{Query, State};
use axum::response::Response;
use http::StatusCode;
use ichido_ledger::Summary;
use maud::{Markup, html};
use serde::Deserialize;

use super::Console;
use super::claims::{describe, href};
use super::form::OperatorForm;
use super::page::{Section, View, link, number, table, time};
use super::translations::{Translations, fill};
use crate::operator::{
    Group, Operator, REASON_CHARS_MAX, ResolveAs, SCANNED_MAX, SeenClaim, SeenResult, Triage, TriageFilter,
};
use ichido_serve::visible;

/// Claims on a page, which are resolved together.
const ROWS: usize = 100;

#[derive(Debug, Default, Deserialize)]
pub(super) struct Search {
    #[serde(default)]
    route: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    tenant: String,
    /// In minutes.
    #[serde(default)]
    older_than: String,
}

impl Search {
    fn filter(&self) -> TriageFilter {
        let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let older_than = self.older_than.trim().parse().ok();
        TriageFilter {
            route: text(&self.route),
            reason: text(&self.reason),
            tenant: text(&self.tenant),
            older_than: older_than.map(|minutes: u32| Duration::from_secs(60 * u64::from(minutes))),
        }
    }
}

pub(super) async fn triage(
    view: View,
    State(console): State<Console>,
    Query(search): Query<Search>,
) -> Response {
    let t = view.t;
    let filter = search.filter();
    let found = console.app.operator().triage(&filter, ROWS).await.map_err(describe);
    let body = html! {
        p { (t.triage_intro) }
        (form(&search, t))
        @match &found {
            Ok(triage) => {
                @if triage.degraded { p.notice.bad role="alert" { (t.local_only) } }
                @if triage.matched == 0 { p.empty { (if filter == TriageFilter::default() { t.no_doubts } else { t.no_match }) } }
                @else {
                    (groups(&triage.groups, t))
                    (claims(&triage.claims, t))
                    (shown(triage, t))
                    @if view.may_act() { (actions(&view, &triage.claims, &filter)) }
                }
            },
            Err(why) => { p.notice.bad role="alert" { (visible(why)) } },
        }
        p { a href="/claims" { (t.back_to_claims) } }
    };
    let status = if found.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    view.page_with_status(status, Section::Claims, t.triage, body)
}

/// Asks for confirmation, and resolves once that is given.
pub(super) async fn resolve(view: View, State(console): State<Console>, form: OperatorForm) -> Response {
    let t = view.t;
    let text = |name: &str| form.text(name).unwrap_or_default();
    let claims: Result<Vec<SeenClaim>, _> = serde_json::from_str(text("claims"));
    let resolve_as = match text("as") {
        "done" => Some(ResolveAs::Done(None)),
        "absent" => Some(ResolveAs::Absent),
        _ => None,
    };
    let (Ok(claims), Some(resolve_as)) = (claims, resolve_as) else {
        return view.error_page(StatusCode::BAD_REQUEST, Section::Claims, t.invalid_request);
    };
    if claims.is_empty() || claims.len() > ROWS {
        return view.error_page(StatusCode::BAD_REQUEST, Section::Claims, t.invalid_request);
    }
    if text("confirmed") != "yes" {
        return confirm(&view, &claims, &resolve_as, &form);
    }
    let reason: String = text("reason").chars().take(REASON_CHARS_MAX).collect();
    let reason = Some(reason).filter(|reason| !reason.is_empty());
    let resolved = console.app.resolve_all(view.actor(), claims, resolve_as, reason).await;
    console.sampler.refresh_soon();
    match resolved {
        Ok(results) => view.page(Section::Claims, t.triage, outcome(&results, t)),
        Err(refusal) => view.error_page(StatusCode::SERVICE_UNAVAILABLE, Section::Claims, &describe(refusal)),
    }
}

fn confirm(view: &View, claims: &[SeenClaim], resolve_as: &ResolveAs, form: &OperatorForm) -> Response {
    let t = view.t;
    let (code, label, means) = match resolve_as {
        ResolveAs::Done(_) => ("done", t.action_done, t.action_done_means),
        ResolveAs::Absent => ("absent", t.action_absent, t.action_absent_means),
    };
    let text = |name: &str| form.text(name).unwrap_or_default();
    let fields = [("claims", text("claims")), ("as", code), ("reason", text("reason")), ("confirmed", "yes")];
    let rows: Vec<_> =
        claims.iter().map(|claim| vec![key(&claim.key), key(&claim.tenant), key(&claim.route)]).collect();
    let body = html! {
        p { (fill(t.claims_will_be_resolved, number(claims.len() as u64))) }
        (table(t.doubts_caption, &[t.key, t.tenant, t.route], &rows))
        p.notice.warn { (means) }
        (view.button("/claims/triage", &fields, label, "strong"))
        p { a href="/claims/triage" { (t.cancel) } }
    };
    view.page(Section::Claims, t.are_you_sure, body)
}

fn outcome(results: &[SeenResult], t: &Translations) -> Markup {
    let left: Vec<_> = results.iter().filter(|result| !result.resolved).collect();
    let rows: Vec<_> = left
        .iter()
        .map(|result| vec![key(&result.key), key(&result.route), html! { (result.result) }])
        .collect();
    html! {
        p.notice.good role="status" { (fill(t.claims_resolved, number((results.len() - left.len()) as u64))) }
        @if !rows.is_empty() {
            p.notice.warn role="alert" { (t.claims_not_resolved) }
            (table(t.claims_not_resolved, &[t.key, t.route, t.doubt_reason], &rows))
        }
        p { a href="/claims/triage" { (t.triage) } }
    }
}

fn form(search: &Search, t: &Translations) -> Markup {
    let fields = [
        ("route", t.route, &search.route),
        ("reason", t.doubt_reason, &search.reason),
        ("tenant", t.tenant, &search.tenant),
    ];
    html! {
        form.search method="get" action="/claims/triage" role="search" {
            @for (name, label, value) in fields {
                div {
                    label for=(name) { (label) }
                    input id=(name) type="search" name=(name) value=(value) maxlength="1024" autocomplete="off" spellcheck="false";
                }
            }
            div {
                label for="older_than" { (t.older_than_minutes) }
                input #older_than type="number" name="older_than" value=(search.older_than) min="0" max="1000000";
            }
            button type="submit" { (t.search) }
        }
    }
}

fn groups(groups: &[Group], t: &Translations) -> Markup {
    let row = |group: &Group| {
        let only = link("/claims/triage", &[("route", &group.route), ("reason", &group.reason)]);
        vec![
            html! { (number(group.count)) },
            html! { a.key href=(only) { (visible(&group.route)) } },
            key(&group.reason),
            time(group.oldest),
        ]
    };
    let rows: Vec<_> = groups.iter().map(row).collect();
    table(t.doubt_groups, &[t.number_of_claims, t.route, t.doubt_reason, t.oldest], &rows)
}

fn claims(claims: &[Summary], t: &Translations) -> Markup {
    let row = |claim: &Summary| {
        vec![
            html! { @if let Some(since) = claim.doubt_since { (time(since)) } },
            html! { a.key href=(href("/claims/one", claim, &[])) { (visible(&claim.key)) } },
            key(&claim.tenant),
            key(&claim.route),
            key(claim.doubt_reason.as_deref().unwrap_or_default()),
        ]
    };
    let rows: Vec<_> = claims.iter().map(row).collect();
    table(t.doubts_caption, &[t.doubt_since, t.key, t.tenant, t.route, t.doubt_reason], &rows)
}

fn shown(triage: &Triage, t: &Translations) -> Markup {
    html! {
        p.hint {
            (number(triage.claims.len() as u64)) " / " (number(triage.matched))
            @if !triage.complete { " · " (fill(t.not_all_read, number(SCANNED_MAX))) }
        }
    }
}

fn actions(view: &View, claims: &[Summary], filter: &TriageFilter) -> Markup {
    let t = view.t;
    let seen: Vec<SeenClaim> = claims.iter().map(SeenClaim::from).collect();
    let seen = serde_json::to_string(&seen).unwrap_or_default();
    let reason = format!("resolved together with others ({}): {}", claims.len(), filter.describe());
    let fields = |code| [("claims", seen.as_str()), ("as", code), ("reason", reason.as_str())];
    html! {
        section aria-labelledby="resolve" {
            h2 #resolve { (t.resolve_all_heading) }
            p { (t.resolve_all_hint) }
            ul.choices {
                li { (view.button("/claims/triage", &fields("done"), &format!("{}…", t.action_done), "")) span.hint { (t.action_done_means) } }
                li { (view.button("/claims/triage", &fields("absent"), &format!("{}…", t.action_absent), "")) span.hint { (t.action_absent_means) } }
            }
        }
    }
}

fn key(text: &str) -> Markup {
    html! { span.key { (visible(text)) } }
}
