//! Adapts the request rate to what the receiver accepts.
//!
//! Requests are not spaced until the receiver signals that there are too many, or `SEND_RATE_PER_SECOND` is set. From
//! then on they are spread evenly at an adaptive rate (additive increase, multiplicative decrease): each rejection
//! pauses the lane and lowers the rate by a factor, each accepted request raises it a little.
//!
//! The first rate is derived from what the receiver accepted before it rejected a request. If that is unknown, or the
//! receiver accepts more than before, the rate grows by a factor until the next rejection. So a transient rejection has
//! no lasting effect.
//!
//! Pure: the time of the next request depends on times of the steady clock and on a random number.

use std::collections::VecDeque;
use std::time::Duration;

/// Factor applied to the rate after a rejection.
const DECREASE_FACTOR: f64 = 0.7;
/// Growth of the rate per second and per request, as a share of the known limit; the smaller one applies. The first
/// keeps a fast lane from hitting the limit all the time, the second a slow one: at least twenty requests per cycle.
const GROWTH_PER_SECOND: f64 = 0.05;
const GROWTH_PER_REQUEST: f64 = 0.015;
/// If the rate exceeds the known limit by this factor, the limit is searched again.
const OUTGROWN_FACTOR: f64 = 1.3;
/// Growth per request while the limit is unknown, as a share of the rate, and at most one request per second.
const SEARCH_GROWTH: f64 = 0.1;
/// While the receiver accepts nothing, the rate does not fall below this share of the known limit.
const MIN_UNTESTED: f64 = 0.25;
/// Requests per second: where the search starts, the minimum, and where limiting ends.
const INITIAL_RATE: f64 = 1.0;
const MIN_RATE: f64 = 1.0 / 60.0;
const UNLIMITED_RATE: f64 = 2_000.0;
/// The period over which accepted requests are counted.
const SHORTEST_WINDOW: Duration = Duration::from_secs(1);
const LONGEST_WINDOW: Duration = Duration::from_secs(60);
/// Number of accepted requests that are remembered.
const ACCEPTED_KEPT: usize = 4_096;
/// The longest random delay of the first request after a pause, so that several senders do not resume at once.
const SPREAD_MAX: Duration = Duration::from_secs(1);

/// The rate limiter of one lane.
#[derive(Clone, Debug, Default)]
pub struct RateLimiter {
    /// Requests per second that are never exceeded.
    rate_max: Option<f64>,
    limit: Option<Limit>,
    sent: Option<Duration>,
    accepted: VecDeque<Duration>,
    consecutive_rejections: u32,
    /// When the last request was rejected that counts.
    rejected: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Limit {
    rate: f64,
    /// What the receiver last accepted per second, if known.
    known: Option<f64>,
    /// No request may be sent before this time.
    resume: Duration,
}

impl RateLimiter {
    /// Creates a limiter with an optional maximum of requests per second.
    pub fn new(rate_max: Option<u32>) -> Self {
        Self { rate_max: rate_max.map(f64::from), ..Self::default() }
    }

    /// When the next request may be sent, by the steady clock. The time may be in the past.
    pub fn next_at(&self) -> Duration {
        let rate = match (self.limit.map(|limit| limit.rate), self.rate_max) {
            (Some(rate), Some(max)) => Some(rate.min(max)),
            (rate, max) => rate.or(max),
        };
        let spaced = rate.zip(self.sent).map(|(rate, sent)| sent + Duration::from_secs_f64(1.0 / rate));
        let resume = self.limit.map(|limit| limit.resume);
        spaced.max(resume).unwrap_or_default()
    }

    /// The current rate in requests per second, if the receiver has set a limit.
    pub fn rate(&self) -> Option<f64> {
        self.limit.map(|limit| limit.rate)
    }

    /// Rejections since the last accepted request, before a request that was sent at this time.
    pub fn rejections_before(&self, sent: Duration) -> u32 {
        self.consecutive_rejections.saturating_sub(u32::from(self.was_under_way(sent)))
    }

    /// Whether a request that was sent at this time was under way when another one was rejected.
    fn was_under_way(&self, sent: Duration) -> bool {
        self.rejected.is_some_and(|rejected| sent < rejected)
    }

    /// Records that a request is sent.
    pub fn sent(&mut self, now: Duration) {
        self.sent = Some(now);
    }

    /// Records that the receiver accepted a request, or at least did not reject it for its rate.
    pub fn accepted(&mut self, now: Duration) {
        self.consecutive_rejections = 0;
        if self.accepted.len() == ACCEPTED_KEPT {
            self.accepted.pop_front();
        }
        self.accepted.push_back(now);
        let Some(limit) = &mut self.limit else { return };
        limit.known = limit.known.filter(|known| limit.rate < known * OUTGROWN_FACTOR);
        limit.rate += match limit.known {
            Some(known) => known * GROWTH_PER_REQUEST.min(GROWTH_PER_SECOND / limit.rate),
            None => (limit.rate * SEARCH_GROWTH).min(1.0),
        };
        if limit.rate > UNLIMITED_RATE {
            self.limit = None;
        }
    }

    /// Records that the receiver rejected a request for its rate and asked for a pause. `chance` is between 0 and 1.
    ///
    /// A request that was under way when another one was rejected can only extend the pause.
    pub fn rejected(&mut self, sent: Duration, now: Duration, pause: Duration, chance: f64) {
        if self.was_under_way(sent)
            && let Some(limit) = &mut self.limit
        {
            limit.resume = limit.resume.max(now + pause);
            return;
        }
        (self.consecutive_rejections, self.rejected) = (self.consecutive_rejections + 1, Some(now));
        let accepted_rate = self.accepted_rate(now, pause.clamp(SHORTEST_WINDOW, LONGEST_WINDOW));
        let (rate, known) = match (accepted_rate, self.limit) {
            (None, None) => (INITIAL_RATE, None),
            (Some(accepted_rate), None) => (accepted_rate * DECREASE_FACTOR, Some(accepted_rate)),
            // If the period includes a pause, fewer requests were accepted than could have been.
            (Some(accepted_rate), Some(limit)) => {
                let known = accepted_rate.clamp(limit.rate / 2.0, limit.rate);
                (known * DECREASE_FACTOR, Some(known))
            }
            // Nothing was accepted recently, so the limit is not known any better.
            (None, Some(limit)) => {
                let least = limit.known.unwrap_or(INITIAL_RATE) * MIN_UNTESTED;
                ((limit.rate * DECREASE_FACTOR).max(least), limit.known)
            }
        };
        let rate = rate.max(MIN_RATE);
        let spread = Duration::from_secs_f64(1.0 / rate).min(SPREAD_MAX).mul_f64(chance.clamp(0.0, 1.0));
        self.limit = Some(Limit { rate, known, resume: now + pause + spread });
    }

    /// Requests per second that were accepted within a period that ends now.
    #[allow(clippy::cast_precision_loss, reason = "a few thousand at most")]
    fn accepted_rate(&self, now: Duration, window: Duration) -> Option<f64> {
        let since = now.saturating_sub(window);
        let count = self.accepted.iter().rev().take_while(|at| **at >= since).count();
        let window = match self.accepted.front() {
            Some(first) if count == ACCEPTED_KEPT => now.saturating_sub(*first).max(Duration::from_millis(1)),
            Some(_) | None => window,
        };
        (count > 0).then(|| count as f64 / window.as_secs_f64())
    }
}

#[cfg(test)]
mod tests;
