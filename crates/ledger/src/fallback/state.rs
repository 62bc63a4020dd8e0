//! The state of a fallback, and its mode.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::metrics::{Counter, Gauge, counter, gauge};
use ichido_core::Nonce;
use tokio::sync::RwLock;

use super::conflicts::Conflicts;
use super::in_flight::InFlight;
use super::pending::PendingHandover;
use crate::memory::Memory;
use crate::retry::RetryingBackend;
use crate::{Error, LocalBackend};

/// Settings of a fallback.
#[derive(Clone, Debug)]
pub struct FallbackSettings {
    /// How long the local ledger answers before the primary is probed.
    pub pause: Duration,
    /// The most marks and claims that are mirrored while the primary is healthy.
    pub mirror_bound: usize,
}

impl Default for FallbackSettings {
    fn default() -> Self {
        Self { pause: Duration::from_secs(60), mirror_bound: crate::memory::DEFAULT_BOUND / 2 }
    }
}

#[derive(Debug)]
pub(crate) struct Fallback {
    pub(super) primary: RetryingBackend,
    pub(super) local: RetryingBackend,
    /// The local ledger without deadlines and retries.
    pub(super) store: Arc<dyn LocalBackend>,
    /// What the primary answered to this instance: best effort, and bounded.
    pub(super) mirror: Memory,
    /// The nonce in the mirror for events that the primary had already seen from other callers.
    pub(super) foreign_nonce: Nonce,
    pub(super) pause: Duration,
    pub(super) mode: RwLock<Mode>,
    pub(super) in_flight: InFlight,
    pub(super) pending: Mutex<PendingHandover>,
    /// Held while a pending claim is claimed or settled, so that it is not granted here just as it is handed over.
    pub(super) pending_lock: tokio::sync::Mutex<()>,
    /// Held while marks are handed over, or one of them is forgotten, so that it does not reach the primary afterwards.
    pub(super) mark_handover_lock: tokio::sync::Mutex<()>,
    /// Held while an abandoned grant is released, or taken back by its caller.
    pub(super) abandoned_lock: tokio::sync::Mutex<()>,
    pub(super) conflicts: Mutex<Conflicts>,
    pub(super) metrics: Metrics,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Healthy,
    /// The local ledger answers. From `until` on (steady clock), one probe is made.
    Degraded {
        until: Duration,
        probing: bool,
    },
}

pub(super) struct Metrics {
    pub(super) degraded: Gauge,
    pub(super) pending: Gauge,
    pub(super) outages: Counter,
    pub(super) written_back: Counter,
    pub(super) doubts_handed_over: Counter,
    pub(super) conflicts: Counter,
    pub(super) refused: Counter,
}

impl Fallback {
    pub(super) fn new(
        primary: RetryingBackend,
        store: Arc<dyn LocalBackend>,
        pending: PendingHandover,
        settings: &FallbackSettings,
    ) -> Self {
        let now = primary.settings.clock.steady();
        let mode = match pending.is_empty() {
            true => Mode::Healthy,
            false => Mode::Degraded { until: now, probing: false },
        };
        Self {
            mirror: Memory::new(primary.settings.clock.clone(), settings.mirror_bound),
            foreign_nonce: Nonce::draw(&*primary.settings.entropy),
            local: RetryingBackend::new(store.clone(), primary.settings.clone()),
            primary,
            store,
            pause: settings.pause,
            mode: RwLock::new(mode),
            in_flight: InFlight::default(),
            pending: Mutex::new(pending),
            pending_lock: tokio::sync::Mutex::default(),
            mark_handover_lock: tokio::sync::Mutex::default(),
            abandoned_lock: tokio::sync::Mutex::default(),
            conflicts: Mutex::default(),
            metrics: Metrics::new(),
        }
    }

    pub(super) async fn degrade(&self, error: &Error) {
        let mut mode = self.mode.write().await;
        if *mode == Mode::Healthy {
            tracing::error!(%error, pause_seconds = self.pause.as_secs(), "primary ledger unavailable; the fallback answers");
            self.metrics.outages.increment(1);
            self.metrics.degraded.set(1.0);
            *mode = Mode::Degraded { until: self.now() + self.pause, probing: false };
        }
    }

    pub(super) async fn is_degraded(&self) -> bool {
        *self.mode.read().await != Mode::Healthy
    }

    /// Counts pending claims and marks, and updates the gauge.
    pub(super) fn count_pending(&self) -> (usize, usize) {
        let (claims, marks) = self.pending().counts();
        self.metrics.pending.set((claims + marks) as f64);
        (claims, marks)
    }

    pub(super) fn now(&self) -> Duration {
        self.primary.settings.clock.steady()
    }

    pub(super) fn pending(&self) -> MutexGuard<'_, PendingHandover> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Metrics {
    fn new() -> Self {
        Self {
            degraded: gauge!("ichido_ledger_degraded"),
            pending: gauge!("ichido_ledger_owed"),
            outages: counter!("ichido_ledger_outages_total"),
            written_back: counter!("ichido_ledger_written_back_total"),
            doubts_handed_over: counter!("ichido_ledger_doubts_handed_over_total"),
            conflicts: counter!("ichido_ledger_conflicts_total"),
            refused: counter!("ichido_ledger_handovers_refused_total"),
        }
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}
