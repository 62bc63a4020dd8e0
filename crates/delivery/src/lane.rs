//! The way to one destination: open, broken, or held.
//!
//! Not persisted. A *broken* lane (circuit breaker) is one where several batches in a row had to be given up for now:
//! the rest is spared its attempts until a probe gets through. A *held* lane waits for a person: a token, an address,
//! a certificate is wrong, and no batch would fare better than the one that found out.

use std::time::Duration;

/// Batches in a row that failed all their tries before the lane counts as broken. One alone may be poisoned.
const BATCHES_TO_BREAK: u32 = 3;
/// How long a broken lane rests before a probe.
const REST: Duration = Duration::from_secs(30);
/// How long a held lane rests before it is looked at again, by a process that lives that long.
const HELD_REST: Duration = Duration::from_secs(300);

/// Whether a batch may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// It may.
    Open,
    /// It may, to see whether the receiver is back: one request, not charged.
    Probe,
    /// It may not.
    Shut,
}

/// The state of the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    failed_in_row: u32,
    shut: Option<Shut>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Shut {
    until: Duration,
    held: Option<String>,
}

impl Lane {
    /// Whether a batch may go at this moment of the steady clock.
    pub fn gate(&self, now: Duration) -> Gate {
        match &self.shut {
            None => Gate::Open,
            Some(shut) if now >= shut.until => Gate::Probe,
            Some(_) => Gate::Shut,
        }
    }

    /// Why the lane is held, if it is.
    pub fn held(&self) -> Option<&str> {
        self.shut.as_ref().and_then(|shut| shut.held.as_deref())
    }

    /// Whether the lane is broken or held.
    pub fn is_shut(&self) -> bool {
        self.shut.is_some()
    }

    /// The receiver took something. Says whether the lane was shut until now.
    pub fn succeeded(&mut self) -> bool {
        self.failed_in_row = 0;
        self.shut.take().is_some()
    }

    /// A batch failed all its tries. Says whether the lane is broken by it.
    pub fn exhausted(&mut self, now: Duration) -> bool {
        self.failed_in_row += 1;
        let was_shut = self.shut.is_some();
        if was_shut || self.failed_in_row >= BATCHES_TO_BREAK {
            self.rest_until(now + REST);
        }
        self.shut.is_some() && !was_shut
    }

    /// The receiver asked to be left alone until then.
    pub fn rest_until(&mut self, until: Duration) {
        let shut = self.shut.get_or_insert(Shut { until, held: None });
        shut.until = shut.until.max(until);
    }

    /// Nothing gets better without a person. Says whether that is news.
    pub fn hold(&mut self, reason: &str, now: Duration) -> bool {
        let is_news = self.held() != Some(reason);
        self.shut = Some(Shut { until: now + HELD_REST, held: Some(reason.to_owned()) });
        is_news
    }

    /// Something changed (a token, an operator's word): the next batch is a probe.
    pub fn look_again(&mut self) {
        if let Some(shut) = &mut self.shut {
            shut.until = Duration::ZERO;
        }
    }

    /// When the next probe may go.
    pub fn opens_at(&self) -> Option<Duration> {
        self.shut.as_ref().map(|shut| shut.until)
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
        assert_eq!(lane.gate(T0 + REST - Duration::from_millis(1)), Gate::Shut);
        assert_eq!(lane.gate(T0 + REST), Gate::Probe);
        assert!(!lane.exhausted(T0 + REST), "a failed probe is no news");
        assert_eq!(lane.gate(T0 + REST), Gate::Shut);
        assert_eq!(lane.gate(T0 + REST + REST), Gate::Probe);
        assert!(lane.succeeded());
        assert_eq!(lane.gate(T0), Gate::Open);
    }

    #[test]
    fn a_receiver_that_wants_a_long_rest_gets_it() {
        let mut lane = Lane::default();
        lane.rest_until(T0 + 10 * REST);
        assert!(!lane.exhausted(T0), "a rest that was asked for is no outage");
        assert_eq!(lane.gate(T0 + 10 * REST - Duration::from_millis(1)), Gate::Shut);
        assert_eq!(lane.gate(T0 + 10 * REST), Gate::Probe);
    }

    #[test]
    fn a_held_lane_is_news_once() {
        let mut lane = Lane::default();
        assert!(lane.hold("HTTP 401 Unauthorized", T0));
        assert!(!lane.hold("HTTP 401 Unauthorized", T0));
        assert_eq!((lane.gate(T0), lane.held()), (Gate::Shut, Some("HTTP 401 Unauthorized")));
        lane.look_again();
        assert_eq!(lane.gate(T0), Gate::Probe);
        assert!(lane.succeeded() && lane.held().is_none());
    }
}
