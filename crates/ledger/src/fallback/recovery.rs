//! Recovery: when the primary is probed, and how the instance becomes healthy again.

use std::sync::Arc;

use super::handover::{CHUNK, Report};
use super::state::{Fallback, Mode};
use crate::{Error, Kind, Result};

impl Fallback {
    /// Starts a probe in a task of its own, so that a caller that gives up does not stop it.
    pub(super) fn probe(self: &Arc<Self>) {
        let fallback = self.clone();
        tokio::spawn(async move { fallback.probe_once().await });
    }

    /// Starts a probe if the pause is over: pending records must reach the primary even if no caller comes. While
    /// the primary is healthy, retries leftovers.
    pub(crate) async fn maintain(self: &Arc<Self>) {
        let mode = *self.mode.read().await;
        match mode {
            Mode::Degraded { until, probing: false } if self.now() >= until => self.probe(),
            Mode::Degraded { .. } => {}
            Mode::Healthy => {
                let is_due = self.pending().is_due(self.now(), self.pause);
                if is_due && let Err(error) = self.retry_leftovers().await {
                    self.degrade(&error).await;
                }
            }
        }
    }

    /// Probes without waiting for the end of the pause. Returns how many claims and marks are still pending.
    pub(crate) async fn hand_over_now(&self) -> usize {
        {
            let mut mode = self.mode.write().await;
            if let Mode::Degraded { until, .. } = &mut *mode {
                *until = self.now();
            }
        }
        self.probe_once().await;
        let (claims, marks) = self.count_pending();
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
                "primary ledger available again"
            ),
            Err(error) => {
                tracing::debug!(%error, "primary ledger still unavailable");
                let until = self.now() + self.pause;
                *self.mode.write().await = Mode::Degraded { until, probing: false };
            }
        }
    }

    /// Connects to the primary, hands over everything, and becomes healthy in the same step as the last marks.
    async fn recover(&self) -> Result<Report> {
        let reached = tokio::time::timeout(self.primary.settings.timeout, self.primary.inner.check()).await;
        reached.map_err(|_| Error::new(Kind::Timeout, "probing the ledger"))??;
        let mut report = Report::default();
        loop {
            let pending = self.pending().marks_left();
            self.hand_over_marks(pending, &mut report).await?;
            self.hand_over_claims(&mut report).await?;
            // Each round must halve what is left: callers may mark faster than marks can be handed over.
            let left = self.pending().marks_left();
            if left < CHUNK || left > pending / 2 {
                break;
            }
        }
        {
            // Callers wait while the rest is handed over.
            let mut mode = self.mode.write().await;
            self.hand_over_marks(usize::MAX, &mut report).await?;
            // Must come before the switch: a caller that is granted one of these afterwards must not lose it.
            self.release_abandoned_grants(&mut report).await?;
            *mode = Mode::Healthy;
            self.metrics.degraded.set(0.0);
        }
        // Claims that were granted or settled meanwhile, by callers that still saw the degraded mode.
        if let Err(error) = self.hand_over_claims(&mut report).await {
            self.degrade(&error).await;
        }
        self.count_pending();
        Ok(report)
    }
}
