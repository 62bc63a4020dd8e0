//! What an error of the database means for the reading.

use tokio_postgres::error::SqlState;

use crate::dify::error::{Error, Kind};

/// Why a page was not read to its end.
pub(super) enum Stopped {
    /// Perhaps it works on another connection.
    Broken(String),
    Failed(Error),
}

impl Stopped {
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Failed(error) => error,
            Self::Broken(why) => Error::new(Kind::Unavailable, format!("Dify's database: {why}")),
        }
    }
}

/// What an error of the server or the connection means.
pub(super) fn stopped(error: &tokio_postgres::Error) -> Stopped {
    let Some(told) = error.as_db_error() else { return Stopped::Broken(ichido_core::error_chain(error)) };
    let words = told.message().replace('\n', " ");
    let kind = match told.code() {
        code if *code == SqlState::UNDEFINED_COLUMN || *code == SqlState::UNDEFINED_TABLE => Kind::Shape,
        code if *code == SqlState::INSUFFICIENT_PRIVILEGE || code.code().starts_with("28") => Kind::Settings,
        code if ["08", "40", "53", "57"].iter().any(|class| code.code().starts_with(class)) => {
            return Stopped::Broken(words);
        }
        code if code.code().starts_with("3D") => Kind::Settings,
        _ => Kind::Shape,
    };
    Stopped::Failed(Error::new(kind, format!("Dify's database: {words}")))
}
