//! The files of a delivery directory by name, for pages that must not wait for a large directory.
//!
//! A directory that can be read quickly is read for every page. A slow one is read in the background, by the sampler,
//! and pages show the last result.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use ichido_delivery::store::{BatchDir, Layout, ListedFile};
use tokio::time::Instant;

/// The most files whose names are kept in memory.
pub(super) const LISTED_MAX: usize = 10_000;
/// A directory with at most this many files is read for every page, however busy the machine is.
const SMALL_DIRECTORY: u64 = 1_000;
/// A larger directory is read for a page only if reading it took at most this long.
const FAST_READ: Duration = Duration::from_millis(8);

/// A directory and its last listing.
#[derive(Clone, Debug)]
pub(super) struct DirectoryCache {
    layout: Layout,
    batch_dir: BatchDir,
    last: Arc<Mutex<Option<DirectoryListing>>>,
}

/// The files of a directory.
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

    /// The listing for a page.
    pub(super) async fn get(&self) -> Option<DirectoryListing> {
        match self.cached() {
            Some(last) if last.count > SMALL_DIRECTORY && last.took > FAST_READ => Some(last),
            Some(_) | None => self.refresh().await,
        }
    }

    /// Reads the directory now, however long it takes.
    pub(super) async fn refresh(&self) -> Option<DirectoryListing> {
        let cache = self.clone();
        let _ = tokio::task::spawn_blocking(move || cache.read()).await;
        self.cached()
    }

    /// The last listing.
    pub(super) fn cached(&self) -> Option<DirectoryListing> {
        self.lock().clone()
    }

    /// Reads the directory if it has changed.
    fn read(&self) {
        let (began, modified) = (Instant::now(), self.modified());
        // A change within the resolution of the file system's clock after a read would be missed.
        let settled = modified.is_some_and(|at| at.elapsed().is_ok_and(|age| age > Duration::from_secs(1)));
        if settled && self.lock().as_ref().is_some_and(|last| last.modified == modified) {
            return;
        }
        match self.layout.survey(self.batch_dir, None, LISTED_MAX) {
            Ok((count, oldest)) => {
                let took = began.elapsed();
                *self.lock() = Some(DirectoryListing { count, oldest: oldest.into(), took, modified });
            }
            Err(error) => tracing::warn!(%error, "console cannot list delivery directory"),
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
