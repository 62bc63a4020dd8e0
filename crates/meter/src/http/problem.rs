//! The meter's error responses.

use http::StatusCode;
use ichido_serve::Problem;

use crate::fault::Fault;
use crate::store::Error;

pub(super) fn token_refused() -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "token-refused", "A tenant's token is required")
        .detail("Send the token of a tenant: Authorization: Bearer …")
}

pub(super) fn other_tenant() -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "other-tenant", "The batch is for another tenant")
        .detail("tenant_id does not match the tenant of the token.")
        .field("tenant_id")
}

/// The request is malformed.
pub(super) fn invalid(fault: Fault) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "invalid", "The request is invalid")
        .detail(format!("{}: {}", fault.field, fault.reason))
        .field(fault.field)
}

/// A field of the request is invalid.
pub(super) fn invalid_field(field: &str, reason: impl Into<String>) -> Problem {
    invalid(Fault { field: field.to_owned(), reason: reason.into() })
}

pub(super) fn too_large(detail: String) -> Problem {
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", "The batch is too large").detail(detail)
}

pub(super) fn too_slow() -> Problem {
    Problem::new(StatusCode::REQUEST_TIMEOUT, "too-slow", "The body took too long")
        .detail("The body did not arrive within 30 seconds.")
}

pub(super) fn unsupported_format(detail: &str) -> Problem {
    let title = "The body has an unsupported format";
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unknown-form", title).detail(detail)
}

/// No record of a batch can be counted.
pub(super) fn no_record(detail: String, field: String) -> Problem {
    let title = "No record of the batch can be counted";
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "no-valid-record", title).detail(detail).field(field)
}

pub(super) fn no_receipt() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "no-receipt", "No receipt")
        .detail("No batch with this key was counted for this tenant.")
}

/// The task that counts a batch failed.
pub(super) fn failed() -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "meter-failed", "The batch could not be counted")
        .detail("Send the batch again: nothing is counted twice.")
        .retryable()
}

/// The caller learns that the request failed; the log learns why.
impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let line = ichido_core::error_chain(&error);
        match error {
            Error::TooLarge(reason) => invalid_field("group_by", reason),
            Error::Unavailable { .. } | Error::Settings(_) => {
                tracing::error!(error = line, "meter database unavailable");
                let title = "The meter's database is unavailable";
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, "database-unavailable", title)
                    .detail("Nothing is lost: send the batch again.")
            }
            Error::Corrupt { .. } => {
                tracing::error!(error = line, "meter database contains unexpected data");
                let title = "The meter's database contains unexpected data";
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "meter-failed", title)
                    .detail("An operator must inspect the database.")
            }
        }
    }
}
