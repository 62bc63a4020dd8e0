//! What the primary has not been told: an index in memory of what the local ledger holds.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use ichido_core::mark;
use ichido_core::{Index, Key, Scope, Timestamp, Token};

use super::abandoned_grants::Orphan;
use crate::{Local, Query, Result};

/// Claims of one page at loading.
const PAGE: usize = 10_000;

/// What the primary has not been told yet.
#[derive(Debug, Default)]
pub(super) struct Owed {
    /// Marks that the local ledger called new, and when; one per key.
    marks: HashMap<Index, (mark::Request, Timestamp)>,
    /// Marks that the primary refused; they are tried again now and then.
    refused_marks: HashMap<Index, (mark::Request, Timestamp)>,
    /// Claims that the local ledger granted. It knows what became of them.
    claims: HashMap<Index, Key>,
    /// Claims among them that the primary refused.
    refused_claims: HashSet<Index>,
    /// Grants that the primary may have made without an answer, and that nobody holds.
    orphans: HashMap<Token, Orphan>,
    /// When to try again what is left although the primary is well (steady clock).
    try_again_at: Duration,
}

impl Owed {
    /// What a local ledger holds.
    pub(super) async fn load(local: &dyn Local) -> Result<Self> {
        let mut owed = Self::default();
        for mark in local.marks().await? {
            let mark::Record { key, nonce, marked_at, expires_at, metadata } = mark;
            let retention_ms = expires_at.ms_since(marked_at);
            owed.add_mark(&mark::Request { key, nonce, retention_ms, metadata }, marked_at);
        }
        let mut query = Query { limit: PAGE, ..Query::default() };
        loop {
            let page = local.list(&query).await?;
            for claim in &page.claims {
                if let Some(orphan) = Orphan::read(claim) {
                    owed.add_orphan(orphan);
                } else {
                    owed.add_claim(&Key::new(Scope::new(&claim.tenant, &claim.route), claim.key.clone())?);
                }
            }
            match page.cursor {
                Some(cursor) => query.cursor = Some(cursor),
                None => return Ok(owed),
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counts() == (0, 0) && self.orphans.is_empty()
    }

    /// Claims and marks.
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

    /// Whether it is news that the primary refuses this claim.
    pub(super) fn refuse_claim(&mut self, index: Index) -> bool {
        self.refused_claims.insert(index)
    }

    pub(super) fn orphans(&self) -> Vec<Orphan> {
        self.orphans.values().cloned().collect()
    }

    pub(super) fn add_orphan(&mut self, orphan: Orphan) {
        self.orphans.insert(orphan.token, orphan);
    }

    pub(super) fn remove_orphan(&mut self, token: Token) {
        self.orphans.remove(&token);
    }

    pub(super) fn add_mark(&mut self, request: &mark::Request, now: Timestamp) {
        // The same nonce asked again is new again, but owed since the first time.
        self.marks.entry(request.key.index()).or_insert_with(|| (request.clone(), now));
    }

    /// Marks that are to be told next; refused ones do not count.
    pub(super) fn marks_left(&self) -> usize {
        self.marks.len()
    }

    pub(super) fn some_marks(&self, now: Timestamp, most: usize) -> Vec<mark::Request> {
        self.marks.values().take(most).map(|mark| left(mark, now)).collect()
    }

    pub(super) fn refused_marks(&self, now: Timestamp) -> Vec<mark::Request> {
        self.refused_marks.values().map(|mark| left(mark, now)).collect()
    }

    /// Whether a mark that the primary refused is among these.
    pub(super) fn has_refused_mark(&self, keys: &[Index]) -> bool {
        !self.refused_marks.is_empty() && keys.iter().any(|key| self.refused_marks.contains_key(key))
    }

    /// Whether it is news that the primary refuses this mark.
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

    /// Whether something is left, and its time has come; the next time is after `pause`.
    pub(super) fn is_due(&mut self, now: Duration, pause: Duration) -> bool {
        let is_due = !self.is_empty() && now >= self.try_again_at;
        if is_due {
            self.try_again_at = now + pause;
        }
        is_due
    }
}

/// A mark with what is left of its retention.
fn left((request, marked_at): &(mark::Request, Timestamp), now: Timestamp) -> mark::Request {
    let retention_ms = request.retention_ms.saturating_sub(now.ms_since(*marked_at)).max(1);
    mark::Request { retention_ms, ..request.clone() }
}
