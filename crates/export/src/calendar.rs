//! Which days to export: whole periods that are over, in one time zone.
//!
//! Every day is a day of the configured zone. UTC appears only in the instants at which such a day starts and ends.

use ichido_core::Timestamp;
use ichido_usage::dify::TimeRange;
use ichido_usage::{Period, Zone, record};
use jiff::ToSpan;
use jiff::civil::Date;

use ichido_serve::Failure;

/// The calendar of an export.
#[derive(Clone, Debug)]
pub struct Calendar {
    /// The time zone of all days.
    pub zone: Zone,
    /// The period that one record covers.
    pub period: Period,
    /// How long after its end a day is considered over: requests that start before midnight are written after it.
    pub settle_minutes: u32,
}

/// The days that the command line requests, unparsed.
#[derive(Clone, Debug, Default)]
pub struct RequestedDays {
    /// `--from`
    pub from: Option<String>,
    /// `--to`
    pub to: Option<String>,
    /// `--yesterday`
    pub yesterday: bool,
    /// `--month`
    pub month: Option<String>,
}

/// A range of whole periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Days {
    /// The first day.
    pub first: Date,
    /// The last day.
    pub last: Date,
}

/// The days of one period, which one record covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodRange {
    /// The first day.
    pub first: Date,
    /// The last day.
    pub last: Date,
    /// The instants of its start and end.
    pub span: TimeRange,
}

impl RequestedDays {
    /// Parses the days, if any are requested, and widens them to whole periods.
    pub fn days(&self, calendar: &Calendar, now: Timestamp) -> Result<Option<Days>, Failure> {
        let days = match (&self.from, &self.to, self.yesterday, &self.month) {
            (None, None, false, None) => return Ok(None),
            (None, None, true, None) => {
                let yesterday = before(calendar.today(now)?)?;
                Days { first: yesterday, last: yesterday }
            }
            (None, None, false, Some(month)) => {
                let first = record::day::parse(&format!("{month}-01"))
                    .ok_or_else(|| Failure::usage("--month must be a month in the form YYYY-MM"))?;
                Days { first, last: first.last_of_month() }
            }
            (from, to, false, None) => {
                let from = from.as_deref().map(|text| day("--from", text)).transpose()?;
                let to = to.as_deref().map(|text| day("--to", text)).transpose()?;
                let last = to.map_or_else(|| before(calendar.today(now)?), Ok)?;
                let first = from.ok_or_else(|| Failure::usage("--to requires --from"))?;
                Days { first, last }
            }
            _ => {
                return Err(Failure::usage(
                    "--from and --to, --yesterday, and --month are mutually exclusive",
                ));
            }
        };
        if days.last < days.first {
            return Err(Failure::usage(format!(
                "--to ({}) must not be before --from ({})",
                days.last, days.first
            )));
        }
        Ok(Some(calendar.widen(days)))
    }
}

impl Calendar {
    /// The day that contains an instant.
    pub fn day(&self, at: Timestamp) -> Result<Date, Failure> {
        Ok(self.zone.day(to_jiff(at)?))
    }

    fn today(&self, now: Timestamp) -> Result<Date, Failure> {
        self.day(now)
    }

    /// The last day of the last period that is over.
    pub fn last_closed(&self, now: Timestamp) -> Result<Date, Failure> {
        let settled = Timestamp(now.0.saturating_sub(u64::from(self.settle_minutes) * 60_000));
        before(self.period.start(self.today(settled)?))
    }

    /// Explains why later days are not over yet: right after midnight they seem to be.
    pub fn still_open(&self) -> String {
        let zone = &self.zone;
        match self.settle_minutes {
            0 => format!("not over yet in {zone}"),
            minutes => format!(
                "not over yet in {zone}, where a day is over {minutes} minutes after its end (export.dify.settle_minutes)"
            ),
        }
    }

    /// Widens days to whole periods.
    pub fn widen(&self, days: Days) -> Days {
        Days { first: self.period.start(days.first), last: self.period.end(days.last) }
    }

    /// The periods of these days, oldest first.
    pub fn periods(&self, days: Days) -> Result<Vec<PeriodRange>, Failure> {
        let mut periods = Vec::new();
        let mut first = self.period.start(days.first);
        while first <= days.last {
            let last = self.period.end(first);
            periods.push(PeriodRange { first, last, span: self.span(first, last) });
            first = after(last)?;
        }
        Ok(periods)
    }

    /// The instants at which these days start and end.
    pub fn span(&self, first: Date, last: Date) -> TimeRange {
        let (from, until) = self.zone.span(first, last);
        TimeRange { from, until }
    }
}

impl PeriodRange {
    /// The name of the period, which is also the name of its file.
    pub fn name(&self) -> String {
        self.first.to_string()
    }
}

fn day(flag: &str, text: &str) -> Result<Date, Failure> {
    record::day::parse(text).ok_or_else(|| {
        let text: String = text.chars().filter(|char| !char.is_control()).take(32).collect();
        Failure::usage(format!("{flag} must be a day in the form YYYY-MM-DD, not {text:?}"))
    })
}

/// The next day.
pub(crate) fn after(day: Date) -> Result<Date, Failure> {
    day.checked_add(1.day()).map_err(|_| out_of_range(day))
}

/// The previous day.
pub(crate) fn before(day: Date) -> Result<Date, Failure> {
    day.checked_sub(1.day()).map_err(|_| out_of_range(day))
}

/// Converts an instant.
pub(crate) fn to_jiff(at: Timestamp) -> Result<jiff::Timestamp, Failure> {
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

    fn requested(flags: &[&str]) -> RequestedDays {
        let mut requested = RequestedDays::default();
        for flag in flags {
            match flag.split_once('=').unwrap_or((flag, "")) {
                ("from", day) => requested.from = Some(day.to_owned()),
                ("to", day) => requested.to = Some(day.to_owned()),
                ("month", month) => requested.month = Some(month.to_owned()),
                _ => requested.yesterday = true,
            }
        }
        requested
    }

    #[test]
    fn yesterday_and_today_are_whole_days_of_one_zone() {
        let tokyo = calendar("Asia/Tokyo", Period::Daily);
        let now = at("2025-11-29T15:30:00Z");
        let days = requested(&["yesterday"]).days(&tokyo, now).unwrap().unwrap();
        assert_eq!(days.first.to_string(), "2025-11-29", "in Tokyo it is already the 30th");
        let [day] = tokyo.periods(days).unwrap()[..] else { panic!() };
        assert_eq!(day.span.from.to_string(), "2025-11-28T15:00:00Z");
        assert_eq!(day.span.until.to_string(), "2025-11-29T15:00:00Z");
    }

    #[test]
    fn an_open_day_is_explained_with_the_time_it_takes_to_settle() {
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
    fn days_are_widened_to_whole_periods() {
        let weekly = calendar("UTC", Period::Weekly);
        let days =
            requested(&["from=2025-01-01", "to=2025-01-07"]).days(&weekly, Timestamp(0)).unwrap().unwrap();
        assert_eq!(
            (days.first.to_string(), days.last.to_string()),
            ("2024-12-30".into(), "2025-01-12".into())
        );
        assert_eq!(weekly.periods(days).unwrap().len(), 2);
        let monthly = calendar("UTC", Period::Monthly);
        let days = requested(&["month=2024-02"]).days(&monthly, Timestamp(0)).unwrap().unwrap();
        assert_eq!(days.last.to_string(), "2024-02-29");
    }

    #[test]
    fn invalid_days_are_named() {
        let utc = calendar("UTC", Period::Daily);
        let now = at("2025-11-30T12:00:00Z");
        for (flags, name) in [
            (&["from=2025-11-31"][..], "--from"),
            (&["from=29.11.2025"], "--from"),
            (&["from=2025-11-02", "to=2025-11-1"], "--to"),
            (&["from=2025-11-02", "to=2025-11-01"], "--to"),
            (&["to=2025-11-01"], "--from"),
            (&["month=2025-13"], "--month"),
            (&["month=2025-11-01"], "--month"),
            (&["yesterday", "month=2025-11"], "--month"),
        ] {
            let error = requested(flags).days(&utc, now).unwrap_err().to_string();
            assert!(error.contains(name) && !error.contains('\n'), "{flags:?}: {error}");
        }
        assert_eq!(requested(&[]).days(&utc, now).unwrap(), None);
    }
}
