//! What an exchange with the receiver means for a batch.
//!
//! Pure: an answer or a failure goes in, a verdict comes out. What is done about it is decided in [`crate::next_action`].

use std::time::Duration;

use ichido_core::Timestamp;

use crate::conflict::{self, Conflict, Evidence, Proof, Ruling};
use crate::exchange::{Answer, Exchange, TroubleKind, retry_after};
use crate::history::History;
use crate::record_results::{self, Fate};

/// What is known of a batch apart from the exchange.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// How many records it has.
    pub records: usize,
    /// `EXTERNAL_API_CONFLICT`
    pub conflict: Conflict,
    /// Whether the receiver is known to tell single records apart.
    pub knows_records: bool,
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
    /// The answer has a fate for each record; not all have arrived.
    Mixed(Vec<Fate>),
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
    situation: &Situation<'_>,
    has_receipt: impl FnOnce() -> bool,
) -> Verdict {
    let Situation { records, now, .. } = *situation;
    let answer = match exchange {
        Exchange::Answered(answer) => answer,
        Exchange::Failed(trouble) => {
            return match trouble.kind {
                TroubleKind::Network | TroubleKind::Timeout => Verdict::Retry { not_before: None },
                TroubleKind::Tls => Verdict::Hold,
            };
        }
    };
    match answer.status {
        // Results for single records that were too long to be read: smaller requests have shorter ones.
        200..=299 if answer.cut && records > 1 && record_results::are_in(&answer.body) => Verdict::Split,
        200..=299 => by_record(answer, records).unwrap_or(Verdict::Delivered { duplicate: None }),
        409 => conflicting(answer, situation, has_receipt),
        400 | 413 | 422 => Verdict::Split,
        408 | 425 | 429 => retry(answer, now),
        500..=599 if !matches!(answer.status, 501 | 505) => retry(answer, now),
        // 401, 403, 404, 407, redirects, and whatever else no repetition would change.
        _ => Verdict::Hold,
    }
}

fn retry(answer: &Answer, now: Timestamp) -> Verdict {
    let not_before = answer.retry_after.as_deref().and_then(|text| retry_after(text, now));
    Verdict::Retry { not_before }
}

fn by_record(answer: &Answer, records: usize) -> Option<Verdict> {
    let fates = record_results::of(&answer.body, records)?;
    match fates.iter().all(|fate| matches!(fate, Fate::Arrived)) {
        true => None,
        false => Some(Verdict::Mixed(fates)),
    }
}

fn conflicting(answer: &Answer, situation: &Situation<'_>, has_receipt: impl FnOnce() -> bool) -> Verdict {
    let Situation { records, conflict: setting, knows_records, history, timeout, now } = *situation;
    let evidence = Evidence { setting, answer, records, knows_records, history, timeout, now };
    match conflict::judge(&evidence, has_receipt) {
        Ruling::Results(fates) => Verdict::Mixed(fates),
        Ruling::InProgress => retry(answer, now),
        Ruling::Hold => Verdict::Hold,
        Ruling::Known(proof) => Verdict::Delivered { duplicate: Some(proof) },
        Ruling::Narrow => Verdict::Split,
        Ruling::Unsettled(until) => Verdict::Unsettled { until },
        Ruling::Ambiguous => Verdict::Ambiguous,
    }
}

#[cfg(test)]
mod tests;
