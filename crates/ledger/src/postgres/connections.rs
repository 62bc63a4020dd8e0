//! Connections, and calls on them.
//!
//! A call that is dropped (by a deadline, or because its caller left) discards its connection. A reply that nobody
//! waits for must not disturb the next call, and a connection that no longer answers must not be used again.

use deadpool_postgres::{Client, Object, Pool};
use ichido_postgres::{Address, ProbeError, StatementMode, typed_params};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::error::{Sent, connection_failed, failed};
use crate::{Error, Kind, Result};

/// A value for a statement.
pub(super) type Param<'a> = &'a (dyn ToSql + Sync);

pub(super) struct Connections {
    pool: Pool,
    statement_mode: StatementMode,
}

impl Connections {
    /// Detects how statements must be sent, using separate connections.
    pub(super) async fn connect(address: &Address) -> Result<Self> {
        let pool = ichido_postgres::pool(address)?;
        let statement_mode = StatementMode::detect(address).await.map_err(|error| match error {
            ProbeError::Settings(error) => error.into(),
            ProbeError::Failed(error) => failed(error, "connecting to PostgreSQL", Sent::No),
        })?;
        Ok(Self { pool, statement_mode })
    }

    /// Runs one statement and returns its rows: one round trip, once the connection has prepared the statement.
    pub(super) async fn query(
        &self,
        doing: &'static str,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>> {
        if !self.statement_mode.is_unnamed() {
            match self.query_prepared(doing, sql, params).await? {
                Execution::Rows(rows) => return Ok(rows),
                Execution::UnknownStatement => {}
            }
        }
        let mut call = Call(Some(self.connection(doing).await?));
        let rows = call.client(doing)?.query_typed(sql, &typed_params(sql, params)).await;
        call.end();
        rows.map_err(|error| failed(error, doing, Sent::Yes))
    }

    async fn query_prepared(
        &self,
        doing: &'static str,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Execution> {
        let mut call = Call(Some(self.connection(doing).await?));
        let client = call.client(doing)?;
        let (rows, sent) = match client.prepare_cached(sql).await {
            Ok(statement) => (client.query(&statement, params).await, Sent::Yes),
            Err(error) => (Err(error), Sent::No),
        };
        match rows {
            Ok(rows) => {
                call.end();
                Ok(Execution::Rows(rows))
            }
            // Its prepared statements are worthless, so the connection is discarded as well.
            Err(error) if self.statement_mode.fall_back_to_unnamed(&error) => Ok(Execution::UnknownStatement),
            Err(error) => {
                if sent == Sent::Yes {
                    call.end();
                }
                Err(failed(error, doing, sent))
            }
        }
    }

    /// Like `query`, for statements that return at most one row.
    pub(super) async fn query_one(
        &self,
        doing: &'static str,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Option<Row>> {
        Ok(self.query(doing, sql, params).await?.pop())
    }

    /// A connection for the caller's exclusive use.
    pub(super) async fn connection(&self, doing: &'static str) -> Result<Client> {
        self.pool.get().await.map_err(|error| connection_failed(error, doing))
    }

    /// A warning about the connection, for operators.
    pub(super) fn warning(&self) -> Option<String> {
        self.statement_mode.warning().map(ToOwned::to_owned)
    }

    pub(super) fn close(&self) {
        self.pool.close();
    }
}

/// The result of running a prepared statement.
enum Execution {
    Rows(Vec<Row>),
    /// Nothing was executed.
    UnknownStatement,
}

/// A connection during a call. It returns to the pool if the call ends, and is discarded if the call is dropped.
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
