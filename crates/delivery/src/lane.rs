//! The way to one destination: open, broken, or held.
//!
//! Not persisted. A *broken* lane (circuit breaker) is one where several batches in a row had to be given up for now:
//! the rest is spared its attempts until a probe gets through. A *held* lane waits for a person: a token, an address,
//! a certificate is wrong, and no batch would fare better than the one that found out.

use std::time::Duration;

/// Batches in a row that failed all their tries before the lane counts as broken. One alone may be poisoned.
const FAILURES_TO_TRIP: u32 = 3;
/// How long a broken lane rests before a probe.
const PAUSE: Duration = Duration::from_secs(30);
/// How long a held lane rests before it is looked at again, by a process that lives that long.
const HELD_PAUSE: Duration = Duration::from_secs(300);

/// Whether a batch may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// It may.
    Open,
    /// It may, to see whether the receiver is back: one request, not charged.
    Probe,
    /// It may not.
    Closed,
}

/// The state of the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    consecutive_failures: u32,
    closure: Option<Closure>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Closure {
    until: Duration,
    held: Option<String>,
}

impl Lane {
    /// Whether a batch may go at this moment of the steady clock.
    pub fn gate(&self, now: Duration) -> Gate {
        match &self.closure {
            None => Gate::Open,
            Some(closure) if now >= closure.until => Gate::Probe,
            Some(_) => Gate::Closed,
        }
    }

    /// Why the lane is held, if it is.
    pub fn held(&self) -> Option<&str> {
        self.closure.as_ref().and_then(|closure| closure.held.as_deref())
    }

    /// Whether the lane is broken or held.
    pub fn is_closed(&self) -> bool {
        self.closure.is_some()
    }

    /// The receiver took something. Says whether the lane was shut until now.
    pub fn succeeded(&mut self) -> bool {
        self.consecutive_failures = 0;
        self.closure.take().is_some()
    }

    /// A batch failed all its tries. Says whether the lane is broken by it.
    pub fn exhausted(&mut self, now: Duration) -> bool {
        self.consecutive_failures += 1;
        let was_shut = self.closure.is_some();
        if was_shut || self.consecutive_failures >= FAILURES_TO_TRIP {
            self.pause_until(now + PAUSE);
        }
        self.closure.is_some() && !was_shut
    }

    /// The receiver asked to be left alone until then.
    pub fn pause_until(&mut self, until: Duration) {
        let closure = self.closure.get_or_insert(Closure { until, held: None });
        closure.until = closure.until.max(until);
    }

    /// Nothing gets better without a person. Says whether that is news.
    pub fn hold(&mut self, reason: &str, now: Duration) -> bool {
        let is_news = self.held() != Some(reason);
        self.closure = Some(Closure { until: now + HELD_PAUSE, held: Some(reason.to_owned()) });
        is_news
    }

    /// Something changed (a token, an operator's word): the next batch is a probe.
    pub fn probe_now(&mut self) {
        if let Some(closure) = &mut self.closure {
            closure.until = Duration::ZERO;
        }
    }

    /// When the next probe may go.
    pub fn next_probe_at(&self) -> Option<Duration> {
        self.closure.as_ref().map(|closure| closure.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Duration = Duration::from_secs(100);

    #[test]
    fn one_poisoned_batch_does_not_break_the_lane() {
        let mut lane = Lane::default();
        for _ in 0..10 {
            assert!(!lane.exhausted(T0));
            lane.succeeded();
        }
        assert_eq!(lane.gate(T0), Gate::Open);
    }

    #[test]
    fn an_outage_breaks_it_and_a_probe_mends_it() {
        let mut lane = Lane::default();
        assert!(!lane.exhausted(T0) && !lane.exhausted(T0));
        assert!(lane.exhausted(T0), "the third in a row is news");
        assert_eq!(lane.gate(T0 + PAUSE - Duration::from_millis(1)), Gate::Closed);
        assert_eq!(lane.gate(T0 + PAUSE), Gate::Probe);
        assert!(!lane.exhausted(T0 + PAUSE), "a failed probe is no news");
        assert_eq!(lane.gate(T0 + PAUSE), Gate::Closed);
        assert_eq!(lane.gate(T0 + PAUSE + PAUSE), Gate::Probe);
        assert!(lane.succeeded());
        assert_eq!(lane.gate(T0), Gate::Open);
    }

    #[test]
    fn a_receiver_that_wants_a_long_rest_gets_it() {
        let mut lane = Lane::default();
        lane.pause_until(T0 + 10 * PAUSE);
        assert!(!lane.exhausted(T0), "a rest that was asked for is no outage");
        assert_eq!(lane.gate(T0 + 10 * PAUSE - Duration::from_millis(1)), Gate::Closed);
        assert_eq!(lane.gate(T0 + 10 * PAUSE), Gate::Probe);
    }

    #[test]
    fn a_held_lane_is_news_once() {
        let mut lane = Lane::default();
        assert!(lane.hold("HTTP 401 Unauthorized", T0));
        assert!(!lane.hold("HTTP 401 Unauthorized", T0));
        assert_eq!((lane.gate(T0), lane.held()), (Gate::Closed, Some("HTTP 401 Unauthorized")));
        lane.probe_now();
        assert_eq!(lane.gate(T0), Gate::Probe);
        assert!(lane.succeeded() && lane.held().is_none());
    }
}
