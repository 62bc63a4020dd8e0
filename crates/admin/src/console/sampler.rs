//! What the pages show without asking: figures of the last minutes, and answers of the parts, gathered beside the pages.
//!
//! Counters are read every two seconds, which costs next to nothing. What may cost something (counting claims, reading
//! large directories, asking a server after its health) takes at most a small share of the time, and less while nobody
//! looks. A ledger that would have to be scanned is never counted.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ichido_core::Timestamp;
use ichido_delivery::store::BatchDir;
use ichido_ledger::{Listing, Stats};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::directory_cache::Shelf;
use super::totals::Figures;
use crate::state::Admin;
use ichido_serve::ProbeResult;

/// What counts as lately, when it comes to errors.
const LATELY_MS: u64 = 60_000;
/// The pause between two samples.
const TICK: Duration = Duration::from_secs(2);
/// How much of the past is kept.
pub(super) const SPAN: Duration = Duration::from_secs(15 * 60);
/// How long after the last look the console counts as watched.
const WATCHED: Duration = Duration::from_secs(60);
/// The shortest pause between two rounds of asking, watched or not.
const PAUSES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));
/// Asking may take one part in so many of the time.
const SHARE: u32 = 100;

/// What the console knows.
#[derive(Debug)]
pub(super) struct Sampler {
    admin: Arc<Admin>,
    /// The spool and what failed, where this process delivers.
    pub(super) shelves: Option<(Shelf, Shelf)>,
    known: Mutex<Known>,
    looked: Mutex<Option<Instant>>,
    wake: Notify,
    wake_health: Notify,
    /// Counts samples, for pages that are live.
    turns: watch::Sender<u64>,
}

/// What was gathered last.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) figures: Figures,
    /// Oldest first.
    pub(super) samples: VecDeque<Sample>,
    pub(super) stats: Option<Stats>,
    pub(super) verdicts: Vec<ProbeResult>,
}

impl Known {
    /// Errors that were answered in the last minute.
    pub(super) fn recent_errors(&self) -> u64 {
        let Some(last) = self.samples.back() else { return 0 };
        let before = self.samples.iter().rev().find(|sample| sample.at + LATELY_MS <= last.at);
        // A process that is younger than a minute has counted nothing before.
        last.errors.saturating_sub(before.map_or(0, |sample| sample.errors))
    }
}

/// One moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    pub(super) at: Timestamp,
    pub(super) effects: u64,
    pub(super) replays: u64,
    pub(super) conflicts: u64,
    pub(super) errors: u64,
    pub(super) in_doubt: Option<u64>,
    pub(super) spool: Option<u64>,
    pub(super) failed: Option<u64>,
}

impl Sampler {
    /// Gathers until `stop`.
    pub(super) fn start(admin: Arc<Admin>, stop: CancellationToken) -> Arc<Self> {
        let shelves = admin.console.desk.as_ref().map(|desk| {
            (Shelf::new(&desk.layout, BatchDir::Spool), Shelf::new(&desk.layout, BatchDir::Failed))
        });
        let sampler = Arc::new(Self {
            admin,
            shelves,
            known: Mutex::default(),
            looked: Mutex::default(),
            wake: Notify::new(),
            wake_health: Notify::new(),
            turns: watch::channel(0).0,
        });
        let (counting, asking, probing) = (sampler.clone(), sampler.clone(), sampler.clone());
        let stops = (stop.clone(), stop.clone());
        tokio::spawn(async move { stops.0.run_until_cancelled(counting.count()).await });
        tokio::spawn(async move { stops.1.run_until_cancelled(asking.ask()).await });
        tokio::spawn(async move { stop.run_until_cancelled(probing.probe()).await });
        sampler
    }

    /// What is known now. Whoever asks is taken for someone who goes on looking.
    pub(super) fn look(&self) -> Known {
        let before = self.looked.lock().unwrap_or_else(PoisonError::into_inner).replace(Instant::now());
        if before.is_none_or(|before| before.elapsed() > PAUSES.0) {
            self.wake.notify_one();
            self.wake_health.notify_one();
        }
        self.known().clone()
    }

    /// Something was done: what is known is old.
    pub(super) fn changed(&self) {
        self.wake.notify_one();
    }

    /// Tells of each new sample.
    pub(super) fn turns(&self) -> watch::Receiver<u64> {
        self.turns.subscribe()
    }

    async fn count(&self) {
        let mut turns = tokio::time::interval(TICK);
        turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            turns.tick().await;
            self.sample();
        }
    }

    fn sample(&self) {
        let figures = Figures::read(&self.admin.meters.render());
        let depth = |shelf: &Shelf| shelf.last().map(|survey| survey.count);
        let mut known = self.known();
        let sample = Sample {
            at: self.admin.ledger.settings().clock.now(),
            effects: figures.effects,
            replays: figures.replays,
            conflicts: figures.conflicts,
            errors: figures.errors,
            in_doubt: known.stats.as_ref().and_then(|stats| stats.in_doubt),
            spool: self.shelves.as_ref().and_then(|(spool, _)| depth(spool)),
            failed: self.shelves.as_ref().and_then(|(_, failed)| depth(failed)),
        };
        known.figures = figures;
        known.samples.push_back(sample);
        // One more than the span, so that the first rate of a plot has something before it.
        let room = usize::try_from(SPAN.as_secs() / TICK.as_secs()).unwrap_or(usize::MAX) + 2;
        while known.samples.len() > room {
            known.samples.pop_front();
        }
        drop(known);
        self.turns.send_modify(|turn| *turn += 1);
    }

    async fn ask(&self) {
        loop {
            let began = Instant::now();
            self.ask_once().await;
            let rest = began.elapsed() * (SHARE - 1);
            let shortest = if self.is_watched() { PAUSES.0 } else { PAUSES.1 };
            tokio::time::sleep(rest.min(PAUSES.1)).await;
            // Someone who begins to look ends the pause of those who do not.
            let _ = tokio::time::timeout(shortest.saturating_sub(rest), self.wake.notified()).await;
        }
    }

    /// Asks the parts how they are, as often as a page that is open must know it: also in an outage, when each answer
    /// takes its whole time.
    async fn probe(&self) {
        loop {
            let is_watched = self.is_watched();
            let verdicts = match is_watched {
                true => self.admin.readiness.probe_all().await,
                // Nobody looks: only what `/readyz` asks as well.
                false => self.admin.readiness.probe_readyz().await,
            };
            let before = std::mem::replace(&mut self.known().verdicts, verdicts.clone());
            if before != verdicts {
                self.turns.send_modify(|turn| *turn += 1);
            }
            let pause = if is_watched { PAUSES.0 } else { PAUSES.1 };
            let _ = tokio::time::timeout(pause, self.wake_health.notified()).await;
        }
    }

    /// Looks at everything that may take a while.
    async fn ask_once(&self) {
        let stats = match self.admin.ledger.capabilities().listing {
            Listing::Indexed => self.admin.ledger.stats().await.ok(),
            // Counting would read everything, which may cost money.
            Listing::Scan => None,
        };
        if let Some((spool, failed)) = &self.shelves {
            tokio::join!(spool.anew(), failed.anew());
        }
        self.known().stats = stats;
    }

    /// The parts that are asked, in the order in which they are shown.
    pub(super) fn parts(&self) -> Vec<&'static str> {
        self.admin.readiness.names().collect()
    }

    fn is_watched(&self) -> bool {
        let looked = *self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        looked.is_some_and(|looked| looked.elapsed() < WATCHED)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
