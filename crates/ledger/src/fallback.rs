//! Fallback: any primary ledger, and a local one for while it is out.
//!
//! In healthy times the primary answers, and what it answered is mirrored in memory, so that a repeat is known during
//! an outage too. After an outage error the local ledger answers for a while (60 s), then one probe is made.
//!
//! The local ledger holds what is *owed*: marks and claims that the primary does not know yet. Whatever is handed over
//! is removed from it. So the debt is exactly as durable as the local ledger, and is found again at the next start.
//! A claim is settled where it is held; on recovery it is handed over as it is, running, in doubt or completed, and its
//! holder goes on with the primary. The primary wins, and conflicts are counted and kept for operators.
//!
//! What must stay true: one instance never answers "new" or "granted" twice for one key. So a key whose question is on
//! its way to the primary is not answered locally until that question is settled ([`Asking`]), and the step from
//! degraded to healthy waits for local answers that are under way (the `mode` lock). Two instances may both answer
//! "new" while degraded: that is the price, and it is counted afterwards.

mod asking;
mod claims;
mod handover;
mod marks;
mod operators;
mod orphans;
mod owed;
mod recovery;
mod status;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ichido_core::{Index, Nonce};
use metrics::{Counter, Gauge, counter, gauge};
use tokio::sync::RwLock;

pub use self::status::{Conflict, ConflictKind, FallbackStatus};

use self::asking::Asking;
use self::owed::Owed;
use self::status::Conflicts;
use crate::guard::Guard;
use crate::memory::Memory;
use crate::{Error, Local, Result};

/// How a fallback behaves.
#[derive(Clone, Debug)]
pub struct FallbackSettings {
    /// How long the local ledger answers before the primary is tried again.
    pub pause: Duration,
    /// The most marks and claims that are mirrored in healthy times.
    pub mirror_bound: usize,
}

impl Default for FallbackSettings {
    fn default() -> Self {
        Self { pause: Duration::from_secs(60), mirror_bound: crate::memory::DEFAULT_BOUND / 2 }
    }
}

#[derive(Debug)]
pub(crate) struct Fallback {
    primary: Guard,
    local: Guard,
    /// The local ledger again, without deadline and retry.
    store: Arc<dyn Local>,
    /// What the primary answered to this instance; best effort, bounded.
    mirror: Memory,
    /// Stands in the mirror for whoever marked an event that the primary had seen.
    others: Nonce,
    pause: Duration,
    mode: RwLock<Mode>,
    asking: Asking,
    owed: Mutex<Owed>,
    /// Held while a claim that is owed is asked for or settled, so that none is granted here as its key is given up.
    owed_turn: tokio::sync::Mutex<()>,
    conflicts: Mutex<Conflicts>,
    meters: Meters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Healthy,
    /// The local ledger answers; from `until` on (steady clock) one probe is made.
    Degraded {
        until: Duration,
        probing: bool,
    },
}

struct Meters {
    degraded: Gauge,
    owed: Gauge,
    outages: Counter,
    written_back: Counter,
    doubts_handed_over: Counter,
    conflicts: Counter,
    refused: Counter,
}

impl Fallback {
    /// Finds what an earlier run still owes, and hands it over if the primary can be reached. If it cannot, the local
    /// ledger answers from the start.
    pub(crate) async fn open(
        primary: Guard,
        store: Arc<dyn Local>,
        settings: FallbackSettings,
    ) -> Result<Arc<Self>> {
        let owed = Owed::load(&*store).await?;
        let is_owing = !owed.is_empty();
        let now = primary.settings.clock.steady();
        let mode = if is_owing { Mode::Degraded { until: now, probing: false } } else { Mode::Healthy };
        let fallback = Arc::new(Self {
            mirror: Memory::new(primary.settings.clock.clone(), settings.mirror_bound),
            others: Nonce::draw(&*primary.settings.entropy),
            local: Guard::new(store.clone(), primary.settings.clone()),
            primary,
            store,
            pause: settings.pause,
            mode: RwLock::new(mode),
            asking: Asking::default(),
            owed: Mutex::new(owed),
            owed_turn: tokio::sync::Mutex::default(),
            conflicts: Mutex::default(),
            meters: Meters::new(),
        });
        if is_owing {
            fallback.meters.degraded.set(1.0);
            let (claims, marks) = fallback.count_owed();
            tracing::warn!(
                claims,
                marks,
                "an earlier run did not hand over all of its claims and marks to the ledger"
            );
            fallback.probe_once().await;
        }
        Ok(fallback)
    }

    /// In healthy times: leave to ask the primary, known to all others until it is dropped.
    async fn ask_primary(self: &Arc<Self>, keys: &[Index]) -> Option<asking::Asked<'_>> {
        let mode = self.mode.read().await;
        match *mode {
            Mode::Healthy => Some(self.asking.begin(keys)),
            Mode::Degraded { until, probing } => {
                drop(mode);
                if !probing && self.now() >= until {
                    self.probe();
                }
                None
            }
        }
    }

    /// Waits until nobody asks the primary for these keys, then keeps the mode from changing. None if the primary is
    /// back: what is answered here from then on, it would never be told.
    async fn local_turn(&self, keys: &[Index]) -> Option<tokio::sync::RwLockReadGuard<'_, Mode>> {
        loop {
            let answered = self.asking.answered();
            let mode = self.mode.read().await;
            if *mode == Mode::Healthy {
                return None;
            }
            if !self.asking.any(keys) {
                return Some(mode);
            }
            drop(mode);
            answered.await;
        }
    }

    async fn degrade(&self, error: &Error) {
        let mut mode = self.mode.write().await;
        if *mode == Mode::Healthy {
            tracing::error!(%error, pause_seconds = self.pause.as_secs(), "the ledger is out; answering from the local one");
            self.meters.outages.increment(1);
            self.meters.degraded.set(1.0);
            *mode = Mode::Degraded { until: self.now() + self.pause, probing: false };
        }
    }

    async fn is_degraded(&self) -> bool {
        *self.mode.read().await != Mode::Healthy
    }

    /// How many claims and marks the primary does not know, for the gauge as well.
    fn count_owed(&self) -> (usize, usize) {
        let (claims, marks) = self.owed().counts();
        self.meters.owed.set((claims + marks) as f64);
        (claims, marks)
    }

    fn now(&self) -> Duration {
        self.primary.settings.clock.steady()
    }

    fn owed(&self) -> MutexGuard<'_, Owed> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Meters {
    fn new() -> Self {
        Self {
            degraded: gauge!("ichido_ledger_degraded"),
            owed: gauge!("ichido_ledger_owed"),
            outages: counter!("ichido_ledger_outages_total"),
            written_back: counter!("ichido_ledger_written_back_total"),
            doubts_handed_over: counter!("ichido_ledger_doubts_handed_over_total"),
            conflicts: counter!("ichido_ledger_conflicts_total"),
            refused: counter!("ichido_ledger_handovers_refused_total"),
        }
    }
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meters")
    }
}
