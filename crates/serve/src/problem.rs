//! Error responses as `application/problem+json` (RFC 9457). The last segment of `type` is the code that programs match.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, Uri, header};
use ichido_http::{ErrorMember, set_should_retry};
use serde::{Deserialize, Serialize};

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    status: StatusCode,
    code: &'static str,
    title: &'static str,
    detail: Option<String>,
    extensions: Box<Extensions>,
    should_retry: bool,
}

/// The code of a problem, in the extensions of its response: for the span of the request.
#[derive(Clone, Copy, Debug)]
pub struct ProblemCode(pub &'static str);

/// Members of a problem in addition to those of RFC 9457, for programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extensions {
    /// How many claims match the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// The state in which the claim was left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The invalid field of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

/// The body of a problem, as a client reads it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Body {
    #[serde(rename = "type")]
    kind: String,
    title: String,
    status: u16,
    detail: String,
    /// The extension members.
    #[serde(flatten)]
    pub extensions: Extensions,
}

/// The body as it is sent: with the member that Stripe's SDKs look for.
#[derive(Serialize)]
struct BodyWithError<'a> {
    #[serde(flatten)]
    body: &'a Body,
    error: ErrorMember<'a>,
}

impl Body {
    /// The last segment of `type`.
    pub fn code(&self) -> &str {
        self.kind.rsplit('/').next().unwrap_or_default()
    }

    /// What went wrong, for humans.
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl Problem {
    /// A problem of type `/problems/{code}`. Clients are told to retry a 408 or 503.
    pub fn new(status: StatusCode, code: &'static str, title: &'static str) -> Self {
        let should_retry = matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::SERVICE_UNAVAILABLE);
        Self { status, code, title, detail: None, extensions: Box::default(), should_retry }
    }

    /// The response to a request whose body did not arrive in time.
    pub fn body_timeout() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "body-late", "The body took too long to arrive")
    }

    /// Sets the detail. Without one, the detail repeats the title.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Appends a sentence to the detail.
    #[must_use]
    pub fn append(mut self, sentence: &str) -> Self {
        let detail = self.detail.take().unwrap_or_else(|| self.title.to_owned());
        self.detail = Some(format!("{}. {sentence}", detail.trim_end_matches('.')));
        self
    }

    /// Sets the extension members.
    #[must_use]
    pub fn extensions(mut self, extensions: Extensions) -> Self {
        self.extensions = Box::new(extensions);
        self
    }

    /// Names the invalid field of the request.
    #[must_use]
    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.extensions.field = Some(field.into());
        self
    }

    /// Tells clients that the same request may succeed later, whatever the status.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.should_retry = true;
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = Body {
            kind: format!("/problems/{}", self.code),
            title: self.title.to_owned(),
            status: self.status.as_u16(),
            detail: self.detail.unwrap_or_else(|| format!("{}.", self.title)),
            extensions: *self.extensions,
        };
        let error = ErrorMember::new(self.status, self.code, &body.detail);
        let body = serde_json::to_vec(&BodyWithError { body: &body, error }).unwrap_or_default();
        let mut response = (self.status, body).into_response();
        response.extensions_mut().insert(ProblemCode(self.code));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        set_should_retry(headers, self.should_retry);
        response
    }
}

/// Responds to a request for an unknown path.
pub async fn not_found(uri: Uri) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "no-such-page", "Not found")
        .detail(format!("There is nothing at {}.", uri.path()))
}

/// Responds to a request with a method that the path does not support.
pub async fn method_not_allowed() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "no-such-method", "Method not allowed")
        .detail("This path supports other methods.")
}
