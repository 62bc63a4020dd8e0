//! Records decisions in a thread of its own.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ichido_ledger::{Decision, Observer};
use metrics::{Counter, counter};
use rusqlite::Connection;

use crate::record::{self, Batch, Limits, Sources};
use crate::settings::Settings;
use crate::{Error, cleanup, files, schema};

/// How long decisions wait before they are written together.
const INTERVAL: Duration = Duration::from_millis(500);
/// How often old decisions are removed.
const PRUNE_INTERVAL: Duration = Duration::from_secs(60);
/// How often files that no process uses are cleaned up.
const CLEAN_INTERVAL: Duration = Duration::from_secs(3_600);
/// How often it is noted that decisions are recorded.
const RECORDED_INTERVAL: Duration = Duration::from_secs(60);

/// Records what a ledger decides.
#[derive(Debug)]
pub struct Recorder {
    queue: Arc<Queue>,
    writing: Mutex<Option<JoinHandle<()>>>,
    path: PathBuf,
    _lock: File,
}

#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    lost: Lost,
}

#[derive(Debug, Default)]
struct State {
    waiting: Batch,
    is_closed: bool,
}

struct Lost(Counter);

impl std::fmt::Debug for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lost")
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a while, and returns what has come in. `None` after the end.
    fn take(&self) -> Option<Batch> {
        let is_idle = |state: &mut State| !state.is_closed;
        let waited = self.wake.wait_timeout_while(self.lock(), INTERVAL, is_idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        match state.is_closed && state.waiting.is_empty() {
            true => None,
            false => Some(std::mem::take(&mut state.waiting)),
        }
    }
}

impl Observer for Recorder {
    fn decided(&self, decision: &Decision<'_>) {
        let mut state = self.queue.lock();
        let is_recorded = !state.is_closed && state.waiting.add(decision);
        drop(state);
        if !is_recorded {
            self.queue.lost.0.increment(1);
        }
    }
}

impl Recorder {
    /// Takes a file in the directory that no other process uses, and starts to record.
    ///
    /// The file itself is opened and checked by the writer: a process is ready without waiting for its history.
    pub fn start(settings: Settings) -> Result<Self, Error> {
        let failed = |error: &dyn ToString| Error::new(&settings.dir, error.to_string());
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&settings.dir)
            .map_err(|error| failed(&error))?;
        let (path, lock) = files::take(&settings.dir).map_err(|error| failed(&error))?;
        let queue = Arc::new(Queue {
            state: Mutex::default(),
            wake: Condvar::new(),
            lost: Lost(counter!("ichido_history_lost_total")),
        });
        let writer = Writer {
            queue: queue.clone(),
            path: path.clone(),
            connection: None,
            sources: Sources::default(),
            recorded_until: None,
            pruned_at: None,
            cleaned_at: None,
            unpruned: 0,
            has_failed: false,
            settings,
        };
        let thread = std::thread::Builder::new().name("ichido:history".to_owned());
        let writing = thread.spawn(|| writer.run()).map_err(|error| Error::new(&path, error))?;
        Ok(Self { queue, writing: Mutex::new(Some(writing)), path, _lock: lock })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes what is waiting, and stops. Blocks until that is done.
    pub fn close(&self) {
        self.queue.lock().is_closed = true;
        self.queue.wake.notify_one();
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner).take();
        if writing.is_some_and(|writing| writing.join().is_err()) {
            tracing::error!("the history's writer panicked");
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.close();
    }
}

struct Writer {
    queue: Arc<Queue>,
    path: PathBuf,
    /// `None` until the file is opened, and after it turned out to be damaged.
    connection: Option<Connection>,
    sources: Sources,
    /// Up to when it is noted that decisions are recorded, on the steady clock.
    recorded_until: Option<Duration>,
    /// On the steady clock.
    pruned_at: Option<Duration>,
    cleaned_at: Option<Duration>,
    /// Decisions that were written since.
    unpruned: u64,
    /// Whether the last write failed. An outage is logged once.
    has_failed: bool,
    settings: Settings,
}

impl Writer {
    fn run(mut self) {
        while let Some(batch) = self.queue.take() {
            let written = self.write(&batch);
            if written.is_err() {
                self.queue.lost.0.increment(batch.decisions());
            }
            match written.and_then(|()| self.note_recorded()).and_then(|()| self.prune_if_due()) {
                Ok(()) if self.has_failed => {
                    self.has_failed = false;
                    tracing::info!(file = %self.path.display(), "history is recorded again");
                }
                Ok(()) => {}
                Err(error) => {
                    if !std::mem::replace(&mut self.has_failed, true) {
                        tracing::warn!(file = %self.path.display(), %error, "cannot record history");
                    }
                    // Decisions were lost, so this time does not count as recorded.
                    self.recorded_until = None;
                    if schema::is_unusable(&error) {
                        self.connection = None;
                    }
                }
            }
        }
        if let Err(error) = self.write(&Batch::default()).and_then(|()| self.prune()) {
            tracing::warn!(file = %self.path.display(), %error, "cannot remove old decisions");
        }
        if self.cleaned_at.is_none() {
            self.clean();
        }
    }

    fn write(&mut self, batch: &Batch) -> rusqlite::Result<()> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            // Opened even if there is nothing to write: an earlier process may have left old decisions.
            None => self.connection.insert(schema::open(&self.path, &self.settings.instance)?),
        };
        if !batch.is_empty() {
            record::write(connection, batch, &mut self.sources)?;
            counter!("ichido_history_skipped_total").increment(batch.decisions() - batch.kept());
            self.unpruned += batch.kept();
        }
        Ok(())
    }

    /// Notes every minute that decisions are recorded, whether there are any or not.
    fn note_recorded(&mut self) -> rusqlite::Result<()> {
        let (now, Some(connection)) = (self.settings.clock.steady(), &self.connection) else { return Ok(()) };
        let seconds = now.saturating_sub(*self.recorded_until.get_or_insert(now)).as_secs();
        if seconds >= RECORDED_INTERVAL.as_secs() {
            record::add_recorded(connection, self.settings.clock.now().0, seconds)?;
            self.recorded_until = Some(now);
        }
        Ok(())
    }

    fn prune_if_due(&mut self) -> rusqlite::Result<()> {
        let now = self.settings.clock.steady();
        let is_due = self.pruned_at.is_none_or(|at| now.saturating_sub(at) >= PRUNE_INTERVAL);
        if is_due || self.unpruned * 4 >= self.settings.decisions_max {
            self.prune()?;
            self.pruned_at = Some(now);
        }
        if self.cleaned_at.is_none_or(|at| now.saturating_sub(at) >= CLEAN_INTERVAL) {
            self.clean();
        }
        Ok(())
    }

    /// Cleans up after processes that have ended.
    fn clean(&mut self) {
        let Settings { dir, clock, .. } = &self.settings;
        cleanup::clean(dir, &self.path, clock.now().0, &Limits::of(&self.settings));
        self.cleaned_at = Some(clock.steady());
    }

    /// Removes what is too old or too much.
    fn prune(&mut self) -> rusqlite::Result<()> {
        let Some(connection) = &self.connection else { return Ok(()) };
        record::prune(connection, self.settings.clock.now().0, &Limits::of(&self.settings))?;
        self.unpruned = 0;
        Ok(())
    }
}
