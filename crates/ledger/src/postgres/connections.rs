//! Connections, and calls on them.
//!
//! A call that is dropped half-way (a deadline, a caller that left) takes its connection with it: an answer that nobody
//! waited for must not be in the way of the next call, and a connection into a void must not be used again.

use deadpool_postgres::{Client, Object, Pool};
use ichido_postgres::{Address, Sending, Unprobed, typed};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::error::{Sent, failed, unconnected};
use crate::{Error, Kind, Result};

/// A value for a statement.
pub(super) type Param<'a> = &'a (dyn ToSql + Sync);

pub(super) struct Connections {
    pool: Pool,
    sending: Sending,
}

impl Connections {
    /// Finds out how statements must be sent, by connections of its own.
    pub(super) async fn connect(address: &Address) -> Result<Self> {
        let pool = ichido_postgres::pool(address)?;
        let sending = Sending::of(address).await.map_err(|unprobed| match unprobed {
            Unprobed::Settings(error) => error.into(),
            Unprobed::Failed(error) => failed(error, "connecting to PostgreSQL", Sent::No),
        })?;
        Ok(Self { pool, sending })
    }

    /// Runs one statement and returns its rows: one round trip, once the connection has prepared the statement.
    pub(super) async fn query(
        &self,
        doing: &'static str,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>> {
        if !self.sending.is_unnamed() {
            match self.query_prepared(doing, sql, params).await? {
                Asked::Answered(rows) => return Ok(rows),
                Asked::NameUnknown => {}
            }
        }
        let mut call = Call(Some(self.connection(doing).await?));
        let rows = call.client(doing)?.query_typed(sql, &typed(sql, params)).await;
        call.end();
        rows.map_err(|error| failed(error, doing, Sent::Yes))
    }

    async fn query_prepared(&self, doing: &'static str, sql: &str, params: &[Param<'_>]) -> Result<Asked> {
        let mut call = Call(Some(self.connection(doing).await?));
        let client = call.client(doing)?;
        let (rows, sent) = match client.prepare_cached(sql).await {
            Ok(statement) => (client.query(&statement, params).await, Sent::Yes),
            Err(error) => (Err(error), Sent::No),
        };
        match rows {
            Ok(rows) => {
                call.end();
                Ok(Asked::Answered(rows))
            }
            // What it has prepared is worth nothing: the connection goes as well.
            Err(error) if self.sending.gives_up_names(&error) => Ok(Asked::NameUnknown),
            Err(error) => {
                if sent == Sent::Yes {
                    call.end();
                }
                Err(failed(error, doing, sent))
            }
        }
    }

    /// The same, for statements that return at most one row.
    pub(super) async fn query_one(
        &self,
        doing: &'static str,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Option<Row>> {
        Ok(self.query(doing, sql, params).await?.pop())
    }

    /// A connection of one's own.
    pub(super) async fn connection(&self, doing: &'static str) -> Result<Client> {
        self.pool.get().await.map_err(|error| unconnected(error, doing))
    }

    /// What an operator should know of the connection.
    pub(super) fn warning(&self) -> Option<String> {
        self.sending.warning().map(ToOwned::to_owned)
    }

    pub(super) fn close(&self) {
        self.pool.close();
    }
}

/// What became of a statement that was called by its name.
enum Asked {
    Answered(Vec<Row>),
    /// Nothing was run.
    NameUnknown,
}

/// A connection during a call. It goes back to the pool at the end, or out of it if there is none.
struct Call(Option<Client>);

impl Call {
    fn client(&mut self, doing: &'static str) -> Result<&Client> {
        self.0.as_ref().ok_or_else(|| Error::new(Kind::Unavailable, doing))
    }

    fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(abandoned) = self.0.take() {
            drop(Object::take(abandoned));
        }
    }
}
