//! Connections, and calls on them.
//!
//! A call that is dropped half-way (a deadline, a caller that left) takes its connection with it: an answer that nobody
//! waited for must not be in the way of the next call, and a connection into a void must not be used again.

use deadpool_postgres::{Client, Object, Pool};
use ichido_postgres::Address;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::failure::{Sent, failed, unconnected};
use crate::{Error, Kind, Result};

/// A value for a statement.
pub(super) type Param<'a> = &'a (dyn ToSql + Sync);

pub(super) struct Store {
    pool: Pool,
}

impl Store {
    pub(super) fn new(address: &Address) -> Result<Self> {
        Ok(Self { pool: ichido_postgres::pool(address)? })
    }

    /// Runs one statement and returns its rows: one round trip, once the connection has prepared the statement.
    pub(super) async fn query(
        &self,
        doing: &'static str,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>> {
        let mut call = Call(Some(self.connection(doing).await?));
        let client = call.client(doing)?;
        let statement = client.prepare_cached(sql).await.map_err(|error| failed(error, doing, Sent::No))?;
        let rows = client.query(&statement, params).await;
        call.end();
        rows.map_err(|error| failed(error, doing, Sent::Yes))
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

    pub(super) fn close(&self) {
        self.pool.close();
    }
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
