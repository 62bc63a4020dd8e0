//! Handover: writes pending marks and claims to the primary, then removes them from the local ledger.
//!
//! If the primary refuses a key because it cannot read the record it has, that key stays here and does not block
//! the others. If the mirror has no room for a record, the record stays in the local ledger, which keeps answering
//! for it. It is handed over once more at the next start, which changes nothing.

use ichido_core::mark::{self, Mark};
use ichido_core::{Adopted, Key, Phase, Record, Settle, State, Token};

use super::abandoned_grants::AbandonedGrant;
use super::state::{Fallback, Mode};
use crate::{Conflict, ConflictKind, Error, Result};

/// Marks that are handed over in one call.
pub(super) const CHUNK: usize = 100;

/// The result of a handover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) written_back: u64,
    /// Of these, claims in doubt.
    pub(super) in_doubt: u64,
    pub(super) conflicts: u64,
    pub(super) refused: u64,
}

impl Fallback {
    /// Hands over at most about `count` marks.
    pub(super) async fn hand_over_marks(&self, count: usize, report: &mut Report) -> Result<()> {
        for _ in 0..count.div_ceil(CHUNK) {
            let _turn = self.mark_handover_lock.lock().await;
            let marks = self.pending().next_marks(self.store.now(), CHUNK);
            if marks.is_empty() {
                return Ok(());
            }
            match self.primary.mark(&marks).await {
                Ok(answers) => self.finish_mark_handover(&marks, &answers, report).await?,
                Err(error) if error.is_outage() => return Err(error),
                Err(_) => self.hand_over_one_by_one(&marks, report).await?,
            }
        }
        Ok(())
    }

    /// The primary refused one of these marks. Handing them over one by one lets the others through.
    async fn hand_over_one_by_one(&self, marks: &[mark::Request], report: &mut Report) -> Result<()> {
        for mark in marks.chunks(1) {
            match self.primary.mark(mark).await {
                Ok(answers) => self.finish_mark_handover(mark, &answers, report).await?,
                Err(error) if error.is_outage() => return Err(error),
                Err(error) => {
                    for mark in mark {
                        // The caller was told that the event is new, so this instance must remember it.
                        let _ = self.mirror.put_mark(mark);
                        let is_first = self.pending().refuse_mark(mark.key.index());
                        self.count_refused(is_first, &mark.key.index().to_string(), &error, report);
                    }
                }
            }
        }
        Ok(())
    }

    async fn finish_mark_handover(
        &self,
        marks: &[mark::Request],
        answers: &[Mark],
        report: &mut Report,
    ) -> Result<()> {
        let mut known = Vec::with_capacity(marks.len());
        for (request, answer) in marks.iter().zip(answers) {
            match answer {
                Mark::New => self.count_written_back(report),
                Mark::Seen { .. } => {
                    self.count_conflict(Conflict::of_mark(&request.key, self.store.now()), report)
                }
            }
            // Whatever the primary says, a local caller was told that the event is new.
            if self.mirror.put_mark(request).is_ok() {
                known.push((request.key.index(), request.nonce));
            }
        }
        self.store.remove(&[], &known).await?;
        let mut pending = self.pending();
        marks.iter().for_each(|mark| pending.remove_mark(mark.key.index()));
        Ok(())
    }

    pub(super) async fn hand_over_claims(&self, report: &mut Report) -> Result<()> {
        // In this order: whoever granted one of these claims here had seen all abandoned grants of its key noted.
        let claims = self.pending().claims();
        self.release_abandoned_grants(report).await?;
        for key in claims {
            self.hand_over(&key, report).await?;
        }
        Ok(())
    }

    /// Hands over a claim in its current state: running, in doubt or completed.
    async fn hand_over(&self, key: &Key, report: &mut Report) -> Result<()> {
        let Some(record) = self.store.get(key).await? else {
            return self.finish_claim_handover(key, None, false).await;
        };
        let handed_over = self.as_of_now(record.clone());
        match self.primary.adopt(&handed_over).await {
            Ok(Adopted::Stored) => {
                self.count_written_back(report);
                if let State::InDoubt(_) = handed_over.state {
                    report.in_doubt += 1;
                    self.metrics.doubts_handed_over.increment(1);
                    tracing::warn!(index = %key.index(), "claim of the outage is in doubt; resolve it");
                }
            }
            Ok(Adopted::Conflict) => {
                self.count_conflict(Conflict::of_claim(&handed_over, self.store.now()), report)
            }
            Err(error) if error.is_outage() => return Err(error),
            Err(error) => {
                let is_first = self.pending().refuse_claim(key.index());
                self.count_refused(is_first, &key.index().to_string(), &error, report);
                return Ok(());
            }
        }
        // Whatever the primary says, the claim was granted here.
        let is_mirrored = self.mirror.put_record(handed_over).is_ok();
        self.finish_claim_handover(key, Some(&record), is_mirrored).await
    }

    /// A record as of now: a running claim whose lease has lapsed is in doubt.
    pub(super) fn as_of_now(&self, record: Record) -> Record {
        match record.phase(self.store.now()) {
            Phase::InDoubt(doubt) => Record { state: State::InDoubt(doubt), ..record },
            Phase::Running { .. } | Phase::Done(_) | Phase::Expired { .. } => record,
        }
    }

    /// Ends the handover of a claim, unless its local record has changed meanwhile.
    async fn finish_claim_handover(
        &self,
        key: &Key,
        handed_over: Option<&Record>,
        is_mirrored: bool,
    ) -> Result<()> {
        let _turn = self.pending_lock.lock().await;
        if self.store.get(key).await?.as_ref() != handed_over {
            return Ok(());
        }
        if let Some(record) = handed_over.filter(|_| is_mirrored) {
            self.store.remove(&[(key.index(), record.token)], &[]).await?;
        }
        self.pending().remove_claim(key.index());
        self.count_pending();
        Ok(())
    }

    /// A pending claim was settled or resolved. Hands it over at once if the primary is back; otherwise recovery
    /// does.
    pub(super) async fn hand_over_if_healthy(&self, key: &Key) {
        if *self.mode.read().await != Mode::Healthy {
            return;
        }
        let mut report = Report::default();
        let handed_over = async {
            self.release_abandoned_grants(&mut report).await?;
            self.hand_over(key, &mut report).await
        };
        if let Err(error) = handed_over.await {
            self.degrade(&error).await;
        }
    }

    /// Retries what the primary refused or the handover missed, while the primary is healthy.
    pub(super) async fn retry_leftovers(&self) -> Result<()> {
        let mut report = Report::default();
        self.hand_over_claims(&mut report).await?;
        let _turn = self.mark_handover_lock.lock().await;
        let marks = self.pending().refused_marks(self.store.now());
        self.hand_over_one_by_one(&marks, &mut report).await
    }

    /// The primary may have granted this claim although its reply was lost, and nobody holds the grant.
    pub(super) async fn add_abandoned_grant(&self, key: &Key, token: Token) {
        let grant = AbandonedGrant { key: key.clone(), token };
        let kept = async { self.local.adopt(&grant.record(self.store.now())?).await };
        if let Err(error) = kept.await {
            // If this process crashes, the grant is forgotten and its lease lapses into doubt.
            tracing::warn!(index = %key.index(), %error, "cannot store pending release; it is kept in memory only");
        }
        self.pending().add_abandoned_grant(grant);
    }

    pub(super) async fn remove_abandoned_grant(&self, grant: &AbandonedGrant) -> Result<()> {
        self.store.remove(&[(grant.stored_key()?.index(), grant.token)], &[]).await?;
        self.pending().remove_abandoned_grant(grant.token);
        Ok(())
    }

    /// The caller claims again with the same token, or was granted the claim here: nobody may release its grant any more.
    /// Waits for a release in progress.
    pub(super) async fn take_back_abandoned_grant(&self, key: &Key, token: Token) -> Result<()> {
        let _turn = self.abandoned_lock.lock().await;
        let is_noted = self.pending().has_abandoned_grant(token);
        match is_noted {
            true => self.remove_abandoned_grant(&AbandonedGrant { key: key.clone(), token }).await,
            false => Ok(()),
        }
    }

    /// Releases abandoned grants in the primary, so that they neither block a claim that is handed over nor lapse
    /// into doubt.
    pub(super) async fn release_abandoned_grants(&self, report: &mut Report) -> Result<()> {
        let abandoned_grants = self.pending().abandoned_grants();
        for grant in abandoned_grants {
            let _turn = self.abandoned_lock.lock().await;
            if !self.pending().has_abandoned_grant(grant.token) {
                continue;
            }
            match self.primary.settle(&grant.key, grant.token, &Settle::Release).await {
                Ok(_) => {}
                Err(error) if error.is_outage() => return Err(error),
                // There is no readable grant. Whatever is stored there needs an operator.
                Err(error) => self.count_refused(true, &grant.key.index().to_string(), &error, report),
            }
            self.remove_abandoned_grant(&grant).await?;
        }
        Ok(())
    }

    fn count_written_back(&self, report: &mut Report) {
        report.written_back += 1;
        self.metrics.written_back.increment(1);
    }

    fn count_conflict(&self, conflict: Conflict, report: &mut Report) {
        report.conflicts += 1;
        self.metrics.conflicts.increment(1);
        match conflict.kind {
            ConflictKind::Claim { .. } => tracing::warn!(
                index = conflict.index,
                "another instance claimed the same key during the outage; the primary's record wins"
            ),
            ConflictKind::Mark => {
                tracing::debug!(index = conflict.index, "another instance marked the same event")
            }
        }
        self.conflicts.lock().unwrap_or_else(std::sync::PoisonError::into_inner).add(conflict);
    }

    fn count_refused(&self, is_first: bool, index: &str, error: &Error, report: &mut Report) {
        if is_first {
            report.refused += 1;
            self.metrics.refused.increment(1);
            tracing::error!(index, %error, "primary ledger refused a key; it stays in the fallback");
        }
    }
}
