//! `postgres://`: claims shared by everyone who can reach one PostgreSQL server.
//!
//! `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, with the parameters of tokio-postgres and five of our own:
//! `schema` (default `ichido`), `pool` (most connections, default 16), `sslrootcert` (a file with certificate
//! authorities to trust), `sslmode` also as `verify-ca` or `verify-full`, and `prepared` (`auto`, `on` or `off`).
//! By default, a pooler in transaction mode is detected, and statements are not prepared there.
//!
//! The server's clock decides leases and retention. Every call is one statement, or two of which the second only
//! writes if the record is still the one that the first read. Calls that wait at the same time share a statement, and
//! so a commit. So it is correct under READ COMMITTED with any number
//! of processes. What must stay true: a statement that wrote nothing never counts as a grant, and every write to a
//! claim changes its version. The rules are applied to rows as they were read, so only the conditions of writes are
//! repeated in SQL.

mod batches;
mod claims;
mod connections;
mod error;
mod health;
mod maintain;
mod mark_rows;
mod marks;
mod row;
mod schema;
mod server;
mod statements;
mod store;
mod transaction;
mod values;

use async_trait::async_trait;
use ichido_core::mark::{self, Erased, Forgotten, Mark};
use ichido_core::{
    Adopted, Claim, ClaimRequest, Key, Limits, MarkKey, Record, Resolution, Resolved, Settle, Settled, Token,
};

use self::health::Health;
use crate::{
    Backend, Capabilities, Expiry, Fencing, Listing, Maintain, MarkPage, MarkQuery, Page, Query, Reach,
    Result, Stats, StoreClock, Swept,
};

pub use self::store::Postgres;
pub use self::transaction::NotRecorded;

#[async_trait]
impl Backend for Postgres {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "postgres",
            reach: Reach::SinglePrimary,
            survives: self.survives.clone(),
            expiry: Expiry::Exact,
            fencing: Fencing::Unique,
            listing: Listing::Indexed,
            clock: StoreClock::Server,
            outcome_bytes: Limits::STANDARD.outcome_bytes,
        }
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        self.claim_key(request).await
    }

    async fn settle(&self, key: &Key, token: Token, action: &Settle) -> Result<Settled> {
        self.settle_claim(key, token, action).await
    }

    async fn mark(&self, requests: &[mark::Request]) -> Result<Vec<Mark>> {
        self.mark_events(requests).await
    }

    async fn adopt(&self, record: &Record) -> Result<Adopted> {
        self.adopt_record(record).await
    }
}

#[async_trait]
impl Maintain for Postgres {
    async fn init(&self) -> Result<()> {
        schema::ensure(&self.server.connections, &self.schema).await
    }

    async fn check(&self) -> Result<Vec<String>> {
        let health = Health::query(&self.server.connections).await?;
        health.require_usable()?;
        schema::ensure(&self.server.connections, &self.schema).await?;
        Ok(health.warnings().into_iter().chain(self.server.connections.warning()).collect())
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>> {
        self.get_claim(key).await
    }

    async fn list(&self, query: &Query) -> Result<Page> {
        self.list_claims(query).await
    }

    async fn resolve(&self, key: &Key, resolution: &Resolution) -> Result<Resolved> {
        self.resolve_claim(key, resolution).await
    }

    async fn get_mark(&self, key: &MarkKey) -> Result<Option<mark::Record>> {
        self.read_mark(key).await
    }

    async fn list_marks(&self, query: &MarkQuery) -> Result<MarkPage> {
        self.list_marked(query).await
    }

    async fn forget_mark(&self, seen: &mark::Record) -> Result<Forgotten> {
        self.remove_mark(seen).await
    }

    async fn erase_mark(&self, seen: &mark::Record) -> Result<Erased> {
        self.erase_marked(seen).await
    }

    async fn sweep(&self, limit: usize) -> Result<Swept> {
        self.sweep_expired(limit).await
    }

    async fn stats(&self) -> Result<Stats> {
        self.count().await
    }

    async fn close(&self) -> Result<()> {
        self.server.connections.close();
        Ok(())
    }
}
