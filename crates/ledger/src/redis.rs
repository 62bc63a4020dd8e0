//! `redis://` and `rediss://`: claims shared by everyone who can reach one Redis server or cluster.
//!
//! `redis://USER:PASSWORD@HOST:PORT/DATABASE`, with the parameters `prefix` (of key names, default `ichido:`),
//! `cluster=true`, `ca_file` (a certificate authority to trust, for `rediss://`) and `protocol=resp3`. Needs Redis
//! 5 or newer.
//!
//! Each step is one Lua script on one key, so it is atomic, even in a cluster. The server's clock decides leases
//! and retention. Claims and marks are strings under the hash of their keys. Claims that are running or in doubt
//! have no time to live; completed claims and marks expire at the end of their retention.
//!
//! What must stay true: the rules are applied to records as they were read, and only the conditions of writes are
//! repeated in Lua. Each script writes once, so that a full server refuses all of it or nothing. No command is sent
//! twice unless the server said that it did not run it. A failover to a replica may lose the last claims: see the
//! warnings of [`Maintain::check`]. A flush or a restored backup is detected (`redis/loss_detection.rs`).

mod address;
mod claims;
mod cluster;
mod connection;
mod error;
mod health;
mod layout;
mod loss_detection;
mod maintain;
mod marks;
mod position;
mod record;
mod scan;
mod scripts;
mod store;
mod values;

use std::sync::PoisonError;

use async_trait::async_trait;
use ichido_core::mark::{self, Erased, Forgotten, Mark};
use ichido_core::{
    Adopted, Claim, ClaimRequest, Key, Limits, MarkKey, Record, Resolution, Resolved, Settle, Settled, Token,
};

use crate::{
    Backend, Capabilities, Expiry, Fencing, Listing, Maintain, MarkPage, MarkQuery, Page, Query, Reach,
    Result, Stats, StoreClock, Survives, Sweeping, Swept,
};

pub use self::store::Redis;

#[async_trait]
impl Backend for Redis {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "redis",
            reach: Reach::SinglePrimary,
            // More depends on settings that the server does not reveal.
            survives: vec![Survives::ProcessKill],
            expiry: Expiry::Exact,
            fencing: Fencing::Unique,
            listing: Listing::Scan,
            clock: StoreClock::Server,
            outcome_bytes: Limits::STANDARD.outcome_bytes,
        }
    }

    /// Redis expires completed claims and marks. Finding the rest takes a scan, which is left to operators.
    fn sweeping(&self) -> Sweeping {
        Sweeping::ByStore
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        self.loss_detector.ensure_intact("claiming a key in Redis")?;
        self.claim_key(request).await
    }

    async fn settle(&self, key: &Key, token: Token, action: &Settle) -> Result<Settled> {
        self.settle_claim(key, token, action).await
    }

    async fn mark(&self, requests: &[mark::Request]) -> Result<Vec<Mark>> {
        self.loss_detector.ensure_intact("marking events in Redis")?;
        self.mark_events(requests).await
    }

    async fn adopt(&self, record: &Record) -> Result<Adopted> {
        self.adopt_record(record).await
    }
}

#[async_trait]
impl Maintain for Redis {
    async fn init(&self) -> Result<()> {
        self.warnings().await?;
        self.loss_detector.reset().await
    }

    async fn check(&self) -> Result<Vec<String>> {
        let warnings = self.warnings().await?;
        self.loss_detector.ensure_intact("checking Redis")?;
        Ok(warnings)
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

    /// Counting would mean reading everything.
    async fn stats(&self) -> Result<Stats> {
        Ok(Stats::default())
    }

    async fn close(&self) -> Result<()> {
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(watch) = watch {
            watch.abort();
            // It ends as cancelled.
            let _ = watch.await;
        }
        self.connection.close().await;
        Ok(())
    }
}
