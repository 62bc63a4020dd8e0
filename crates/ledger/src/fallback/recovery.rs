//! Recovery: when the primary is probed, and how the instance turns healthy again.

use std::sync::Arc;

use super::handover::{CHUNK, Report};
use super::state::{Fallback, Mode};
use crate::{Error, Kind, Result};

impl Fallback {
    /// Starts one probe. It runs in a task of its own: a caller that gives up does not stop it.
    pub(super) fn probe(self: &Arc<Self>) {
        let fallback = self.clone();
        tokio::spawn(async move { fallback.probe_once().await });
    }

    /// Starts a probe if the pause is over: callers may have fallen silent, and the primary is to be told all the same.
    /// Tries again what is left although the primary is well.
    pub(crate) async fn look_after(self: &Arc<Self>) {
        let mode = *self.mode.read().await;
        match mode {
            Mode::Degraded { until, probing: false } if self.now() >= until => self.probe(),
            Mode::Degraded { .. } => {}
            Mode::Healthy => {
                let is_due = self.owed().is_due(self.now(), self.pause);
                if is_due && let Err(error) = self.hand_over_rest().await {
                    self.degrade(&error).await;
                }
            }
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
        let (claims, marks) = self.count_owed();
        claims + marks
    }

    pub(super) async fn probe_once(&self) {
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
                in_doubt = report.in_doubt,
                conflicts = report.conflicts,
                refused = report.refused,
                "the ledger is back; conflicts are keys that another instance had as well"
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
            let owed = self.owed().marks_left();
            self.hand_over_marks(owed, &mut report).await?;
            self.hand_over_claims(&mut report).await?;
            // Each round must be half as long as the last: callers may mark faster than the primary can be told.
            let left = self.owed().marks_left();
            if left < CHUNK || left > owed / 2 {
                break;
            }
        }
        {
            // The callers wait for the rest.
            let mut mode = self.mode.write().await;
            self.hand_over_marks(usize::MAX, &mut report).await?;
            // A caller who is granted one of these from now on must not lose it.
            self.release_orphans(&mut report).await?;
            *mode = Mode::Healthy;
            self.meters.degraded.set(0.0);
        }
        // Granted or settled in the meantime, by callers who still saw us degraded.
        if let Err(error) = self.hand_over_claims(&mut report).await {
            self.degrade(&error).await;
        }
        self.count_owed();
        Ok(report)
    }
}
