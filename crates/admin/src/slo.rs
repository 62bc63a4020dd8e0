//! The six criteria of delivery for a period, and how often an operator had to act.

use std::collections::BTreeMap;

use ichido_core::{Timestamp, error_chain};
use ichido_delivery::slo::{self, Criterion, Measured, Period, Verdict};
use ichido_delivery::store::Layout;
use ichido_delivery::time::{iso, parse_iso};
use jiff::civil::Date;
use jiff::{Span, ToSpan};
use serde::{Deserialize, Serialize};

use crate::audit_log::{AuditLog, Entry, Step, Via};

/// The manual interventions that a month may need.
const INTERVENTIONS_PER_MONTH: u64 = 1;
/// The actions that are interventions: an operator decides what the system could not. Backups and the like are not.
const INTERVENTIONS: [&str; 5] = ["resolve", "release", "forget", "resend", "accept"];
const DAYS_PER_MONTH: u64 = 31;
const DAY_MS: u64 = 86_400_000;

/// The days of a report, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Days {
    /// The first day.
    pub from: Date,
    /// The last day.
    pub to: Date,
}

impl Days {
    /// The days of a month, such as `2026-11`.
    pub fn month(text: &str) -> Option<Self> {
        let from: Date = format!("{text}-01").parse().ok().filter(|_| text.len() == 7)?;
        Some(Self { from, to: from.last_of_month() })
    }

    /// The month that contains this moment.
    pub fn month_of(now: Timestamp) -> Self {
        let from = date(now).first_of_month();
        Self { from, to: from.last_of_month() }
    }

    /// The month before or after.
    #[must_use]
    pub fn shifted(self, months: i32) -> Self {
        let from = self.from.first_of_month().saturating_add(months.months());
        Self { from, to: from.last_of_month() }
    }

    /// The month, if the days are exactly those of one.
    pub fn as_month(self) -> Option<String> {
        let is_month = self.from.day() == 1 && self.to == self.from.last_of_month();
        is_month.then(|| self.from.strftime("%Y-%m").to_string())
    }

    fn period(self) -> Period {
        Period { from: start_of(self.from), to: start_of(self.to.saturating_add(Span::new().days(1))) }
    }
}

fn date(at: Timestamp) -> Date {
    let at = i64::try_from(at.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_zoned(jiff::tz::TimeZone::UTC).date()
}

fn start_of(day: Date) -> Timestamp {
    let start = day.to_zoned(jiff::tz::TimeZone::UTC).map_or(0, |start| start.timestamp().as_millisecond());
    Timestamp(u64::try_from(start).unwrap_or_default())
}

/// How often operators had to act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interventions {
    /// How many are acceptable in this period.
    pub target: u64,
    /// How many there were. `None` if the audit log cannot be read.
    pub count: Option<u64>,
    /// Whether the target was reached.
    pub verdict: Verdict,
    /// How many of each kind.
    pub by_action: BTreeMap<String, u64>,
}

/// The report of a period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The first moment.
    pub from: String,
    /// The first moment after it.
    pub to: String,
    /// The six criteria.
    pub criteria: Vec<Criterion>,
    /// How often operators had to act. Not one of the criteria.
    pub manual_interventions: Interventions,
    /// What limits the figures.
    pub notes: Vec<String>,
}

impl Report {
    /// The criteria that were missed.
    pub fn missed(&self) -> usize {
        self.criteria.iter().filter(|criterion| criterion.verdict == Verdict::Missed).count()
    }
}

/// Measures a period. Blocks: it reads all receipts of the period.
pub fn report(layout: &Layout, audit: &AuditLog, days: Days, now: Timestamp) -> Report {
    let period = days.period();
    let Measured { criteria, mut notes } = slo::measure(layout, period, now);
    if period.from <= now && now < period.to {
        notes.push(format!("the period is not over: these are the figures until {}", iso(now)));
    }
    let manual_interventions = interventions(audit, period, &mut notes);
    Report { from: iso(period.from), to: iso(period.to), criteria, manual_interventions, notes }
}

fn interventions(audit: &AuditLog, period: Period, notes: &mut Vec<String>) -> Interventions {
    let days = period.to.ms_since(period.from) / DAY_MS;
    let target = INTERVENTIONS_PER_MONTH * days.div_ceil(DAYS_PER_MONTH);
    let mut by_action = BTreeMap::<String, u64>::new();
    let mut see = |entry: Entry, _| {
        let at = parse_iso(&entry.time);
        if at.is_some_and(|at| period.from <= at && at < period.to) && is_intervention(&entry) {
            *by_action.entry(entry.action.action).or_default() += 1;
        }
    };
    let read = match (audit.dir(), audit.snapshot()) {
        (None, _) => Err("admin.audit_dir is off".to_owned()),
        (Some(_), Ok(None)) => Ok(0),
        (Some(_), Ok(Some(snapshot))) => snapshot.each(&mut see).map_err(|error| error.to_string()),
        (Some(_), Err(error)) => Err(error_chain(&error)),
    };
    match read {
        Ok(unreadable) => {
            if unreadable > 0 {
                notes.push(format!("{unreadable} lines of the audit log cannot be read"));
            }
            let count = by_action.values().sum();
            let verdict = if count <= target { Verdict::Met } else { Verdict::Missed };
            Interventions { target, count: Some(count), verdict, by_action }
        }
        Err(why) => {
            notes.push(format!("manual interventions were not counted: {why}"));
            Interventions { target, count: None, verdict: Verdict::NoData, by_action }
        }
    }
}

/// Every action that changes something has an intent. What was refused before it began has none.
fn is_intervention(entry: &Entry) -> bool {
    entry.step == Step::Intent
        && entry.actor.via != Via::Process
        && INTERVENTIONS.iter().any(|name| entry.action.action.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit_log::{Action, Actor, Outcome, Rotation};

    #[test]
    fn month_has_all_its_days() {
        let days = Days::month("2026-11").unwrap();
        let period = days.period();
        assert_eq!(
            (iso(period.from), iso(period.to)),
            ("2026-11-01T00:00:00Z".into(), "2026-12-01T00:00:00Z".into())
        );
        assert_eq!(days.as_month().as_deref(), Some("2026-11"));
        assert_eq!(days.shifted(-1).as_month().as_deref(), Some("2026-10"));
        assert_eq!(days.shifted(3).as_month().as_deref(), Some("2027-02"));
        for wrong in ["2026-13", "2026", "2026-1", "2026-11-01", "november"] {
            assert_eq!(Days::month(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn interventions_are_actions_that_began_and_not_maintenance() {
        let dir = tempfile::tempdir().unwrap();
        let audit = AuditLog::new(dir.path().join("audit"), Rotation { max_bytes: 1 << 20, max_age: None });
        let actor = Actor::command_line();
        for action in ["resolve as done", "resend all", "resend all", "backup", "sweep"] {
            let pending = audit.begin(actor.clone(), Action::named(action)).unwrap();
            pending.finish(Outcome::of("applied")).unwrap();
        }
        audit.record(&actor, &Action::named("forget"), Outcome::of("no-such-claim")).unwrap();
        let layout = Layout::new(dir.path());
        let now = {
            use ichido_core::Clock;
            ichido_core::SystemClock::default().now()
        };
        let days = Days::month_of(now);
        let interventions = report(&layout, &audit, days, now).manual_interventions;
        assert_eq!((interventions.count, interventions.target), (Some(3), 1));
        assert_eq!(interventions.verdict, Verdict::Missed);
        assert_eq!(interventions.by_action["resend all"], 2);
        assert_eq!(report(&layout, &audit, days.shifted(-1), now).manual_interventions.count, Some(0));
        let off = report(&layout, &AuditLog::off(), days, now);
        assert_eq!(
            (off.manual_interventions.verdict, off.notes.len()),
            (Verdict::NoData, 2),
            "{:?}",
            off.notes
        );
    }
}
