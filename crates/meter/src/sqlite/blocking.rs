//! Work that waits for a disk.

use crate::store::{Error, Result};

/// Runs what waits for a disk where nobody else waits for it.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::unavailable("working on the meter's file", "the work broke off", error))
}
