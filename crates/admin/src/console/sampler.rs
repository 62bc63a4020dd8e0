//! Collects in the background what pages show: counters of the last minutes, counts, and the health of components.
//!
//! Counters are read every two seconds. Rendering and parsing the metrics takes well under 2 ms. Expensive work
//! (counting claims, reading large directories, checking a server) takes only a small share of the time, and less
//! while nobody watches. A ledger that would need a scan is never counted.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ichido_core::Timestamp;
use ichido_delivery::store::BatchDir;
use ichido_ledger::{Listing, Stats};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::directory_cache::DirectoryCache;
use super::totals::Totals;
use crate::state::Admin;
use ichido_serve::ProbeResult;

/// Errors within this time count as recent.
const RECENT_MS: u64 = 60_000;
/// The time between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(2);
/// How much history is kept.
pub(super) const HISTORY: Duration = Duration::from_secs(15 * 60);
/// How long after the last page view the console counts as watched.
const VIEWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The shortest pauses between two rounds of expensive work, while someone watches and while nobody does.
const PAUSE_WATCHED: Duration = Duration::from_secs(2);
const PAUSE_IDLE: Duration = Duration::from_secs(30);
/// Expensive work may take one part in this many of the time.
const LOAD_SHARE: u32 = 100;

/// The background collector of the console.
#[derive(Debug)]
pub(super) struct Sampler {
    admin: Arc<Admin>,
    /// The spool and the failed batches, if this process delivers.
    pub(super) directories: Option<(DirectoryCache, DirectoryCache)>,
    latest: Mutex<Snapshot>,
    last_viewed: Mutex<Option<Instant>>,
    wake: Notify,
    wake_health: Notify,
    /// Changes with each sample, for live pages.
    updates: watch::Sender<u64>,
}

/// What was collected last.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) totals: Totals,
    /// Oldest first.
    pub(super) samples: VecDeque<Sample>,
    pub(super) stats: Option<Stats>,
    pub(super) verdicts: Vec<ProbeResult>,
}

impl Snapshot {
    /// Errors returned in the last minute.
    pub(super) fn recent_errors(&self) -> u64 {
        let Some(last) = self.samples.back() else { return 0 };
        let before = self.samples.iter().rev().find(|sample| sample.at + RECENT_MS <= last.at);
        // A process younger than a minute has no earlier sample: it started at zero.
        last.errors.saturating_sub(before.map_or(0, |sample| sample.errors))
    }
}

/// The counters at one point in time.
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
    /// Collects until `stop`.
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

    /// The latest state. Marks the console as watched.
    pub(super) fn snapshot(&self) -> Snapshot {
        let before = self.last_viewed.lock().unwrap_or_else(PoisonError::into_inner).replace(Instant::now());
        if before.is_none_or(|before| before.elapsed() > PAUSE_WATCHED) {
            self.wake.notify_one();
            self.wake_health.notify_one();
        }
        self.latest().clone()
    }

    /// Refreshes the counts soon, after an action changed them.
    pub(super) fn refresh_soon(&self) {
        self.wake.notify_one();
    }

    /// Notifies of each new sample.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.updates.subscribe()
    }

    async fn sample_loop(&self) {
        let mut turns = tokio::time::interval(SAMPLE_INTERVAL);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
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
        // One more than the history, so that the first rate of a plot has a predecessor.
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
            // A new viewer ends the long pause.
            let _ = tokio::time::timeout(shortest.saturating_sub(rest), self.wake.notified()).await;
        }
    }

    /// Checks the health of components as often as open pages need it, even in an outage, when each check takes its
    /// full timeout.
    async fn poll_health(&self) {
        loop {
            let is_watched = self.is_watched();
            let verdicts = match is_watched {
                true => self.admin.readiness.probe_all().await,
                // Nobody watches: only what `/readyz` checks as well.
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

    /// Does the expensive work.
    async fn refresh_stats(&self) {
        let stats = match self.admin.ledger.capabilities().listing {
            Listing::Indexed => self.admin.ledger.stats().await.ok(),
            // Counting would need a full scan, which may cost money.
            Listing::Scan => None,
        };
        if let Some((spool, failed)) = &self.directories {
            tokio::join!(spool.refresh(), failed.refresh());
        }
        self.latest().stats = stats;
        // Once an hour. A page says so if it fails.
        let _ = self.admin.histories.look_for_anomalies(self.admin.ledger.settings().clock.now()).await;
    }

    /// The names of the checked components, in display order.
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
