//! `postgres://…`: records in PostgreSQL, for any number of meters.
//!
//! The parameters of the URL are those of the ledger's: `schema` (default `ichido_meter`), `pool`, `prepared`, `sslmode`,
//! `sslrootcert`.
//!
//! A batch is one transaction. Its new records are inserted by one statement that leaves what is there alone, in the order of their
//! places, so that batches that share records wait for each other and never in a circle; what was there is then read, locked and
//! judged by the rules.

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
use self::error::failed;
use crate::batch::Batch;
use crate::outcome::Outcome;
use crate::report::{Group, Page, PageQuery, Query};
use crate::store::{Error, Options, Receipt, Result, Store};

/// Where the tables are unless the URL says otherwise.
const SCHEMA: &str = "ichido_meter";
/// A batch that met others in a circle, or a change of tables, is tried so often.
const TRIES: usize = 5;

/// Records in PostgreSQL.
pub(crate) struct Postgres {
    pool: Pool,
    statement_mode: StatementMode,
    schema: String,
    profile: Profile,
    statements: Statements,
}

impl Postgres {
    /// Connects, and creates the tables if they are not there.
    pub(crate) async fn connect(url: &str, options: Options) -> Result<Self> {
        let settings = |error: ichido_postgres::Error| Error::Settings(error.text);
        let address = Address::parse(url, SCHEMA).map_err(settings)?;
        let pool = ichido_postgres::pool(&address).map_err(settings)?;
        let statement_mode = StatementMode::detect(&address).await.map_err(|error| match error {
            ProbeError::Settings(error) => settings(error),
            ProbeError::Failed(error) => failed("connecting to the meter's database", error),
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

    /// Whether another batch came between, or a prepared statement was unknown: the transaction was undone.
    fn may_be_tried_again(&self, error: &Error) -> bool {
        let Error::Unavailable { source: Some(source), .. } = error else { return false };
        let Some(error) = source.downcast_ref::<tokio_postgres::Error>() else { return false };
        // Serialization, deadlock, and a statement that was prepared for tables as they were.
        let is_contended =
            error.code().is_some_and(|code| ["40001", "40P01", "0A000"].contains(&code.code()));
        is_contended || self.statement_mode.fall_back_to_unnamed(error)
    }

    async fn connection(&self, doing: &'static str) -> Result<Client> {
        self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => failed(doing, error),
            other @ (PoolError::Timeout(_)
            | PoolError::Closed
            | PoolError::NoRuntimeSpecified
            | PoolError::PostCreateHook(_)) => {
                Error::unavailable(doing, "no connection to PostgreSQL", other)
            }
        })
    }
}

/// Nothing of the URL but the schema: it may hold a password.
impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("schema", &self.schema).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for Postgres {
    async fn count(&self, batch: Arc<Batch>) -> Result<Vec<Outcome>> {
        let mut tries = 0;
        loop {
            tries += 1;
            let mut connection = self.connection("counting a batch").await?;
            let counted =
                count::count(&mut connection, &self.statements, &self.statement_mode, self.profile, &batch)
                    .await;
            match counted {
                Err(error) if tries < TRIES && self.may_be_tried_again(&error) => {}
                done => return done,
            }
        }
    }

    async fn report(&self, query: &Query) -> Result<Vec<Group>> {
        queries::report(&self.connection(queries::DOING).await?, &self.schema, query).await
    }

    async fn page(&self, query: &PageQuery) -> Result<Page> {
        queries::page(&self.connection(queries::DOING).await?, &self.schema, query).await
    }

    async fn receipt(&self, tenant: &str, batch: &str) -> Result<Option<Receipt>> {
        queries::receipt(&self.connection(queries::DOING).await?, &self.schema, tenant, batch).await
    }

    async fn check(&self) -> Result<()> {
        let doing = "asking the meter's database";
        let sql = format!("SELECT version FROM \"{}\".meter_layout", self.schema);
        let asked = self.connection(doing).await?.query_typed_one(&sql, &[]).await;
        asked.map(drop).map_err(|error| failed(doing, error))
    }

    async fn close(&self) {
        self.pool.close();
    }
}
