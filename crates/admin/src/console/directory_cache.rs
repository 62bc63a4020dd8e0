//! What lies in a batch_dir of the spool, by names alone, for pages that must not wait for a large directory.
//!
//! A directory that is read quickly is read anew for each page. One that is not is read beside the pages, by the sampler
//! and at its pace, and they show what was found last.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use ichido_delivery::store::{BatchDir, Layout, ListedFile};
use tokio::time::Instant;

/// The oldest files whose names are kept in memory; nobody turns more pages than that.
pub(super) const LISTED_MAX: usize = 10_000;
/// A directory of so few files is read for each page, however busy the machine is.
const SMALL_DIRECTORY: u64 = 1_000;
/// A larger one that takes longer to read than this is not read while a page waits.
const FAST_READ: Duration = Duration::from_millis(8);

/// A batch_dir, and what was seen there last.
#[derive(Clone, Debug)]
pub(super) struct DirectoryCache {
    layout: Layout,
    batch_dir: BatchDir,
    last: Arc<Mutex<Option<DirectoryListing>>>,
}

/// What was seen.
#[derive(Clone, Debug)]
pub(super) struct DirectoryListing {
    pub(super) count: u64,
    /// Oldest first, at most [`LISTED_MAX`].
    pub(super) oldest: Arc<[ListedFile]>,
    took: Duration,
    modified: Option<SystemTime>,
}

impl DirectoryCache {
    pub(super) fn new(layout: &Layout, batch_dir: BatchDir) -> Self {
        Self { layout: layout.clone(), batch_dir, last: Arc::default() }
    }

    /// What a page shows.
    pub(super) async fn get(&self) -> Option<DirectoryListing> {
        match self.cached() {
            Some(last) if last.count > SMALL_DIRECTORY && last.took > FAST_READ => Some(last),
            Some(_) | None => self.refresh().await,
        }
    }

    /// The same, as it is now, however long it takes.
    pub(super) async fn refresh(&self) -> Option<DirectoryListing> {
        let cache = self.clone();
        let _ = tokio::task::spawn_blocking(move || cache.read()).await;
        self.cached()
    }

    /// What was seen last.
    pub(super) fn cached(&self) -> Option<DirectoryListing> {
        self.lock().clone()
    }

    /// Reads the directory, if it has modified since.
    fn read(&self) {
        let (began, modified) = (Instant::now(), self.modified());
        // A change within the tick of the file system's clock after a reading would be missed.
        let settled = modified.is_some_and(|at| at.elapsed().is_ok_and(|age| age > Duration::from_secs(1)));
        if settled && self.lock().as_ref().is_some_and(|last| last.modified == modified) {
            return;
        }
        match self.layout.survey(self.batch_dir, None, LISTED_MAX) {
            Ok((count, oldest)) => {
                let took = began.elapsed();
                *self.lock() = Some(DirectoryListing { count, oldest: oldest.into(), took, modified });
            }
            Err(error) => tracing::warn!(%error, "the console cannot look into the spool"),
        }
    }

    fn modified(&self) -> Option<SystemTime> {
        let dir: PathBuf = self.layout.dir(self.batch_dir);
        std::fs::metadata(dir).and_then(|metadata| metadata.modified()).ok()
    }

    fn lock(&self) -> MutexGuard<'_, Option<DirectoryListing>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
