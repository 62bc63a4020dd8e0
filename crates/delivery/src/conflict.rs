//! Interprets a 409.
//!
//! Some receivers track batches: a 409 means that they have the whole batch. Others track records: a 409 means that
//! they have one of the records, and took nothing of the batch. A bare 409 fits both. Mistaking the second for the
//! first loses records. Splitting a batch that is known by its key counts its records again, because the parts have
//! keys of their own. And a 409 may mean that the first request is still being processed, and may yet fail.
//!
//! So [`judge`] goes by evidence, in this order, and never guesses:
//!
//! 1. a result for each record, or totals that add up to all of them;
//! 2. hints that the first request is still being processed: retry;
//! 3. a problem that only an operator can resolve: hold the lane;
//! 4. the response says that the receiver has the *batch*: delivered;
//! 5. the receiver tracks records (the API_Meter envelope): split. A single record that gets a 409 is a duplicate;
//!    every other record must be accepted by itself;
//! 6. a receipt for the same key and content: delivered;
//! 7. an earlier request timed out recently and may still be processed: retry;
//! 8. an earlier request was sent completely and its response was lost, or another program wrote the file, or an
//!    earlier request timed out long ago: delivered;
//! 9. anything else is ambiguous, and an operator decides.
//!
//! `EXTERNAL_API_CONFLICT=batch` skips all of this: every 409 is a success. `record` goes from 3 straight to 5.

mod hints;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use std::time::Duration;

use ichido_core::Timestamp;

use crate::exchange::Response;
use crate::history::History;
use crate::record_results::{self, RecordResult};

/// A request that timed out this long ago is certainly finished.
const SETTLED: Duration = Duration::from_secs(300);
/// The same, as a multiple of the sender's timeout. The longer of the two applies.
const SETTLED_TIMEOUTS: u32 = 10;

/// `EXTERNAL_API_CONFLICT`: how to interpret a 409.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Conflict {
    /// Go by the evidence.
    #[default]
    Auto,
    /// The receiver has the whole batch, whatever the response says.
    Batch,
    /// The receiver has at least one record. Smaller requests show which ones.
    Record,
}

impl Conflict {
    /// What the setting does, in a few words.
    pub fn describe(self) -> &'static str {
        match self {
            Conflict::Auto => "a 409 is judged by evidence (auto)",
            Conflict::Batch => "every 409 is a success (batch)",
            Conflict::Record => "a 409 is resolved record by record (record)",
        }
    }
}

/// What is known when a 409 arrives, except for receipts, which are looked up only if they matter.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// The setting.
    pub setting: Conflict,
    /// The response.
    pub response: &'a Response,
    /// Number of records in the batch.
    pub records: usize,
    /// Whether the receiver is known to track individual records.
    pub tracks_records: bool,
    /// What happened to earlier requests of this batch.
    pub history: &'a History,
    /// How long the sender waits for a response.
    pub timeout: Duration,
    /// The current time.
    pub now: Timestamp,
}

/// What a 409 means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// The response contains a result for each record, and not all were delivered.
    Results(Vec<RecordResult>),
    /// An earlier request of this batch is still being processed.
    InProgress,
    /// Only an operator can resolve it.
    Hold,
    /// The receiver has the whole batch.
    Known(Proof),
    /// Smaller parts show which records the receiver has.
    Split,
    /// An earlier request timed out, and may still be processed until this time.
    Unsettled(Timestamp),
    /// Nothing shows whether the receiver has the whole batch.
    Ambiguous,
}

/// How we know that the receiver has the whole batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// `EXTERNAL_API_CONFLICT=batch`
    Setting,
    /// The response says so for each record.
    Results,
    /// The response says so for the batch.
    Response,
    /// The batch is a single record.
    SingleRecord,
    /// A receipt says that it was delivered before.
    Receipt,
    /// An earlier request was sent completely, and its response was lost.
    ResponseLost,
    /// Another program put the file into the spool after sending it.
    SpooledElsewhere,
    /// The receiver still responds with 409 long after a request timed out.
    StillConflicting,
}

impl Proof {
    /// The value used in logs and receipts.
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

/// Interprets a 409. `has_receipt` is called at most once, and only if nothing stronger decides.
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
    // This comes before everything that an older request may prove: the receiver may yet reject the pending one.
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

/// When a request that timed out at this time is certainly finished.
fn settled_at(timed_out: Timestamp, timeout: Duration) -> Timestamp {
    let wait = SETTLED.max(timeout.saturating_mul(SETTLED_TIMEOUTS));
    timed_out + u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
