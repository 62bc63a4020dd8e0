//! The ledger itself: its connections, and the statements for its schema.

use std::fmt;
use std::sync::Arc;

use ichido_postgres::Address;

use super::batches::Batches;
use super::connections::Connections;
use super::health::Health;
use super::schema;
use super::server::Server;
use super::statements::Statements;
use crate::{Result, Survives};

/// The schema of the tables, unless the URL names another.
const SCHEMA: &str = "ichido";

/// A ledger in PostgreSQL.
pub struct Postgres {
    pub(super) server: Server,
    pub(super) batches: Batches,
    pub(super) schema: String,
    pub(super) survives: Vec<Survives>,
}

impl Postgres {
    /// Connects, and creates the tables if they are missing.
    pub async fn connect(url: &str) -> Result<Self> {
        let address = Address::parse(url, SCHEMA)?;
        let connections = Connections::connect(&address).await?;
        let health = Health::query(&connections).await?;
        health.require_usable()?;
        schema::ensure(&connections, &address.schema).await?;
        let sql = Arc::new(Statements::of(&address.schema));
        let server = Server { connections: Arc::new(connections), sql };
        let batches = Batches::new(&server);
        Ok(Self { server, batches, schema: address.schema, survives: health.survives() })
    }
}

/// Shows only the schema of the URL: the rest may contain a password.
impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("schema", &self.schema).finish_non_exhaustive()
    }
}
