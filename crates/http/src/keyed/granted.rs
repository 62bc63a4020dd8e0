//! A granted claim: what is stored of the response, and how the claim is settled.

use bytes::Bytes;
use http::HeaderMap;
use http::response::Parts;
use ichido_core::{CurrentState, Grant, Limits, Outcome, Settle, Settled};
use ichido_similar::Remembered;

use super::request::KeyedRequest;
use crate::journal::{Entry, RequestIdentity};
use crate::options::{NoStore, SetCookie};
use crate::stored_response::{body_of, is_no_store, pack};

/// A keyed request that may call the service.
pub(super) struct GrantedClaim {
    pub(super) request: KeyedRequest,
    pub(super) grant: Grant,
    /// The text of the event among those that are compared. It is forgotten unless the event is handled.
    pub(super) remembered: Option<Remembered>,
}

impl GrantedClaim {
    /// The outcome to store for a response, and the response body as a slice of it.
    pub(super) fn outcome(
        &self,
        head: &Parts,
        chunks: &[Bytes],
        trailers: &HeaderMap,
    ) -> (Outcome, Option<Bytes>) {
        let route = self.request.route();
        if route.no_store == NoStore::Tombstone && is_no_store(&head.headers) {
            return (Outcome::Tombstone("the response has Cache-Control: no-store".to_owned()), None);
        }
        let packed = pack(head, trailers, route.set_cookie == SetCookie::Keep, chunks);
        match packed.filter(|packed| packed.len() <= Limits::STANDARD.outcome_bytes) {
            Some(packed) => {
                let body = body_of(&packed, chunks.iter().map(Bytes::len).sum());
                (Outcome::Kept(packed), Some(body))
            }
            None => (Outcome::Tombstone("the response was too large to store".to_owned()), None),
        }
    }

    /// Records the outcome. The error is the current state of a claim that was taken over.
    pub(super) async fn complete(&self, outcome: Outcome) -> Result<(), CurrentState> {
        let settle = Settle::Complete(outcome);
        match self.request.ledger().settle(&self.request.claimable.claim.key, self.grant.token, &settle).await
        {
            Ok(Settled::Applied) => {
                self.confirm_text();
                Ok(())
            }
            Ok(Settled::Stale(now)) => Err(now),
            Err(error) => {
                // The effect has happened: the caller gets the response, and the outcome goes to durable storage.
                self.request.shared.metrics.unrecorded.increment(1);
                self.confirm_text();
                Box::pin(self.journal(settle, &error)).await;
                Ok(())
            }
        }
    }

    fn confirm_text(&self) {
        if let Some(remembered) = &self.remembered {
            remembered.confirm();
        }
    }

    /// Releases the claim or declares it in doubt. If the ledger is unavailable, it receives this later.
    pub(super) async fn settle(&self, settle: Settle) {
        let key = &self.request.claimable.claim.key;
        if let (Settle::Doubt(reason), Some(span)) = (&settle, &self.request.trace.span) {
            span.in_doubt(reason);
        }
        match self.request.ledger().settle(key, self.grant.token, &settle).await {
            Ok(Settled::Applied) => {}
            Ok(Settled::Stale(_)) => {
                tracing::warn!(index = %key.index(), "claim was taken over before it was settled");
            }
            Err(error) => self.journal(settle, &error).await,
        }
    }

    async fn journal(&self, settle: Settle, error: &ichido_ledger::Error) {
        let claim = &self.request.claimable.claim;
        let index = claim.key.index();
        let Some(journal) = &self.request.shared.journal else {
            tracing::error!(%index, %error, "cannot settle claim; it will become in doubt");
            return;
        };
        let entry = Entry { request: RequestIdentity::of(claim), token: self.grant.token, settle };
        match journal.append(self.request.ledger(), entry, Some(&self.grant)).await {
            Ok(()) => {
                tracing::warn!(%index, %error, "cannot settle claim; wrote it to the completion journal")
            }
            Err(journal_error) => {
                tracing::error!(%index, %error, %journal_error, "cannot settle claim or write the completion journal; the claim will become in doubt");
            }
        }
    }
}

/// A reason for doubt, cut to the ledger's limit.
pub(super) fn doubt_reason(what: &str, cause: &str) -> String {
    let mut text = if what == cause { what.to_owned() } else { format!("{what}: {cause}") };
    let mut end = text.len().min(Limits::STANDARD.reason_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}
