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
use crate::notifier::Alarm;
use crate::rate_limiter::Pace;
use crate::receipt;
use crate::request::{Envelope, Request};
use crate::resend_window::Window;
use crate::settings::Settings;
use crate::store::{self, Held, Layout, Place, Store, Stored};
use crate::transport::Wire;

pub use resend::{Passed, Pick};

/// Batches that may wait for their next try at once.
const MOST_WAITING: usize = 16;
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
pub struct Parts {
    /// Where batches lie.
    pub store: Store,
    /// The way to the receiver.
    pub transport: Box<dyn Wire>,
    /// Where people are told.
    pub alarm: Arc<Alarm>,
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
    parts: Parts,
    rules: Rules,
    /// The receiver's address without secrets, for the log.
    destination: String,
    lane: Lane,
    pace: Pace,
    waiting: BinaryHeap<Reverse<Waiting>>,
    counters: Counters,
    token_changes: u64,
    turn: u64,
    room: Room,
    broken: Broken,
}

/// Whether what was to be written found room on the disk since the last time that nothing was in hand.
#[derive(Debug, Default)]
struct Room {
    was_found: bool,
    was_missed: bool,
}

/// Pieces of input that are no records and that nobody was told of yet.
#[derive(Debug, Default)]
struct Broken {
    is_told: bool,
    untold: u64,
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
    window: Option<Window>,
}

/// A batch in this process's hands.
#[derive(Debug)]
struct Job {
    /// Its file; none only if the disk was full.
    held: Option<Held>,
    stored: Stored,
    request: Request,
    origin: Origin,
    retries: u32,
    /// Of these: only because the receiver had too many requests.
    slowed: u32,
    probe: bool,
    /// The requests of this pass.
    attempts: Vec<receipt::Attempt>,
    /// Whether its history is newer than its file.
    has_news: bool,
}

#[derive(Debug)]
struct Waiting {
    due: Duration,
    turn: u64,
    job: Job,
}

impl Sender {
    /// A sender with nothing in its hands.
    pub fn new(settings: &Settings, parts: Parts) -> Self {
        let token_changes = parts.transport.token().changes();
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
            parts,
            destination: settings.transport.endpoint.place(),
            lane: Lane::default(),
            pace: Pace::new(settings.rate.map(NonZeroU32::get)),
            waiting: BinaryHeap::new(),
            counters: Counters::default(),
            token_changes,
            turn: 0,
            room: Room::default(),
            broken: Broken::default(),
        }
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        let spool_size = self.layout().count(Place::Spool).unwrap_or_default();
        Counters { spool_size, ..self.counters }
    }

    /// Why nothing goes, if a person must act.
    pub fn held(&self) -> Option<&str> {
        self.lane.held()
    }

    /// Whether a lane that is shut is worth a look before its time: there is another token.
    pub fn has_new_token(&self) -> bool {
        self.lane.is_shut() && self.parts.transport.token().changes() != self.token_changes
    }

    /// The directories.
    pub fn layout(&self) -> &Layout {
        self.parts.store.layout()
    }

    /// Where people are told.
    pub fn alarm(&self) -> Arc<Alarm> {
        self.parts.alarm.clone()
    }

    /// Accepts a batch: when this returns `Ok`, it is on disk or has arrived. Sends it as soon as its turn comes.
    pub async fn send(&mut self, batch: Batch) -> Result<(), Error> {
        self.make_way().await;
        if self.parts.stop.is_cancelled() {
            return Err(Error::Stopped);
        }
        let stored = Stored::fresh(batch, self.parts.clock.now());
        match self.accept(&stored) {
            Ok(held) => {
                let job = self.job(Some(held), stored, Origin::Fresh);
                self.attempt(job).await;
                Ok(())
            }
            Err(error) if error.is_full() => {
                tracing::error!(%error, "the disk is full: sending without a copy on disk");
                let job = self.job(None, stored, Origin::Fresh);
                self.send_unwritten(job, error).await
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a batch down, and tells of it if there is no room.
    fn accept(&mut self, stored: &Stored) -> Result<Held, store::Error> {
        let accepted = self.parts.store.accept(stored);
        match &accepted {
            Ok(_) => self.room.was_found = true,
            Err(error) if error.is_full() || matches!(error, store::Error::Quota { .. }) => {
                self.room.was_missed = true;
                self.parts.alarm.spool_full(&error.to_string());
            }
            Err(_) => {}
        }
        accepted
    }

    /// Sends a batch of which there is no copy on disk. Its caller has the only other one, and waits for the end.
    async fn send_unwritten(&mut self, job: Job, error: store::Error) -> Result<(), Error> {
        let lost = self.counters.lost;
        self.attempt(job).await;
        while self.waiting.iter().any(|Reverse(waiting)| waiting.job.held.is_none()) {
            if self.parts.stop.is_cancelled() {
                self.let_go();
            }
            self.run_due().await;
            self.rest().await;
        }
        if self.counters.lost > lost { Err(Error::Lost(error)) } else { Ok(()) }
    }

    /// Keeps something that is no record in failed, with the place where it stood.
    pub fn refuse_input(&mut self, text: &str, reason: &str) -> Result<(), Error> {
        self.keep_broken(text, reason)
    }

    /// Waits until no batch is in this process's hands.
    pub async fn finish(&mut self) {
        while !self.waiting.is_empty() && !self.parts.stop.is_cancelled() {
            self.run_due().await;
            self.rest().await;
        }
        self.let_go();
        self.sync_receipts();
        self.tell_broken();
        if self.room.was_found && !self.room.was_missed {
            self.parts.alarm.has_room();
        }
        self.room = Room::default();
    }

    /// Before another batch is taken: what is due goes first, and not too many may wait.
    async fn make_way(&mut self) {
        loop {
            self.run_due().await;
            if self.waiting.len() < MOST_WAITING || self.parts.stop.is_cancelled() {
                return;
            }
            self.rest().await;
        }
    }

    /// Tries every batch that is due.
    async fn run_due(&mut self) {
        while !self.parts.stop.is_cancelled()
            && self.waiting.peek().is_some_and(|Reverse(next)| next.due <= self.parts.clock.steady())
        {
            if let Some(Reverse(Waiting { job, .. })) = self.waiting.pop() {
                self.attempt(job).await;
            }
        }
    }

    /// Sleeps until the next batch is due, or the process is asked to end.
    async fn rest(&self) {
        if let Some(Reverse(next)) = self.waiting.peek() {
            let pause = next.due.saturating_sub(self.parts.clock.steady());
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.parts.stop.cancelled() => {}
            }
        }
    }

    fn wait(&mut self, job: Job, pause: Duration) {
        self.turn += 1;
        let due = self.parts.clock.steady() + pause;
        self.waiting.push(Reverse(Waiting { due, turn: self.turn, job }));
    }

    fn job(&self, held: Option<Held>, stored: Stored, origin: Origin) -> Job {
        let request =
            Request::new(&stored.batch, &self.rules.envelope, stored.first_attempt, self.rules.gzip);
        Job {
            held,
            stored,
            request,
            origin,
            retries: 0,
            slowed: 0,
            probe: false,
            attempts: Vec::new(),
            has_news: false,
        }
    }

    fn chance(&self) -> f64 {
        let drawn = self.parts.entropy.draw();
        f64::from(u32::from_le_bytes([drawn[0], drawn[1], drawn[2], drawn[3]])) / f64::from(u32::MAX)
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        (self.due, self.turn) == (other.due, other.turn)
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.turn).cmp(&(other.due, other.turn))
    }
}
