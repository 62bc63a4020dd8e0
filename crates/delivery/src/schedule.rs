//! Follows a cron schedule through long tasks and clock changes.
//!
//! The wall clock decides what is due, because a schedule means wall time. An occurrence that passed while something else
//! ran is still due, once. If the clock is set back by up to an hour, occurrences that were already taken are not repeated;
//! if it is set back further, the schedule starts over. After a jump forward, occurrences of the last hour are due, once.

use std::time::Duration;

use ichido_core::Timestamp;

use crate::cron::Cron;

/// How far the schedule looks back after a jump of the clock, in both directions.
const JUMP_MAX_MS: u64 = 60 * 60 * 1000;
const MINUTE_MS: u64 = 60 * 1000;

/// A position in a schedule.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// `None`: every minute.
    cron: Option<Cron>,
    /// Occurrences up to here have been taken.
    taken_until: Timestamp,
}

impl Schedule {
    /// Takes occurrences after `start`. Without a cron expression, every minute is one.
    pub fn after(start: Timestamp, cron: Option<Cron>) -> Self {
        Self { cron, taken_until: start }
    }

    /// Like [`Schedule::after`], but the minute that has begun counts as well.
    pub fn from_this_minute(now: Timestamp, cron: Option<Cron>) -> Self {
        Self::after(Timestamp((now.0 - now.0 % MINUTE_MS).saturating_sub(1)), cron)
    }

    /// Whether at least one occurrence has passed since the last call, or since the start.
    pub fn take_due(&mut self, now: Timestamp) -> bool {
        if now < self.taken_until {
            if self.taken_until.0 - now.0 > JUMP_MAX_MS {
                self.taken_until = now;
            }
            return false;
        }
        let is_due = self.next(now).is_some_and(|next| next <= now);
        self.taken_until = now;
        is_due
    }

    /// How long until the next occurrence, if the clock does not jump. `None`: it never occurs.
    pub fn wait(&self, now: Timestamp) -> Option<Duration> {
        self.next(now).map(|next| Duration::from_millis(next.0.saturating_sub(now.0)))
    }

    fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let after = self.taken_until.max(Timestamp(now.0.saturating_sub(JUMP_MAX_MS)));
        match &self.cron {
            Some(cron) => cron.next_after(after),
            None => Some(Timestamp((after.0 / MINUTE_MS + 1) * MINUTE_MS)),
        }
    }
}

#[cfg(test)]
mod tests {
    use ichido_core::{Clock, ManualClock};

    use super::*;
    use crate::time::parse_iso;

    fn at(text: &str) -> Timestamp {
        parse_iso(text).unwrap()
    }

    fn hourly(start: &str) -> (ManualClock, Schedule) {
        let start = at(start);
        (ManualClock::at(start), Schedule::after(start, Some(Cron::parse("0 * * * *").unwrap())))
    }

    #[test]
    fn each_occurrence_is_due_once() {
        let (clock, mut schedule) = hourly("2025-01-18T12:00:00Z");
        assert!(!schedule.take_due(clock.now()), "the start itself does not count");
        for _ in 0..3 {
            let wait = schedule.wait(clock.now()).unwrap();
            clock.advance(u64::try_from(wait.as_millis()).unwrap() - 1);
            assert!(!schedule.take_due(clock.now()), "too early");
            clock.advance(1);
            assert!(schedule.take_due(clock.now()));
            assert!(!schedule.take_due(clock.now()), "twice");
        }
        assert_eq!(clock.now(), at("2025-01-18T15:00:00Z"));
    }

    #[test]
    fn occurrences_that_passed_during_a_long_task_are_due_once() {
        let (clock, mut schedule) = hourly("2025-01-18T12:30:00Z");
        clock.jump_to(at("2025-01-18T13:29:00Z"));
        assert!(schedule.take_due(clock.now()));
        assert!(!schedule.take_due(clock.now()));
    }

    #[test]
    fn jump_forward_makes_up_for_the_last_hour_only() {
        let start = at("2025-01-18T12:00:00Z");
        let mut schedule = Schedule::after(start, Some(Cron::parse("0 13 * * *").unwrap()));
        assert!(!schedule.take_due(at("2025-01-18T15:00:00Z")), "two hours late");
        let mut schedule = Schedule::after(start, Some(Cron::parse("0 13 * * *").unwrap()));
        assert!(schedule.take_due(at("2025-01-18T13:59:00Z")), "less than an hour late");
    }

    #[test]
    fn clock_that_is_set_back_repeats_nothing() {
        let (clock, mut schedule) = hourly("2025-01-18T12:59:00Z");
        clock.jump_to(at("2025-01-18T13:01:00Z"));
        assert!(schedule.take_due(clock.now()));
        clock.jump_to(at("2025-01-18T12:59:30Z"));
        assert!(!schedule.take_due(clock.now()));
        clock.jump_to(at("2025-01-18T13:00:30Z"));
        assert!(!schedule.take_due(clock.now()), "13:00 has been taken");
        clock.jump_to(at("2025-01-18T14:00:00Z"));
        assert!(schedule.take_due(clock.now()));
    }

    #[test]
    fn clock_that_is_set_back_by_days_does_not_stop_the_schedule() {
        let (clock, mut schedule) = hourly("2025-06-01T12:00:00Z");
        clock.jump_to(at("2025-01-18T12:30:00Z"));
        assert!(!schedule.take_due(clock.now()));
        assert_eq!(schedule.wait(clock.now()), Some(Duration::from_secs(30 * 60)));
        clock.jump_to(at("2025-01-18T13:00:00Z"));
        assert!(schedule.take_due(clock.now()));
    }

    #[test]
    fn minute_that_has_begun_counts_if_asked_for() {
        let now = at("2025-01-18T12:00:30Z");
        let mut schedule = Schedule::from_this_minute(now, Some(Cron::parse("0 12 * * *").unwrap()));
        assert!(schedule.take_due(now) && !schedule.take_due(now));
    }

    #[test]
    fn every_minute_without_an_expression() {
        let now = at("2025-01-18T12:00:30Z");
        let mut schedule = Schedule::after(now, None);
        assert_eq!(schedule.wait(now), Some(Duration::from_secs(30)));
        assert!(!schedule.take_due(now) && schedule.take_due(at("2025-01-18T12:01:00Z")));
    }
}
