//! The housekeeper: a thread for what no caller should wait for.
//!
//! It writes the indexes of full segments, prepares files for new ones, reclaims the space of expired records, and works for
//! operators: sweeps, compactions and backups. It changes the store only through the writer, a little at a time. There is
//! one housekeeper, so segments are not dropped while a backup copies them.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::shared::Shared;
use crate::log::{Call, Compaction, Effort, Next, Reply, View, is_worth_rotating};
use crate::{Error, Kind, Result, Swept};

/// How often the oldest segment is looked at.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long to wait between two commits that only copy records.
const MOVE_PAUSE: Duration = Duration::from_millis(2);

/// A task for the housekeeper.
pub(super) enum Task {
    /// Removes about this many expired records.
    Sweep { limit: u64, reply: Reply<Swept> },
    /// Reclaims everything that can be reclaimed.
    Compact { reply: Reply<Swept> },
    /// Anything that needs the files to stay where they are.
    Run(Box<dyn FnOnce(&View) + Send>),
}

/// Tasks that operators wait for.
#[derive(Default)]
pub(super) struct Tasks {
    state: Mutex<State>,
    changed: Condvar,
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tasks")
    }
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    is_awake: bool,
    is_closed: bool,
}

impl Tasks {
    /// Adds a task. A task that is added after the end is dropped, and so is its reply.
    pub(super) fn push(&self, task: Task) {
        let mut state = self.lock();
        if !state.is_closed {
            state.tasks.push_back(task);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// There is something to do.
    pub(super) fn wake(&self) {
        self.lock().is_awake = true;
        self.changed.notify_one();
    }

    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.tasks.clear();
        drop(state);
        self.changed.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Waits for a task, or for a while. `None` is the end.
    fn next(&self) -> Option<Option<Task>> {
        let state = self.lock();
        let is_idle = |state: &mut State| state.tasks.is_empty() && !state.is_awake && !state.is_closed;
        let waited = self.changed.wait_timeout_while(state, INTERVAL, is_idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.is_awake = false;
        if state.is_closed { None } else { Some(state.tasks.pop_front()) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The housekeeper's own state.
pub(super) struct Housekeeper {
    shared: Arc<Shared>,
    compaction: Compaction,
    /// The view that the compaction belongs to.
    view: Option<Arc<View>>,
}

impl Housekeeper {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, compaction: Compaction::default(), view: None }
    }

    /// Works until the tasks are closed.
    pub(super) fn run(mut self) {
        while let Some(task) = self.shared.tasks.next() {
            let Some(view) = self.shared.view() else { continue };
            if self.view.as_ref().is_none_or(|known| !Arc::ptr_eq(known, &view)) {
                self.compaction = Compaction::default();
                self.view = Some(view.clone());
            }
            match task {
                Some(Task::Sweep { limit, reply }) => drop(reply.send(self.sweep(&view, limit))),
                Some(Task::Compact { reply }) => drop(reply.send(self.compact(&view))),
                Some(Task::Run(work)) => work(&view),
                None => {}
            }
            self.do_jobs(&view);
            if let Err(error) = self.reclaim(&view, Effort::Normal, u64::MAX) {
                tracing::warn!(%error, "cannot reclaim space in the ledger");
                self.compaction = Compaction::default();
            }
            // Keeps no view of a store that was closed meanwhile.
            if self.shared.view().is_none_or(|current| !Arc::ptr_eq(&current, &view)) {
                self.view = None;
            }
        }
    }

    fn do_jobs(&self, view: &View) {
        while let Some(job) = view.next_job() {
            if let Err(error) = job.run(view) {
                tracing::warn!(%error, dir = %self.shared.dir.display(), "cannot tidy up the files of the ledger");
            }
        }
        let newest = view.segments().pop();
        let used = newest.map_or(0, |segment| segment.end.load(Ordering::Acquire));
        if view.spares.is_empty()
            && used as usize > view.options.segment_bytes / 4
            && let Err(error) = view.spares.prepare(view)
        {
            tracing::warn!(%error, dir = %self.shared.dir.display(), "cannot prepare a file for the ledger");
        }
    }

    /// Reclaims the oldest segments, until about `limit` records are removed.
    fn reclaim(&mut self, view: &View, effort: Effort, limit: u64) -> Result<Swept> {
        let mut swept = Swept::default();
        while !self.shared.tasks.is_closed() {
            match self.compaction.next(view, self.shared.time.now(), effort)? {
                Next::Nothing => return Ok(swept),
                Next::Move(records) => {
                    self.ask(|reply| Call::Move { records, reply })?;
                    std::thread::sleep(MOVE_PAUSE);
                }
                Next::Drop(segment) => {
                    let dropped = self.ask(|reply| Call::Drop { segment, reply })?;
                    swept.removed += dropped.removed;
                    swept.doubts_ended += dropped.doubts_ended;
                    self.do_jobs(view);
                    if dropped.more || swept.removed >= limit {
                        swept.more = true;
                        return Ok(swept);
                    }
                }
            }
        }
        Ok(swept)
    }

    fn sweep(&mut self, view: &View, limit: u64) -> Result<Swept> {
        let swept = self.reclaim(view, Effort::Sweep, limit)?;
        if swept.more || !is_worth_rotating(view, self.shared.time.now())? {
            return Ok(swept);
        }
        self.ask(|reply| Call::Rotate { reply })?;
        let rest = self.reclaim(view, Effort::Sweep, limit)?;
        Ok(Swept {
            removed: swept.removed + rest.removed,
            doubts_ended: swept.doubts_ended + rest.doubts_ended,
            more: rest.more,
        })
    }

    fn compact(&mut self, view: &View) -> Result<Swept> {
        let last = view.segments().pop().map_or(0, |segment| segment.id);
        self.ask(|reply| Call::Rotate { reply })?;
        let mut swept = Swept::default();
        while view.segments().first().is_some_and(|oldest| oldest.id <= last) {
            let dropped = self.reclaim(view, Effort::Compact, 1)?;
            swept.removed += dropped.removed;
            swept.doubts_ended += dropped.doubts_ended;
            if !dropped.more && view.segments().first().is_some_and(|oldest| oldest.id <= last) {
                break;
            }
        }
        Ok(swept)
    }

    /// Hands a call to the writer and waits for its answer.
    fn ask<T>(&self, call: impl FnOnce(Reply<T>) -> Call) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.shared.queue.push_blocking(call(reply))?;
        answer
            .blocking_recv()
            .unwrap_or_else(|_| Err(Error::new(Kind::Closed, "maintaining the file ledger")))
    }
}
