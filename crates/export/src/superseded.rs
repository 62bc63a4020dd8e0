//! Finds batches in failed that must not be resent, because a newer total of one of their records was sent since.
//!
//! If the receiver lets the later record win, resending such a batch would replace the newer total with the older one.

use ichido_core::{Clock, SystemClock};
use ichido_delivery::sender::Selection;
use ichido_delivery::store::{BatchDir, Layout, StoredBatch};
use ichido_usage::Record;

use super::state::{Content, Lock, State};
use ichido_serve::Failure;

/// Fails if the selection contains such a batch. While the returned lock is held, no export runs.
pub fn check(layout: &Layout, selection: &Selection) -> Result<Option<Lock>, Failure> {
    let state = State::new(layout.root());
    if selection.batch_dir != BatchDir::Failed || !state.exists() {
        return Ok(None);
    }
    let lock = state.lock(SystemClock::default().now())?;
    for listed in layout.oldest(BatchDir::Failed, None, usize::MAX).map_err(Failure::usage_from)? {
        if !selection.may_match(&listed) {
            continue;
        }
        if let Ok(Ok(stored)) = layout.read(BatchDir::Failed, &listed)
            && selection.matches(stored.batch.key())
            && let Some(id) = superseded_id(&state, &stored)?
        {
            return Err(Failure::usage(format!(
                "{} has an older total of {id} than was sent since; resending it would replace the newer one: delete \
                 the file, or select other batches",
                listed.file
            )));
        }
    }
    Ok(Some(lock))
}

/// The id of a record in the batch whose content differs from what was sent.
fn superseded_id(state: &State, stored: &StoredBatch) -> Result<Option<String>, Failure> {
    for wire in stored.batch.records() {
        let Ok(record) = serde_json::from_str::<Record>(wire.json()) else { continue };
        let sent = state.sent(&record.usage_date.to_string())?;
        let content = Content::of(&record);
        if sent.records.get(wire.key()).is_some_and(|sent| sent.hash != content.hash) {
            return Ok(Some(wire.key().to_owned()));
        }
    }
    Ok(None)
}
