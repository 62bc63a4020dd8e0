//! Converts errors of the server and of the connection into the ledger's.
//!
//! The client's error types are not kept as causes: their debug output shows whole responses, and a response may
//! contain an item with its token. Only the server's code, its message and the request id are kept.

use std::error::Error as StdError;
use std::io;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::RequestId;
use ichido_core::error_chain;

use crate::{Effect, Error, Kind};

/// The server asks us to slow down; nothing was written.
const THROTTLED: [&str; 8] = [
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "Throttling",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "TooManyRequestsException",
    "LimitExceededException",
];

/// The server does not know us, or does not allow the call.
const DENIED: [&str; 9] = [
    "AccessDeniedException",
    "AccessDenied",
    "UnrecognizedClientException",
    "InvalidSignatureException",
    "IncompleteSignatureException",
    "MissingAuthenticationTokenException",
    "MissingAuthenticationToken",
    "ExpiredTokenException",
    "InvalidClientTokenId",
];

/// Another writer changed the item at the same time; nothing was written.
const CONTENDED: [&str; 3] =
    ["TransactionConflictException", "ReplicatedWriteConflictException", "TransactionInProgressException"];

const NO_TABLE: &str = "ResourceNotFoundException";

/// A failed write. It may have been applied, unless the error shows otherwise.
pub(super) fn failed<E>(table: &str, doing: &'static str, error: &SdkError<E, HttpResponse>) -> Error
where
    E: ProvideErrorMetadata + StdError + 'static,
{
    match classify(table, doing, error) {
        (failure, Effect::None) => failure,
        (failure, Effect::Unknown) => failure.with_unknown_effect(),
    }
}

/// A failed read: nothing was changed.
pub(super) fn failed_read<E>(table: &str, doing: &'static str, error: &SdkError<E, HttpResponse>) -> Error
where
    E: ProvideErrorMetadata + StdError + 'static,
{
    classify(table, doing, error).0
}

fn classify<E>(table: &str, doing: &'static str, error: &SdkError<E, HttpResponse>) -> (Error, Effect)
where
    E: ProvideErrorMetadata + StdError + 'static,
{
    let chain = error_chain(error);
    match error {
        SdkError::ServiceError(context) => {
            let status = context.raw().status().as_u16();
            // DynamoDB always sends a code. Without one, something in between broke or made up the response.
            let Some(code) = error.code() else {
                let text = format!("unreadable response with status {status}");
                return (Error::new(Kind::Unavailable, doing).caused_by(text), Effect::Unknown);
            };
            let refusal = Refusal {
                status,
                code,
                message: error.message().unwrap_or("no message"),
                request_id: error.request_id().unwrap_or("none"),
            };
            refusal.classify(table, doing)
        }
        SdkError::ConstructionFailure(_) => {
            (Error::new(Kind::Settings(format!("the request cannot be built: {chain}")), doing), Effect::None)
        }
        SdkError::DispatchFailure(_) if has_no_credentials(error) => {
            let text = "no AWS credentials found; set them in the environment, a profile, or the role of the container or instance".to_owned();
            (Error::new(Kind::Denied(text), doing).caused_by(chain), Effect::None)
        }
        SdkError::DispatchFailure(_) if was_never_sent(error) => {
            (Error::new(Kind::Unavailable, doing).caused_by(chain), Effect::None)
        }
        // Timeouts, broken connections, unreadable responses, and whatever a later version of the client may add.
        SdkError::TimeoutError(_) | SdkError::DispatchFailure(_) | SdkError::ResponseError(_) | _ => {
            (Error::new(Kind::Unavailable, doing).caused_by(chain), Effect::Unknown)
        }
    }
}

/// Whether a call failed because the table does not exist.
pub(super) fn is_no_table<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    error.code() == Some(NO_TABLE)
}

/// Whether a call failed because of missing permissions.
pub(super) fn is_denied<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    error.code().is_some_and(|code| DENIED.contains(&code))
}

/// The text for a table that does not exist.
pub(super) fn no_table(table: &str) -> String {
    format!("table {table} does not exist; run `ichido ledger init` to create it")
}

/// A concurrent change interfered.
pub(super) fn contended(doing: &'static str) -> Error {
    Error::new(Kind::Contended, doing)
}

/// An error response of the server.
struct Refusal<'a> {
    status: u16,
    code: &'a str,
    message: &'a str,
    request_id: &'a str,
}

impl Refusal<'_> {
    fn classify(&self, table: &str, doing: &'static str) -> (Error, Effect) {
        let is_broken = self.status >= 500 || self.status == 408;
        let effect = if is_broken { Effect::Unknown } else { Effect::None };
        (self.error(table, doing, is_broken), effect)
    }

    fn error(&self, table: &str, doing: &'static str, is_broken: bool) -> Error {
        let code = self.code;
        // For callers, a missing table is an outage, which a fallback bridges. `check` and `init` report it by
        // name.
        if code == NO_TABLE {
            return Error::new(Kind::Unavailable, doing).caused_by(no_table(table));
        }
        if THROTTLED.contains(&code) || self.status == 429 {
            return Error::new(Kind::Throttled, doing).caused_by(self.text());
        }
        if CONTENDED.contains(&code) {
            return Error::new(Kind::Contended, doing).caused_by(self.text());
        }
        if DENIED.contains(&code) {
            return Error::new(
                Kind::Denied(format!("DynamoDB denied access to table {table}: {code}")),
                doing,
            )
            .caused_by(self.text());
        }
        if is_broken {
            return Error::new(Kind::Unavailable, doing).caused_by(self.text());
        }
        let text = format!(
            "DynamoDB rejected the request to table {table} ({code}); run `ichido check` to check its layout"
        );
        Error::new(Kind::Schema(text), doing).caused_by(self.text())
    }

    fn text(&self) -> String {
        format!("{}: {} (status {}, request {})", self.code, self.message, self.status, self.request_id)
    }
}

/// Whether no byte can have reached the server: nobody listened, or the request could not be signed.
fn was_never_sent(error: &(dyn StdError + 'static)) -> bool {
    let mut io = causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>());
    io.any(|error| error.kind() == io::ErrorKind::ConnectionRefused) || credentials_error(error).is_some()
}

/// Whether the credential chain provides nothing. A provider that fails or is slow is an outage instead.
fn has_no_credentials(error: &(dyn StdError + 'static)) -> bool {
    let missing = |error: &CredentialsError| {
        matches!(error, CredentialsError::CredentialsNotLoaded(_) | CredentialsError::InvalidConfiguration(_))
    };
    credentials_error(error).is_some_and(missing)
}

fn credentials_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a CredentialsError> {
    causes(error).find_map(|cause| cause.downcast_ref::<CredentialsError>())
}

fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn StdError + 'static)| (*error).source())
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::error::ConnectorError;
    use aws_sdk_dynamodb::operation::put_item::PutItemError;

    use super::*;

    fn not_signed(error: CredentialsError) -> Error {
        let error = SdkError::<PutItemError>::dispatch_failure(ConnectorError::other(error.into(), None));
        failed("events", "marking an event", &error)
    }

    #[test]
    fn without_credentials_nothing_was_sent() {
        let missing = not_signed(CredentialsError::not_loaded("no provider in chain"));
        assert!(matches!(missing.kind(), Kind::Denied(_)), "{missing}");
        let failing = not_signed(CredentialsError::provider_error("the metadata service is down"));
        assert_eq!((failing.kind(), failing.effect()), (&Kind::Unavailable, Effect::None));
    }
}
