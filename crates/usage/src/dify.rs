//! Reads usage from Dify: from its PostgreSQL database, or from its console API.
//!
//! A source passes on each row as it is read, so memory does not grow with the number of rows. It also passes on
//! rows that cannot be counted, with the reason: nothing is skipped silently.
//!
//! Apps with mode chat, completion and agent-chat are counted by message. Apps with mode workflow and advanced-chat
//! are counted by the nodes of their runs that called a model. Never by both: their messages contain the same usage
//! again.

pub mod console;
mod error;
mod node;
pub mod postgres;
mod rows;

use futures_util::future::BoxFuture;
use jiff::Timestamp;

pub use self::console::Console;
pub use self::error::{Error, Kind};
pub use self::postgres::Postgres;
pub use self::rows::{Filter, InvalidRow, Item, RowCounts, TimeRange, Visitor};

/// One of the two sources.
#[derive(Debug)]
pub enum Source {
    /// Dify's database.
    Postgres(Box<Postgres>),
    /// Dify's console API.
    Console(Box<Console>),
}

impl Source {
    /// Passes on every row in a range.
    pub async fn read(&mut self, range: TimeRange, visit: &mut Visitor<'_>) -> Result<RowCounts, Error> {
        match self {
            Self::Postgres(postgres) => postgres.read(range, visit).await,
            Self::Console(console) => console.read(range, visit).await,
        }
    }

    /// Finds the earliest row in a range that has changed since a given time. Returns `None` if there is none, or
    /// if the source cannot tell.
    pub async fn changed_since(
        &mut self,
        since: Timestamp,
        range: TimeRange,
    ) -> Result<Option<Timestamp>, Error> {
        match self {
            Self::Postgres(postgres) => postgres.changed_since(since, range).await,
            Self::Console(_) => Ok(None),
        }
    }

    /// Checks that the source can be read, and describes it in a few words.
    pub fn check(&mut self) -> BoxFuture<'_, Result<String, Error>> {
        Box::pin(async move {
            match self {
                Self::Postgres(postgres) => postgres.check().await,
                Self::Console(console) => console.check().await,
            }
        })
    }
}
