//! Fallback: any primary ledger, and a local one for while it is out.
//!
//! In healthy times the primary answers, and what it answered is mirrored, so that a repeat is known during an outage
//! too. After an outage error the local ledger answers for a while (60 s), then one probe is made. On recovery the
//! marks that were made locally are put into the primary if absent; the primary wins, and conflicts are counted. A
//! claim is settled where it was granted; a completed one is written back; until then the local ledger is asked first.
//!
//! What must stay true: one instance never answers "new" or "granted" twice for one key. So a key whose question is on
//! its way to the primary is not answered locally until that question is settled ([`Asking`]), and the step from
//! degraded to healthy waits for local answers that are under way (the `mode` lock). Two instances may both answer
//! "new" while degraded: that is the price, and it is counted afterwards.

mod asking;
mod claims;
mod marks;
mod recovery;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ichido_core::{Index, Nonce};
use metrics::{Counter, Gauge, counter, gauge};
use tokio::sync::RwLock;

use self::asking::Asking;
use self::recovery::Owed;
use crate::Error;
use crate::guard::Guard;
use crate::memory::Memory;

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
    outages: Counter,
    written_back: Counter,
    conflicts: Counter,
}

impl Fallback {
    pub(crate) fn new(primary: Guard, local: Guard, settings: FallbackSettings) -> Self {
        Self {
            mirror: Memory::new(primary.settings.clock.clone(), settings.mirror_bound),
            others: Nonce::draw(&*primary.settings.entropy),
            primary,
            local,
            pause: settings.pause,
            mode: RwLock::new(Mode::Healthy),
            asking: Asking::default(),
            owed: Mutex::default(),
            owed_turn: tokio::sync::Mutex::default(),
            meters: Meters::new(),
        }
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
            outages: counter!("ichido_ledger_outages_total"),
            written_back: counter!("ichido_ledger_written_back_total"),
            conflicts: counter!("ichido_ledger_conflicts_total"),
        }
    }
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meters")
    }
}
