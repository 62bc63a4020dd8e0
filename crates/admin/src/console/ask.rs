//! Asks the service behind a claim, shows what it says, and resolves the claim once that is confirmed.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use maud::html;

use super::Console;
use super::claim::refused;
use super::form::OperatorForm;
use super::page::{Section, View, facts, link};
use super::translations::fill;
use crate::browser::see_other;
use crate::operator::{AskedClaim, ClaimSelector, Confirmed, ResolveKind};
use ichido_serve::visible;

pub(super) async fn ask(view: View, State(console): State<Console>, form: OperatorForm) -> Response {
    let text = |name: &str| form.text(name).unwrap_or_default().to_owned();
    let selector =
        ClaimSelector { key: text("key"), tenant: Some(text("tenant")), route: Some(text("route")) };
    let resolve = match text("resolve").as_str() {
        "" => None,
        "done" => Some(ResolveKind::Done),
        "absent" => Some(ResolveKind::Absent),
        _ => return view.error_page(StatusCode::BAD_REQUEST, Section::Claims, view.t.invalid_request),
    };
    let confirmed = resolve.map(|resolve| Confirmed { resolve, version: text("version") });
    let asked = match console.app.ask(view.actor(), selector, confirmed).await {
        Ok(asked) => asked,
        Err(refusal) => return refused(&view, refusal),
    };
    let back = [("key", asked.key.as_str()), ("tenant", &asked.tenant), ("route", &asked.route)];
    match asked.resolved.as_deref() {
        None => answer(&view, &asked, &link("/claims/one", &back)),
        Some(state) => {
            console.sampler.refresh_soon();
            match resolve {
                // The claim no longer exists.
                Some(ResolveKind::Absent) => {
                    see_other(&link("/claims", &[("state", "in-doubt"), ("result", state)]))
                }
                Some(ResolveKind::Done) | None => {
                    see_other(&link("/claims/one", &[&back[..], &[("result", state)]].concat()))
                }
            }
        }
    }
}

/// What the service says, and what would follow.
fn answer(view: &View, asked: &AskedClaim, back: &str) -> Response {
    let t = view.t;
    let says = match asked.answer.as_str() {
        "done" => t.service_says_done,
        "absent" => t.service_says_absent,
        _ => t.service_says_nothing,
    };
    let caution = match asked.control.as_deref() {
        Some("not-found") => Some(t.control_not_found),
        Some("nothing") => Some(t.control_nothing),
        Some(_) | None => None,
    };
    let code = asked.follows.map(|follows| match follows {
        ResolveKind::Done => ("done", t.action_done, t.action_done_means),
        ResolveKind::Absent => ("absent", t.action_absent, t.action_absent_means),
    });
    let status = asked.status.map_or_else(|| "–".to_owned(), |status| status.to_string());
    let body = html! {
        (facts(&[
            (t.key, html! { span.key { (visible(&asked.key)) } }),
            (t.route, html! { span.key { (visible(&asked.route)) } }),
            (t.service_answer, html! { strong { (says) } }),
            (t.service_status, html! { (status) }),
        ]))
        @if asked.answer == "undecided" { p.hint { (visible(&asked.detail)) } }
        @if let Some(seconds) = asked.wait_seconds { p.notice.warn { (fill(t.ask_too_early, seconds)) } }
        @if let Some(caution) = caution { p.notice.bad role="alert" { (caution) } }
        @if let Some((code, label, means)) = code {
            p.notice.warn { (means) }
            (view.button("/claims/ask", &[
                ("key", &asked.key), ("tenant", &asked.tenant), ("route", &asked.route), ("version", &asked.version), ("resolve", code),
            ], label, "strong"))
        } @else if asked.wait_seconds.is_none() { p { (t.nothing_follows) } }
        p { a href=(back) { (t.back_to_claim) } }
    };
    view.page(Section::Claims, t.ask_service, body)
}
