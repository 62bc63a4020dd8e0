//! Handing over: the primary is told of marks and claims, and what it knows is removed from the local ledger.
//!
//! A key that the primary refuses, because it cannot read what it holds for it, stays here and holds nothing else up.
//! What the mirror has no room for stays in the local ledger too, which goes on answering for it; at the next start it
//! is handed over once more, which changes nothing.

use ichido_core::mark::{self, Mark};
use ichido_core::{Adopted, Key, Phase, Record, Settle, State, Token};

use super::abandoned_grants::Orphan;
use super::state::{Fallback, Mode};
use crate::{Conflict, ConflictKind, Error, Result};

/// Marks written back in one call.
pub(super) const CHUNK: usize = 100;

/// What a handover brought to light.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) written_back: u64,
    /// Of these, claims in doubt.
    pub(super) in_doubt: u64,
    pub(super) conflicts: u64,
    pub(super) refused: u64,
}

impl Fallback {
    /// Tells the primary of about `count` marks, as far as there are so many.
    pub(super) async fn hand_over_marks(&self, count: usize, report: &mut Report) -> Result<()> {
        for _ in 0..count.div_ceil(CHUNK) {
            let marks = self.owed().some_marks(self.store.now(), CHUNK);
            if marks.is_empty() {
                return Ok(());
            }
            match self.primary.mark(&marks).await {
                Ok(answers) => self.marks_told(&marks, &answers, report).await?,
                Err(error) if error.is_outage() => return Err(error),
                Err(_) => self.hand_over_each(&marks, report).await?,
            }
        }
        Ok(())
    }

    /// One of these marks is refused: the others need not suffer from it.
    async fn hand_over_each(&self, marks: &[mark::Request], report: &mut Report) -> Result<()> {
        for mark in marks.chunks(1) {
            match self.primary.mark(mark).await {
                Ok(answers) => self.marks_told(mark, &answers, report).await?,
                Err(error) if error.is_outage() => return Err(error),
                Err(error) => {
                    for mark in mark {
                        // Its caller was told that it is new; this instance does not forget that.
                        let _ = self.mirror.put_mark(mark);
                        let is_news = self.owed().refuse_mark(mark.key.index());
                        self.refused(is_news, &mark.key.index().to_string(), &error, report);
                    }
                }
            }
        }
        Ok(())
    }

    async fn marks_told(&self, marks: &[mark::Request], answers: &[Mark], report: &mut Report) -> Result<()> {
        let mut known = Vec::with_capacity(marks.len());
        for (request, answer) in marks.iter().zip(answers) {
            match answer {
                Mark::New => self.written_back(report),
                Mark::Seen { .. } => self.conflict(Conflict::of_mark(&request.key, self.store.now()), report),
            }
            // Whatever the primary says, here its caller was told that it is new.
            if self.mirror.put_mark(request).is_ok() {
                known.push((request.key.index(), request.nonce));
            }
        }
        self.store.remove(&[], &known).await?;
        let mut owed = self.owed();
        marks.iter().for_each(|mark| owed.remove_mark(mark.key.index()));
        Ok(())
    }

    pub(super) async fn hand_over_claims(&self, report: &mut Report) -> Result<()> {
        self.release_orphans(report).await?;
        let claims = self.owed().claims();
        for key in claims {
            self.hand_over(&key, report).await?;
        }
        Ok(())
    }

    /// Hands a claim over as it is: running, in doubt or completed.
    async fn hand_over(&self, key: &Key, report: &mut Report) -> Result<()> {
        let Some(record) = self.store.look(key).await? else { return self.forget(key, None, false).await };
        let told = self.judged(record.clone());
        match self.primary.adopt(&told).await {
            Ok(Adopted::Stored) => {
                self.written_back(report);
                if let State::InDoubt(_) = told.state {
                    report.in_doubt += 1;
                    self.meters.doubts_handed_over.increment(1);
                    tracing::warn!(index = %key.index(), "a claim of the outage is in doubt; resolve it in the ledger");
                }
            }
            Ok(Adopted::Conflict) => self.conflict(Conflict::of_claim(&told, self.store.now()), report),
            Err(error) if error.is_outage() => return Err(error),
            Err(error) => {
                let is_news = self.owed().refuse_claim(key.index());
                self.refused(is_news, &key.index().to_string(), &error, report);
                return Ok(());
            }
        }
        // Whatever the primary says, here it was granted.
        let is_mirrored = self.mirror.put_record(told).is_ok();
        self.forget(key, Some(&record), is_mirrored).await
    }

    /// A record of the local ledger as its clock judges it: a lapsed lease is doubt.
    pub(super) fn judged(&self, record: Record) -> Record {
        match record.phase(self.store.now()) {
            Phase::InDoubt(doubt) => Record { state: State::InDoubt(doubt), ..record },
            Phase::Running { .. } | Phase::Done(_) | Phase::Over { .. } => record,
        }
    }

    /// A claim is owed no more, unless something else is known of it by now.
    async fn forget(&self, key: &Key, told: Option<&Record>, is_mirrored: bool) -> Result<()> {
        let _turn = self.owed_turn.lock().await;
        if self.store.look(key).await?.as_ref() != told {
            return Ok(());
        }
        if let Some(record) = told.filter(|_| is_mirrored) {
            self.store.remove(&[(key.index(), record.token)], &[]).await?;
        }
        self.owed().remove_claim(key.index());
        self.count_owed();
        Ok(())
    }

    /// Something was said of a claim that is owed. If the primary is back already it is told at once, else at the
    /// recovery.
    pub(super) async fn tell_if_healthy(&self, key: &Key) {
        if *self.mode.read().await != Mode::Healthy {
            return;
        }
        let mut report = Report::default();
        let told = async {
            self.release_orphans(&mut report).await?;
            self.hand_over(key, &mut report).await
        };
        if let Err(error) = told.await {
            self.degrade(&error).await;
        }
    }

    /// What is left although the primary is well.
    pub(super) async fn hand_over_rest(&self) -> Result<()> {
        let mut report = Report::default();
        self.hand_over_claims(&mut report).await?;
        let marks = self.owed().refused_marks(self.store.now());
        self.hand_over_each(&marks, &mut report).await
    }

    /// The primary may have granted this without an answer, and nobody holds it.
    pub(super) async fn add_orphan(&self, key: &Key, token: Token) {
        let orphan = Orphan { key: key.clone(), token };
        let kept = async { self.local.adopt(&orphan.record(self.store.now())?).await };
        if let Err(error) = kept.await {
            // If it is lost with this process, the grant lapses into doubt.
            tracing::warn!(index = %key.index(), %error, "a release that the ledger must hear of is kept in memory only");
        }
        self.owed().add_orphan(orphan);
    }

    pub(super) async fn drop_orphan(&self, orphan: &Orphan) -> Result<()> {
        self.store.remove(&[(orphan.place()?.index(), orphan.token)], &[]).await?;
        self.owed().remove_orphan(orphan.token);
        Ok(())
    }

    /// Gives back what nobody holds, lest it be in the way of a claim that is handed over, or lapse into doubt.
    pub(super) async fn release_orphans(&self, report: &mut Report) -> Result<()> {
        let orphans = self.owed().orphans();
        for orphan in orphans {
            match self.primary.settle(&orphan.key, orphan.token, &Settle::Release).await {
                Ok(_) => {}
                Err(error) if error.is_outage() => return Err(error),
                // There is no grant that could be read; what is there is an operator's concern.
                Err(error) => self.refused(true, &orphan.key.index().to_string(), &error, report),
            }
            self.drop_orphan(&orphan).await?;
        }
        Ok(())
    }

    fn written_back(&self, report: &mut Report) {
        report.written_back += 1;
        self.meters.written_back.increment(1);
    }

    fn conflict(&self, conflict: Conflict, report: &mut Report) {
        report.conflicts += 1;
        self.meters.conflicts.increment(1);
        match conflict.kind {
            ConflictKind::Claim { .. } => tracing::warn!(
                index = conflict.index,
                "another instance had the same claim during the outage; the ledger's record stays"
            ),
            ConflictKind::Mark => {
                tracing::debug!(index = conflict.index, "another instance saw the same event")
            }
        }
        self.conflicts.lock().unwrap_or_else(std::sync::PoisonError::into_inner).add(conflict);
    }

    fn refused(&self, is_news: bool, index: &str, error: &Error, report: &mut Report) {
        if is_news {
            report.refused += 1;
            self.meters.refused.increment(1);
            tracing::error!(index, %error, "the ledger does not take this key over; it stays in the fallback");
        }
    }
}
