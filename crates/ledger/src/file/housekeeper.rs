//! The housekeeper: a thread for what no caller should wait for.
//!
//! It writes the indexes of full segments, prepares files for new ones, reclaims the space of expired records, and works for
//! operators: sweeps, compactions and backups. It changes the store only through the writer, a little at a time. There is
//! one housekeeper, so segments are not dropped while a backup copies them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;

use super::shared::Shared;
use super::tasks::Task;
use crate::log::{Call, Compaction, Effort, Next, Reply, View, is_worth_rotating};
use crate::{Error, Kind, Result, Swept};

/// How often the oldest segment is looked at.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long to wait between two commits that only copy records.
const MOVE_PAUSE: Duration = Duration::from_millis(2);

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
        while let Some(task) = self.shared.tasks.next(INTERVAL) {
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
            && let Err(error) = view.prepare_spare()
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

    /// Afterwards, no file of the store has bytes of a record that expired or was replaced before.
    fn compact(&mut self, view: &View) -> Result<Swept> {
        let discarded = view.spares.discard(&*view.storage);
        let compacted = discarded.map_err(|error| view.faults.io("removing spare files of", error));
        let compacted = compacted.and_then(|()| self.compact_to_new_files(view));
        view.spares.keep();
        compacted
    }

    fn compact_to_new_files(&mut self, view: &View) -> Result<Swept> {
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
