//! The history of a process.

use std::sync::Arc;

use ichido_history::{Recorder, Settings};
use ichido_ledger::Observer;

/// Starts recording. If the history cannot be written, logs a warning, and the process runs without it.
pub(crate) fn start(settings: Option<Settings>) -> Option<Arc<dyn Observer>> {
    match Recorder::start(settings?) {
        Ok(recorder) => Some(Arc::new(recorder)),
        Err(error) => {
            tracing::warn!(%error, "no history is recorded; set history.dir, or history.dir = \"off\"");
            None
        }
    }
}
