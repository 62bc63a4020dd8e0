//! A granted claim.

use bytes::Bytes;
use http::HeaderMap;
use http::response::Parts;
use ichido_core::{Grant, Limits, Now, Outcome, Settle, Settled};

use super::request::Job;
use crate::journal::{Asked, Word};
use crate::options::{NoStore, SetCookie};
use crate::stored_response::{self as answer, body_of, is_no_store};

/// Leave to run the service.
pub(crate) struct Run {
    pub(crate) job: Job,
    pub(crate) grant: Grant,
}

impl Run {
    /// What is kept of an answer, and the body inside it.
    pub(super) fn outcome(
        &self,
        head: &Parts,
        pieces: &[Bytes],
        trailers: &HeaderMap,
    ) -> (Outcome, Option<Bytes>) {
        let route = self.job.route();
        if route.no_store == NoStore::Tombstone && is_no_store(&head.headers) {
            return (Outcome::Tombstone("the service asked that its answer be not stored".to_owned()), None);
        }
        let packed = answer::pack(head, trailers, route.set_cookie == SetCookie::Keep, pieces);
        match packed.filter(|packed| packed.len() <= Limits::STANDARD.outcome_bytes) {
            Some(packed) => {
                let body = body_of(&packed, pieces.iter().map(Bytes::len).sum());
                (Outcome::Kept(packed), Some(body))
            }
            None => (Outcome::Tombstone("the answer was too large to be kept".to_owned()), None),
        }
    }

    /// Records the outcome. An error is what holds instead: the claim was taken over.
    pub(super) async fn complete(&self, outcome: Outcome) -> Result<(), Now> {
        let settle = Settle::Complete(outcome);
        match self.job.ledger().settle(&self.job.ready.claim.key, self.grant.token, &settle).await {
            Ok(Settled::Applied) => Ok(()),
            Ok(Settled::Stale(now)) => Err(now),
            Err(error) => {
                // The effect has happened: its answer goes to the caller, its record to a place that lasts.
                self.job.shared.meters.unrecorded.increment(1);
                Box::pin(self.keep(settle, &error)).await;
                Ok(())
            }
        }
    }

    /// A last word other than completion. What the ledger does not take now it hears later.
    pub(super) async fn say(&self, word: Settle) {
        let key = &self.job.ready.claim.key;
        match self.job.ledger().settle(key, self.grant.token, &word).await {
            Ok(Settled::Applied) => {}
            Ok(Settled::Stale(_)) => {
                tracing::warn!(index = %key.index(), "the claim was taken over before it was settled");
            }
            Err(error) => self.keep(word, &error).await,
        }
    }

    async fn keep(&self, settle: Settle, error: &ichido_ledger::Error) {
        let claim = &self.job.ready.claim;
        let index = claim.key.index();
        let Some(journal) = &self.job.shared.journal else {
            tracing::error!(%index, %error, "the outcome of a request was not recorded; its claim will be in doubt");
            return;
        };
        let word = Word { asked: Asked::of(claim), token: self.grant.token, settle };
        match journal.keep(self.job.ledger(), word, Some(&self.grant)).await {
            Ok(()) => {
                tracing::warn!(%index, %error, "the ledger did not take the end of a request; it waits in the completion journal")
            }
            Err(disk) => {
                tracing::error!(%index, %error, %disk, "neither the ledger nor the completion journal took the end of a request; its claim will be in doubt");
            }
        }
    }
}

/// A reason that fits the ledger's limit. A cause that says no more than what it caused is said once.
pub(super) fn reason(what: &str, cause: &str) -> String {
    let mut text = if what == cause { what.to_owned() } else { format!("{what}: {cause}") };
    let mut end = text.len().min(Limits::STANDARD.reason_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}
