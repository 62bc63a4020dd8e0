//! Files that wait to become segments: zero-filled ahead of use, or recycled.
//!
//! Writing into a file that has its full size already makes a sync cheaper: only data is written, no metadata. What a recycled
//! file still contains does no harm, because its checksums belong to an earlier segment. Spare files of an earlier opening are
//! not used: they may contain a commit of a segment that is yet to come.
//!
//! A compaction keeps none: an operator who has erased something expects that its bytes are gone from the directory.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::format::segment_name;
use super::storage::{File, Storage};

const PREFIX: &str = "spare-";
/// More than this many are removed.
const KEPT: usize = 2;
/// Zeros that are written at once.
const CHUNK: usize = 1024 * 1024;

/// The spare files of a store.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    free: Mutex<Vec<Spare>>,
    /// Whether files are removed instead of recycled.
    is_discarding: AtomicBool,
    next: AtomicU32,
    /// Zeros that were written ahead of use, also to segments that had no spare file.
    zeros: AtomicU64,
}

#[derive(Debug)]
struct Spare {
    name: String,
    length: usize,
}

impl Spares {
    /// Whether a file has the name of a spare.
    pub(crate) fn is_spare(name: &str) -> bool {
        name.starts_with(PREFIX)
    }

    /// Makes a file the segment with this number. Returns its length.
    pub(crate) fn take(&self, storage: &dyn Storage, segment: u32) -> io::Result<(Arc<dyn File>, usize)> {
        let name = segment_name(segment);
        let Some(spare) = self.free().pop() else { return Ok((storage.create(&name)?, 0)) };
        storage.rename(&spare.name, &name)?;
        Ok((storage.open(&name)?, spare.length))
    }

    /// Keeps a file that is no longer used, or removes it. It must have no other name when it is used again, so its new name
    /// is made durable first.
    pub(crate) fn add(&self, storage: &dyn Storage, name: &str, file: &dyn File) -> io::Result<()> {
        if self.free().len() >= KEPT || self.is_discarding.load(Ordering::Acquire) {
            return storage.remove(name);
        }
        let length = usize::try_from(file.len()?).unwrap_or(0);
        let spare = self.next_name();
        storage.rename(name, &spare)?;
        storage.sync_dir()?;
        self.free().push(Spare { name: spare, length });
        Ok(())
    }

    /// Removes all spare files, and every file that is no longer used from now on.
    pub(crate) fn discard(&self, storage: &dyn Storage) -> io::Result<()> {
        self.is_discarding.store(true, Ordering::Release);
        let free = std::mem::take(&mut *self.free());
        free.iter().try_for_each(|spare| storage.remove(&spare.name))
    }

    /// Keeps files again.
    pub(crate) fn keep(&self) {
        self.is_discarding.store(false, Ordering::Release);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.free().is_empty()
    }

    /// Prepares a file of this size.
    pub(crate) fn prepare(&self, storage: &dyn Storage, size: usize) -> io::Result<()> {
        let name = self.next_name();
        let file = storage.create(&name)?;
        let zeros = vec![0; CHUNK.min(size)];
        let mut length = 0;
        while length < size {
            let chunk = zeros.len().min(size - length);
            file.write_at(&zeros[..chunk], length as u64)?;
            file.sync()?;
            length += chunk;
            self.count_zeros(chunk);
        }
        self.free().push(Spare { name, length });
        Ok(())
    }

    /// Counts zeros that were written ahead of use.
    pub(crate) fn count_zeros(&self, zeros: usize) {
        self.zeros.fetch_add(zeros as u64, Ordering::Relaxed);
    }

    /// How many were.
    pub(crate) fn zeros(&self) -> u64 {
        self.zeros.load(Ordering::Relaxed)
    }

    fn next_name(&self) -> String {
        format!("{PREFIX}{:08}", self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn free(&self) -> MutexGuard<'_, Vec<Spare>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
