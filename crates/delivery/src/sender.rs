//! The sender: takes batches, and does not let go of one before it has arrived or lies where it can be seen.
//!
//! One request is under way at a time. A batch that waits for its next try stands in a queue by due time, and others
//! go meanwhile: a poisoned batch holds nobody up. The number of such batches is bounded.

mod attempt;
mod dispositions;
mod rate_limit;
mod receipts;
mod resend;
mod split;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

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

pub use resend::{PassSummary, Selection};

/// Batches that may wait for their next try at once.
const RETRYING_MAX: usize = 16;
/// How long a request that is under way may go on after the process was asked to end.
const GRACE: Duration = Duration::from_secs(5);

/// Why a batch was not taken.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk refused.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The disk is full, and the receiver did not take the batch either.
    #[error("{0}; the receiver did not take the batch either: send it again")]
    Lost(store::Error),
    /// The process was asked to end.
    #[error("stopped: what was accepted is in the spool")]
    Stopped,
}

/// What the sender works with.
#[derive(Debug)]
pub struct Dependencies {
    /// Where batches lie.
    pub store: Store,
    /// The way to the receiver.
    pub transport: Box<dyn Transport>,
    /// Where people are told.
    pub notifier: Arc<Notifier>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub entropy: Arc<dyn Entropy>,
    /// Cancelled when the process is asked to end.
    pub stop: CancellationToken,
}

/// Sends batches to one destination.
#[derive(Debug)]
pub struct Sender {
    deps: Dependencies,
    rules: Rules,
    /// The receiver's address without secrets, for the log.
    destination: String,
    lane: Lane,
    limiter: RateLimiter,
    retry_queue: BinaryHeap<Reverse<ScheduledRetry>>,
    counters: Counters,
    token_changes: u64,
    sequence: u64,
    disk_space: DiskSpace,
    invalid_input: InvalidInput,
}

/// Whether what was to be written found room on the disk since the last time that nothing was in hand.
#[derive(Debug, Default)]
struct DiskSpace {
    was_available: bool,
    ran_out: bool,
}

/// Pieces of input that are no records and that nobody was told of yet.
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
    /// How long an answer is waited for.
    timeout: Duration,
    envelope: Envelope,
    gzip: bool,
    retention: Duration,
    window: Option<ResendWindow>,
}

/// A batch in this process's hands.
#[derive(Debug)]
struct Job {
    /// Its file; none only if the disk was full.
    owned: Option<OwnedFile>,
    stored: StoredBatch,
    request: Request,
    origin: Origin,
    retries: u32,
    /// Of these: only because the receiver had too many requests.
    rate_limited: u32,
    probe: bool,
    /// The requests of this pass.
    attempts: Vec<receipt::Attempt>,
    /// Whether its history is newer than its file.
    history_changed: bool,
}

#[derive(Debug)]
struct ScheduledRetry {
    due: Duration,
    sequence: u64,
    job: Job,
}

impl Sender {
    /// A sender with nothing in its hands.
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
            },
            deps,
            destination: settings.transport.endpoint.origin(),
            lane: Lane::default(),
            limiter: RateLimiter::new(settings.rate.map(NonZeroU32::get)),
            retry_queue: BinaryHeap::new(),
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

    /// Why nothing goes, if a person must act.
    pub fn held(&self) -> Option<&str> {
        self.lane.held()
    }

    /// Whether a lane that is shut is worth a look before its time: there is another token.
    pub fn has_new_token(&self) -> bool {
        self.lane.is_closed() && self.deps.transport.token().changes() != self.token_changes
    }

    /// The directories.
    pub fn layout(&self) -> &Layout {
        self.deps.store.layout()
    }

    /// Where people are told.
    pub fn notifier(&self) -> Arc<Notifier> {
        self.deps.notifier.clone()
    }

    /// Accepts a batch: when this returns `Ok`, it is on disk or has arrived. Sends it as soon as its turn comes.
    pub async fn send(&mut self, batch: Batch) -> Result<(), Error> {
        self.make_room().await;
        if self.deps.stop.is_cancelled() {
            return Err(Error::Stopped);
        }
        let stored = StoredBatch::fresh(batch, self.deps.clock.now());
        match self.accept(&stored) {
            Ok(owned) => {
                let job = self.job(Some(owned), stored, Origin::Fresh);
                self.attempt(job).await;
                Ok(())
            }
            Err(error) if error.is_full() => {
                tracing::error!(%error, "the disk is full: sending without a copy on disk");
                let job = self.job(None, stored, Origin::Fresh);
                self.send_without_copy(job, error).await
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a batch down, and tells of it if there is no room.
    fn accept(&mut self, stored: &StoredBatch) -> Result<OwnedFile, store::Error> {
        let accepted = self.deps.store.accept(stored);
        match &accepted {
            Ok(_) => self.disk_space.was_available = true,
            Err(error) if error.is_full() || matches!(error, store::Error::Quota { .. }) => {
                self.disk_space.ran_out = true;
                self.deps.notifier.spool_full(&error.to_string());
            }
            Err(_) => {}
        }
        accepted
    }

    /// Sends a batch of which there is no copy on disk. Its caller has the only other one, and waits for the end.
    async fn send_without_copy(&mut self, job: Job, error: store::Error) -> Result<(), Error> {
        let lost = self.counters.lost;
        self.attempt(job).await;
        while self.retry_queue.iter().any(|Reverse(waiting)| waiting.job.owned.is_none()) {
            if self.deps.stop.is_cancelled() {
                self.return_all();
            }
            self.run_due().await;
            self.sleep_until_due().await;
        }
        if self.counters.lost > lost { Err(Error::Lost(error)) } else { Ok(()) }
    }

    /// Keeps something that is no record in failed, with the place where it stood.
    pub fn reject_input(&mut self, text: &str, reason: &str) -> Result<(), Error> {
        self.store_invalid_input(text, reason)
    }

    /// Waits until no batch is in this process's hands.
    pub async fn finish(&mut self) {
        while !self.retry_queue.is_empty() && !self.deps.stop.is_cancelled() {
            self.run_due().await;
            self.sleep_until_due().await;
        }
        self.return_all();
        self.sync_receipts();
        self.notify_invalid_input();
        if self.disk_space.was_available && !self.disk_space.ran_out {
            self.deps.notifier.spool_has_space();
        }
        self.disk_space = DiskSpace::default();
    }

    /// Before another batch is taken: what is due goes first, and not too many may wait.
    async fn make_room(&mut self) {
        loop {
            self.run_due().await;
            if self.retry_queue.len() < RETRYING_MAX || self.deps.stop.is_cancelled() {
                return;
            }
            self.sleep_until_due().await;
        }
    }

    /// Tries every batch that is due.
    async fn run_due(&mut self) {
        while !self.deps.stop.is_cancelled()
            && self.retry_queue.peek().is_some_and(|Reverse(next)| next.due <= self.deps.clock.steady())
        {
            if let Some(Reverse(ScheduledRetry { job, .. })) = self.retry_queue.pop() {
                self.attempt(job).await;
            }
        }
    }

    /// Sleeps until the next batch is due, or the process is asked to end.
    async fn sleep_until_due(&self) {
        if let Some(Reverse(next)) = self.retry_queue.peek() {
            let pause = next.due.saturating_sub(self.deps.clock.steady());
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.deps.stop.cancelled() => {}
            }
        }
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
