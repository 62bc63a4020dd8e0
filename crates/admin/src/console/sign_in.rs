//! Sign-in, sign-out, and the switch of the language.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use maud::html;

use super::Frame;
use super::form::SentByAnyone;
use super::language::{self, Lang};
use super::page::{Section, View};
use crate::audit::AUDIT;
use crate::auth::Access;
use crate::browser::see;

/// Tokens that are tried at once, and how long a wrong one waits for its answer: guessing is slow.
pub(super) const TRIES: usize = 4;
const WRONG: Duration = Duration::from_millis(500);
/// How long the choice of a language is remembered, in seconds.
const YEAR: u32 = 365 * 24 * 3600;

pub(super) async fn page(view: View, State(frame): State<Frame>) -> Response {
    if view.visitor.access.is_some() || frame.token.is_none() {
        return see("/");
    }
    form(&view, StatusCode::OK, None)
}

pub(super) async fn sign_in(
    view: View,
    State(frame): State<Frame>,
    headers: HeaderMap,
    SentByAnyone(fields): SentByAnyone,
) -> Response {
    let Some(token) = &frame.token else { return see("/") };
    let Ok(_turn) = frame.tries.acquire().await else { return see("/") };
    let access = token.opens(fields.get("token").map_or(&b""[..], |text| text.trim().as_bytes()));
    let result = match access {
        Some(Access::Full) => "full",
        Some(Access::Read) => "read-only",
        None => "refused",
    };
    tracing::info!(target: AUDIT, who = %view.peer.0, action = "sign in", result, "an operator's action");
    let Some(access) = access else {
        tokio::time::sleep(WRONG).await;
        return form(&view, StatusCode::UNAUTHORIZED, Some(view.w.wrong_token));
    };
    let origin = headers.get(header::ORIGIN).map_or(&b""[..], HeaderValue::as_bytes);
    let mut response = see("/");
    let cookie = frame.sessions.begin(access, origin.starts_with(b"https://"));
    response.headers_mut().extend(cookie.map(|cookie| (header::SET_COOKIE, cookie)));
    response
}

pub(super) async fn sign_out(State(frame): State<Frame>, headers: HeaderMap, _: SentByAnyone) -> Response {
    let mut response = see("/sign-in");
    response.headers_mut().extend(frame.sessions.end(&headers).map(|cookie| (header::SET_COOKIE, cookie)));
    response
}

pub(super) async fn language(SentByAnyone(fields): SentByAnyone) -> Response {
    let back = fields.get("back").map(String::as_str).filter(|path| is_ours(path)).unwrap_or("/");
    let mut response = see(back);
    if let Some(lang) = fields.get("to").and_then(|tag| Lang::parse(tag)) {
        let cookie =
            format!("{}={}; Path=/; Max-Age={YEAR}; HttpOnly; SameSite=Strict", language::COOKIE, lang.tag());
        response
            .headers_mut()
            .extend(HeaderValue::try_from(cookie).ok().map(|cookie| (header::SET_COOKIE, cookie)));
    }
    response
}

/// Whether a path stays here: nothing that a browser would read as another host.
fn is_ours(path: &str) -> bool {
    path.starts_with('/')
        && !path.starts_with("//")
        && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
}

fn form(view: &View, status: StatusCode, wrong: Option<&str>) -> Response {
    let w = view.w;
    let body = html! {
        @if let Some(wrong) = wrong { p.notice.bad role="alert" { (wrong) } }
        form.confirm method="post" action="/sign-in" {
            (view.secret())
            label for="token" { (w.token) }
            input #token type="password" name="token" required autocomplete="current-password" aria-describedby="token-hint";
            p #token-hint .hint { (w.token_hint) }
            div.choice { button.strong type="submit" { (w.sign_in) } }
        }
    };
    view.page_as(status, Section::None, w.sign_in, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_does_not_come_back_to_another_host() {
        for ours in ["/", "/claims?prefix=a%26b&state=in-doubt"] {
            assert!(is_ours(ours), "{ours}");
        }
        for other in
            ["", "//evil.example", "/\\evil.example", "https://evil.example", "/a\r\nset-cookie: x=y", "/あ"]
        {
            assert!(!is_ours(other), "{other}");
        }
    }
}
