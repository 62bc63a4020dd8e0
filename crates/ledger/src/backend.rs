//! The interface that a store implements to be a ledger.
//!
//! Every call is one atomic step, decided by [`ichido_core::rules`] or provably equivalent to them. A backend does
//! not retry, measure, renew leases or fall back: the handle ([`crate::Ledger`]) does that once for all backends. A
//! backend never sends a call again either. If a call may have been applied, it returns an error with
//! [`crate::Effect::Unknown`], and the handle retries with the same nonce or token.

use std::fmt;
use std::path::Path;

use async_trait::async_trait;
use ichido_core::mark::{self, Erased, Forgotten, Mark};
use ichido_core::{
    Adopted, Claim, ClaimRequest, Index, Key, MarkKey, Nonce, Record, Resolution, Resolved, Settle, Settled,
    Timestamp, Token,
};

use crate::{
    Backup, Capabilities, Error, Kind, MarkPage, MarkQuery, Page, Query, Result, Stats, Sweeping, Swept,
    Verified,
};

/// Stores claims and marks.
#[async_trait]
pub trait Backend: Maintain {
    /// What this backend guarantees.
    fn capabilities(&self) -> Capabilities;

    /// Who removes expired records.
    fn sweeping(&self) -> Sweeping {
        Sweeping::ByProcess
    }

    /// Claims a key.
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim>;

    /// Answers a claim from memory, if that is possible without waiting, so that retries of completed claims are
    /// fast. `None` says nothing about the claim.
    fn cached_claim(&self, _request: &ClaimRequest) -> Option<Claim> {
        None
    }

    /// Settles a claim on behalf of its holder.
    async fn settle(&self, key: &Key, token: Token, action: &Settle) -> Result<Settled>;

    /// Marks events. The keys of one call must be distinct; results are in the order of the requests. After an
    /// error, some of the events may be marked; a retry with the same nonces reports those as new again.
    async fn mark(&self, requests: &[mark::Request]) -> Result<Vec<Mark>>;

    /// Stores a record of another ledger, in any state, unless the key is taken ([`ichido_core::rules::adopt`]).
    async fn adopt(&self, record: &Record) -> Result<Adopted>;
}

/// Operations for operators.
#[async_trait]
pub trait Maintain: Send + Sync + fmt::Debug + 'static {
    /// Creates whatever the store needs (tables, keys), or checks that it exists. Idempotent.
    async fn init(&self) -> Result<()>;

    /// Connects to the store and checks its settings. Returns warnings for the operator.
    async fn check(&self) -> Result<Vec<String>>;

    /// The record of a key, including its outcome. `None` if there is none, or if its retention is over.
    async fn get(&self, key: &Key) -> Result<Option<Record>>;

    /// One page of claims, without their outcomes.
    async fn list(&self, query: &Query) -> Result<Page>;

    /// Resolves, forgets or erases a claim on behalf of an operator.
    async fn resolve(&self, key: &Key, resolution: &Resolution) -> Result<Resolved>;

    /// Reads the mark of an event. `None` if it is absent or expired.
    async fn get_mark(&self, key: &MarkKey) -> Result<Option<mark::Record>>;

    /// One page of marks.
    async fn list_marks(&self, query: &MarkQuery) -> Result<MarkPage>;

    /// Removes a mark on behalf of an operator, if it is still the one that the operator saw.
    async fn forget_mark(&self, seen: &mark::Record) -> Result<Forgotten>;

    /// Erases what callers wrote in a mark, if it is still the one that was seen. The event stays marked.
    async fn erase_mark(&self, seen: &mark::Record) -> Result<Erased>;

    /// Removes at most `limit` records whose retention is over. Logs a warning for each claim that was still in
    /// doubt.
    async fn sweep(&self, limit: usize) -> Result<Swept>;

    /// How many records the store holds.
    async fn stats(&self) -> Result<Stats>;

    /// Reads and checks everything that is stored.
    async fn verify(&self) -> Result<Verified> {
        Err(file_only("verifying the ledger"))
    }

    /// Copies the store, as it is after some commit, to a new directory.
    async fn backup(&self, _to: &Path) -> Result<Backup> {
        Err(file_only("backing up the ledger"))
    }

    /// Reclaims all space that expired and replaced records take.
    async fn compact(&self) -> Result<Swept> {
        Err(file_only("compacting the ledger"))
    }

    /// Finishes accepted calls and releases the store.
    async fn close(&self) -> Result<()>;
}

/// A store that can serve as the fallback during an outage of another one ([`crate::Ledger::with_fallback`]).
///
/// It holds only what the primary does not know yet. So pending handovers survive a crash without a journal of
/// their own, and the store must be able to list its marks and to remove what was handed over.
#[async_trait]
pub trait LocalBackend: Backend {
    /// All marks that have not expired.
    async fn marks(&self) -> Result<Vec<mark::Record>>;

    /// Removes claims that still have these tokens, and marks that still have these nonces.
    async fn remove(&self, claims: &[(Index, Token)], marks: &[(Index, Nonce)]) -> Result<()>;

    /// The clock by which leases are evaluated.
    fn now(&self) -> Timestamp;
}

fn file_only(doing: &'static str) -> Error {
    let text = "only file: ledgers support this; use the tools of the database server".to_owned();
    Error::new(Kind::Unsupported(text), doing)
}

/// Warns that a claim was in doubt until it expired.
pub(crate) fn warn_doubt_expired(record: &Record) {
    tracing::warn!(
        index = %record.key.index(),
        attempt = record.attempt,
        claimed_at = record.claimed_at.0,
        "claim in doubt expired unresolved after 30 days; its key is free again"
    );
}
