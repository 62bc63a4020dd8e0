//! Handles rate limiting by the receiver: the whole lane slows down, not only the batch that was rejected.

use std::time::Duration;

use crate::exchange::{Exchange, retry_after};
use crate::next_action::WAIT_MAX;

use super::{Job, Sender};

/// Rate-limit pauses per batch that are free. Further ones count as retries, so that no batch is retried forever.
const PAUSES_PER_BATCH_MAX: u32 = 20;

/// How a response affects the rate of the lane.
pub(super) enum RateLimited {
    /// It is not about the rate: the verdict decides.
    No,
    /// The batch is retried after this pause, which does not count as a retry.
    Wait(Duration),
    /// Waiting does not help, or takes longer than a process should wait: the pass over this batch ends.
    GiveUp,
}

impl Sender {
    /// Adapts the rate of the lane to a response. A 429, or a 503 with `Retry-After`, pauses the lane.
    ///
    /// If nothing is accepted in 1 + `MAX_RETRIES` requests (at least two), the lane closes for the pause, and the
    /// remaining batches go to the spool. Each pause before that lasts at most a minute if the receiver named it,
    /// else the backoff. Requests that were under way when another one was rejected tell nothing new: together they
    /// count as one rejection.
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
        let (policy, chance, rejections) =
            (self.rules.policy, self.random(), self.limiter.rejections_before(job.sent_at));
        let pause = match asked {
            Some(until) => Duration::from_millis(until.min(policy.latest(now)).ms_since(now)),
            None => policy.pause(rejections, chance),
        };
        self.limiter.rejected(job.sent_at, steady, pause, chance);
        metrics::counter!("ichido_delivery_rate_limited_total").increment(1);
        tracing::warn!(
            pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
            rate_per_second = self.limiter.rate(),
            "rate limited by the receiver"
        );
        let is_long = asked.is_some() && pause > WAIT_MAX;
        if is_long || rejections >= policy.max_retries.max(1) {
            self.lane.pause_until(steady + pause);
            return RateLimited::GiveUp;
        }
        if job.probe || job.rate_limited >= PAUSES_PER_BATCH_MAX {
            return RateLimited::No;
        }
        RateLimited::Wait(self.limiter.next_at().saturating_sub(steady))
    }
}
