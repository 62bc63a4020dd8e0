//! The writer: the one thread that changes the store.
//!
//! It takes the calls that are queued and runs them as one commit. Calls that arrive while a commit is being synced make up
//! the next one, so no delay is added. If a commit fails, nobody knows what of it is on the disk: its callers get an error
//! that says so, and nothing is acknowledged until the store was opened again and its end was written anew.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::holder::Held;
use super::shared::Shared;
use crate::log::storage::Disk;
use crate::log::{self, Call, Engine, Options, Reason};
use crate::{Error, Kind, Result};

/// How long the high-water mark may wait for its sync.
const MARK_SYNC: Duration = Duration::from_millis(100);
/// How long an idle writer sleeps.
const IDLE: Duration = Duration::from_secs(1);
/// How often a failed opening is tried again.
const REOPEN: Duration = Duration::from_millis(250);

/// The writer's own state.
#[derive(Debug)]
pub(super) struct Writer {
    shared: Arc<Shared>,
    held: Held,
    engine: Option<Engine>,
    /// Why there is no engine, and when opening it was last tried.
    down: Option<(Instant, String)>,
    synced_at: Instant,
}

/// Nobody must wait for a writer that is gone, however it ended.
struct Closing(Arc<Shared>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.queue.close();
        while self.0.queue.take(Duration::ZERO).is_some() {}
        self.0.set_view(None);
        self.0.tasks.close();
    }
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, held: Held, engine: Engine) -> Self {
        Self { shared, held, engine: Some(engine), down: None, synced_at: Instant::now() }
    }

    /// Works until the queue is closed and empty, then releases the store.
    pub(super) fn run(mut self, housekeeper: JoinHandle<()>, ended: &watch::Sender<bool>) {
        let closing = Closing(self.shared.clone());
        while let Some(calls) = self.shared.queue.take(self.pause()) {
            // A panic drops the replies: their callers get an error with an unknown effect.
            let work = || {
                self.round(calls);
                self.sync_mark(MARK_SYNC);
            };
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                self.stop("the writer panicked".to_owned());
            }
        }
        self.sync_mark(Duration::ZERO);
        self.engine = None;
        drop(closing);
        if housekeeper.join().is_err() {
            tracing::error!("the housekeeper of the ledger panicked");
        }
        self.held.release();
        ended.send_replace(true);
    }

    fn pause(&self) -> Duration {
        let is_dirty = self.engine.as_ref().is_some_and(Engine::is_mark_dirty);
        if is_dirty { MARK_SYNC } else { IDLE }
    }

    fn round(&mut self, calls: Vec<Call>) {
        if calls.is_empty() {
            return;
        }
        if let Err(text) = self.open_again() {
            for call in calls {
                call.fail(Error::new(Kind::Unavailable, text.clone()));
            }
            return;
        }
        let Some(engine) = &mut self.engine else { return };
        engine.run(calls, self.shared.time.now());
        if let Some(text) = engine.failure().map(ToOwned::to_owned) {
            self.stop(text);
        } else if engine.view().has_jobs() {
            self.shared.tasks.wake();
        }
    }

    /// Opens the store again after a failure. The error says why it is still closed.
    fn open_again(&mut self) -> Result<(), String> {
        let Some((tried, text)) = &self.down else { return Ok(()) };
        if tried.elapsed() < REOPEN {
            return Err(text.clone());
        }
        match self.reopen() {
            Ok(engine) => {
                tracing::info!(dir = %self.held.dir().display(), "ledger opened again");
                self.shared.set_view(Some(engine.view().clone()));
                (self.engine, self.down) = (Some(engine), None);
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, "cannot open the ledger again");
                let text = error.to_string();
                self.down = Some((Instant::now(), text.clone()));
                Err(text)
            }
        }
    }

    fn reopen(&self) -> Result<Engine> {
        let storage = Arc::new(Disk::new(self.held.dir()));
        let options = Options::standard(self.held.dir().display().to_string());
        let reason = Reason::Failure(self.shared.time.now());
        Ok(log::open(storage, options, &reason, rand::random)?.engine)
    }

    /// Stops acknowledging. The next call opens the store again.
    fn stop(&mut self, text: String) {
        tracing::error!(error = text, "ledger stopped after a failed write; it will be opened again");
        self.shared.set_view(None);
        self.engine = None;
        let long_ago = Instant::now().checked_sub(REOPEN).unwrap_or_else(Instant::now);
        self.down = Some((long_ago, text));
    }

    fn sync_mark(&mut self, after: Duration) {
        let Some(engine) = &mut self.engine else { return };
        if !engine.is_mark_dirty() || self.synced_at.elapsed() < after {
            return;
        }
        if let Err(error) = engine.sync_mark() {
            tracing::warn!(%error, "cannot sync the high-water mark");
        }
        self.synced_at = Instant::now();
    }
}
