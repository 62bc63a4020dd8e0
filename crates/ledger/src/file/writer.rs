//! The writer: the one thread that changes the store.
//!
//! It takes what is queued, decides it ([`super::round`]), commits it durably, raises the high-water mark, publishes
//! it to readers, and only then answers. If a commit fails, nobody knows what of it is on the disk: every call of that
//! round is told so, the engine is closed, and nothing is acknowledged until it was opened again and found whole.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ichido_core::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use super::ahead::Ahead;
use super::engine::{Engine, FLUSH_BYTES};
use super::fresh::Grants;
use super::highwater::HighWater;
use super::holder::Held;
use super::items::Written;
use super::meta::Commit;
use super::queue::Call;
use super::recent::Recent;
use super::replies::Answer;
use super::round::Round;
use super::shared::Shared;
use super::{fault, journal, store, sweep};
use crate::{Error, Result};

/// How long the high-water mark may wait for its sync.
const MARK_SYNC: Duration = Duration::from_millis(100);
/// How often an idle writer looks for something to sweep.
const IDLE: Duration = Duration::from_secs(1);
/// How often a busy writer does.
const COMMITS_PER_SWEEP: u64 = 64;
/// How often claims are looked through for doubt that is over.
const OPEN_SWEEP_MS: u64 = 3_600_000;
/// How often a failed opening is tried again.
const REOPEN: Duration = Duration::from_millis(250);
/// How long a reader may hold on to an engine that is to be closed.
const READERS_MAX: Duration = Duration::from_secs(10);

/// The writer's own.
#[derive(Debug)]
pub(super) struct Writer {
    shared: Arc<Shared>,
    held: Held,
    high_water: HighWater,
    synced_at: Instant,
    engine: Option<Arc<Engine>>,
    /// Why there is no engine, and when opening it was last tried.
    down: Option<(Instant, Error)>,
    last: Commit,
    /// What was committed since everything was last written into tables.
    journal_bytes: u64,
    flushing: Flushing,
    ahead: Ahead,
    generation: u64,
    recent: Recent,
    grants: Grants,
    /// The generation that last added an end that was past already: a sweep that looked before may have missed it.
    late_end_at: u64,
    open_swept_at: Timestamp,
    sweep_at_commit: u64,
}

/// Without a writer nobody is to wait for one, however it ended.
struct Closing(Arc<Shared>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.queue.close();
        while self.0.queue.take(Duration::ZERO).is_some() {}
    }
}

/// How far the writing of tables has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flushing {
    No,
    Begun,
    /// All of them are written, as was seen after this commit.
    Written(u64),
}

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        held: Held,
        high_water: HighWater,
        engine: Arc<Engine>,
        last: Commit,
    ) -> Self {
        Self {
            shared,
            held,
            high_water,
            synced_at: Instant::now(),
            engine: Some(engine),
            down: None,
            last,
            journal_bytes: 0,
            flushing: Flushing::No,
            ahead: Ahead::default(),
            generation: 0,
            recent: Recent::default(),
            grants: Grants::default(),
            late_end_at: 0,
            open_swept_at: Timestamp::default(),
            sweep_at_commit: 0,
        }
    }

    /// Works until the queue is closed and empty, then lets go of the store and says so.
    pub(super) fn run(mut self, ended: &watch::Sender<bool>) {
        let _closing = Closing(self.shared.clone());
        while let Some(calls) = self.shared.queue.take(self.pause()) {
            // A panic of the engine drops the replies: their callers are told that nobody knows.
            let work = || {
                let idle = calls.is_empty();
                self.round(calls);
                self.keep_house(idle);
            };
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                self.stop(fault::panicked(self.held.dir(), "writing"));
            }
        }
        self.end();
        ended.send_replace(true);
    }

    fn pause(&self) -> Duration {
        if self.high_water.is_dirty() { MARK_SYNC } else { IDLE }
    }

    fn round(&mut self, calls: Vec<Call>) {
        if calls.is_empty() {
            return;
        }
        let Some(engine) = self.steady_engine() else {
            for call in calls {
                call.fail(self.down_error());
            }
            return;
        };
        let shared = self.shared.clone();
        let mut last = self.last;
        let mut round = Round::new(shared.view(&engine), &self.recent, &self.grants, shared.time.now());
        for call in calls {
            round.decide(call);
        }
        if let Some((_, swept_to)) = round.swept_to.filter(|(seen, _)| *seen >= self.late_end_at) {
            last.swept_to = last.swept_to.max(swept_to);
        }
        if let Some(before) = self.grants.too_old() {
            round.move_on(before);
        }
        let (written, answers) = round.finish(shared.openings.epoch(), last);
        let committed = match written {
            None => {
                self.last = last;
                Ok(())
            }
            Some(written) => self.commit(&engine, written),
        };
        drop(engine);
        if let Err(error) = committed {
            self.fail(error, answers);
            return;
        }
        answers.into_iter().for_each(Answer::give);
    }

    fn commit(&mut self, engine: &Engine, written: Written) -> Result<()> {
        let dir = self.held.dir();
        written.batch.commit().map_err(|error| fault::engine(dir, "writing to", error))?;
        self.high_water
            .raise(written.commit.sequence)
            .map_err(|error| fault::io(dir, "writing the high-water mark of", error))?;
        self.journal_bytes += written.journal_bytes;
        self.ahead.used(written.journal_bytes);
        self.generation += 1;
        self.recent.note(self.generation, written.put);
        let ended = written.ended.iter().map(|(_, spot)| spot.sequence);
        self.grants.note(written.commit.sequence, written.granted.len(), written.grants_bytes, ended);
        for granted in written.granted {
            engine.fresh.put(granted.record.key.index(), granted);
        }
        // After the commit: whoever does not find them here any more finds where they went.
        written.ended.iter().for_each(|(index, _)| engine.fresh.remove(index));
        self.last = written.commit;
        self.shared.published.store(self.generation, Ordering::Release);
        // The time is read after publishing: a sweep that does not see this commit asked for an earlier one.
        if written.earliest_end.is_some_and(|end| end <= self.shared.time.now()) {
            self.late_end_at = self.generation;
        }
        Ok(())
    }

    /// Nobody knows what of the commit is on the disk.
    fn fail(&mut self, error: Error, answers: Vec<Answer>) {
        self.stop(error);
        for answer in answers {
            answer.fail(self.down_error().with_unknown_effect());
        }
    }

    /// An engine that takes commits, opened again if need be.
    fn steady_engine(&mut self) -> Option<Arc<Engine>> {
        if let Some(engine) = self.engine.clone() {
            if engine.steady() && self.flush_by_turns(&engine).is_ok() {
                return Some(engine);
            }
            drop(engine);
            self.stop(fault::engine(self.held.dir(), "writing to", fjall::Error::Poisoned));
            self.down = None;
        }
        if self.down.as_ref().is_some_and(|(tried, _)| tried.elapsed() < REOPEN) {
            return None;
        }
        match self.reopen() {
            Ok(()) => tracing::info!(dir = %self.held.dir().display(), "the ledger was opened again"),
            Err(error) => {
                tracing::error!(%error, "the ledger cannot be opened again");
                self.down = Some((Instant::now(), error));
            }
        }
        self.engine.clone()
    }

    /// Begins to write tables when there is enough to write, and ends it a little later.
    fn flush_by_turns(&mut self, engine: &Engine) -> fjall::Result<()> {
        match self.flushing {
            Flushing::Begun if engine.is_flushed() => self.flushing = Flushing::Written(self.last.sequence),
            // The engine lets go of nothing that a reader as of the last commits might see.
            Flushing::Written(sequence) if self.last.sequence >= sequence + 2 => {
                engine.end_flush()?;
                self.flushing = Flushing::No;
            }
            Flushing::No | Flushing::Begun | Flushing::Written(_) => {}
        }
        if self.journal_bytes >= FLUSH_BYTES {
            if self.flushing != Flushing::No {
                engine.end_flush()?;
            }
            engine.start_flush()?;
            (self.journal_bytes, self.flushing) = (0, Flushing::Begun);
        }
        Ok(())
    }

    fn reopen(&mut self) -> Result<()> {
        let dir = self.held.dir();
        // After a failed sync, what looks written may not be: write it anew.
        if let Err(error) = journal::rewrite(&self.held.path("store"), &self.held.path("journal.tmp")) {
            tracing::warn!(%error, "the journal could not be written anew");
        }
        let store = store::open(&self.held)?;
        match store.engine.flush() {
            Ok(true) => {}
            Ok(false) => return Err(fault::engine(dir, "writing to", fjall::Error::Poisoned)),
            Err(error) => return Err(fault::engine(dir, "writing to", error)),
        }
        self.high_water.raise(store.last.sequence).map_err(|error| fault::io(dir, "writing to", error))?;
        self.last = store.last;
        let engine = Arc::new(store.engine);
        self.engine = Some(engine.clone());
        self.flushing = Flushing::No;
        self.down = None;
        self.shared.set_engine(Some(engine));
        Ok(())
    }

    /// Closes the engine. What readers saw before proves nothing after.
    fn stop(&mut self, error: Error) {
        tracing::error!(%error, "the ledger stops acknowledging, and is opened again");
        self.close_engine();
        self.generation += 1;
        self.recent.reset(self.generation);
        self.grants = Grants::default();
        self.shared.published.store(self.generation, Ordering::Release);
        self.down = Some((Instant::now(), error));
    }

    /// What a caller is told while there is no engine.
    fn down_error(&self) -> Error {
        match &self.down {
            Some((_, error)) => Error::new(crate::Kind::Unavailable, error.to_string()),
            None => Error::new(crate::Kind::Unavailable, "writing to the file ledger"),
        }
    }

    /// Closes the engine here, in this thread, once the last reader is done with it.
    fn close_engine(&mut self) {
        self.shared.set_engine(None);
        let Some(mut engine) = self.engine.take() else { return };
        let since = Instant::now();
        while Arc::get_mut(&mut engine).is_none() && since.elapsed() < READERS_MAX {
            std::thread::sleep(Duration::from_micros(100));
        }
        drop(engine);
    }

    fn keep_house(&mut self, idle: bool) {
        if self.high_water.is_dirty() && self.synced_at.elapsed() >= MARK_SYNC {
            self.sync_mark();
        }
        if self.engine.is_some() {
            self.ahead.take(&self.held.path("store"));
        }
        let due = idle || self.last.sequence >= self.sweep_at_commit;
        let Some(engine) = self.engine.as_ref().filter(|_| due && !sweep::is_busy(&self.shared)) else {
            return;
        };
        self.sweep_at_commit = self.last.sequence + COMMITS_PER_SWEEP;
        let now = self.shared.time.now();
        let doubts = now.ms_since(self.open_swept_at) >= OPEN_SWEEP_MS;
        if doubts || sweep::is_due(self.shared.view(engine), self.last.swept_to, now) {
            sweep::start_own(self.shared.clone(), doubts);
        }
        if doubts {
            self.open_swept_at = now;
        }
    }

    fn sync_mark(&mut self) {
        if let Err(error) = self.high_water.sync() {
            tracing::warn!(%error, "the high-water mark could not be synced");
        }
        self.synced_at = Instant::now();
    }

    fn end(mut self) {
        self.close_engine();
        self.sync_mark();
        self.held.release();
    }
}
