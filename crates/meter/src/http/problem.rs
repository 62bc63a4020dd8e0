//! Answers that say no: `application/problem+json`, told apart by the last segment of their `type`.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, Uri, header};
use serde::Serialize;

use crate::fault::Fault;
use crate::store::Error;

/// An answer that says no.
#[derive(Clone, Debug)]
pub struct Problem {
    status: StatusCode,
    word: &'static str,
    title: &'static str,
    detail: String,
    field: Option<String>,
}

#[derive(Serialize)]
struct Body<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
}

impl Problem {
    fn new(status: StatusCode, word: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self { status, word, title, detail: detail.into(), field: None }
    }

    pub(super) fn token_refused() -> Self {
        let detail = "Show the token of a tenant: Authorization: Bearer …";
        Self::new(StatusCode::UNAUTHORIZED, "token-refused", "A tenant's token is demanded", detail)
    }

    pub(super) fn other_tenant() -> Self {
        let detail = "tenant_id is not the tenant whose token is shown.";
        let problem =
            Self::new(StatusCode::FORBIDDEN, "other-tenant", "The batch is for another tenant", detail);
        Self { field: Some("tenant_id".to_owned()), ..problem }
    }

    /// Something in the request is not understood.
    pub(super) fn invalid(fault: Fault) -> Self {
        let detail = format!("{}: {}", fault.field, fault.reason);
        let problem = Self::new(StatusCode::BAD_REQUEST, "invalid", "The request is not understood", detail);
        Self { field: Some(fault.field), ..problem }
    }

    /// A field of the request is wrong.
    pub(super) fn wrong(field: &str, reason: impl Into<String>) -> Self {
        Self::invalid(Fault { field: field.to_owned(), reason: reason.into() })
    }

    pub(super) fn too_large(detail: String) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", "The batch is too large", detail)
    }

    pub(super) fn too_slow() -> Self {
        let detail = "The body did not arrive within 30 seconds.";
        Self::new(StatusCode::REQUEST_TIMEOUT, "too-slow", "The body took too long", detail)
    }

    pub(super) fn unknown_form(detail: &str) -> Self {
        let title = "The body is in a form that is not understood";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unknown-form", title, detail)
    }

    /// Nothing in a batch can be counted.
    pub(super) fn no_record(detail: String, field: String) -> Self {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let problem = Self::new(status, "no-valid-record", "No record of the batch can be counted", detail);
        Self { field: Some(field), ..problem }
    }

    pub(super) fn no_receipt() -> Self {
        let detail = "No batch with this key was counted for this tenant.";
        Self::new(StatusCode::NOT_FOUND, "no-receipt", "There is no receipt", detail)
    }

    pub(super) fn broken_off() -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self::new(
            status,
            "meter-failed",
            "The work broke off",
            "Send the batch again: nothing is counted twice.",
        )
    }
}

/// The caller learns that it went wrong; the log learns why.
impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let line = ichido_core::error_chain(&error);
        match error {
            Error::TooMuch(why) => Problem::wrong("group_by", why),
            Error::Unavailable { .. } | Error::Settings(_) => {
                tracing::error!(error = line, "the meter's database does not work");
                let detail = "Nothing is lost: send the batch again.";
                let title = "The meter's database is unavailable";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "database-unavailable", title, detail)
            }
            Error::Broken { .. } => {
                tracing::error!(error = line, "the meter's database is not as it should be");
                let title = "The meter's database is not as it should be";
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "meter-failed", title, "An operator must look.")
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = Body {
            r#type: format!("/problems/{}", self.word),
            title: self.title,
            status: self.status.as_u16(),
            detail: &self.detail,
            field: self.field.as_deref(),
        };
        respond(self.status, &body)
    }
}

/// The body of a problem as an answer, with the fields that its status demands.
pub fn respond(status: StatusCode, body: &impl Serialize) -> Response {
    let mut response = (status, serde_json::to_vec(body).unwrap_or_default()).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

pub(super) async fn no_such_page(uri: Uri) -> Problem {
    let detail = format!("There is nothing at {}.", uri.path());
    Problem::new(StatusCode::NOT_FOUND, "no-such-page", "There is nothing here", detail)
}

pub(super) async fn no_such_method() -> Problem {
    let title = "This path has other methods";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "no-such-method", title, "This path has other methods.")
}
