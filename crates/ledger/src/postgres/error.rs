//! What an error of the server or the connection means to a ledger.
//!
//! An error that the server reports for a statement undid that statement. A connection that breaks, or a server that
//! goes away, says nothing of the statement that was under way: it may have been committed.

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

/// A server cannot be reached as it was asked for.
impl From<ichido_postgres::Error> for Error {
    fn from(error: ichido_postgres::Error) -> Self {
        let failure = Error::new(Kind::Settings(error.text), error.doing);
        match error.source {
            Some(source) => failure.caused_by(source),
            None => failure,
        }
    }
}

/// No connection to be had.
pub(super) fn connection_failed(error: PoolError, doing: impl Into<Cow<'static, str>>) -> Error {
    match error {
        PoolError::Backend(error) => failed(error, doing, Sent::No),
        PoolError::Closed => Error::new(Kind::Closed, doing),
        error @ (PoolError::Timeout(_) | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_)) => {
            Error::new(Kind::Unavailable, doing).caused_by(error)
        }
    }
}

/// A statement, or the connecting for it, failed.
pub(super) fn failed(error: tokio_postgres::Error, doing: impl Into<Cow<'static, str>>, sent: Sent) -> Error {
    let (kind, session_ended) = match error.as_db_error() {
        Some(error) => (server_error_kind(error), session_ended(error.code())),
        None => (client_error_kind(&error), true),
    };
    let failure = Error::new(kind, doing).caused_by(error);
    if session_ended && sent == Sent::Yes { failure.with_unknown_effect() } else { failure }
}

/// A commit may be complete when the server's end is announced.
fn session_ended(code: &SqlState) -> bool {
    code.code().starts_with("57P") || code.code().starts_with("08")
}

fn server_error_kind(error: &DbError) -> Kind {
    match error.code().code() {
        // Serialization, deadlock, a lock not available.
        "40001" | "40P01" | "55P03" => Kind::Contended,
        "57014" => Kind::Timeout,
        "53300" => Kind::Throttled,
        code if code.starts_with("28") || code == "42501" => Kind::Denied(denied(error)),
        "3D000" => {
            Kind::Settings(format!("PostgreSQL: {}; create it, or name another in the URL", error.message()))
        }
        // A prepared statement that is not there, or is there already.
        "26000" | "42P05" => Kind::Settings(
            "PostgreSQL is behind a pooler in transaction mode, where prepared statements do not work: remove \
             prepared=on from the URL"
                .to_owned(),
        ),
        // No such schema, table or column; or one of another type.
        "3F000" | "42P01" | "42703" | "42804" => Kind::Schema(format!(
            "PostgreSQL: {}; `ichido ledger init` creates what is missing, and says what is wrong",
            error.message()
        )),
        // Data, constraints, syntax, features: asking again will not help. The cause may repeat a value; this does not.
        code if ["0A", "22", "23", "42"].iter().any(|class| code.starts_with(class)) => {
            Kind::Unsupported(format!("PostgreSQL does not take what it was asked (SQLSTATE {code})"))
        }
        _ => Kind::Unavailable,
    }
}

/// Names of roles and things are for the operator; the server never repeats a password.
fn denied(error: &DbError) -> String {
    match error.hint() {
        Some(hint) => format!("PostgreSQL refuses: {} ({hint})", error.message()),
        None => format!("PostgreSQL refuses: {}", error.message()),
    }
}

/// An error from this side of the wire. Those of TLS and of missing passwords do not mend themselves.
fn client_error_kind(error: &tokio_postgres::Error) -> Kind {
    // The crate tells its kinds of error apart in words alone.
    let text = format!("{error}: {}", error.source().map(ToString::to_string).unwrap_or_default());
    let io = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    let tls = io.and_then(io::Error::get_ref).and_then(|inner| inner.downcast_ref::<rustls::Error>());
    if let Some(tls) = tls {
        return Kind::Settings(format!(
            "TLS to PostgreSQL failed: {tls}; sslrootcert= names an authority to trust"
        ));
    }
    if text.contains("password missing") {
        return Kind::Denied("PostgreSQL wants a password, and the URL has none".to_owned());
    }
    if io.is_none() && text.contains("TLS") {
        return Kind::Settings("sslmode=require, but the PostgreSQL server speaks no TLS".to_owned());
    }
    Kind::Unavailable
}
