//! `dynamodb:`: claims in a table of Amazon DynamoDB, shared by everyone in a region.
//!
//! The table has the partition key `event_key` (S) and the time to live attribute `ttl`. It holds two kinds of
//! items.
//!
//! ```text
//! event_key                    what                attributes
//! <the caller's key>           a mark              processed_at, ttl, ichido_nonce, the caller's metadata
//! ichido#mark#<hash>           a mark whose key starts with ichido#; the same, and ichido_key
//! ichido#<hash>                a claim             ichido_format, ichido_state, ichido_token, … ; ttl once it is done
//! ```
//!
//! Other consumers, such as Slack bots that deduplicate events in the same table, can read and write marks. Claims
//! are ichido's own.
//!
//! What differs from other stores:
//!
//! - **No store clock.** A lease counts as lapsed only after its token and renewals were seen unchanged for a full
//!   lease on the claimant's own steady clock (`lease_watch.rs`). Listings and operators' resolutions use the wall
//!   clock instead.
//! - **Expiry is evaluated when a key is claimed**, by the claimant's wall clock; the server removes items up to
//!   days later. Marks expire at whole seconds, never early.
//! - **Every write is conditional.** After a lost reply, the call is retried with the same nonce: an existing item
//!   with that nonce means success. The client itself does not retry; the handle does.
//! - **Outcomes over 350 KB are replaced by a tombstone**: an item holds 400 KB.
//! - **A batch of marks is one `PutItem` per mark**, several at a time: DynamoDB has no batch of conditional
//!   writes. After an error, some events may be marked; a retry with the same nonces reports those as new again.
//! - **Listing, sweeping and counting scan the table**, with a bounded number of pages per call.
//! - **Permissions**: marks need `PutItem`, `GetItem` and `DescribeTable`, and `DeleteItem` to be forgotten; claims
//!   also need `UpdateItem` and `DeleteItem`, scans need `Scan`, and `init` needs `CreateTable` and `UpdateTimeToLive`.
//! - **Global tables** evaluate conditions in each region separately, so a table with replicas is refused unless
//!   the operator confirms it.

mod claims;
mod error;
mod item;
mod lease_watch;
mod marks;
mod scan;
mod schema;
mod settings;
mod store;
mod sweep_cursor;
mod table;
#[cfg(test)]
mod vectors;

use async_trait::async_trait;
use ichido_core::mark::{self, Erased, Forgotten, Mark, Request};
use ichido_core::{
    Adopted, Claim, ClaimRequest, Key, MarkKey, Record, Resolution, Resolved, Settle, Settled, Token,
};

use crate::{
    Backend, Capabilities, Expiry, Fencing, Listing, Maintain, MarkPage, MarkQuery, Page, Query, Reach,
    Result, Stats, StoreClock, Survives, Sweeping, Swept,
};

pub use self::store::Dynamo;

#[async_trait]
impl Backend for Dynamo {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "dynamodb",
            reach: Reach::Region,
            survives: vec![Survives::ProcessKill, Survives::PowerLoss, Survives::HostLoss],
            expiry: Expiry::Lazy,
            fencing: Fencing::Unique,
            listing: Listing::Scan,
            clock: StoreClock::Watched,
            outcome_bytes: item::OUTCOME_BYTES,
        }
    }

    /// DynamoDB removes items by `ttl`. Finding the rest takes a scan, which costs money and is left to operators.
    fn sweeping(&self) -> Sweeping {
        Sweeping::ByStore
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        self.claim_key(request).await
    }

    async fn settle(&self, key: &Key, token: Token, action: &Settle) -> Result<Settled> {
        self.settle_claim(key, token, action).await
    }

    async fn mark(&self, requests: &[Request]) -> Result<Vec<Mark>> {
        marks::mark_all(&self.table, requests, self.clock.now()).await
    }

    async fn adopt(&self, record: &Record) -> Result<Adopted> {
        self.adopt_record(record).await
    }
}

#[async_trait]
impl Maintain for Dynamo {
    async fn init(&self) -> Result<()> {
        schema::init(&self.table, self.regions).await
    }

    async fn check(&self) -> Result<Vec<String>> {
        schema::check(&self.table, self.regions).await
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>> {
        let now = self.clock.now();
        Ok(self.read_claim(key).await?.filter(|record| now < record.expires_at()))
    }

    async fn list(&self, query: &Query) -> Result<Page> {
        scan::list(&self.table, query, self.clock.now()).await
    }

    async fn resolve(&self, key: &Key, resolution: &Resolution) -> Result<Resolved> {
        self.resolve_claim(key, resolution).await
    }

    async fn get_mark(&self, key: &MarkKey) -> Result<Option<mark::Record>> {
        marks::read(&self.table, key, self.clock.now()).await
    }

    async fn list_marks(&self, query: &MarkQuery) -> Result<MarkPage> {
        scan::list_marks(&self.table, query, self.clock.now()).await
    }

    async fn forget_mark(&self, seen: &mark::Record) -> Result<Forgotten> {
        marks::forget(&self.table, seen, self.clock.now()).await
    }

    async fn erase_mark(&self, seen: &mark::Record) -> Result<Erased> {
        marks::erase(&self.table, seen, self.clock.now()).await
    }

    async fn sweep(&self, limit: usize) -> Result<Swept> {
        scan::sweep(&self.table, &self.sweep_cursor, limit, self.clock.now()).await
    }

    async fn stats(&self) -> Result<Stats> {
        scan::stats(&self.table, self.clock.now()).await
    }

    /// Nothing is buffered, so there is nothing to finish.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
