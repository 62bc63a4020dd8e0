//! How fast requests may follow each other to one receiver.
//!
//! Nothing waits until the receiver says that it gets too many requests, or `SEND_RATE_PER_SECOND` says so. From then on
//! requests are spread evenly, at a rate that adapts: each refusal pauses everything and lowers the rate by a factor, each
//! accepted request raises it by a little (additive increase, multiplicative decrease).
//!
//! The first rate follows from what the receiver took before it refused. If that is unknown, or the receiver takes more than
//! it used to, the rate grows by a factor until the next refusal, so a refusal that was a passing trouble is soon forgotten.
//!
//! Pure: times of the steady clock and a chance go in, the moment of the next request comes out.

use std::collections::VecDeque;
use std::time::Duration;

/// What is left of the rate after a refusal.
const DECREASE: f64 = 0.7;
/// Share of the known limit by which the rate grows within a second, and with one request at most. The first keeps a fast
/// lane from running into pauses all the time, the second a slow one: a cycle has at least twenty requests.
const GROWTH_PER_SECOND: f64 = 0.05;
const GROWTH_PER_REQUEST: f64 = 0.015;
/// Beyond the known limit by this factor, another one is looked for.
const OUTGROWN: f64 = 1.3;
/// Without a known limit each request adds this share of the rate, and no more than one request in a second.
const SEARCH: f64 = 0.1;
/// Share of the known limit below which the rate does not fall while the receiver takes nothing at all.
const LEAST_UNTESTED: f64 = 0.25;
/// Requests in a second: where the search begins, the least, and where no limit is needed any more.
const FIRST: f64 = 1.0;
const SLOWEST: f64 = 1.0 / 60.0;
const UNLIMITED: f64 = 2_000.0;
/// The time over which it is counted what a receiver took.
const SHORTEST_WINDOW: Duration = Duration::from_secs(1);
const LONGEST_WINDOW: Duration = Duration::from_secs(60);
/// Accepted requests that are remembered.
const REMEMBERED: usize = 4_096;
/// The longest that the first request after a pause is put off by chance, so that several senders do not come back at once.
const SPREAD: Duration = Duration::from_secs(1);

/// The pace of one lane.
#[derive(Clone, Debug, Default)]
pub struct RateLimiter {
    /// Requests in a second that are never exceeded.
    most: Option<f64>,
    limit: Option<Limit>,
    sent: Option<Duration>,
    accepted: VecDeque<Duration>,
    refused_in_row: u32,
}

#[derive(Clone, Copy, Debug)]
struct Limit {
    rate: f64,
    /// What the receiver took last, if that is known.
    known: Option<f64>,
    /// Nothing goes before.
    resume: Duration,
}

impl RateLimiter {
    /// A pace of at most so many requests in a second, if there is a bound.
    pub fn new(most: Option<u32>) -> Self {
        Self { most: most.map(f64::from), ..Self::default() }
    }

    /// When the next request may go, by the steady clock; it may be over.
    pub fn next_at(&self) -> Duration {
        let rate = match (self.limit.map(|limit| limit.rate), self.most) {
            (Some(rate), Some(most)) => Some(rate.min(most)),
            (rate, most) => rate.or(most),
        };
        let spaced = rate.zip(self.sent).map(|(rate, sent)| sent + Duration::from_secs_f64(1.0 / rate));
        let resume = self.limit.map(|limit| limit.resume);
        spaced.max(resume).unwrap_or_default()
    }

    /// The present rate in requests per second, if the receiver has set a limit.
    pub fn rate(&self) -> Option<f64> {
        self.limit.map(|limit| limit.rate)
    }

    /// Refusals since the last request that was accepted.
    pub fn refused_in_row(&self) -> u32 {
        self.refused_in_row
    }

    /// A request goes.
    pub fn sent(&mut self, now: Duration) {
        self.sent = Some(now);
    }

    /// The receiver took a request, or at least did not find it one too many.
    pub fn accepted(&mut self, now: Duration) {
        self.refused_in_row = 0;
        if self.accepted.len() == REMEMBERED {
            self.accepted.pop_front();
        }
        self.accepted.push_back(now);
        let Some(limit) = &mut self.limit else { return };
        limit.known = limit.known.filter(|known| limit.rate < known * OUTGROWN);
        limit.rate += match limit.known {
            Some(known) => known * GROWTH_PER_REQUEST.min(GROWTH_PER_SECOND / limit.rate),
            None => (limit.rate * SEARCH).min(1.0),
        };
        if limit.rate > UNLIMITED {
            self.limit = None;
        }
    }

    /// The receiver refused a request as one too many, and asks for a pause. `chance` is between 0 and 1.
    pub fn refused(&mut self, now: Duration, pause: Duration, chance: f64) {
        self.refused_in_row += 1;
        let taken = self.taken(now, pause.clamp(SHORTEST_WINDOW, LONGEST_WINDOW));
        let (rate, known) = match (taken, self.limit) {
            (None, None) => (FIRST, None),
            (Some(taken), None) => (taken * DECREASE, Some(taken)),
            // A pause within the window makes it look as if less was taken than could be.
            (Some(taken), Some(limit)) => {
                let known = taken.clamp(limit.rate / 2.0, limit.rate);
                (known * DECREASE, Some(known))
            }
            // Nothing was taken lately, which says nothing about how much will be.
            (None, Some(limit)) => {
                let least = limit.known.unwrap_or(FIRST) * LEAST_UNTESTED;
                ((limit.rate * DECREASE).max(least), limit.known)
            }
        };
        let rate = rate.max(SLOWEST);
        let spread = Duration::from_secs_f64(1.0 / rate).min(SPREAD).mul_f64(chance.clamp(0.0, 1.0));
        self.limit = Some(Limit { rate, known, resume: now + pause + spread });
    }

    /// Requests in a second that were accepted within a window that ends now.
    #[allow(clippy::cast_precision_loss, reason = "a few thousand at most")]
    fn taken(&self, now: Duration, window: Duration) -> Option<f64> {
        let since = now.saturating_sub(window);
        let count = self.accepted.iter().rev().take_while(|at| **at >= since).count();
        let window = match self.accepted.front() {
            Some(first) if count == REMEMBERED => now.saturating_sub(*first).max(Duration::from_millis(1)),
            Some(_) | None => window,
        };
        (count > 0).then(|| count as f64 / window.as_secs_f64())
    }
}

#[cfg(test)]
mod tests;
