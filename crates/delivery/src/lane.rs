//! The sender's queue for one destination: open, tripped, or held.
//!
//! The state is not persisted. The circuit breaker *trips* after several batches in a row have used up their retries;
//! the remaining batches are not tried until a probe succeeds. A *held* lane is paused until an operator acts: the
//! token, the URL or a certificate is wrong, so no other batch would fare better.

use std::time::Duration;

/// Consecutive batches that must use up their retries before the lane trips. A single one may be poisoned.
const FAILURES_TO_TRIP: u32 = 3;
/// How long a tripped lane pauses before a probe.
const PAUSE: Duration = Duration::from_secs(30);
/// How long a held lane pauses before a long-running process probes it.
const HELD_PAUSE: Duration = Duration::from_secs(300);

/// Whether a batch may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// It may.
    Open,
    /// It may, as a probe: one request that does not count against the batch.
    Probe,
    /// It may not.
    Closed,
}

/// The state of a lane.
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
    /// Whether a batch may be sent at this time of the steady clock.
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

    /// Whether the lane is tripped, paused or held.
    pub fn is_closed(&self) -> bool {
        self.closure.is_some()
    }

    /// The receiver accepted something. Returns whether the lane was closed until now.
    pub fn succeeded(&mut self) -> bool {
        self.consecutive_failures = 0;
        self.closure.take().is_some()
    }

    /// A batch used up its retries. Returns whether that trips the lane.
    pub fn exhausted(&mut self, now: Duration) -> bool {
        self.consecutive_failures += 1;
        let was_shut = self.closure.is_some();
        if was_shut || self.consecutive_failures >= FAILURES_TO_TRIP {
            self.pause_until(now + PAUSE);
        }
        self.closure.is_some() && !was_shut
    }

    /// Closes the lane until this time, as the receiver asked.
    pub fn pause_until(&mut self, until: Duration) {
        let closure = self.closure.get_or_insert(Closure { until, held: None });
        closure.until = closure.until.max(until);
    }

    /// Holds the lane until an operator acts. Returns whether the reason is new.
    pub fn hold(&mut self, reason: &str, now: Duration) -> bool {
        let is_news = self.held() != Some(reason);
        self.closure = Some(Closure { until: now + HELD_PAUSE, held: Some(reason.to_owned()) });
        is_news
    }

    /// Makes the next batch a probe, because the token changed or an operator asked for it.
    pub fn probe_now(&mut self) {
        if let Some(closure) = &mut self.closure {
            closure.until = Duration::ZERO;
        }
    }

    /// When the next probe may be sent.
    pub fn next_probe_at(&self) -> Option<Duration> {
        self.closure.as_ref().map(|closure| closure.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Duration = Duration::from_secs(100);

    #[test]
    fn one_poisoned_batch_does_not_trip_the_lane() {
        let mut lane = Lane::default();
        for _ in 0..10 {
            assert!(!lane.exhausted(T0));
            lane.succeeded();
        }
        assert_eq!(lane.gate(T0), Gate::Open);
    }

    #[test]
    fn outage_trips_the_lane_and_a_successful_probe_reopens_it() {
        let mut lane = Lane::default();
        assert!(!lane.exhausted(T0) && !lane.exhausted(T0));
        assert!(lane.exhausted(T0), "the third in a row trips it");
        assert_eq!(lane.gate(T0 + PAUSE - Duration::from_millis(1)), Gate::Closed);
        assert_eq!(lane.gate(T0 + PAUSE), Gate::Probe);
        assert!(!lane.exhausted(T0 + PAUSE), "a failed probe does not trip it again");
        assert_eq!(lane.gate(T0 + PAUSE), Gate::Closed);
        assert_eq!(lane.gate(T0 + PAUSE + PAUSE), Gate::Probe);
        assert!(lane.succeeded());
        assert_eq!(lane.gate(T0), Gate::Open);
    }

    #[test]
    fn pause_requested_by_the_receiver_is_respected() {
        let mut lane = Lane::default();
        lane.pause_until(T0 + 10 * PAUSE);
        assert!(!lane.exhausted(T0), "a requested pause is not an outage");
        assert_eq!(lane.gate(T0 + 10 * PAUSE - Duration::from_millis(1)), Gate::Closed);
        assert_eq!(lane.gate(T0 + 10 * PAUSE), Gate::Probe);
    }

    #[test]
    fn held_lane_is_reported_once_per_reason() {
        let mut lane = Lane::default();
        assert!(lane.hold("HTTP 401 Unauthorized", T0));
        assert!(!lane.hold("HTTP 401 Unauthorized", T0));
        assert_eq!((lane.gate(T0), lane.held()), (Gate::Closed, Some("HTTP 401 Unauthorized")));
        lane.probe_now();
        assert_eq!(lane.gate(T0), Gate::Probe);
        assert!(lane.succeeded() && lane.held().is_none());
    }
}
