//! Problem responses of the layer (`application/problem+json`). Their `type` tells them from those of the application.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, LINK, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, Response, StatusCode};
use serde::Serialize;

/// The SDKs of Stripe, OpenAI and Anthropic honour these headers before their own rules about statuses.
const SHOULD_RETRY: [HeaderName; 2] =
    [HeaderName::from_static("stripe-should-retry"), HeaderName::from_static("x-should-retry")];

/// The kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "see the titles below")]
pub enum Kind {
    KeyMissing,
    KeyInvalid,
    TenantUnknown,
    InFlight,
    InDoubt,
    AnswerNotKept,
    CallerChanged,
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

/// Kind, code, status, title, and advice for the caller.
type Row = (Kind, &'static str, u16, &'static str, &'static str);

/// All problems, in the order of the published rules.
pub(crate) const ALL: [Row; 20] = [
    (
        Kind::KeyMissing,
        "key-missing",
        400,
        "Idempotency-Key is missing",
        "Send the request again with a new key.",
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
        "The tenant is unknown",
        "Send what identifies the tenant. With 401: refresh the token, then send the same key again.",
    ),
    (
        Kind::InFlight,
        "in-flight",
        409,
        "A request is outstanding for this Idempotency-Key",
        "Send the same request again after a moment; nothing needs to be changed.",
    ),
    (
        Kind::InDoubt,
        "in-doubt",
        409,
        "The outcome of this request is unknown",
        "It may have taken effect. Ask the operator of the API before you use a new key.",
    ),
    (
        Kind::AnswerNotKept,
        "answer-not-kept",
        409,
        "The request took effect, but its response was not stored",
        "Do not send it again; look up its result.",
    ),
    (
        Kind::CallerChanged,
        "caller-changed",
        409,
        "The key was used with different credentials",
        "This request was not run. Send it with the credentials of the first one. If they have expired, ask the operator of \
         the API for the outcome of the first request; do not use a new key before you know.",
    ),
    (Kind::BodyTooLarge, "body-too-large", 413, "The request body is too large", "Send a smaller body."),
    (
        Kind::BodyBroken,
        "body-broken",
        400,
        "The request body is incomplete",
        "The request was not run. Send the same request again.",
    ),
    (
        Kind::BodyTooSlow,
        "body-too-slow",
        408,
        "The request body arrives too slowly",
        "The request was not run. Send the same request again.",
    ),
    (
        Kind::KeyReused,
        "key-reused",
        422,
        "Idempotency-Key is already used",
        "Use a new key for a new request, and the same body for a retry.",
    ),
    (
        Kind::UpstreamUnreachable,
        "upstream-unreachable",
        502,
        "The service could not be reached",
        "The request was not run. Send the same request again.",
    ),
    (
        Kind::AnswerLost,
        "answer-lost",
        502,
        "The response of the service was lost",
        "It may have taken effect. A retry with the same key is safe.",
    ),
    (
        Kind::LedgerUnavailable,
        "ledger-unavailable",
        503,
        "Keys cannot be checked at the moment",
        "The request was not run. Send the same request again later.",
    ),
    (
        Kind::Overloaded,
        "overloaded",
        503,
        "Too many requests are running",
        "The request was not run. Send the same request again later.",
    ),
    (
        Kind::UpstreamTimeout,
        "upstream-timeout",
        504,
        "The service did not respond in time",
        "It may have taken effect. A retry with the same key is safe.",
    ),
    (Kind::HandlerFailed, "handler-failed", 500, "The service failed", "A retry with the same key is safe."),
    (
        Kind::RequestRefused,
        "request-refused",
        400,
        "This gateway does not forward such requests",
        "Send the request to the service directly, if it allows that.",
    ),
    (
        Kind::SignatureRefused,
        "signature-refused",
        401,
        "The signature is not valid",
        "The request was not run. Sign the body exactly as it is sent, with the shared secret.",
    ),
    (
        Kind::TimestampRefused,
        "timestamp-refused",
        401,
        "The timestamp of the signature is not current",
        "The request was not run. Set the clock, and sign the request again.",
    ),
];

impl Kind {
    fn row(self) -> &'static Row {
        &ALL[self as usize]
    }

    /// The code: the last segment of the problem's `type`.
    pub fn code(self) -> &'static str {
        self.row().1
    }

    /// The default status.
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.row().2).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Whether the same request may succeed if it is sent again unchanged.
    fn should_retry(self) -> bool {
        match self {
            Self::InFlight
            | Self::BodyBroken
            | Self::BodyTooSlow
            | Self::UpstreamUnreachable
            | Self::LedgerUnavailable
            | Self::Overloaded
            | Self::HandlerFailed => true,
            // The retry gets what is known by then, and runs nothing.
            Self::AnswerLost | Self::UpstreamTimeout => true,
            Self::InDoubt
            | Self::CallerChanged
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

/// A problem response of the layer.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The kind of the problem.
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

/// The member `error` of a problem, as in Stripe's API. Stripe's SDKs take any response without it for a success, whatever
/// the status.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ErrorMember<'a> {
    r#type: &'static str,
    code: &'a str,
    message: &'a str,
}

impl<'a> ErrorMember<'a> {
    /// The member for a response with this status; `code` is the last segment of the problem's `type`.
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

/// Sets the headers that tell SDKs whether to send the same request again.
pub fn set_should_retry(headers: &mut HeaderMap, should_retry: bool) {
    let value = HeaderValue::from_static(if should_retry { "true" } else { "false" });
    SHOULD_RETRY.into_iter().for_each(|name| drop(headers.insert(name, value.clone())));
}

impl Problem {
    /// Creates a problem; the detail is for the caller.
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

    /// The detail for the caller.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Builds the response of a layer whose rules are published at `policy_path`.
    pub fn into_response<B: From<Bytes>>(self, policy_path: &str) -> Response<B> {
        let (_, code, _, title, _) = *self.kind.row();
        let r#type = format!("{policy_path}/{code}");
        let error = ErrorMember::new(self.status, code, &self.detail);
        let body = Body { r#type: &r#type, title, status: self.status.as_u16(), detail: &self.detail, error };
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let mut response = Response::new(B::from(Bytes::from(body)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Ok(link) = HeaderValue::try_from(format!("<{policy_path}>; rel=\"describedby\"")) {
            headers.insert(LINK, link);
        }
        // `Retry-After` invites a retry, whatever the problem.
        set_should_retry(headers, self.retry_after.is_some() || self.kind.should_retry());
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let is_signature = matches!(self.kind, Kind::SignatureRefused | Kind::TimestampRefused);
            let challenge = if is_signature { "Signature" } else { "Bearer error=\"invalid_token\"" };
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_at_its_index() {
        for (index, row) in ALL.iter().enumerate() {
            assert_eq!(row.0 as usize, index, "{}", row.1);
            assert_eq!(row.0.status().as_u16(), row.2);
        }
    }

    #[test]
    fn a_problem_has_a_type_and_links_to_the_rules() {
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
            let flag = |name| response.headers().get(name).unwrap().to_str().unwrap() == "true";
            assert_eq!(flag("stripe-should-retry"), flag("x-should-retry"));
            (body["error"].clone(), flag("x-should-retry"))
        };
        let (error, retry) = read(Problem::new(Kind::InDoubt, "nobody knows"));
        let expected =
            serde_json::json!({"type": "idempotency_error", "code": "in-doubt", "message": "nobody knows"});
        assert_eq!((error, retry), (expected, false));
        // A route that runs such requests again sends Retry-After.
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
            let (error, should_retry) = read(Problem::new(kind, ""));
            assert_eq!((error["type"].as_str(), should_retry), (Some(r#type), retry), "{}", kind.code());
        }
    }

    #[test]
    fn titles_follow_the_draft_where_it_has_one() {
        for (kind, title) in [
            (Kind::KeyMissing, "Idempotency-Key is missing"),
            (Kind::KeyReused, "Idempotency-Key is already used"),
            (Kind::InFlight, "A request is outstanding for this Idempotency-Key"),
        ] {
            assert_eq!(kind.row().3, title);
        }
    }
}
