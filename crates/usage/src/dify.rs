//! Dify as a source of usage: its PostgreSQL, read-only, or its console's HTTP API.
//!
//! What a source reads is handed on row by row, so memory does not grow with what there is. A row that cannot be counted
//! is handed on as well, with the reason: nothing is passed over in silence.
//!
//! Apps of the modes chat, completion and agent-chat are counted by message; apps of the modes workflow and advanced-chat
//! by the nodes of their runs that called a model. Never by both: their messages hold the same usage again.

pub mod console;
mod error;
mod node;
pub mod postgres;
mod rows;

use jiff::Timestamp;

pub use self::console::Http;
pub use self::error::{Error, Kind};
pub use self::postgres::Postgres;
pub use self::rows::{Broken, Item, Scope, See, Span, Tally};

/// Either way to Dify.
#[derive(Debug)]
pub enum Source {
    /// Its database.
    Postgres(Box<Postgres>),
    /// Its console.
    Http(Box<Http>),
}

impl Source {
    /// Hands on every row of a span.
    pub async fn read(&mut self, span: Span, see: &mut See<'_>) -> Result<Tally, Error> {
        match self {
            Self::Postgres(postgres) => postgres.read(span, see).await,
            Self::Http(http) => http.read(span, see).await,
        }
    }

    /// The earliest row of a span that was changed since then. `None`: there is none, or the source cannot tell.
    pub async fn changed_since(&mut self, since: Timestamp, span: Span) -> Result<Option<Timestamp>, Error> {
        match self {
            Self::Postgres(postgres) => postgres.changed_since(since, span).await,
            Self::Http(_) => Ok(None),
        }
    }

    /// Whether it can be read. Says in a few words what it is.
    pub async fn check(&mut self) -> Result<String, Error> {
        match self {
            Self::Postgres(postgres) => postgres.check().await,
            Self::Http(http) => http.check().await,
        }
    }
}
