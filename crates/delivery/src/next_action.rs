//! What happens next to a batch.
//!
//! Pure: a verdict, where the batch stands, the rules, the time and a chance go in; the next step comes out. The
//! sender only does what is said here.

use std::time::Duration;

use ichido_core::Timestamp;

use crate::conflict::Proof;
use crate::record_results::RecordResult;
use crate::verdict::Verdict;

/// The longest that a process waits for a receiver that asked for it. Longer waits are kept in the spool.
pub const WAIT_MAX: Duration = Duration::from_secs(60);

/// The rules of trying again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Repetitions after the first try of a pass.
    pub max_retries: u32,
    /// The first pause; each further one is twice as long.
    pub backoff: Duration,
    /// Whether pauses are stretched by chance, so that many senders do not come back at once.
    pub jitter: bool,
    /// Passes over a spooled batch before it moves to failed.
    pub max_spool_retries: u32,
    /// The longest that a receiver may put a batch off.
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
    /// The pause before repetition `retries + 1`. `chance` is between 0 and 1.
    pub fn pause(&self, retries: u32, chance: f64) -> Duration {
        let plain = self.backoff.saturating_mul(1u32.checked_shl(retries).unwrap_or(u32::MAX));
        match self.jitter {
            // Never shorter than what is documented.
            true => plain.saturating_add(plain.mul_f64(chance.clamp(0.0, 1.0) / 2.0)),
            false => plain,
        }
    }

    /// The last moment until which a receiver may put a batch off.
    pub fn latest(&self, now: Timestamp) -> Timestamp {
        now + u64::try_from(self.retry_after_max.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Where a batch comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was just accepted.
    Fresh,
    /// It lay in the spool, after so many passes that failed.
    Spool {
        /// How many.
        retry_count: u32,
    },
}

impl Origin {
    /// A word for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Origin::Fresh => "fresh",
            Origin::Spool { .. } => "spool",
        }
    }
}

/// Where a batch stands in its pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassState {
    /// Where it comes from.
    pub origin: Origin,
    /// Repetitions made in this pass.
    pub retries: u32,
    /// How many records it has.
    pub records: usize,
    /// The lane sends this one batch to see whether the receiver is back: it is not charged for the answer.
    pub probe: bool,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextAction {
    /// It has arrived: forget it.
    Done {
        /// It had arrived before, and this is how it is known.
        duplicate: Option<Proof>,
    },
    /// Try again after a pause.
    Retry(Duration),
    /// Keep it for the next pass.
    Spool {
        /// What the file says from now on.
        retry_count: u32,
        /// Not before this moment.
        not_before: Option<Timestamp>,
    },
    /// No pass is left: an operator must look.
    Exhausted {
        /// What the file says from now on.
        retry_count: u32,
    },
    /// The receiver refuses this very record.
    Rejected,
    /// Nobody can tell whether the receiver has all of it: an operator decides.
    Ambiguous,
    /// Pause the lane; keep the batch as it is.
    Hold,
    /// Find the part that is refused.
    Split,
    /// Treat each record by its result.
    ByRecord(Vec<RecordResult>),
}

/// What happens next to a batch with this verdict.
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
        // It may be settled sooner than at the latest: the usual pauses first, and the spool for the rest of the time.
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
