//! What an error of the server or of the connection means for a ledger.
//!
//! If the server reports an error for a statement, the statement was rolled back. If the connection breaks or the
//! server goes away, nothing is known about the statement in progress: it may have been committed.

use std::borrow::Cow;
use std::error::Error as _;
use std::io;

use deadpool_postgres::PoolError;
use tokio_postgres::error::{DbError, SqlState};

use crate::{Error, Kind};

/// Whether a statement that writes may have reached the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    No,
    Yes,
}

/// The server cannot be used as the URL says.
impl From<ichido_postgres::Error> for Error {
    fn from(error: ichido_postgres::Error) -> Self {
        let failure = Error::new(Kind::Settings(error.text), error.doing);
        match error.source {
            Some(source) => failure.caused_by(source),
            None => failure,
        }
    }
}

/// No connection was available.
pub(super) fn connection_failed(error: PoolError, doing: impl Into<Cow<'static, str>>) -> Error {
    match error {
        PoolError::Backend(error) => failed(error, doing, Sent::No),
        PoolError::Closed => Error::new(Kind::Closed, doing),
        error @ (PoolError::Timeout(_) | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_)) => {
            Error::new(Kind::Unavailable, doing).caused_by(error)
        }
    }
}

/// A statement failed, or connecting for it.
pub(super) fn failed(error: tokio_postgres::Error, doing: impl Into<Cow<'static, str>>, sent: Sent) -> Error {
    let (kind, session_ended) = match error.as_db_error() {
        Some(error) => (server_error_kind(error), session_ended(error.code())),
        None => (client_error_kind(&error), true),
    };
    let failure = Error::new(kind, doing).caused_by(error);
    if session_ended && sent == Sent::Yes { failure.with_unknown_effect() } else { failure }
}

/// A commit may have been completed when the server announces that the session ends.
fn session_ended(code: &SqlState) -> bool {
    code.code().starts_with("57P") || code.code().starts_with("08")
}

fn server_error_kind(error: &DbError) -> Kind {
    match error.code().code() {
        // Serialization failure, deadlock, lock not available.
        "40001" | "40P01" | "55P03" => Kind::Contended,
        "57014" => Kind::Timeout,
        "53300" => Kind::Throttled,
        code if code.starts_with("28") || code == "42501" => Kind::Denied(denied(error)),
        "3D000" => Kind::Settings(format!(
            "PostgreSQL: {}; create the database, or name another one in the URL",
            error.message()
        )),
        // A prepared statement does not exist, or exists already.
        "26000" | "42P05" => Kind::Settings(
            "PostgreSQL is behind a pooler in transaction mode, which does not support prepared statements; \
             remove prepared=on from the URL"
                .to_owned(),
        ),
        // No such schema, table or column, or one of another type.
        "3F000" | "42P01" | "42703" | "42804" => Kind::Schema(format!(
            "PostgreSQL: {}; run `ichido ledger init`, which creates missing tables and reports what is wrong with others",
            error.message()
        )),
        // Data, constraints, syntax, unsupported features: a retry does not help. The cause may contain a value;
        // this text must not.
        code if ["0A", "22", "23", "42"].iter().any(|class| code.starts_with(class)) => {
            Kind::Unsupported(format!("PostgreSQL rejected the statement (SQLSTATE {code})"))
        }
        _ => Kind::Unavailable,
    }
}

/// Names of roles and objects are meant for the operator; the server never repeats a password.
fn denied(error: &DbError) -> String {
    match error.hint() {
        Some(hint) => format!("PostgreSQL denied access: {} ({hint})", error.message()),
        None => format!("PostgreSQL denied access: {}", error.message()),
    }
}

/// An error on this side of the connection. TLS errors and missing passwords do not go away by themselves.
fn client_error_kind(error: &tokio_postgres::Error) -> Kind {
    // The crate's kinds of error differ in their text only.
    let text = format!("{error}: {}", error.source().map(ToString::to_string).unwrap_or_default());
    let io = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    let tls = io.and_then(io::Error::get_ref).and_then(|inner| inner.downcast_ref::<rustls::Error>());
    if let Some(tls) = tls {
        return Kind::Settings(format!(
            "TLS handshake with PostgreSQL failed: {tls}; to trust another certificate authority, set sslrootcert= in the URL"
        ));
    }
    if text.contains("password missing") {
        return Kind::Denied("PostgreSQL requires a password, but the URL has none".to_owned());
    }
    if io.is_none() && text.contains("TLS") {
        return Kind::Settings(
            "the URL has sslmode=require, but the PostgreSQL server does not support TLS".to_owned(),
        );
    }
    Kind::Unavailable
}
