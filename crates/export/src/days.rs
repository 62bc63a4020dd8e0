//! Which days are exported: whole periods, in one zone, that are over.
//!
//! Every day of the export is a day of the declared zone; UTC appears only as the moments at which such a day begins and ends.

use ichido_core::Timestamp;
use ichido_usage::dify::TimeRange;
use ichido_usage::{Period, Zone, record};
use jiff::ToSpan;
use jiff::civil::Date;

use ichido_serve::Failure;

/// The calendar of an export.
#[derive(Clone, Debug)]
pub struct Calendar {
    pub zone: Zone,
    pub period: Period,
    /// How long after its end a day is over: what began before midnight is still being written after it.
    pub settle_minutes: u32,
}

/// Days that were asked for, as they were typed.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    pub from: Option<String>,
    pub to: Option<String>,
    pub yesterday: bool,
    pub month: Option<String>,
}

/// Whole periods, from the first day to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Days {
    pub first: Date,
    pub last: Date,
}

/// One period: what one record tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub first: Date,
    pub last: Date,
    pub span: TimeRange,
}

impl Asked {
    /// The days, if any were asked for. Widened to whole periods.
    pub fn days(&self, calendar: &Calendar, now: Timestamp) -> Result<Option<Days>, Failure> {
        let days = match (&self.from, &self.to, self.yesterday, &self.month) {
            (None, None, false, None) => return Ok(None),
            (None, None, true, None) => {
                let yesterday = before(calendar.today(now)?)?;
                Days { first: yesterday, last: yesterday }
            }
            (None, None, false, Some(month)) => {
                let first = record::day::parse(&format!("{month}-01"))
                    .ok_or_else(|| Failure::usage("--month must be a month as YYYY-MM"))?;
                Days { first, last: first.last_of_month() }
            }
            (from, to, false, None) => {
                let from = from.as_deref().map(|text| day("--from", text)).transpose()?;
                let to = to.as_deref().map(|text| day("--to", text)).transpose()?;
                let last = to.map_or_else(|| before(calendar.today(now)?), Ok)?;
                let first = from.ok_or_else(|| Failure::usage("--to needs --from: the day to begin with"))?;
                Days { first, last }
            }
            _ => {
                return Err(Failure::usage("--from and --to, --yesterday, and --month exclude each other"));
            }
        };
        if days.last < days.first {
            return Err(Failure::usage(format!(
                "--to ({}) must not be before --from ({})",
                days.last, days.first
            )));
        }
        Ok(Some(calendar.whole(days)))
    }
}

impl Calendar {
    /// The day on which a moment lies.
    pub fn day(&self, at: Timestamp) -> Result<Date, Failure> {
        Ok(self.zone.day(moment(at)?))
    }

    fn today(&self, now: Timestamp) -> Result<Date, Failure> {
        self.day(now)
    }

    /// The last day of the last period that is over.
    pub fn last_closed(&self, now: Timestamp) -> Result<Date, Failure> {
        let settled = Timestamp(now.0.saturating_sub(u64::from(self.settle_minutes) * 60_000));
        before(self.period.start(self.today(settled)?))
    }

    /// What is said of days after the last one that is over: right after midnight they seem to be.
    pub fn still_open(&self) -> String {
        let zone = &self.zone;
        match self.settle_minutes {
            0 => format!("not over yet in {zone}"),
            minutes => format!(
                "not over yet in {zone}, where a day is over {minutes} minutes after its end (export.dify.settle_minutes)"
            ),
        }
    }

    /// The same days, widened to whole periods.
    pub fn whole(&self, days: Days) -> Days {
        Days { first: self.period.start(days.first), last: self.period.end(days.last) }
    }

    /// The periods of these days, oldest first.
    pub fn stretches(&self, days: Days) -> Result<Vec<Stretch>, Failure> {
        let mut stretches = Vec::new();
        let mut first = self.period.start(days.first);
        while first <= days.last {
            let last = self.period.end(first);
            stretches.push(Stretch { first, last, span: self.span(first, last) });
            first = after(last)?;
        }
        Ok(stretches)
    }

    /// The moments between which these days lie.
    pub fn span(&self, first: Date, last: Date) -> TimeRange {
        let (from, until) = self.zone.span(first, last);
        TimeRange { from, until }
    }
}

impl Stretch {
    /// How the file of this period is called.
    pub fn name(&self) -> String {
        self.first.to_string()
    }
}

fn day(flag: &str, text: &str) -> Result<Date, Failure> {
    record::day::parse(text).ok_or_else(|| {
        let text: String = text.chars().filter(|char| !char.is_control()).take(32).collect();
        Failure::usage(format!("{flag} must be a day as YYYY-MM-DD, not {text:?}"))
    })
}

pub fn after(day: Date) -> Result<Date, Failure> {
    day.checked_add(1.day()).map_err(|_| out_of_range(day))
}

pub fn before(day: Date) -> Result<Date, Failure> {
    day.checked_sub(1.day()).map_err(|_| out_of_range(day))
}

pub fn moment(at: Timestamp) -> Result<jiff::Timestamp, Failure> {
    let ms = i64::try_from(at.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    ms.ok_or_else(|| Failure::internal("the clock is out of range"))
}

fn out_of_range(day: Date) -> Failure {
    Failure::usage(format!("{day} is out of range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calendar(zone: &str, period: Period) -> Calendar {
        Calendar { zone: zone.parse().unwrap(), period, settle_minutes: 30 }
    }

    fn at(text: &str) -> Timestamp {
        let at: jiff::Timestamp = text.parse().unwrap();
        Timestamp(u64::try_from(at.as_millisecond()).unwrap())
    }

    fn asked(words: &[&str]) -> Asked {
        let mut asked = Asked::default();
        for word in words {
            match word.split_once('=').unwrap_or((word, "")) {
                ("from", day) => asked.from = Some(day.to_owned()),
                ("to", day) => asked.to = Some(day.to_owned()),
                ("month", month) => asked.month = Some(month.to_owned()),
                _ => asked.yesterday = true,
            }
        }
        asked
    }

    #[test]
    fn yesterday_and_today_are_whole_days_of_one_zone() {
        // The old exporter's windows had 0 seconds, in three calendars.
        let tokyo = calendar("Asia/Tokyo", Period::Daily);
        let now = at("2025-11-29T15:30:00Z");
        let days = asked(&["yesterday"]).days(&tokyo, now).unwrap().unwrap();
        assert_eq!(days.first.to_string(), "2025-11-29", "in Tokyo it is the 30th already");
        let [day] = tokyo.stretches(days).unwrap()[..] else { panic!() };
        assert_eq!(day.span.from.to_string(), "2025-11-28T15:00:00Z");
        assert_eq!(day.span.until.to_string(), "2025-11-29T15:00:00Z");
    }

    #[test]
    fn what_is_open_names_the_time_that_a_day_settles() {
        let mut utc = calendar("UTC", Period::Daily);
        assert!(utc.still_open().ends_with("30 minutes after its end (export.dify.settle_minutes)"));
        utc.settle_minutes = 0;
        assert_eq!(utc.still_open(), "not over yet in UTC");
    }

    #[test]
    fn a_day_is_over_when_it_has_settled() {
        let utc = calendar("UTC", Period::Daily);
        assert_eq!(utc.last_closed(at("2025-11-30T00:29:59Z")).unwrap().to_string(), "2025-11-28");
        assert_eq!(utc.last_closed(at("2025-11-30T00:30:00Z")).unwrap().to_string(), "2025-11-29");
        let weekly = calendar("UTC", Period::Weekly);
        assert_eq!(weekly.last_closed(at("2025-01-05T12:00:00Z")).unwrap().to_string(), "2024-12-29");
        assert_eq!(weekly.last_closed(at("2025-01-06T12:00:00Z")).unwrap().to_string(), "2025-01-05");
        let monthly = calendar("UTC", Period::Monthly);
        assert_eq!(monthly.last_closed(at("2025-03-01T12:00:00Z")).unwrap().to_string(), "2025-02-28");
    }

    #[test]
    fn periods_are_whole() {
        let weekly = calendar("UTC", Period::Weekly);
        let days = asked(&["from=2025-01-01", "to=2025-01-07"]).days(&weekly, Timestamp(0)).unwrap().unwrap();
        assert_eq!(
            (days.first.to_string(), days.last.to_string()),
            ("2024-12-30".into(), "2025-01-12".into())
        );
        assert_eq!(weekly.stretches(days).unwrap().len(), 2);
        let monthly = calendar("UTC", Period::Monthly);
        let days = asked(&["month=2024-02"]).days(&monthly, Timestamp(0)).unwrap().unwrap();
        assert_eq!(days.last.to_string(), "2024-02-29");
    }

    #[test]
    fn wrong_days_are_named() {
        let utc = calendar("UTC", Period::Daily);
        let now = at("2025-11-30T12:00:00Z");
        for (words, word) in [
            (&["from=2025-11-31"][..], "--from"),
            (&["from=29.11.2025"], "--from"),
            (&["from=2025-11-02", "to=2025-11-1"], "--to"),
            (&["from=2025-11-02", "to=2025-11-01"], "--to"),
            (&["to=2025-11-01"], "--from"),
            (&["month=2025-13"], "--month"),
            (&["month=2025-11-01"], "--month"),
            (&["yesterday", "month=2025-11"], "--month"),
        ] {
            let error = asked(words).days(&utc, now).unwrap_err().to_string();
            assert!(error.contains(word) && !error.contains('\n'), "{words:?}: {error}");
        }
        assert_eq!(asked(&[]).days(&utc, now).unwrap(), None);
    }
}
