//! Shows one claim. An operator resolves it in two steps: choose, then confirm.

use axum::extract::{Query, State};
use axum::response::Response;
use http::StatusCode;
use ichido_core::{Key, Metadata, Scope};
use ichido_ledger::{StateName, Summary};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::Console;
use super::claims::{describe, href, state_mark};
use super::form::OperatorForm;
use super::page::{Section, View, facts, link, number, time};
use super::translations::{Translations, fill};
use crate::browser::see_other;
use crate::operator::{
    ClaimSelector, ClaimView, Operator, REASON_CHARS_MAX, Refusal, ResolveAs, ResolvedClaim, is_reason,
};
use crate::state::Bodies;
use ichido_serve::{visible, visible_lines};

#[derive(Debug, Deserialize)]
pub(super) struct ClaimQuery {
    key: String,
    #[serde(default)]
    tenant: String,
    #[serde(default)]
    route: String,
    /// The action to confirm.
    #[serde(rename = "as")]
    action: Option<String>,
    result: Option<String>,
}

impl ClaimQuery {
    fn selector(&self) -> ClaimSelector {
        ClaimSelector {
            key: self.key.clone(),
            tenant: Some(self.tenant.clone()),
            route: Some(self.route.clone()),
        }
    }
}

/// What an operator can do with a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Done,
    Absent,
    Release,
    Forget,
}

impl Action {
    const ALL: [Action; 4] = [Action::Done, Action::Absent, Action::Release, Action::Forget];

    fn code(self) -> &'static str {
        match self {
            Action::Done => "done",
            Action::Absent => "absent",
            Action::Release => "release",
            Action::Forget => "forget",
        }
    }

    fn parse(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.code() == code)
    }

    /// Whether the action makes sense for a claim in this state.
    fn applies_to(self, state: StateName) -> bool {
        match state {
            StateName::InDoubt => matches!(self, Action::Done | Action::Absent),
            StateName::Running => self == Action::Release,
            StateName::Done => self == Action::Forget,
        }
    }

    /// Its name and its consequences.
    fn texts(self, t: &Translations) -> (&'static str, &'static str) {
        match self {
            Action::Done => (t.action_done, t.action_done_means),
            Action::Absent => (t.action_absent, t.action_absent_means),
            Action::Release => (t.action_release, t.action_release_means),
            Action::Forget => (t.action_forget, t.action_forget_means),
        }
    }
}

pub(super) async fn claim(
    view: View,
    State(console): State<Console>,
    Query(query): Query<ClaimQuery>,
) -> Response {
    let t = view.t;
    let (claim, claim_view) = match find(&view, &console, &query).await {
        Ok(found) => found,
        Err(response) => return response,
    };
    let body = html! {
        @if let Some(result) = query.result.as_deref().and_then(|result| t.action_result(result)) { p.notice.good role="status" { (result) } }
        (facts(&about(&claim, &claim_view, t)))
        (view.timeline_link(&claim.index))
        @if view.may_act() { (question(&view, &console, &claim)) (actions(&claim, t)) }
        (metadata(&claim.metadata, t))
        (outcome(&claim_view, console.bodies(), t))
        p { a href="/claims" { (t.back_to_claims) } }
    };
    view.page(Section::Claims, t.claim, body)
}

/// Asks for confirmation.
pub(super) async fn confirm(
    view: View,
    State(console): State<Console>,
    Query(query): Query<ClaimQuery>,
) -> Response {
    let t = view.t;
    let (claim, _) = match find(&view, &console, &query).await {
        Ok(found) => found,
        Err(response) => return response,
    };
    let action = query
        .action
        .as_deref()
        .and_then(Action::parse)
        .filter(|action| action.applies_to(claim.state) && view.may_act());
    let Some(action) = action else {
        return view.error_page(StatusCode::CONFLICT, Section::Claims, t.state_changed);
    };
    let (label, means) = action.texts(t);
    let fields = [("key", &claim.key), ("tenant", &claim.tenant), ("route", &claim.route)];
    let body = html! {
        (facts(&[(t.key, html! { span.key { (visible(&claim.key)) } }), (t.route, html! { span.key { (visible(&claim.route)) } }),
            (t.state, state_mark(claim.state, t)), (t.attempt, html! { (claim.attempt) })]))
        p.notice.warn { (means) }
        form.confirm method="post" action="/claims/resolve" {
            (view.csrf_field())
            @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
            input type="hidden" name="as" value=(action.code());
            input type="hidden" name="attempt" value=(claim.attempt);
            input type="hidden" name="version" value=(claim.version);
            @if action == Action::Forget {
                @if let Some(at) = claim.completed_at { input type="hidden" name="completed_at" value=(at.0); }
                label for="reason" { (t.forget_reason) }
                input #reason type="text" name="reason" required maxlength=(REASON_CHARS_MAX) autocomplete="off";
            }
            @if action == Action::Done {
                label for="outcome" { (t.duplicate_response) }
                textarea #outcome name="outcome" rows="4" spellcheck="false" aria-describedby="outcome-hint" {}
                p #outcome-hint .hint { (t.duplicate_response_hint) }
            }
            div.choice {
                button.strong type="submit" { (label) }
                a href=(href("/claims/one", &claim, &[])) { (t.cancel) }
            }
        }
    };
    view.page(Section::Claims, t.are_you_sure, body)
}

/// Carries out the confirmed action.
pub(super) async fn resolve(view: View, State(console): State<Console>, form: OperatorForm) -> Response {
    let t = view.t;
    let text = |name: &str| form.text(name).unwrap_or_default().to_owned();
    let selector =
        ClaimSelector { key: text("key"), tenant: Some(text("tenant")), route: Some(text("route")) };
    let Some(action) = Action::parse(&text("as")) else {
        return view.error_page(StatusCode::BAD_REQUEST, Section::Claims, t.invalid_request);
    };
    let reason = text("reason");
    if action == Action::Forget && !is_reason(&reason) {
        return view.error_page(StatusCode::BAD_REQUEST, Section::Claims, t.invalid_request);
    }
    // The operator confirmed this attempt, not one that started since, and this outcome.
    let now = console.app.operator().show(&selector).await;
    let has_changed =
        |name: &str, claim: &ClaimView| claim.0.get(name).map(Value::to_string) != Some(text(name));
    if now.is_ok_and(|claim| {
        has_changed("attempt", &claim) || action == Action::Forget && has_changed("completed_at", &claim)
    }) {
        return view.error_page(StatusCode::CONFLICT, Section::Claims, t.state_changed);
    }
    let outcome = Some(text("outcome")).filter(|outcome| !outcome.trim().is_empty());
    let result = match action {
        Action::Done => {
            resolve_seen(&view, &console, &selector, &text("version"), ResolveAs::Done(outcome)).await
        }
        Action::Absent => resolve_seen(&view, &console, &selector, &text("version"), ResolveAs::Absent).await,
        Action::Release => console.app.release(view.actor(), selector.clone(), true).await,
        Action::Forget => console.app.forget(view.actor(), selector.clone(), reason).await,
    };
    console.sampler.refresh_soon();
    match (result, action) {
        (Ok(result), Action::Done) => {
            let selector = [
                ("key", result.key.as_str()),
                ("tenant", result.tenant.as_str()),
                ("route", result.route.as_str()),
            ];
            see_other(&link("/claims/one", &[&selector[..], &[("result", action.code())]].concat()))
        }
        // The claim no longer exists.
        (Ok(_), Action::Absent | Action::Release) => {
            see_other(&link("/claims", &[("state", "in-doubt"), ("result", action.code())]))
        }
        (Ok(_), Action::Forget) => see_other(&link("/claims", &[("result", action.code())])),
        (Err(refusal), _) => refused(&view, refusal),
    }
}

/// Resolves the claim that the page showed, and no other.
async fn resolve_seen(
    view: &View,
    console: &Console,
    selector: &ClaimSelector,
    version: &str,
    resolve_as: ResolveAs,
) -> Result<ResolvedClaim, Refusal> {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    let scope = Scope::new(part(&selector.tenant), part(&selector.route));
    let key = Key::new(scope, selector.key.clone())?;
    console.app.resolve_seen(view.actor(), key, version.to_owned(), resolve_as).await
}

async fn find(view: &View, console: &Console, query: &ClaimQuery) -> Result<(Summary, ClaimView), Response> {
    let claim_view =
        console.app.operator().show(&query.selector()).await.map_err(|refusal| refused(view, refusal))?;
    let claim = serde_json::from_value(Value::Object(claim_view.0.clone()));
    let claim = claim.map_err(|_| {
        view.error_page(StatusCode::INTERNAL_SERVER_ERROR, Section::Claims, view.t.invalid_request)
    })?;
    Ok((claim, claim_view))
}

pub(super) fn refused(view: &View, refusal: Refusal) -> Response {
    let t = view.t;
    match refusal {
        Refusal::NoSuchClaim | Refusal::NoSuchEvent => {
            view.error_page(StatusCode::NOT_FOUND, Section::Claims, t.no_such_claim)
        }
        Refusal::Ambiguous { .. }
        | Refusal::Running
        | Refusal::NotCompleted(_)
        | Refusal::WrongState(_)
        | Refusal::Changed => view.error_page(StatusCode::CONFLICT, Section::Claims, t.state_changed),
        Refusal::CannotAsk(why) => view.error_page(StatusCode::CONFLICT, Section::Claims, &why),
        other @ (Refusal::Ledger(_)
        | Refusal::AuditUnavailable(_)
        | Refusal::AuditIncomplete(_)
        | Refusal::Failed(_)) => {
            view.error_page(StatusCode::SERVICE_UNAVAILABLE, Section::Claims, &describe(other))
        }
    }
}

fn about(claim: &Summary, claim_view: &ClaimView, t: &'static Translations) -> Vec<(&'static str, Markup)> {
    let text = |name: &str| {
        claim_view
            .0
            .get(name)
            .map(|value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned))
    };
    let seconds = |name: &str| claim_view.0.get(name).and_then(Value::as_u64).map(|ms| number(ms / 1_000));
    let mut rows = vec![
        (t.key, html! { span.key { (visible(&claim.key)) } }),
        (t.state, html! { (state_mark(claim.state, t)) @if claim.local { " " (t.not_handed_over) } }),
        (t.tenant, html! { span.key { (visible(&claim.tenant)) } }),
        (t.route, html! { span.key { (visible(&claim.route)) } }),
        (t.attempt, html! { (claim.attempt) }),
        (t.holder, html! { (t.holder_of(claim.holder)) }),
        (t.claimed_at, time(claim.claimed_at)),
        (
            t.renewed_at,
            html! { (time(claim.renewed_at)) (t.in_parentheses(fill(t.times, text("renewals").unwrap_or_default()))) },
        ),
    ];
    // An empty tenant tells nothing.
    rows.retain(|(name, _)| *name != t.tenant || !claim.tenant.is_empty());
    let moments = [
        (t.lease_until, claim.lease_until),
        (t.doubt_since, claim.doubt_since),
        (t.completed_at, claim.completed_at),
        (t.expires_at, claim.expires_at),
    ];
    rows.extend(moments.into_iter().filter_map(|(name, at)| at.map(|at| (name, time(at)))));
    rows.extend(claim.doubt_reason.as_ref().map(|reason| (t.doubt_reason, html! { (visible(reason)) })));
    rows.extend(seconds("lease_ms").map(|seconds| (t.lease, html! { (fill(t.seconds, seconds)) })));
    rows.extend(seconds("retention_ms").map(|seconds| (t.retention, html! { (fill(t.seconds, seconds)) })));
    let print = text("fingerprint").filter(|print| print.bytes().any(|digit| digit != b'0'));
    rows.extend(print.map(|print| (t.fingerprint, html! { code.key { (print) } })));
    rows.push((t.index, html! { code.key { (claim.index) } }));
    rows
}

/// The button that asks the service, if the gateway of this process knows how.
fn question(view: &View, console: &Console, claim: &Summary) -> Markup {
    let t = view.t;
    let scope = Scope::new(&claim.tenant, &claim.route);
    let service = console.app.admin.service.as_ref();
    let can_ask = service.is_some_and(|service| service.schedule(&scope).is_ok());
    let fields = [("key", claim.key.as_str()), ("tenant", &claim.tenant), ("route", &claim.route)];
    html! {
        @if can_ask && claim.state == StateName::InDoubt {
            section aria-labelledby="ask" {
                h2 #ask { (t.ask_service) }
                p { (t.ask_service_hint) }
                (view.button("/claims/ask", &fields, t.ask_service, ""))
            }
        }
    }
}

fn actions(claim: &Summary, t: &'static Translations) -> Markup {
    let actions: Vec<_> = Action::ALL.into_iter().filter(|action| action.applies_to(claim.state)).collect();
    html! {
        @if !actions.is_empty() {
            section aria-labelledby="resolve" {
                h2 #resolve { (if claim.state == StateName::Done { t.run_again_heading } else { t.resolve_heading }) }
                @if claim.state == StateName::InDoubt { p { (t.check_first) } }
                ul.choices {
                    @for action in actions {
                        li {
                            a.button href=(href("/claims/resolve", claim, &[("as", action.code())])) { (action.texts(t).0) "…" }
                            span.hint { (action.texts(t).1) }
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn metadata(metadata: &Metadata, t: &'static Translations) -> Markup {
    html! {
        section aria-labelledby="metadata" {
            h2 #metadata { (t.metadata) }
            @if metadata.is_empty() { p.empty { (t.no_metadata) } }
            @else { dl.facts { @for (name, value) in metadata.iter() { div { dt { (visible(name)) } dd.key { (visible(value)) } } } } }
        }
    }
}

/// The stored response. It is the caller's data, so it is hidden unless the settings allow it.
fn outcome(claim_view: &ClaimView, bodies: Bodies, t: &'static Translations) -> Markup {
    let (answer, plain) = (claim_view.0.get("answer"), claim_view.0.get("outcome"));
    if let Some(reason) = claim_view.0.get("answer_not_kept").and_then(Value::as_str) {
        return html! { h2 { (t.outcome) } p { (t.response_not_kept) (t.colon) (visible(reason)) } };
    }
    let Some(value) = answer.or(plain) else { return html! {} };
    let status = answer.and_then(|answer| answer.get("status")).map(Value::to_string);
    let bytes = claim_view.0.get("outcome_bytes").and_then(Value::as_u64);
    html! {
        section aria-labelledby="outcome" {
            h2 #outcome { (t.outcome) }
            p {
                @if let Some(status) = status { "HTTP " (status) " · " }
                @if let Some(bytes) = bytes { (number(bytes)) " " (t.bytes) }
            }
            @match bodies {
                Bodies::Masked => { p.empty { (t.body_masked) } },
                Bodies::Shown => { pre.body tabindex="0" aria-label=(t.outcome) { (visible_lines(&serde_json::to_string_pretty(value).unwrap_or_default())) } },
            }
        }
    }
}
