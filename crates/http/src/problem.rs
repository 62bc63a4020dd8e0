//! The layer's own answers: `application/problem+json`, told from the application's by their `type`.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, LINK, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, Response, StatusCode};
use serde::Serialize;

/// Stripe's SDKs, and those of OpenAI and Anthropic, ask these before their own rules about statuses.
const SHOULD_RETRY: [HeaderName; 2] =
    [HeaderName::from_static("stripe-should-retry"), HeaderName::from_static("x-should-retry")];

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the words and titles below say it")]
pub enum Kind {
    KeyMissing,
    KeyInvalid,
    TenantUnknown,
    InFlight,
    InDoubt,
    AnswerNotKept,
    BodyTooLarge,
    BodyBroken,
    BodyTooSlow,
    KeyReused,
    UpstreamUnreachable,
    AnswerLost,
    LedgerUnavailable,
    Overloaded,
    UpstreamTimeout,
    HandlerFailed,
    RequestRefused,
    SignatureRefused,
    TimestampRefused,
}

/// Word, status, title, and what a caller should do.
type Row = (Kind, &'static str, u16, &'static str, &'static str);

/// Every problem, in the order of the published rules.
pub(crate) const ALL: [Row; 19] = [
    (
        Kind::KeyMissing,
        "key-missing",
        400,
        "Idempotency-Key is missing",
        "Send the request again with a key of its own.",
    ),
    (
        Kind::KeyInvalid,
        "key-invalid",
        400,
        "Idempotency-Key is invalid",
        "Correct the key, then send the request again.",
    ),
    (
        Kind::TenantUnknown,
        "tenant-unknown",
        400,
        "The caller is not known",
        "Send what tells whose key it is. With 401: refresh the token, then send the same key again.",
    ),
    (
        Kind::InFlight,
        "in-flight",
        409,
        "A request is outstanding for this Idempotency-Key",
        "Send the same request again after a moment; nothing needs to be corrected.",
    ),
    (
        Kind::InDoubt,
        "in-doubt",
        409,
        "The outcome of this request is not known",
        "It may have taken effect. Ask the operator of the API before you use another key.",
    ),
    (
        Kind::AnswerNotKept,
        "answer-not-kept",
        409,
        "The request was done, but its answer was not kept",
        "Do not send it again; look up what it did.",
    ),
    (Kind::BodyTooLarge, "body-too-large", 413, "The request body is too large", "Send less."),
    (
        Kind::BodyBroken,
        "body-broken",
        400,
        "The request body did not arrive whole",
        "Nothing was done. Send the same request again.",
    ),
    (
        Kind::BodyTooSlow,
        "body-too-slow",
        408,
        "The request body arrives too slowly",
        "Nothing was done. Send the same request again.",
    ),
    (
        Kind::KeyReused,
        "key-reused",
        422,
        "Idempotency-Key is already used",
        "Use a new key for a new request, and the same body for a repeat.",
    ),
    (
        Kind::UpstreamUnreachable,
        "upstream-unreachable",
        502,
        "The service could not be reached",
        "Nothing was done. Send the same request again.",
    ),
    (
        Kind::AnswerLost,
        "answer-lost",
        502,
        "The answer of the service was lost",
        "It may have taken effect. A repeat with the same key is safe.",
    ),
    (
        Kind::LedgerUnavailable,
        "ledger-unavailable",
        503,
        "Keys cannot be checked just now",
        "Nothing was done. Send the same request again later.",
    ),
    (
        Kind::Overloaded,
        "overloaded",
        503,
        "Too many requests are under way",
        "Nothing was done. Send the same request again later.",
    ),
    (
        Kind::UpstreamTimeout,
        "upstream-timeout",
        504,
        "The service did not answer in time",
        "It may have taken effect. A repeat with the same key is safe.",
    ),
    (Kind::HandlerFailed, "handler-failed", 500, "The service failed", "A repeat with the same key is safe."),
    (
        Kind::RequestRefused,
        "request-refused",
        400,
        "The request is not one that this gateway passes on",
        "Ask the service directly, if it offers that.",
    ),
    (
        Kind::SignatureRefused,
        "signature-refused",
        401,
        "The signature is not the sender's",
        "Nothing was done. Sign the body as it is sent, with the secret that is shared.",
    ),
    (
        Kind::TimestampRefused,
        "timestamp-refused",
        401,
        "The request was not signed just now",
        "Nothing was done. Set the clock, and sign the request anew.",
    ),
];

impl Kind {
    fn row(self) -> &'static Row {
        &ALL[self as usize]
    }

    /// The last segment of its `type`.
    pub fn word(self) -> &'static str {
        self.row().1
    }

    /// Its status, unless the problem says otherwise.
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.row().2).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Whether the same request, sent again, may succeed without anyone correcting anything.
    fn should_retry(self) -> bool {
        match self {
            Self::InFlight
            | Self::BodyBroken
            | Self::BodyTooSlow
            | Self::UpstreamUnreachable
            | Self::LedgerUnavailable
            | Self::Overloaded
            | Self::HandlerFailed => true,
            // The retry learns what is known by then, and runs nothing.
            Self::AnswerLost | Self::UpstreamTimeout => true,
            Self::InDoubt
            | Self::KeyMissing
            | Self::KeyInvalid
            | Self::TenantUnknown
            | Self::AnswerNotKept
            | Self::BodyTooLarge
            | Self::KeyReused
            | Self::RequestRefused
            | Self::SignatureRefused
            | Self::TimestampRefused => false,
        }
    }
}

/// An answer of the layer's own.
#[derive(Clone, Debug)]
pub struct Problem {
    /// What is wrong.
    pub kind: Kind,
    detail: Cow<'static, str>,
    retry_after: Option<u64>,
    status: StatusCode,
}

#[derive(Serialize)]
struct Body<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    error: ErrorMember<'a>,
}

/// The member `error` of a problem, in the form of Stripe's API. Its SDKs take any answer without it for a success,
/// whatever the status.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ErrorMember<'a> {
    r#type: &'static str,
    code: &'a str,
    message: &'a str,
}

impl<'a> ErrorMember<'a> {
    /// For an answer with this status; the code is the last segment of the problem's `type`.
    pub fn new(status: StatusCode, code: &'a str, message: &'a str) -> Self {
        let r#type = match status.as_u16() {
            401 => "authentication_error",
            409 | 422 => "idempotency_error",
            500.. => "api_error",
            _ => "invalid_request_error",
        };
        Self { r#type, code, message }
    }
}

/// Tells SDKs whether to send the same request again.
pub fn tell_should_retry(headers: &mut HeaderMap, should_retry: bool) {
    let value = HeaderValue::from_static(if should_retry { "true" } else { "false" });
    SHOULD_RETRY.into_iter().for_each(|name| drop(headers.insert(name, value.clone())));
}

impl Problem {
    /// A problem; the detail is for the caller.
    pub fn new(kind: Kind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, detail: detail.into(), retry_after: None, status: kind.status() }
    }

    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    pub(crate) fn unauthorized(mut self) -> Self {
        self.status = StatusCode::UNAUTHORIZED;
        self
    }

    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// As an answer of a layer whose rules are published at `policy_path`.
    pub fn into_response<B: From<Bytes>>(self, policy_path: &str) -> Response<B> {
        let (_, word, _, title, _) = *self.kind.row();
        let kind = format!("{policy_path}/{word}");
        let error = ErrorMember::new(self.status, word, &self.detail);
        let body = Body { r#type: &kind, title, status: self.status.as_u16(), detail: &self.detail, error };
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let mut response = Response::new(B::from(Bytes::from(body)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Ok(link) = HeaderValue::try_from(format!("<{policy_path}>; rel=\"describedby\"")) {
            headers.insert(LINK, link);
        }
        // A time to come back at is an invitation, whatever the problem.
        tell_should_retry(headers, self.retry_after.is_some() || self.kind.should_retry());
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let by_signature = matches!(self.kind, Kind::SignatureRefused | Kind::TimestampRefused);
            let wanted = if by_signature { "Signature" } else { "Bearer error=\"invalid_token\"" };
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(wanted));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_row() {
        for (at, row) in ALL.iter().enumerate() {
            assert_eq!(row.0 as usize, at, "{}", row.1);
            assert_eq!(row.0.status().as_u16(), row.2);
        }
    }

    #[test]
    fn a_problem_names_its_type_and_links_to_the_rules() {
        let response: Response<Bytes> =
            Problem::new(Kind::InFlight, "wait").retry_after(1).into_response("/rules");
        assert_eq!(response.status(), 409);
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        assert_eq!(response.headers()["link"], "</rules>; rel=\"describedby\"");
        assert_eq!(response.headers()["retry-after"], "1");
        let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(body["type"], "/rules/in-flight");
        assert_eq!((&body["status"], &body["detail"]), (&409.into(), &"wait".into()));
    }

    #[test]
    fn sdks_find_an_error_and_whether_to_retry() {
        let read = |problem: Problem| {
            let response: Response<Bytes> = problem.into_response("/rules");
            let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
            let told = |name| response.headers().get(name).unwrap().to_str().unwrap() == "true";
            assert_eq!(told("stripe-should-retry"), told("x-should-retry"));
            (body["error"].clone(), told("x-should-retry"))
        };
        let (error, retry) = read(Problem::new(Kind::InDoubt, "nobody knows"));
        let expected =
            serde_json::json!({"type": "idempotency_error", "code": "in-doubt", "message": "nobody knows"});
        assert_eq!((error, retry), (expected, false));
        // A route that runs such requests again says when.
        assert!(read(Problem::new(Kind::InDoubt, "").retry_after(30)).1);
        for (kind, r#type, retry) in [
            (Kind::InFlight, "idempotency_error", true),
            (Kind::KeyReused, "idempotency_error", false),
            (Kind::AnswerNotKept, "idempotency_error", false),
            (Kind::KeyMissing, "invalid_request_error", false),
            (Kind::SignatureRefused, "authentication_error", false),
            (Kind::LedgerUnavailable, "api_error", true),
            (Kind::Overloaded, "api_error", true),
            (Kind::UpstreamUnreachable, "api_error", true),
            (Kind::AnswerLost, "api_error", true),
        ] {
            let (error, told) = read(Problem::new(kind, ""));
            assert_eq!((error["type"].as_str(), told), (Some(r#type), retry), "{}", kind.word());
        }
    }

    #[test]
    fn titles_are_those_of_the_draft_where_it_has_one() {
        for (kind, title) in [
            (Kind::KeyMissing, "Idempotency-Key is missing"),
            (Kind::KeyReused, "Idempotency-Key is already used"),
            (Kind::InFlight, "A request is outstanding for this Idempotency-Key"),
        ] {
            assert_eq!(kind.row().3, title);
        }
    }
}
