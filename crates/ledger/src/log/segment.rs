//! A file with commits, and what is known of it.

use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::storage::File;

/// A file with commits.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) id: u32,
    /// Open while it is written to or was read recently.
    handle: Mutex<Option<Arc<dyn File>>>,
    /// Where its frames end.
    pub(crate) end: AtomicU32,
    /// Indexed records that were written to it.
    pub(crate) records: AtomicU32,
    /// How many of them the index still points to.
    pub(crate) live: AtomicU32,
    /// When to look at it for the next time: most of it has expired by then.
    pub(crate) look_at: AtomicU64,
}

impl Segment {
    /// A segment that is written to.
    pub(crate) fn new(id: u32, file: Arc<dyn File>) -> Self {
        let segment = Self::closed(id);
        *segment.handle() = Some(file);
        segment
    }

    /// A full segment, whose file is opened when it is read.
    pub(crate) fn closed(id: u32) -> Self {
        let zero = || AtomicU32::new(0);
        let look_at = AtomicU64::new(u64::MAX);
        Self { id, handle: Mutex::default(), end: zero(), records: zero(), live: zero(), look_at }
    }

    /// Its file, if it is open.
    pub(super) fn handle(&self) -> MutexGuard<'_, Option<Arc<dyn File>>> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
