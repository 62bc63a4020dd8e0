//! Error responses: `application/problem+json`, distinguished by the last segment of their `type`.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, Uri, header};
use serde::Serialize;

use crate::fault::Fault;
use crate::store::Error;

/// An error response.
#[derive(Clone, Debug)]
pub struct Problem {
    status: StatusCode,
    code: &'static str,
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
    fn new(status: StatusCode, code: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, title, detail: detail.into(), field: None }
    }

    pub(super) fn token_refused() -> Self {
        let detail = "Send the token of a tenant: Authorization: Bearer …";
        Self::new(StatusCode::UNAUTHORIZED, "token-refused", "A tenant's token is required", detail)
    }

    pub(super) fn other_tenant() -> Self {
        let detail = "tenant_id does not match the tenant of the token.";
        let problem =
            Self::new(StatusCode::FORBIDDEN, "other-tenant", "The batch is for another tenant", detail);
        Self { field: Some("tenant_id".to_owned()), ..problem }
    }

    /// The request is malformed.
    pub(super) fn invalid(fault: Fault) -> Self {
        let detail = format!("{}: {}", fault.field, fault.reason);
        let problem = Self::new(StatusCode::BAD_REQUEST, "invalid", "The request is invalid", detail);
        Self { field: Some(fault.field), ..problem }
    }

    /// A field of the request is invalid.
    pub(super) fn invalid_field(field: &str, reason: impl Into<String>) -> Self {
        Self::invalid(Fault { field: field.to_owned(), reason: reason.into() })
    }

    pub(super) fn too_large(detail: String) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", "The batch is too large", detail)
    }

    pub(super) fn too_slow() -> Self {
        let detail = "The body did not arrive within 30 seconds.";
        Self::new(StatusCode::REQUEST_TIMEOUT, "too-slow", "The body took too long", detail)
    }

    pub(super) fn unsupported_format(detail: &str) -> Self {
        let title = "The body has an unsupported format";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unknown-form", title, detail)
    }

    /// No record of a batch can be counted.
    pub(super) fn no_record(detail: String, field: String) -> Self {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let problem = Self::new(status, "no-valid-record", "No record of the batch can be counted", detail);
        Self { field: Some(field), ..problem }
    }

    pub(super) fn no_receipt() -> Self {
        let detail = "No batch with this key was counted for this tenant.";
        Self::new(StatusCode::NOT_FOUND, "no-receipt", "No receipt", detail)
    }

    pub(super) fn failed() -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self::new(
            status,
            "meter-failed",
            "The batch could not be counted",
            "Send the batch again: nothing is counted twice.",
        )
    }
}

/// The caller learns that the request failed; the log learns why.
impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let line = ichido_core::error_chain(&error);
        match error {
            Error::TooLarge(reason) => Problem::invalid_field("group_by", reason),
            Error::Unavailable { .. } | Error::Settings(_) => {
                tracing::error!(error = line, "meter database unavailable");
                let detail = "Nothing is lost: send the batch again.";
                let title = "The meter's database is unavailable";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "database-unavailable", title, detail)
            }
            Error::Corrupt { .. } => {
                tracing::error!(error = line, "meter database contains unexpected data");
                let title = "The meter's database contains unexpected data";
                Self::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "meter-failed",
                    title,
                    "An operator must inspect the database.",
                )
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = Body {
            r#type: format!("/problems/{}", self.code),
            title: self.title,
            status: self.status.as_u16(),
            detail: &self.detail,
            field: self.field.as_deref(),
        };
        respond(self.status, &body)
    }
}

/// Builds an error response, with the headers that its status requires.
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
    Problem::new(StatusCode::NOT_FOUND, "no-such-page", "Not found", detail)
}

pub(super) async fn no_such_method() -> Problem {
    let title = "Method not allowed";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "no-such-method", title, "This path supports other methods.")
}
