//! What the pages show without polling: totals of the last minutes, and answers of the parts, gathered beside the pages.
//!
//! Counters are read every two seconds, which costs next to nothing. What may cost something (sampling claims, reading
//! large directories, polling a server after its health) takes at most a small share of the time, and less while nobody
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

use super::directory_cache::DirectoryCache;
use super::totals::Totals;
use crate::state::Admin;
use ichido_serve::ProbeResult;

/// What counts as lately, when it comes to errors.
const RECENT_MS: u64 = 60_000;
/// The pause between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(2);
/// How much of the past is kept.
pub(super) const HISTORY: Duration = Duration::from_secs(15 * 60);
/// How long after the last look the console counts as watched.
const VIEWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The shortest pause between two rounds of polling, watched or not.
const PAUSE_WATCHED: Duration = Duration::from_secs(2);
const PAUSE_IDLE: Duration = Duration::from_secs(30);
/// Asking may take one part in so many of the time.
const LOAD_SHARE: u32 = 100;

/// What the console knows.
#[derive(Debug)]
pub(super) struct Sampler {
    admin: Arc<Admin>,
    /// The spool and what failed, where this process delivers.
    pub(super) directories: Option<(DirectoryCache, DirectoryCache)>,
    latest: Mutex<Snapshot>,
    last_viewed: Mutex<Option<Instant>>,
    wake: Notify,
    wake_health: Notify,
    /// Counts samples, for pages that are live.
    updates: watch::Sender<u64>,
}

/// What was gathered last.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) totals: Totals,
    /// Oldest first.
    pub(super) samples: VecDeque<Sample>,
    pub(super) stats: Option<Stats>,
    pub(super) verdicts: Vec<ProbeResult>,
}

impl Snapshot {
    /// Errors that were answered in the last minute.
    pub(super) fn recent_errors(&self) -> u64 {
        let Some(last) = self.samples.back() else { return 0 };
        let before = self.samples.iter().rev().find(|sample| sample.at + RECENT_MS <= last.at);
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
        let directories = admin.console.delivery.as_ref().map(|delivery_control| {
            (
                DirectoryCache::new(&delivery_control.layout, BatchDir::Spool),
                DirectoryCache::new(&delivery_control.layout, BatchDir::Failed),
            )
        });
        let sampler = Arc::new(Self {
            admin,
            directories,
            latest: Mutex::default(),
            last_viewed: Mutex::default(),
            wake: Notify::new(),
            wake_health: Notify::new(),
            updates: watch::channel(0).0,
        });
        let (sampling, polling, probing) = (sampler.clone(), sampler.clone(), sampler.clone());
        let stops = (stop.clone(), stop.clone());
        tokio::spawn(async move { stops.0.run_until_cancelled(sampling.sample_loop()).await });
        tokio::spawn(async move { stops.1.run_until_cancelled(polling.poll_stats()).await });
        tokio::spawn(async move { stop.run_until_cancelled(probing.poll_health()).await });
        sampler
    }

    /// What is known now. Whoever asks is taken for someone who goes on looking.
    pub(super) fn snapshot(&self) -> Snapshot {
        let before = self.last_viewed.lock().unwrap_or_else(PoisonError::into_inner).replace(Instant::now());
        if before.is_none_or(|before| before.elapsed() > PAUSE_WATCHED) {
            self.wake.notify_one();
            self.wake_health.notify_one();
        }
        self.latest().clone()
    }

    /// Something was done: what is known is old.
    pub(super) fn refresh_soon(&self) {
        self.wake.notify_one();
    }

    /// Tells of each new sample.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.updates.subscribe()
    }

    async fn sample_loop(&self) {
        let mut turns = tokio::time::interval(SAMPLE_INTERVAL);
        turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            turns.tick().await;
            self.sample();
        }
    }

    fn sample(&self) {
        let totals = Totals::read(&self.admin.metrics.render());
        let depth = |directory: &DirectoryCache| directory.cached().map(|listing| listing.count);
        let mut latest = self.latest();
        let sample = Sample {
            at: self.admin.ledger.settings().clock.now(),
            effects: totals.effects,
            replays: totals.replays,
            conflicts: totals.conflicts,
            errors: totals.errors,
            in_doubt: latest.stats.as_ref().and_then(|stats| stats.in_doubt),
            spool: self.directories.as_ref().and_then(|(spool, _)| depth(spool)),
            failed: self.directories.as_ref().and_then(|(_, failed)| depth(failed)),
        };
        latest.totals = totals;
        latest.samples.push_back(sample);
        // One more than the span, so that the first rate of a plot has something before it.
        let samples_max =
            usize::try_from(HISTORY.as_secs() / SAMPLE_INTERVAL.as_secs()).unwrap_or(usize::MAX) + 2;
        while latest.samples.len() > samples_max {
            latest.samples.pop_front();
        }
        drop(latest);
        self.updates.send_modify(|turn| *turn += 1);
    }

    async fn poll_stats(&self) {
        loop {
            let started = Instant::now();
            self.refresh_stats().await;
            let rest = started.elapsed() * (LOAD_SHARE - 1);
            let shortest = if self.is_watched() { PAUSE_WATCHED } else { PAUSE_IDLE };
            tokio::time::sleep(rest.min(PAUSE_IDLE)).await;
            // Someone who begins to look ends the pause of those who do not.
            let _ = tokio::time::timeout(shortest.saturating_sub(rest), self.wake.notified()).await;
        }
    }

    /// Asks the parts how they are, as often as a page that is open must know it: also in an outage, when each answer
    /// takes its whole time.
    async fn poll_health(&self) {
        loop {
            let is_watched = self.is_watched();
            let verdicts = match is_watched {
                true => self.admin.readiness.probe_all().await,
                // Nobody looks: only what `/readyz` asks as well.
                false => self.admin.readiness.probe_readyz().await,
            };
            let before = std::mem::replace(&mut self.latest().verdicts, verdicts.clone());
            if before != verdicts {
                self.updates.send_modify(|turn| *turn += 1);
            }
            let pause = if is_watched { PAUSE_WATCHED } else { PAUSE_IDLE };
            let _ = tokio::time::timeout(pause, self.wake_health.notified()).await;
        }
    }

    /// Looks at everything that may take a while.
    async fn refresh_stats(&self) {
        let stats = match self.admin.ledger.capabilities().listing {
            Listing::Indexed => self.admin.ledger.stats().await.ok(),
            // Counting would read everything, which may cost money.
            Listing::Scan => None,
        };
        if let Some((spool, failed)) = &self.directories {
            tokio::join!(spool.refresh(), failed.refresh());
        }
        self.latest().stats = stats;
    }

    /// The parts that are asked, in the order in which they are shown.
    pub(super) fn checks(&self) -> Vec<&'static str> {
        self.admin.readiness.names().collect()
    }

    fn is_watched(&self) -> bool {
        let last_viewed = *self.last_viewed.lock().unwrap_or_else(PoisonError::into_inner);
        last_viewed.is_some_and(|last_viewed| last_viewed.elapsed() < VIEWER_TIMEOUT)
    }

    fn latest(&self) -> MutexGuard<'_, Snapshot> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
