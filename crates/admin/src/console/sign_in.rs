//! Sign-in, sign-out, and the language switch.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use ichido_core::error_chain;
use maud::html;

use super::PageContext;
use super::form::PublicForm;
use super::language::{self, Language};
use super::page::{Section, View};
use crate::audit_log::{self, Action, Actor, Outcome, Via, blocking};
use crate::auth::Access;
use crate::browser::see_other;

/// The most concurrent sign-in attempts, and the delay after a wrong token: together they make guessing slow.
pub(super) const ATTEMPTS_MAX: usize = 4;
const WRONG_TOKEN_DELAY: Duration = Duration::from_millis(500);
/// How long the choice of language is remembered.
const LANGUAGE_COOKIE_SECONDS: u32 = 365 * 24 * 3600;

pub(super) async fn page(view: View, State(context): State<PageContext>) -> Response {
    if view.visitor.access.is_some() {
        return see_other("/");
    }
    match context.tokens {
        Some(_) => form(&view, StatusCode::OK, None),
        // Without tokens, only a proxy signs users in.
        None => view.error_page(StatusCode::UNAUTHORIZED, Section::None, view.t.sign_in_at_proxy),
    }
}

pub(super) async fn sign_in(
    view: View,
    State(context): State<PageContext>,
    headers: HeaderMap,
    PublicForm(fields): PublicForm,
) -> Response {
    let Some(tokens) = &context.tokens else { return see_other("/") };
    let Ok(_permit) = context.sign_in_attempts.acquire().await else { return see_other("/") };
    let found = tokens.find(fields.get("token").map_or(&b""[..], |text| text.trim().as_bytes()));
    let actor = Actor { via: Via::Session, ..view.actor() };
    let Some((name, access)) = found else {
        if let Err(error) = record(&context, actor, "sign in", "refused").await {
            tracing::error!(error = error_chain(&error), "cannot record a refused sign-in");
        }
        tokio::time::sleep(WRONG_TOKEN_DELAY).await;
        return form(&view, StatusCode::UNAUTHORIZED, Some(view.t.wrong_token));
    };
    let result = match access {
        Access::Full => "full",
        Access::Read => "read-only",
    };
    let recorded = record(&context, Actor { who: name.to_string(), ..actor }, "sign in", result).await;
    if let Err(error) = recorded {
        tracing::error!(error = error_chain(&error), "cannot record a sign-in; it is refused");
        return view.error_page(StatusCode::SERVICE_UNAVAILABLE, Section::None, view.t.audit_unavailable);
    }
    let origin = headers.get(header::ORIGIN).map_or(&b""[..], HeaderValue::as_bytes);
    let mut response = see_other("/");
    let cookie = context.sessions.sign_in(name, access, context.over_tls || origin.starts_with(b"https://"));
    response.headers_mut().extend(cookie.map(|cookie| (header::SET_COOKIE, cookie)));
    response
}

pub(super) async fn sign_out(
    view: View,
    State(context): State<PageContext>,
    headers: HeaderMap,
    _: PublicForm,
) -> Response {
    // Nobody is kept signed in because the audit log is full.
    let cookie = context.sessions.sign_out(&headers, context.over_tls);
    if view.visitor.has_session()
        && let Err(error) = record(&context, view.actor(), "sign out", "applied").await
    {
        tracing::error!(error = error_chain(&error), "cannot record a sign-out");
    }
    let mut response = see_other("/sign-in");
    response.headers_mut().extend(cookie.map(|cookie| (header::SET_COOKIE, cookie)));
    response
}

async fn record(
    context: &PageContext,
    actor: Actor,
    action: &'static str,
    result: &'static str,
) -> Result<(), audit_log::Error> {
    let audit = context.audit.clone();
    blocking(move || audit.record(&actor, &Action::named(action), Outcome::of(result))).await
}

pub(super) async fn language(PublicForm(fields): PublicForm) -> Response {
    let back = fields.get("back").map(String::as_str).filter(|path| is_local_path(path)).unwrap_or("/");
    let mut response = see_other(back);
    if let Some(lang) = fields.get("to").and_then(|tag| Language::parse(tag)) {
        let cookie = format!(
            "{}={}; Path=/; Max-Age={LANGUAGE_COOKIE_SECONDS}; HttpOnly; SameSite=Strict",
            language::COOKIE,
            lang.tag()
        );
        response
            .headers_mut()
            .extend(HeaderValue::try_from(cookie).ok().map(|cookie| (header::SET_COOKIE, cookie)));
    }
    response
}

/// Whether a path stays on this host. Browsers would read some paths as another host.
fn is_local_path(path: &str) -> bool {
    path.starts_with('/')
        && !path.starts_with("//")
        && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
}

fn form(view: &View, status: StatusCode, wrong: Option<&str>) -> Response {
    let t = view.t;
    let body = html! {
        @if let Some(wrong) = wrong { p.notice.bad role="alert" { (wrong) } }
        form.confirm method="post" action="/sign-in" {
            (view.csrf_field())
            label for="token" { (t.token) }
            input #token type="password" name="token" required autocomplete="current-password" aria-describedby="token-hint";
            p #token-hint .hint { (t.token_hint) }
            div.choice { button.strong type="submit" { (t.sign_in) } }
        }
    };
    view.page_with_status(status, Section::None, t.sign_in, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirect_stays_on_this_host() {
        for ours in ["/", "/claims?prefix=a%26b&state=in-doubt"] {
            assert!(is_local_path(ours), "{ours}");
        }
        for other in
            ["", "//evil.example", "/\\evil.example", "https://evil.example", "/a\r\nset-cookie: x=y", "/あ"]
        {
            assert!(!is_local_path(other), "{other}");
        }
    }
}
