//! Batches in failed that must not be sent again: a newer total of one of their records was sent since.
//!
//! Where a receiver lets the later record win, an operator's resend would put the older total over the newer one.

use ichido_core::{Clock, SystemClock};
use ichido_delivery::sender::Selection;
use ichido_delivery::store::{BatchDir, Layout, StoredBatch};
use ichido_usage::Record;

use super::state::{Content, Lock, State};
use ichido_serve::Failure;

/// Refuses to send a batch of failed whose records are older than what was sent since. While the answer is held, no export runs.
pub fn refuse(layout: &Layout, selection: &Selection) -> Result<Option<Lock>, Failure> {
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
            && let Some(id) = older(&state, &stored)?
        {
            return Err(Failure::usage(format!(
                "{} holds an older total of {id} than was sent since: sent again it would replace the newer one; delete \
                 the file, or name other batches",
                listed.file
            )));
        }
    }
    Ok(Some(lock))
}

/// A record of the batch of which something else was sent.
fn older(state: &State, stored: &StoredBatch) -> Result<Option<String>, Failure> {
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
