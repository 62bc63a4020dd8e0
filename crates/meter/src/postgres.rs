//! `postgres://…`: stores records in PostgreSQL, for any number of meters.
//!
//! The URL takes the same parameters as the ledger's: `schema` (default `ichido_meter`), `pool`, `prepared`,
//! `sslmode`, `sslrootcert`.
//!
//! A batch is one transaction. One statement inserts its new records, skipping slots that are taken. It inserts in
//! the order of slots, so that batches that share records wait for each other but never deadlock. Records in taken
//! slots are then read, locked and compared by the rules.

mod count;
mod error;
mod queries;
mod schema;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use deadpool_postgres::{Client, Pool, PoolError};
use ichido_postgres::{Address, ProbeError, StatementMode};
use ichido_usage::Profile;

use self::count::Statements;
use self::error::classify;
use crate::announcement::Announcement;
use crate::batch::Batch;
use crate::outcome::Outcome;
use crate::repeats::{Repeats, RepeatsQuery};
use crate::report::{FoundRecord, Group, Page, PageQuery, ReportQuery};
use crate::store::{Error, Grain, Options, Receipt, Result, Store};

/// The default schema.
const DEFAULT_SCHEMA: &str = "ichido_meter";
/// How often a batch is tried after a deadlock or a change of tables.
const ATTEMPTS_MAX: usize = 5;

/// Records in PostgreSQL.
pub(crate) struct Postgres {
    pool: Pool,
    statement_mode: StatementMode,
    schema: String,
    profile: Profile,
    statements: Statements,
}

impl Postgres {
    /// Connects, and creates the tables if they do not exist.
    pub(crate) async fn connect(url: &str, options: Options) -> Result<Self> {
        let settings = |error: ichido_postgres::Error| Error::Settings(error.text);
        let address = Address::parse(url, DEFAULT_SCHEMA).map_err(settings)?;
        let pool = ichido_postgres::pool(&address).map_err(settings)?;
        let statement_mode = StatementMode::detect(&address).await.map_err(|error| match error {
            ProbeError::Settings(error) => settings(error),
            ProbeError::Failed(error) => classify("connecting to the meter's database", error),
        })?;
        let Address { schema, .. } = address;
        let postgres = Self {
            pool,
            statement_mode,
            statements: Statements::of(&schema, options.profile),
            schema,
            profile: options.profile,
        };
        schema::ensure(
            &mut postgres.connection("connecting to the meter's database").await?,
            &postgres.schema,
            options.profile,
        )
        .await?;
        Ok(postgres)
    }

    /// Whether another batch interfered, or a prepared statement was unknown. The transaction was rolled back.
    fn may_be_retried(&self, error: &Error) -> bool {
        let Error::Unavailable { source: Some(source), .. } = error else { return false };
        let Some(error) = source.downcast_ref::<tokio_postgres::Error>() else { return false };
        // Serialization failure, deadlock, and a cached plan that no longer fits the tables.
        let is_contended =
            error.code().is_some_and(|code| ["40001", "40P01", "0A000"].contains(&code.code()));
        is_contended || self.statement_mode.fall_back_to_unnamed(error)
    }

    async fn connection(&self, operation: &'static str) -> Result<Client> {
        self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => classify(operation, error),
            other @ (PoolError::Timeout(_)
            | PoolError::Closed
            | PoolError::NoRuntimeSpecified
            | PoolError::PostCreateHook(_)) => {
                Error::unavailable(operation, "no connection to PostgreSQL", other)
            }
        })
    }
}

/// Shows nothing of the URL but the schema: it may contain a password.
impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("schema", &self.schema).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for Postgres {
    async fn count(&self, batch: Arc<Batch>) -> Result<Vec<Outcome>> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut connection = self.connection("counting a batch").await?;
            let counted =
                count::count(&mut connection, &self.statements, &self.statement_mode, self.profile, &batch)
                    .await;
            match counted {
                Err(error) if attempts < ATTEMPTS_MAX && self.may_be_retried(&error) => {}
                done => return done,
            }
        }
    }

    async fn report(&self, query: &ReportQuery) -> Result<Vec<Group>> {
        queries::report(&self.connection(queries::OPERATION).await?, &self.schema, query).await
    }

    async fn page(&self, query: &PageQuery) -> Result<Page> {
        queries::page(&self.connection(queries::OPERATION).await?, &self.schema, query).await
    }

    async fn receipt(&self, tenant: &str, batch: &str) -> Result<Option<Receipt>> {
        queries::receipt(&self.connection(queries::OPERATION).await?, &self.schema, tenant, batch).await
    }

    async fn find(&self, tenant: &str, event_id: &str) -> Result<Option<FoundRecord>> {
        let connection = self.connection(queries::OPERATION).await?;
        queries::find(&connection, &self.schema, Grain::of(self.profile), tenant, event_id).await
    }

    async fn repeats(&self, query: &RepeatsQuery) -> Result<Repeats> {
        queries::repeats(&self.connection(queries::OPERATION).await?, &self.schema, query).await
    }

    async fn announced(&self, month: &str) -> Result<Vec<Announcement>> {
        queries::announced(&self.connection(queries::OPERATION).await?, &self.schema, month).await
    }

    async fn note_announced(&self, announcement: &Announcement, at: i64) -> Result<()> {
        let client = self.connection(queries::OPERATION).await?;
        queries::note_announced(&client, &self.schema, announcement, at).await
    }

    async fn count_user(&self, user: &str) -> Result<u64> {
        queries::count_user(&self.connection(queries::OPERATION).await?, &self.schema, user).await
    }

    async fn erase_user(&self, user: &str) -> Result<u64> {
        queries::erase_user(&self.connection(queries::OPERATION).await?, &self.schema, user).await
    }

    async fn check(&self) -> Result<()> {
        let operation = "checking the meter's database";
        let sql = format!("SELECT version FROM \"{}\".meter_layout", self.schema);
        let asked = self.connection(operation).await?.query_typed_one(&sql, &[]).await;
        asked.map(drop).map_err(|error| classify(operation, error))
    }

    async fn close(&self) {
        self.pool.close();
    }
}
