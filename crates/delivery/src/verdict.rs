//! Interprets an exchange with the receiver.
//!
//! Pure: a response or a transport error goes in, a verdict comes out. [`crate::next_action`] decides what to do
//! about it.

use std::time::Duration;

use ichido_core::Timestamp;

use crate::conflict::{self, Conflict, Evidence, Proof, Ruling};
use crate::exchange::{Exchange, Response, TransportErrorKind, retry_after};
use crate::history::History;
use crate::record_results::{self, RecordResult};

/// What is known about a batch apart from the exchange.
#[derive(Clone, Copy, Debug)]
pub struct BatchContext<'a> {
    /// Number of records in the batch.
    pub records: usize,
    /// `EXTERNAL_API_CONFLICT`
    pub conflict: Conflict,
    /// Whether the receiver is known to track individual records.
    pub tracks_records: bool,
    /// What happened to earlier requests of the batch.
    pub history: &'a History,
    /// How long the sender waits for a response.
    pub timeout: Duration,
    /// The current time.
    pub now: Timestamp,
}

/// What an exchange means for the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The receiver has it.
    Delivered {
        /// The proof that the receiver already had it.
        duplicate: Option<Proof>,
    },
    /// The response contains a result for each record, and not all were delivered.
    Mixed(Vec<RecordResult>),
    /// A retry may succeed.
    Retry {
        /// The earliest time of a retry, as the receiver asked.
        not_before: Option<Timestamp>,
    },
    /// An earlier request may still be processed, so the batch must not count as delivered yet.
    Unsettled {
        /// When the earlier request is certainly finished.
        until: Timestamp,
    },
    /// A 409 that does not say whether the receiver has the whole batch: an operator decides.
    Ambiguous,
    /// No retry would succeed until an operator changes something: the lane is held.
    Hold,
    /// Something in the batch is rejected: smaller parts show what.
    Split,
}

/// Interprets an exchange. `has_receipt` tells whether a receipt proves that the same batch was delivered before; it is
/// called only if nothing stronger decides.
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
        // The results for individual records were too long to read: smaller requests have shorter results.
        200..=299 if response.cut && records > 1 && record_results::may_contain(&response.body) => {
            Verdict::Split
        }
        200..=299 => by_record(response, records).unwrap_or(Verdict::Delivered { duplicate: None }),
        409 => conflicting(response, context, has_receipt),
        400 | 413 | 422 => Verdict::Split,
        408 | 425 | 429 => retry(response, now),
        500..=599 if !matches!(response.status, 501 | 505) => retry(response, now),
        // 401, 403, 404, 407, redirects, and everything else that a retry would not change.
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
