//! Classifies database errors.

use tokio_postgres::error::SqlState;

use crate::dify::error::{Error, Kind};

/// Why a page was not read to its end.
pub(super) enum Failure {
    /// A new connection may succeed.
    Retryable(String),
    /// A retry would fail as well.
    Fatal(Error),
}

impl Failure {
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Fatal(error) => error,
            Self::Retryable(why) => Error::new(Kind::Unavailable, format!("Dify's database: {why}")),
        }
    }
}

/// Decides whether an error is worth a retry.
pub(super) fn classify(error: &tokio_postgres::Error) -> Failure {
    let Some(db_error) = error.as_db_error() else {
        return Failure::Retryable(ichido_core::error_chain(error));
    };
    let message = db_error.message().replace('\n', " ");
    let kind = match db_error.code() {
        code if *code == SqlState::UNDEFINED_COLUMN || *code == SqlState::UNDEFINED_TABLE => {
            Kind::Incompatible
        }
        code if *code == SqlState::INSUFFICIENT_PRIVILEGE || code.code().starts_with("28") => Kind::Settings,
        code if ["08", "40", "53", "57"].iter().any(|class| code.code().starts_with(class)) => {
            return Failure::Retryable(message);
        }
        code if code.code().starts_with("3D") => Kind::Settings,
        _ => Kind::Incompatible,
    };
    Failure::Fatal(Error::new(kind, format!("Dify's database: {message}")))
}
