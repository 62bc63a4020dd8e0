//! The seam: what a store must do to be a ledger.
//!
//! A backend makes each verb one atomic step, judged by [`ichido_core::rules`] or provably like them. It does not
//! retry, measure, renew or fall back: the handle ([`crate::Ledger`]) does that once for all. It does not repeat a
//! call by itself either: a call that may have been applied is an error with [`crate::Effect::Unknown`], and the
//! handle asks again with the same nonce or token.

use std::fmt;

use async_trait::async_trait;
use ichido_core::mark::{self, Mark};
use ichido_core::{
    Adopted, Claim, ClaimRequest, Index, Key, Nonce, Record, Resolution, Resolved, Settle, Settled,
    Timestamp, Token,
};

use crate::{Capabilities, Page, Query, Result, Stats, Swept};

/// A store of claims and marks.
#[async_trait]
pub trait Backend: Maintain {
    /// What this backend promises.
    fn capabilities(&self) -> Capabilities;

    /// Asks for a key.
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim>;

    /// The answer to a claim, if it lies in memory: a repeat of what was completed need not wait then. `None` says
    /// nothing of the claim.
    fn recall(&self, _request: &ClaimRequest) -> Option<Claim> {
        None
    }

    /// Takes a holder's word on its claim.
    async fn settle(&self, key: &Key, token: Token, word: &Settle) -> Result<Settled>;

    /// Marks events. The keys of one call are distinct; the answers come in the order of the requests. An error
    /// may leave some of them marked; asked again with the same nonces, they are new again.
    async fn mark(&self, requests: &[mark::Request]) -> Result<Vec<Mark>>;

    /// Puts a record of another ledger, in any state, unless the key is taken ([`ichido_core::rules::adopt`]).
    async fn adopt(&self, record: &Record) -> Result<Adopted>;
}

/// What operators do with a ledger.
#[async_trait]
pub trait Maintain: Send + Sync + fmt::Debug + 'static {
    /// Creates what the ledger needs (tables, keyspaces), or checks that it is there. Idempotent.
    async fn init(&self) -> Result<()>;

    /// Reaches the store and looks at its settings. Warnings are for the operator.
    async fn check(&self) -> Result<Vec<String>>;

    /// What is remembered of a key, with its outcome. A record whose retention is over is `None`.
    async fn look(&self, key: &Key) -> Result<Option<Record>>;

    /// A page of claims, without their outcomes.
    async fn list(&self, query: &Query) -> Result<Page>;

    /// Takes an operator's word on a claim.
    async fn resolve(&self, key: &Key, word: &Resolution) -> Result<Resolved>;

    /// Removes at most `limit` records whose retention is over. Doubt that ends is logged as a warning.
    async fn sweep(&self, limit: usize) -> Result<Swept>;

    /// How much is stored.
    async fn stats(&self) -> Result<Stats>;

    /// Finishes what was accepted and lets go of the store.
    async fn close(&self) -> Result<()>;
}

/// A store that can stand in for another one that is out ([`crate::Ledger::with_fallback`]).
///
/// It holds only what the other one has not been told: that is how the debt survives a crash, without a journal of its
/// own. So it must be able to list its marks, and to remove what was handed over.
#[async_trait]
pub trait Local: Backend {
    /// The marks that are remembered.
    async fn marks(&self) -> Result<Vec<mark::Record>>;

    /// Removes claims that still have these tokens, and marks that still have these nonces.
    async fn remove(&self, claims: &[(Index, Token)], marks: &[(Index, Nonce)]) -> Result<()>;

    /// The time by which leases are judged.
    fn now(&self) -> Timestamp;
}

/// Doubt that ends is a warning, not silence.
pub(crate) fn warn_doubt_ended(record: &Record) {
    tracing::warn!(
        index = %record.key.index(),
        attempt = record.attempt,
        claimed_at = record.claimed_at.0,
        "a claim in doubt was never resolved; its 30 days are over and the key is free again"
    );
}
