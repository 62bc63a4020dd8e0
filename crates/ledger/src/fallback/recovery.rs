//! Recovery: what the primary was not told, and how it is told.

use std::collections::HashMap;
use std::sync::Arc;

use ichido_core::mark::{self, Mark};
use ichido_core::{Adopted, Index, Key, Record, Settle, State, Timestamp, Token};

use super::{Fallback, Mode};
use crate::{Error, Kind, Result};

/// Marks written back in one call.
const CHUNK: usize = 100;

/// What the primary has not been told yet.
#[derive(Debug, Default)]
pub(super) struct Owed {
    /// Marks that the local ledger called new, and when; one per key.
    marks: HashMap<Index, (mark::Request, Timestamp)>,
    /// Claims that the local ledger granted. It knows which of them are done.
    claims: HashMap<Index, Key>,
    /// Grants that the primary may have made without an answer, and that nobody holds.
    ghosts: Vec<(Key, Token)>,
}

/// What a recovery brought to light.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Report {
    written_back: u64,
    conflicts: u64,
}

impl Owed {
    pub(super) fn has_claim(&self, index: Index) -> bool {
        self.claims.contains_key(&index)
    }

    pub(super) fn add_claim(&mut self, key: &Key) {
        self.claims.insert(key.index(), key.clone());
    }

    pub(super) fn add_ghost(&mut self, key: &Key, token: Token) {
        self.ghosts.push((key.clone(), token));
    }

    pub(super) fn remove_claim(&mut self, index: Index) {
        self.claims.remove(&index);
    }

    pub(super) fn add_mark(&mut self, request: &mark::Request, now: Timestamp) {
        // The same nonce asked again is new again, but owed since the first time.
        self.marks.entry(request.key.index()).or_insert_with(|| (request.clone(), now));
    }

    fn some_marks(&self, now: Timestamp) -> Vec<mark::Request> {
        let left = |(request, marked_at): &(mark::Request, Timestamp)| mark::Request {
            retention_ms: request.retention_ms.saturating_sub(now.ms_since(*marked_at)).max(1),
            ..request.clone()
        };
        self.marks.values().take(CHUNK).map(left).collect()
    }
}

impl Fallback {
    /// Starts one probe. It runs in a task of its own: a caller that gives up does not stop it.
    pub(super) fn probe(self: &Arc<Self>) {
        let fallback = self.clone();
        tokio::spawn(async move { fallback.probe_once().await });
    }

    /// Starts a probe if the pause is over: callers may have fallen silent, and the primary is to be told all the same.
    pub(crate) async fn probe_if_due(self: &Arc<Self>) {
        let mode = *self.mode.read().await;
        match mode {
            Mode::Degraded { until, probing: false } if self.now() >= until => self.probe(),
            Mode::Degraded { .. } | Mode::Healthy => {}
        }
    }

    /// Probes without waiting for the end of the pause. How many marks and claims the primary does not know then.
    pub(crate) async fn tell_now(&self) -> usize {
        {
            let mut mode = self.mode.write().await;
            if let Mode::Degraded { until, .. } = &mut *mode {
                *until = self.now();
            }
        }
        self.probe_once().await;
        let owed = self.owed();
        owed.marks.len() + owed.claims.len()
    }

    async fn probe_once(&self) {
        {
            let mut mode = self.mode.write().await;
            match *mode {
                Mode::Degraded { until, probing: false } if self.now() >= until => {
                    *mode = Mode::Degraded { until, probing: true };
                }
                Mode::Degraded { .. } | Mode::Healthy => return,
            }
        }
        match self.recover().await {
            Ok(report) => tracing::warn!(
                written_back = report.written_back,
                conflicts = report.conflicts,
                "the ledger is back; conflicts are events that another instance saw as well"
            ),
            Err(error) => {
                tracing::debug!(%error, "the ledger is still out");
                let until = self.now() + self.pause;
                *self.mode.write().await = Mode::Degraded { until, probing: false };
            }
        }
    }

    /// Reaches the primary, tells it everything, and turns healthy in the same breath as the last of the marks.
    async fn recover(&self) -> Result<Report> {
        let reached = tokio::time::timeout(self.primary.settings.timeout, self.primary.backend.check()).await;
        reached.map_err(|_| Error::new(Kind::Timeout, "probing the ledger"))??;
        let mut report = Report::default();
        loop {
            let owed = self.owed().marks.len();
            self.write_back_marks(owed, &mut report).await?;
            self.write_back_claims(&mut report).await?;
            // Each round must be half as long as the last: callers may mark faster than the primary can be told.
            let left = self.owed().marks.len();
            if left < CHUNK || left > owed / 2 {
                break;
            }
        }
        {
            // The callers wait for the rest.
            let mut mode = self.mode.write().await;
            self.write_back_marks(usize::MAX, &mut report).await?;
            // A caller who is granted one of these from now on must not lose it.
            self.release_ghosts().await?;
            *mode = Mode::Healthy;
            self.meters.degraded.set(0.0);
        }
        // Completed in the meantime, by holders who still saw us degraded.
        self.tell_if_healthy().await;
        Ok(report)
    }

    /// Tells the primary of about `count` marks, as far as there are so many.
    async fn write_back_marks(&self, count: usize, report: &mut Report) -> Result<()> {
        for _ in 0..count.div_ceil(CHUNK) {
            let marks = self.owed().some_marks(self.primary.settings.clock.now());
            if marks.is_empty() {
                return Ok(());
            }
            let answers = self.primary.mark(&marks).await?;
            let conflicts = answers.iter().filter(|mark| matches!(mark, Mark::Seen { .. })).count() as u64;
            self.count(report, marks.len() as u64 - conflicts, conflicts);
            for mark in &marks {
                // Whatever the primary says, here its caller was told that it is new.
                let _ = self.mirror.put_mark(mark);
            }
            let mut owed = self.owed();
            for mark in &marks {
                owed.marks.remove(&mark.key.index());
            }
        }
        Ok(())
    }

    async fn write_back_claims(&self, report: &mut Report) -> Result<()> {
        self.release_ghosts().await?;
        let claims: Vec<Key> = self.owed().claims.values().cloned().collect();
        for key in claims {
            let Some(record) = self.local.backend.look(&key).await? else {
                self.forget(&key, None).await?;
                continue;
            };
            match record.state {
                State::Running | State::InDoubt(_) => continue,
                State::Done(_) => {}
            }
            match self.primary.adopt(&record).await? {
                Adopted::Stored => self.count(report, 1, 0),
                Adopted::Conflict => self.count(report, 0, 1),
            }
            // Whatever the primary says, here it was run.
            let _ = self.mirror.put_record(record.clone());
            self.forget(&key, Some(&record)).await?;
        }
        Ok(())
    }

    /// Gives back what nobody holds, lest it be in the way of an outcome, or lapse into doubt.
    async fn release_ghosts(&self) -> Result<()> {
        loop {
            let Some((key, token)) = self.owed().ghosts.last().cloned() else { return Ok(()) };
            let _ = self.primary.settle(&key, token, &Settle::Release).await?;
            self.owed().ghosts.retain(|ghost| ghost.1 != token);
        }
    }

    /// A claim is owed no more, unless something else is known of it by now.
    async fn forget(&self, key: &Key, told: Option<&Record>) -> Result<()> {
        let _turn = self.owed_turn.lock().await;
        if self.local.backend.look(key).await?.as_ref() == told {
            self.owed().remove_claim(key.index());
        }
        Ok(())
    }

    /// A claim that was granted here is done. If the primary is back already it is told at once, else at the recovery.
    pub(super) async fn tell_if_healthy(&self) {
        if *self.mode.read().await == Mode::Healthy
            && let Err(error) = self.write_back_claims(&mut Report::default()).await
            && error.is_outage()
        {
            self.degrade(&error).await;
        }
    }

    fn count(&self, report: &mut Report, written_back: u64, conflicts: u64) {
        report.written_back += written_back;
        report.conflicts += conflicts;
        self.meters.written_back.increment(written_back);
        self.meters.conflicts.increment(conflicts);
    }
}
