//! What lies in a place of the spool, by names alone, for pages that must not wait for a large directory.
//!
//! A directory that is read quickly is read anew for each page. One that is not is read beside the pages, by the sampler
//! and at its pace, and they show what was found last.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use ichido_delivery::store::{BatchDir, Layout, ListedFile};
use tokio::time::Instant;

/// The oldest files whose names are kept in memory; nobody turns more pages than that.
pub(super) const KEPT: usize = 10_000;
/// A directory of so few files is read for each page, however busy the machine is.
const FEW: u64 = 1_000;
/// A larger one that takes longer to read than this is not read while a page waits.
const QUICK: Duration = Duration::from_millis(8);

/// A place, and what was seen there last.
#[derive(Clone, Debug)]
pub(super) struct Shelf {
    layout: Layout,
    place: BatchDir,
    last: Arc<Mutex<Option<Survey>>>,
}

/// What was seen.
#[derive(Clone, Debug)]
pub(super) struct Survey {
    pub(super) count: u64,
    /// Oldest first, at most [`KEPT`].
    pub(super) oldest: Arc<[ListedFile]>,
    took: Duration,
    changed: Option<SystemTime>,
}

impl Shelf {
    pub(super) fn new(layout: &Layout, place: BatchDir) -> Self {
        Self { layout: layout.clone(), place, last: Arc::default() }
    }

    /// What a page shows.
    pub(super) async fn look(&self) -> Option<Survey> {
        match self.last() {
            Some(last) if last.count > FEW && last.took > QUICK => Some(last),
            Some(_) | None => self.anew().await,
        }
    }

    /// The same, as it is now, however long it takes.
    pub(super) async fn anew(&self) -> Option<Survey> {
        let shelf = self.clone();
        let _ = tokio::task::spawn_blocking(move || shelf.refresh()).await;
        self.last()
    }

    /// What was seen last.
    pub(super) fn last(&self) -> Option<Survey> {
        self.lock().clone()
    }

    /// Reads the directory, if it has changed since.
    fn refresh(&self) {
        let (began, changed) = (Instant::now(), self.changed());
        // A change within the tick of the file system's clock after a reading would be missed.
        let settled = changed.is_some_and(|at| at.elapsed().is_ok_and(|age| age > Duration::from_secs(1)));
        if settled && self.lock().as_ref().is_some_and(|last| last.changed == changed) {
            return;
        }
        match self.layout.survey(self.place, None, KEPT) {
            Ok((count, oldest)) => {
                let took = began.elapsed();
                *self.lock() = Some(Survey { count, oldest: oldest.into(), took, changed });
            }
            Err(error) => tracing::warn!(%error, "the console cannot look into the spool"),
        }
    }

    fn changed(&self) -> Option<SystemTime> {
        let dir: PathBuf = self.layout.dir(self.place);
        std::fs::metadata(dir).and_then(|metadata| metadata.modified()).ok()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Survey>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
