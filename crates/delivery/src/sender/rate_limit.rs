//! A receiver that has too many requests: the whole lane slows down, not only the batch that found out.

use std::time::Duration;

use crate::exchange::{Exchange, retry_after};
use crate::next_action::LONGEST_WAIT;

use super::{Job, Sender};

/// Pauses of this kind that one batch goes through. More of them count as retries, so that no batch is tried for ever.
const MOST_FOR_A_BATCH: u32 = 20;

/// What the lane makes of an answer.
pub(super) enum Slowed {
    /// The answer is not about the number of requests: the batch proceeds by its verdict.
    No,
    /// The batch is sent again after this pause, and is not charged for it.
    Wait(Duration),
    /// Waiting does not help, or takes longer than a process should wait: the pass over this batch ends.
    GiveUp,
}

impl Sender {
    /// Waits until the next request may go.
    pub(super) async fn turn_comes(&self) {
        loop {
            let wait = self.pace.next_at().saturating_sub(self.parts.clock.steady());
            if wait.is_zero() {
                return;
            }
            // Timers go by milliseconds.
            tokio::time::sleep(wait.max(Duration::from_millis(1))).await;
        }
    }

    /// Adapts the pace of the lane to an answer. 429, or 503 with `Retry-After`, pauses it.
    ///
    /// Bound: a lane in which nothing was accepted in 1 + `MAX_RETRIES` requests (two at least) rests, and what is left goes
    /// to the spool. Each pause before that is a minute at most if the receiver named it, and a backoff otherwise.
    pub(super) fn slow_down(&mut self, job: &Job, exchange: &Exchange) -> Slowed {
        let (now, steady) = (self.parts.clock.now(), self.parts.clock.steady());
        let Exchange::Answered(answer) = exchange else { return Slowed::No };
        let asked = answer.retry_after.as_deref().and_then(|text| retry_after(text, now));
        match (answer.status, asked) {
            (429, _) | (503, Some(_)) => {}
            (status, _) => {
                if status < 500 {
                    self.pace.accepted(steady);
                }
                return Slowed::No;
            }
        }
        let (policy, chance, in_row) = (self.rules.policy, self.chance(), self.pace.refused_in_row());
        let pause = match asked {
            Some(until) => Duration::from_millis(until.min(policy.latest(now)).ms_since(now)),
            None => policy.pause(in_row, chance),
        };
        self.pace.refused(steady, pause, chance);
        metrics::counter!("ichido_delivery_rate_limited_total").increment(1);
        tracing::warn!(
            pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
            rate_per_second = self.pace.rate(),
            "rate limited by the receiver"
        );
        let is_long = asked.is_some() && pause > LONGEST_WAIT;
        if is_long || in_row >= policy.max_retries.max(1) {
            self.lane.rest_until(steady + pause);
            return Slowed::GiveUp;
        }
        if job.probe || job.slowed >= MOST_FOR_A_BATCH {
            return Slowed::No;
        }
        Slowed::Wait(self.pace.next_at().saturating_sub(steady))
    }
}
