//! What is pending handover: an in-memory index of the local ledger's contents.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use ichido_core::mark;
use ichido_core::{Index, Key, Scope, Timestamp, Token};

use super::abandoned_grants::AbandonedGrant;
use crate::{LocalBackend, Query, Result};

/// Claims that are loaded per page.
const PAGE: usize = 10_000;

/// What the primary does not know yet.
#[derive(Debug, Default)]
pub(super) struct PendingHandover {
    /// Marks that the local ledger reported as new, and when; one per key.
    marks: HashMap<Index, (mark::Request, Timestamp)>,
    /// Marks that the primary refused. They are retried periodically.
    refused_marks: HashMap<Index, (mark::Request, Timestamp)>,
    /// Claims that the local ledger granted. Their state is in the local ledger.
    claims: HashMap<Index, Key>,
    /// Those of the claims that the primary refused.
    refused_claims: HashSet<Index>,
    /// Grants that the primary may have made although the reply was lost, and that nobody holds.
    abandoned_grants: HashMap<Token, AbandonedGrant>,
    /// When to retry leftovers while the primary is healthy (steady clock).
    retry_at: Duration,
}

impl PendingHandover {
    /// Loads the index from a local ledger.
    pub(super) async fn load(local: &dyn LocalBackend) -> Result<Self> {
        let mut pending = Self::default();
        for mark in local.marks().await? {
            let mark::Record { key, nonce, marked_at, expires_at, metadata } = mark;
            let retention_ms = expires_at.ms_since(marked_at);
            pending.add_mark(&mark::Request { key, nonce, retention_ms, metadata }, marked_at);
        }
        let mut query = Query { limit: PAGE, ..Query::default() };
        loop {
            let page = local.list(&query).await?;
            for claim in &page.claims {
                if let Some(grant) = AbandonedGrant::from_summary(claim) {
                    pending.add_abandoned_grant(grant);
                } else {
                    pending
                        .add_claim(&Key::stored(Scope::new(&claim.tenant, &claim.route), claim.key.clone())?);
                }
            }
            match page.cursor {
                Some(cursor) => query.cursor = Some(cursor),
                None => return Ok(pending),
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counts() == (0, 0) && self.abandoned_grants.is_empty()
    }

    /// Number of claims and marks.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.claims.len(), self.marks.len() + self.refused_marks.len())
    }

    pub(super) fn refused(&self) -> usize {
        self.refused_claims.len() + self.refused_marks.len()
    }

    pub(super) fn has_claim(&self, index: Index) -> bool {
        self.claims.contains_key(&index)
    }

    pub(super) fn claims(&self) -> Vec<Key> {
        self.claims.values().cloned().collect()
    }

    pub(super) fn add_claim(&mut self, key: &Key) {
        self.claims.insert(key.index(), key.clone());
    }

    pub(super) fn remove_claim(&mut self, index: Index) {
        self.claims.remove(&index);
        self.refused_claims.remove(&index);
    }

    /// Notes that the primary refuses this claim. Returns whether this is the first time.
    pub(super) fn refuse_claim(&mut self, index: Index) -> bool {
        self.refused_claims.insert(index)
    }

    pub(super) fn abandoned_grants(&self) -> Vec<AbandonedGrant> {
        self.abandoned_grants.values().cloned().collect()
    }

    pub(super) fn has_abandoned_grant(&self, token: Token) -> bool {
        self.abandoned_grants.contains_key(&token)
    }

    pub(super) fn add_abandoned_grant(&mut self, grant: AbandonedGrant) {
        self.abandoned_grants.insert(grant.token, grant);
    }

    pub(super) fn remove_abandoned_grant(&mut self, token: Token) {
        self.abandoned_grants.remove(&token);
    }

    pub(super) fn add_mark(&mut self, request: &mark::Request, now: Timestamp) {
        // A retry with the same nonce is new again, but pending since the first call.
        self.marks.entry(request.key.index()).or_insert_with(|| (request.clone(), now));
    }

    pub(super) fn has_mark(&self, index: Index) -> bool {
        self.marks.contains_key(&index) || self.refused_marks.contains_key(&index)
    }

    /// Number of marks to hand over, without refused ones.
    pub(super) fn marks_left(&self) -> usize {
        self.marks.len()
    }

    pub(super) fn next_marks(&self, now: Timestamp, max: usize) -> Vec<mark::Request> {
        self.marks.values().take(max).map(|mark| left(mark, now)).collect()
    }

    pub(super) fn refused_marks(&self, now: Timestamp) -> Vec<mark::Request> {
        self.refused_marks.values().map(|mark| left(mark, now)).collect()
    }

    /// Whether the primary refused a mark with one of these keys.
    pub(super) fn has_refused_mark(&self, keys: &[Index]) -> bool {
        !self.refused_marks.is_empty() && keys.iter().any(|key| self.refused_marks.contains_key(key))
    }

    /// Notes that the primary refuses this mark. Returns whether this is the first time.
    pub(super) fn refuse_mark(&mut self, index: Index) -> bool {
        match self.marks.remove(&index) {
            Some(mark) => self.refused_marks.insert(index, mark).is_none(),
            None => false,
        }
    }

    pub(super) fn remove_mark(&mut self, index: Index) {
        self.marks.remove(&index);
        self.refused_marks.remove(&index);
    }

    /// Whether there are leftovers and their next retry is due. If so, schedules the retry after that in `pause`.
    pub(super) fn is_due(&mut self, now: Duration, pause: Duration) -> bool {
        let is_due = !self.is_empty() && now >= self.retry_at;
        if is_due {
            self.retry_at = now + pause;
        }
        is_due
    }
}

/// A mark with what is left of its retention.
fn left((request, marked_at): &(mark::Request, Timestamp), now: Timestamp) -> mark::Request {
    let retention_ms = request.retention_ms.saturating_sub(now.ms_since(*marked_at)).max(1);
    mark::Request { retention_ms, ..request.clone() }
}
