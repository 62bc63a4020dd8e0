//! Runs blocking work off the async threads.

use crate::store::{Error, Result};

/// Runs blocking work on a thread for blocking work.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::unavailable("accessing the meter's file", "the task failed", error))
}
