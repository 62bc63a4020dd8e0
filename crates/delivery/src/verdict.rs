//! What an exchange with the receiver means for a batch.
//!
//! Pure: an answer or a failure goes in, a verdict comes out. What is done about it is decided in [`crate::next_action`].

use std::time::Duration;

use ichido_core::Timestamp;

use crate::conflict::{self, Conflict, Evidence, Proof, Ruling};
use crate::exchange::{Exchange, Response, TransportErrorKind, retry_after};
use crate::history::History;
use crate::record_results::{self, RecordResult};

/// What is known of a batch apart from the exchange.
#[derive(Clone, Copy, Debug)]
pub struct BatchContext<'a> {
    /// How many records it has.
    pub records: usize,
    /// `EXTERNAL_API_CONFLICT`
    pub conflict: Conflict,
    /// Whether the receiver is known to tell single records apart.
    pub tracks_records: bool,
    /// What happened to earlier requests of its file.
    pub history: &'a History,
    /// How long the sender waits for an answer.
    pub timeout: Duration,
    /// The time.
    pub now: Timestamp,
}

/// What an exchange means for the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has arrived, now or before.
    Delivered {
        /// It had arrived before, and this is how it is known.
        duplicate: Option<Proof>,
    },
    /// The answer has a result for each record; not all have arrived.
    Mixed(Vec<RecordResult>),
    /// It may go better later.
    Retry {
        /// When the receiver asked to be left alone until.
        not_before: Option<Timestamp>,
    },
    /// An earlier request may still be processed: it must not count as arrived before this moment.
    Unsettled {
        /// When it is settled.
        until: Timestamp,
    },
    /// A 409 that does not tell whether the receiver has all of the batch: a person decides.
    Ambiguous,
    /// Nothing would go better until someone changes something: the whole lane pauses.
    Hold,
    /// Something in the batch is refused: smaller parts tell what.
    Split,
}

/// What an exchange means. `has_receipt` says whether the same batch is known to have arrived before; it is asked only
/// where nothing stronger decides.
pub fn classify(
    exchange: &Exchange,
    context: &BatchContext<'_>,
    has_receipt: impl FnOnce() -> bool,
) -> Verdict {
    let BatchContext { records, now, .. } = *context;
    let response = match exchange {
        Exchange::Responded(response) => response,
        Exchange::Failed(transport_error) => {
            return match transport_error.kind {
                TransportErrorKind::Network | TransportErrorKind::Timeout => {
                    Verdict::Retry { not_before: None }
                }
                TransportErrorKind::Tls => Verdict::Hold,
            };
        }
    };
    match response.status {
        // Results for single records that were too long to be read: smaller requests have shorter ones.
        200..=299 if response.cut && records > 1 && record_results::may_contain(&response.body) => {
            Verdict::Split
        }
        200..=299 => by_record(response, records).unwrap_or(Verdict::Delivered { duplicate: None }),
        409 => conflicting(response, context, has_receipt),
        400 | 413 | 422 => Verdict::Split,
        408 | 425 | 429 => retry(response, now),
        500..=599 if !matches!(response.status, 501 | 505) => retry(response, now),
        // 401, 403, 404, 407, redirects, and whatever else no repetition would change.
        _ => Verdict::Hold,
    }
}

fn retry(response: &Response, now: Timestamp) -> Verdict {
    let not_before = response.retry_after.as_deref().and_then(|text| retry_after(text, now));
    Verdict::Retry { not_before }
}

fn by_record(response: &Response, records: usize) -> Option<Verdict> {
    let results = record_results::parse(&response.body, records)?;
    match results.iter().all(|result| matches!(result, RecordResult::Delivered)) {
        true => None,
        false => Some(Verdict::Mixed(results)),
    }
}

fn conflicting(
    response: &Response,
    context: &BatchContext<'_>,
    has_receipt: impl FnOnce() -> bool,
) -> Verdict {
    let BatchContext { records, conflict: setting, tracks_records, history, timeout, now } = *context;
    let evidence = Evidence { setting, response, records, tracks_records, history, timeout, now };
    match conflict::judge(&evidence, has_receipt) {
        Ruling::Results(results) => Verdict::Mixed(results),
        Ruling::InProgress => retry(response, now),
        Ruling::Hold => Verdict::Hold,
        Ruling::Known(proof) => Verdict::Delivered { duplicate: Some(proof) },
        Ruling::Split => Verdict::Split,
        Ruling::Unsettled(until) => Verdict::Unsettled { until },
        Ruling::Ambiguous => Verdict::Ambiguous,
    }
}

#[cfg(test)]
mod tests;
