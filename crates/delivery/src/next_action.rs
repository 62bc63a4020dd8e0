//! Decides what happens next to a batch.
//!
//! Pure: the decision depends on a verdict, the state of the pass, the policy, the time and a random number. The sender
//! only carries it out.

use std::time::Duration;

use ichido_core::Timestamp;

use crate::conflict::Proof;
use crate::record_results::RecordResult;
use crate::verdict::Verdict;

/// The longest that a process waits because the receiver asked for it. For longer waits, the batch is spooled.
pub const WAIT_MAX: Duration = Duration::from_secs(60);

/// When to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Retries after the first attempt of a pass.
    pub max_retries: u32,
    /// The pause before the first retry. Each further pause is twice as long.
    pub backoff: Duration,
    /// Whether pauses are extended at random, so that many senders do not retry at once.
    pub jitter: bool,
    /// Passes over a spooled batch before it moves to failed.
    pub max_spool_retries: u32,
    /// The longest that a receiver may defer a batch.
    pub retry_after_max: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_retries: 3,
            backoff: Duration::from_secs(1),
            jitter: false,
            max_spool_retries: 10,
            retry_after_max: Duration::from_secs(24 * 60 * 60),
        }
    }
}

impl Policy {
    /// The pause before retry number `retries + 1`. `chance` is between 0 and 1.
    pub fn pause(&self, retries: u32, chance: f64) -> Duration {
        let plain = self.backoff.saturating_mul(1u32.checked_shl(retries).unwrap_or(u32::MAX));
        match self.jitter {
            // Never shorter than the documented pause.
            true => plain.saturating_add(plain.mul_f64(chance.clamp(0.0, 1.0) / 2.0)),
            false => plain,
        }
    }

    /// The latest time until which a receiver may defer a batch.
    pub fn latest(&self, now: Timestamp) -> Timestamp {
        now + u64::try_from(self.retry_after_max.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Where a batch comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was just accepted.
    Fresh,
    /// It was in the spool.
    Spool {
        /// Passes that failed so far.
        retry_count: u32,
    },
}

impl Origin {
    /// The value used in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Origin::Fresh => "fresh",
            Origin::Spool { .. } => "spool",
        }
    }
}

/// How far the current pass over a batch has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassState {
    /// Where the batch comes from.
    pub origin: Origin,
    /// Retries made in this pass.
    pub retries: u32,
    /// Number of records in the batch.
    pub records: usize,
    /// Whether the request was a probe, which does not count against the batch.
    pub probe: bool,
}

/// What happens next to a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextAction {
    /// Finish: the receiver has it.
    Done {
        /// The proof that the receiver already had it.
        duplicate: Option<Proof>,
    },
    /// Retry after a pause.
    Retry(Duration),
    /// Keep it in the spool for the next pass.
    Spool {
        /// The new count of failed passes.
        retry_count: u32,
        /// The earliest time of the next attempt.
        not_before: Option<Timestamp>,
    },
    /// Move it to failed: all passes are used up.
    Exhausted {
        /// The new count of failed passes.
        retry_count: u32,
    },
    /// Move it to failed: the receiver rejects this single record.
    Rejected,
    /// Move it to failed: an operator must decide whether the receiver has all of it.
    Ambiguous,
    /// Hold the lane, and keep the batch as it is.
    Hold,
    /// Split it to find what is rejected.
    Split,
    /// Treat each record by its result.
    ByRecord(Vec<RecordResult>),
}

/// Decides what happens next to a batch with this verdict.
pub fn decide(
    verdict: Verdict,
    state: &PassState,
    policy: &Policy,
    now: Timestamp,
    chance: f64,
) -> NextAction {
    match verdict {
        Verdict::Delivered { duplicate } => NextAction::Done { duplicate },
        Verdict::Mixed(results) => NextAction::ByRecord(results),
        Verdict::Hold => NextAction::Hold,
        Verdict::Split if state.records > 1 => NextAction::Split,
        Verdict::Split => NextAction::Rejected,
        Verdict::Ambiguous => NextAction::Ambiguous,
        Verdict::Retry { not_before } => retry_or_spool(not_before, state, policy, now, chance),
        // The request may be finished earlier: retry with the usual pauses first, then leave the batch in the spool.
        Verdict::Unsettled { until } => {
            let mut next = retry_or_spool(None, state, policy, now, chance);
            if let NextAction::Spool { not_before, .. } = &mut next {
                *not_before = Some(until);
            }
            next
        }
    }
}

fn retry_or_spool(
    not_before: Option<Timestamp>,
    state: &PassState,
    policy: &Policy,
    now: Timestamp,
    chance: f64,
) -> NextAction {
    let not_before = not_before.map(|moment| moment.min(policy.latest(now)));
    let wait = match not_before {
        Some(moment) => Duration::from_millis(moment.ms_since(now)),
        None => policy.pause(state.retries, chance),
    };
    let is_asked_too_long = not_before.is_some() && wait > WAIT_MAX;
    if state.retries < policy.max_retries && !is_asked_too_long && !state.probe {
        return NextAction::Retry(wait);
    }
    let retry_count = match state.origin {
        Origin::Fresh => return NextAction::Spool { retry_count: 0, not_before },
        Origin::Spool { retry_count } if state.probe => return NextAction::Spool { retry_count, not_before },
        Origin::Spool { retry_count } => retry_count.saturating_add(1),
    };
    match retry_count >= policy.max_spool_retries {
        true => NextAction::Exhausted { retry_count },
        false => NextAction::Spool { retry_count, not_before },
    }
}

#[cfg(test)]
mod tests;
