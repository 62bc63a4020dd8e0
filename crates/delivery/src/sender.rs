//! The sender: accepts batches, and keeps each one until the receiver has it or an operator can see it on disk.
//!
//! Up to `SEND_CONCURRENCY` requests are under way at a time. A batch that waits for its retry is queued by due time
//! while others are sent, so a poisoned batch delays nobody. The length of that queue is bounded.

mod attempt;
mod dispositions;
mod rate_limit;
mod receipts;
mod resend;
mod split;
mod under_way;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use ichido_core::{Clock, Entropy};
use tokio_util::sync::CancellationToken;

use crate::batch::Batch;
use crate::conflict::Conflict;
use crate::counters::Counters;
use crate::lane::Lane;
use crate::next_action::{Origin, Policy};
use crate::notifier::Notifier;
use crate::rate_limiter::RateLimiter;
use crate::receipt;
use crate::request::{Envelope, Request};
use crate::resend_window::ResendWindow;
use crate::settings::Settings;
use crate::store::{self, BatchDir, Layout, OwnedFile, Store, StoredBatch};
use crate::transport::Transport;
use under_way::Ended;

pub use resend::{PassSummary, Selection};

/// The most batches that may wait for a retry at once.
const RETRYING_MAX: usize = 16;
/// How long a pending request may continue after the process was asked to stop.
const GRACE: Duration = Duration::from_secs(5);

/// Why a batch was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The batch could not be stored.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The disk is full, and the receiver did not accept the batch either.
    #[error("{0}; the receiver did not accept the batch either: send it again")]
    Lost(store::Error),
    /// The process was asked to stop.
    #[error("stopped; accepted batches are in the spool")]
    Stopped,
}

/// What the sender works with.
#[derive(Debug)]
pub struct Dependencies {
    /// The batches on disk.
    pub store: Store,
    /// The connection to the receiver.
    pub transport: Arc<dyn Transport>,
    /// Tells operators what needs their attention.
    pub notifier: Arc<Notifier>,
    /// The source of time.
    pub clock: Arc<dyn Clock>,
    /// The source of randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Cancelled when the process is asked to stop.
    pub stop: CancellationToken,
}

/// Sends batches to one destination.
#[derive(Debug)]
pub struct Sender {
    deps: Dependencies,
    rules: Rules,
    /// The receiver's URL without secrets, for logs.
    destination: String,
    lane: Lane,
    limiter: RateLimiter,
    retry_queue: BinaryHeap<Reverse<ScheduledRetry>>,
    /// The requests under way, and their keys. Never locked: the mutex only makes the futures shareable.
    requests: Mutex<FuturesUnordered<BoxFuture<'static, Ended>>>,
    keys_under_way: Vec<String>,
    /// Requests that ended while the sender waited for another one.
    ended: VecDeque<Ended>,
    counters: Counters,
    token_changes: u64,
    sequence: u64,
    disk_space: DiskSpace,
    invalid_input: InvalidInput,
}

/// Whether there was disk space for everything that was written since the last [`Sender::finish`].
#[derive(Debug, Default)]
struct DiskSpace {
    was_available: bool,
    ran_out: bool,
}

/// Invalid input items that operators have not been notified of yet.
#[derive(Debug, Default)]
struct InvalidInput {
    is_reported: bool,
    unreported: u64,
    last: String,
}

#[derive(Debug)]
struct Rules {
    policy: Policy,
    conflict: Conflict,
    /// How long to wait for a response.
    timeout: Duration,
    envelope: Envelope,
    gzip: bool,
    retention: Duration,
    window: Option<ResendWindow>,
    /// The most requests under way.
    concurrency: usize,
}

/// A batch that this process is sending.
#[derive(Debug)]
struct Job {
    /// Its file. `None` only if the disk was full.
    owned: Option<OwnedFile>,
    stored: StoredBatch,
    request: Request,
    origin: Origin,
    retries: u32,
    /// Of these, retries that are due only to the receiver's rate limit.
    rate_limited: u32,
    probe: bool,
    /// When its last request was sent, by the steady clock.
    sent_at: Duration,
    /// How often the token had changed by then.
    token_changes: u64,
    /// The requests of this pass.
    attempts: Vec<receipt::Attempt>,
    /// Whether its request history has changed since its file was written.
    history_changed: bool,
}

#[derive(Debug)]
struct ScheduledRetry {
    due: Duration,
    sequence: u64,
    job: Job,
}

impl Sender {
    /// Creates an idle sender.
    pub fn new(settings: &Settings, deps: Dependencies) -> Self {
        let token_changes = deps.transport.token().changes();
        Self {
            rules: Rules {
                policy: settings.policy,
                conflict: settings.conflict,
                timeout: settings.transport.timeout,
                envelope: settings.envelope.clone(),
                gzip: settings.gzip,
                retention: settings.retention,
                window: settings.window.clone(),
                concurrency: settings.transport.concurrency.get(),
            },
            deps,
            destination: settings.transport.endpoint.origin(),
            lane: Lane::default(),
            limiter: RateLimiter::new(settings.rate.map(NonZeroU32::get)),
            retry_queue: BinaryHeap::new(),
            requests: Mutex::default(),
            keys_under_way: Vec::new(),
            ended: VecDeque::new(),
            counters: Counters::default(),
            token_changes,
            sequence: 0,
            disk_space: DiskSpace::default(),
            invalid_input: InvalidInput::default(),
        }
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        let spool_size = self.layout().count(BatchDir::Spool).unwrap_or_default();
        Counters { spool_size, ..self.counters }
    }

    /// Why the lane is held, if an operator must act.
    pub fn held(&self) -> Option<&str> {
        self.lane.held()
    }

    /// Whether nothing may be sent for now.
    pub fn is_lane_closed(&self) -> bool {
        self.lane.is_closed()
    }

    /// Whether a closed lane should be probed early because the token has changed.
    pub fn has_new_token(&self) -> bool {
        self.lane.is_closed() && self.deps.transport.token().changes() != self.token_changes
    }

    /// The directories.
    pub fn layout(&self) -> &Layout {
        self.deps.store.layout()
    }

    /// Tells operators what needs their attention.
    pub fn notifier(&self) -> Arc<Notifier> {
        self.deps.notifier.clone()
    }

    /// Accepts batches and sends them in their turn. When this returns `Ok`, each of them is on disk or delivered.
    ///
    /// Batches that are passed together are written together, which is faster: one sync makes a group of them durable.
    pub fn send(&mut self, batches: Vec<Batch>) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let (mut waiting, mut result) = (VecDeque::from(batches), Ok(()));
            // How many of them are written one by one, because there was no space for a group.
            let mut alone: usize = 0;
            while !waiting.is_empty() {
                self.make_room().await;
                if self.deps.stop.is_cancelled() {
                    return Err(Error::Stopped);
                }
                let now = self.deps.clock.now();
                let size = if alone > 0 { 1 } else { Store::group_size(waiting.make_contiguous()) };
                alone = alone.saturating_sub(1);
                let group: Vec<_> =
                    waiting.drain(..size).map(|batch| StoredBatch::fresh(batch, now)).collect();
                let accepted = self.deps.store.accept_group(&group);
                let is_refused = accepted.as_ref().is_err_and(store::Error::is_out_of_space);
                if is_refused && (size > 1 || self.under_way() > 0) {
                    // A single one may fit when those under way have been delivered.
                    self.act_on_all().await;
                    alone += size;
                    group.into_iter().rev().for_each(|stored| waiting.push_front(stored.batch));
                    continue;
                }
                self.note_disk_space(&accepted);
                match accepted {
                    Ok(owned) => {
                        for (owned, stored) in owned.into_iter().zip(group) {
                            self.make_room().await;
                            let job = self.job(Some(owned), stored, Origin::Fresh);
                            self.start(job).await;
                        }
                    }
                    Err(error) if error.is_full() => {
                        tracing::error!(%error, "disk is full; sending without a copy on disk");
                        let lost = self.counters.lost;
                        for stored in group {
                            let job = self.job(None, stored, Origin::Fresh);
                            self.send_without_copy(job).await;
                        }
                        if self.counters.lost > lost {
                            result = Err(Error::Lost(error));
                        }
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            result
        })
    }

    /// Writes a batch to disk. If there is no space, notifies operators.
    fn accept(&mut self, stored: &StoredBatch) -> Result<OwnedFile, store::Error> {
        let accepted = self.deps.store.accept(stored);
        self.note_disk_space(&accepted);
        accepted
    }

    fn note_disk_space<T>(&mut self, accepted: &Result<T, store::Error>) {
        match accepted {
            Ok(_) => self.disk_space.was_available = true,
            Err(error) if error.is_out_of_space() => {
                self.disk_space.ran_out = true;
                self.deps.notifier.spool_full(&error.to_string());
            }
            Err(_) => {}
        }
    }

    /// Sends a batch without a copy on disk. The caller has the only one, so this waits for the final result.
    async fn send_without_copy(&mut self, job: Job) {
        self.start(job).await;
        self.act_on_all().await;
        while self.retry_queue.iter().any(|Reverse(waiting)| waiting.job.owned.is_none()) {
            if self.deps.stop.is_cancelled() {
                self.return_all();
            }
            self.run_due().await;
            self.act_until(self.next_due()).await;
            self.act_on_all().await;
        }
    }

    /// Keeps an invalid input item in failed, with its position and the reason.
    pub fn reject_input(&mut self, text: &str, reason: &str) -> Result<(), Error> {
        self.store_invalid_input(text, reason)
    }

    /// Waits until this process has no batch left to send.
    pub fn finish(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            while !self.deps.stop.is_cancelled() && (self.under_way() > 0 || !self.retry_queue.is_empty()) {
                self.run_due().await;
                self.act_until(self.next_due()).await;
            }
            self.act_on_all().await;
            self.return_all();
            self.sync_receipts();
            self.notify_invalid_input();
            if self.disk_space.was_available && !self.disk_space.ran_out {
                self.deps.notifier.spool_has_space();
            }
            self.disk_space = DiskSpace::default();
        })
    }

    /// Makes room for another batch: first sends what is due, then waits until the retry queue has a free slot.
    async fn make_room(&mut self) {
        loop {
            self.act_on_ready().await;
            self.run_due().await;
            if self.retry_queue.len() < RETRYING_MAX || self.deps.stop.is_cancelled() {
                return;
            }
            self.act_until(self.next_due()).await;
        }
    }

    /// Starts every batch that is due.
    async fn run_due(&mut self) {
        while !self.deps.stop.is_cancelled()
            && self.retry_queue.peek().is_some_and(|Reverse(next)| next.due <= self.deps.clock.steady())
        {
            if let Some(Reverse(ScheduledRetry { job, .. })) = self.retry_queue.pop() {
                self.start(job).await;
            }
        }
    }

    /// When the next batch is due.
    fn next_due(&self) -> Option<Duration> {
        self.retry_queue.peek().map(|Reverse(next)| next.due)
    }

    fn schedule_retry(&mut self, job: Job, pause: Duration) {
        self.sequence += 1;
        let due = self.deps.clock.steady() + pause;
        self.retry_queue.push(Reverse(ScheduledRetry { due, sequence: self.sequence, job }));
    }

    fn job(&self, owned: Option<OwnedFile>, stored: StoredBatch, origin: Origin) -> Job {
        let request =
            Request::new(&stored.batch, &self.rules.envelope, stored.first_attempt, self.rules.gzip);
        Job {
            owned,
            stored,
            request,
            origin,
            retries: 0,
            rate_limited: 0,
            probe: false,
            sent_at: Duration::ZERO,
            token_changes: self.token_changes,
            attempts: Vec::new(),
            history_changed: false,
        }
    }

    fn random(&self) -> f64 {
        let drawn = self.deps.entropy.draw();
        f64::from(u32::from_le_bytes([drawn[0], drawn[1], drawn[2], drawn[3]])) / f64::from(u32::MAX)
    }
}

impl PartialEq for ScheduledRetry {
    fn eq(&self, other: &Self) -> bool {
        (self.due, self.sequence) == (other.due, other.sequence)
    }
}

impl Eq for ScheduledRetry {}

impl PartialOrd for ScheduledRetry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ScheduledRetry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.sequence).cmp(&(other.due, other.sequence))
    }
}
