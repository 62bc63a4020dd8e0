//! What a 409 means.
//!
//! Some receivers know batches: a 409 says that all of the batch is known. Others know records: a 409 says that one record
//! is known, and that nothing of the batch was taken. A bare 409 fits both. Taking the second for the first loses records;
//! dividing a batch that is known by its key counts its records again, because the parts have keys of their own. And
//! a 409 may mean that the first request is still being processed, and may yet fail.
//!
//! So [`judge`] goes by evidence, in this order, and guesses nothing:
//!
//! 1. a result for each record, or counts that add up to all of them,
//! 2. signs that the first request is still being processed: retry,
//! 3. a problem that only a person can settle: hold the lane,
//! 4. the answer says that the *batch* is known: delivered,
//! 5. the receiver knows records (the envelope of API_Meter): narrow down by record. A single record that gets 409 is
//!    known; all others must be accepted themselves,
//! 6. a receipt of the same key and content: delivered,
//! 7. an earlier request timed out a short while ago and may still be processed: retry,
//! 8. an earlier request arrived whole and nobody read its answer, or another program wrote the file, or an earlier request timed
//!    out long ago: delivered,
//! 9. anything else is ambiguous, and a person decides.
//!
//! `EXTERNAL_API_CONFLICT=batch` skips all of this: every 409 is a success. `record` goes from 3 straight to 5.

mod hints;

use std::time::Duration;

use ichido_core::Timestamp;

use crate::exchange::Response;
use crate::history::History;
use crate::record_results::{self, RecordResult};

/// A receiver that still says 409 so long after a timeout is done with the request that timed out.
const SETTLED: Duration = Duration::from_secs(300);
/// The same, in timeouts of the sender.
const SETTLED_TIMEOUTS: u32 = 10;

/// `EXTERNAL_API_CONFLICT`: what a 409 is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conflict {
    /// Go by evidence.
    #[default]
    Auto,
    /// The whole batch was there before, whatever the answer says.
    Batch,
    /// At least one record was there before; which ones, only smaller requests tell.
    Record,
}

impl Conflict {
    /// What the setting does, in a few words.
    pub fn describe(self) -> &'static str {
        match self {
            Conflict::Auto => "a 409 is judged by evidence (auto)",
            Conflict::Batch => "every 409 is a success (batch)",
            Conflict::Record => "a 409 is narrowed down by record (record)",
        }
    }
}

/// What is known when a 409 arrives, except for receipts, which are looked up only if they matter.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// The setting.
    pub setting: Conflict,
    /// The answer.
    pub response: &'a Response,
    /// Records in the batch.
    pub records: usize,
    /// Whether the receiver is known to tell single records apart.
    pub tracks_records: bool,
    /// What happened to earlier requests of this file.
    pub history: &'a History,
    /// How long the sender waits for an answer.
    pub timeout: Duration,
    /// The time.
    pub now: Timestamp,
}

/// What a 409 means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// The answer has a result for each record, and not all of them arrived.
    Results(Vec<RecordResult>),
    /// An earlier request of this batch is still being processed.
    InProgress,
    /// Only a person can settle it.
    Hold,
    /// The receiver has the whole batch.
    Known(Proof),
    /// Smaller parts tell which records the receiver has.
    Split,
    /// An earlier request timed out and may still be processed until then.
    Unsettled(Timestamp),
    /// There is no telling whether the receiver has all of the batch.
    Ambiguous,
}

/// How it is known that the receiver has all of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// `EXTERNAL_API_CONFLICT=batch`
    Setting,
    /// The answer says so of each record.
    Results,
    /// The answer says so of the batch.
    Response,
    /// The batch is a single record.
    SingleRecord,
    /// A receipt says that it arrived before.
    Receipt,
    /// An earlier request arrived whole, and its answer was lost.
    ResponseLost,
    /// Another program put the file into the spool after sending it.
    SpooledElsewhere,
    /// The receiver still answers 409 long after a request timed out.
    StillConflicting,
}

impl Proof {
    /// A word for logs and receipts.
    pub fn as_str(self) -> &'static str {
        match self {
            Proof::Setting => "setting",
            Proof::Results => "results",
            Proof::Response => "answer",
            Proof::SingleRecord => "single-record",
            Proof::Receipt => "receipt",
            Proof::ResponseLost => "answer-lost",
            Proof::SpooledElsewhere => "spooled-elsewhere",
            Proof::StillConflicting => "still-conflicting",
        }
    }
}

/// Judges a 409. `has_receipt` is asked at most once, and only if nothing stronger decides.
pub fn judge(evidence: &Evidence<'_>, has_receipt: impl FnOnce() -> bool) -> Ruling {
    let Evidence { setting, response, records, history, now, .. } = *evidence;
    if setting == Conflict::Batch {
        return Ruling::Known(Proof::Setting);
    }
    if let Some(results) = record_results::parse(&response.body, records) {
        return match results.iter().all(|result| matches!(result, RecordResult::Delivered)) {
            true => Ruling::Known(Proof::Results),
            false => Ruling::Results(results),
        };
    }
    if record_results::counts_cover_all(&response.body, records) {
        return Ruling::Known(Proof::Results);
    }
    let hints = hints::read(&response.body);
    if response.retry_after.is_some() || hints.in_progress {
        return Ruling::InProgress;
    }
    if hints.needs_operator {
        return Ruling::Hold;
    }
    if setting == Conflict::Auto && hints.batch_is_known {
        return Ruling::Known(Proof::Response);
    }
    if setting == Conflict::Record || evidence.tracks_records {
        return if records > 1 { Ruling::Split } else { Ruling::Known(Proof::SingleRecord) };
    }
    if has_receipt() {
        return Ruling::Known(Proof::Receipt);
    }
    // Before everything that an older request may prove: the receiver may yet refuse this one.
    let settled = history.timed_out.map(|at| settled_at(at, evidence.timeout));
    if let Some(settled) = settled.filter(|settled| now < *settled) {
        return Ruling::Unsettled(settled);
    }
    if history.response_lost.is_some() {
        return Ruling::Known(Proof::ResponseLost);
    }
    if history.spooled_elsewhere {
        return Ruling::Known(Proof::SpooledElsewhere);
    }
    match settled {
        Some(_) => Ruling::Known(Proof::StillConflicting),
        None => Ruling::Ambiguous,
    }
}

/// When a request that timed out at this moment is no longer being processed.
fn settled_at(timed_out: Timestamp, timeout: Duration) -> Timestamp {
    let wait = SETTLED.max(timeout.saturating_mul(SETTLED_TIMEOUTS));
    timed_out + u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
