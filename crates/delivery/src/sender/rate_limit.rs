//! A receiver that has too many requests: the whole lane slows down, not only the batch that found out.

use std::time::Duration;

use crate::exchange::{Exchange, retry_after};
use crate::next_action::WAIT_MAX;

use super::{Job, Sender};

/// Pauses of this kind that one batch goes through. More of them count as retries, so that no batch is tried for ever.
const PAUSES_PER_BATCH_MAX: u32 = 20;

/// What the lane makes of an answer.
pub(super) enum RateLimited {
    /// The answer is not about the number of requests: the batch proceeds by its verdict.
    No,
    /// The batch is sent again after this pause, and is not charged for it.
    Wait(Duration),
    /// ScheduledRetry does not help, or takes longer than a process should wait: the pass over this batch ends.
    GiveUp,
}

impl Sender {
    /// Waits until the next request may go.
    pub(super) async fn wait_for_turn(&self) {
        loop {
            let wait = self.limiter.next_at().saturating_sub(self.deps.clock.steady());
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
    pub(super) fn adapt_rate(&mut self, job: &Job, exchange: &Exchange) -> RateLimited {
        let (now, steady) = (self.deps.clock.now(), self.deps.clock.steady());
        let Exchange::Responded(response) = exchange else { return RateLimited::No };
        let asked = response.retry_after.as_deref().and_then(|text| retry_after(text, now));
        match (response.status, asked) {
            (429, _) | (503, Some(_)) => {}
            (status, _) => {
                if status < 500 {
                    self.limiter.accepted(steady);
                }
                return RateLimited::No;
            }
        }
        let (policy, chance, in_row) = (self.rules.policy, self.random(), self.limiter.refused_in_row());
        let pause = match asked {
            Some(until) => Duration::from_millis(until.min(policy.latest(now)).ms_since(now)),
            None => policy.pause(in_row, chance),
        };
        self.limiter.refused(steady, pause, chance);
        metrics::counter!("ichido_delivery_rate_limited_total").increment(1);
        tracing::warn!(
            pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
            rate_per_second = self.limiter.rate(),
            "rate limited by the receiver"
        );
        let is_long = asked.is_some() && pause > WAIT_MAX;
        if is_long || in_row >= policy.max_retries.max(1) {
            self.lane.pause_until(steady + pause);
            return RateLimited::GiveUp;
        }
        if job.probe || job.rate_limited >= PAUSES_PER_BATCH_MAX {
            return RateLimited::No;
        }
        RateLimited::Wait(self.limiter.next_at().saturating_sub(steady))
    }
}
