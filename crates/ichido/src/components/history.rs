//! The history of a process.

use std::sync::Arc;

use ichido_history::{Recorder, Settings};
use ichido_ledger::Observer;

/// Starts to record. A history that cannot be written never stops a process: the log says why there is none.
pub(crate) fn start(settings: Option<Settings>) -> Option<Arc<dyn Observer>> {
    match Recorder::start(settings?) {
        Ok(recorder) => Some(Arc::new(recorder)),
        Err(error) => {
            tracing::warn!(%error, "no history is recorded; set history.dir, or history.dir = \"off\"");
            None
        }
    }
}
