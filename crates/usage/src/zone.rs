//! The time zone that defines days.
//!
//! A day begins at its first instant in the zone and ends where the next day begins. So each instant belongs to
//! exactly one day, even if clocks are set back over midnight, and the days of an export are adjacent ranges that
//! do not overlap.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use thiserror::Error;

use crate::period::Period;

/// A time zone with its name, such as `Asia/Tokyo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    zone: TimeZone,
    name: String,
}

/// A time zone that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown time zone {0:?}: use a name such as UTC or Asia/Tokyo")]
pub struct UnknownZone(String);

impl Default for Zone {
    fn default() -> Self {
        Self { zone: TimeZone::UTC, name: "UTC".to_owned() }
    }
}

impl FromStr for Zone {
    type Err = UnknownZone;

    fn from_str(name: &str) -> Result<Self, UnknownZone> {
        let zone = TimeZone::get(name).map_err(|_| UnknownZone(name.chars().take(64).collect()))?;
        Ok(Self { zone, name: name.to_owned() })
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Zone {
    /// Returns the first instant of a day, clamped to the range of timestamps.
    pub fn start(&self, day: Date) -> Timestamp {
        match day.to_zoned(self.zone.clone()).and_then(|zoned| zoned.start_of_day()) {
            Ok(start) => start.timestamp(),
            Err(_) if day.year() < 0 => Timestamp::MIN,
            Err(_) => Timestamp::MAX,
        }
    }

    /// Returns the range from the first instant of one day to the end of another, exclusive.
    pub fn span(&self, first: Date, last: Date) -> (Timestamp, Timestamp) {
        (self.start(first), self.start(next(last)))
    }

    /// Returns the day that an instant belongs to.
    pub fn day(&self, at: Timestamp) -> Date {
        let day = at.to_zoned(self.zone.clone()).date();
        if at < self.start(day) {
            return day.checked_sub(1.day()).unwrap_or(day);
        }
        if at >= self.start(next(day)) { next(day) } else { day }
    }
}

fn next(day: Date) -> Date {
    day.checked_add(1.day()).unwrap_or(day)
}

/// Maps instants to periods. It remembers days, so that looking up an instant usually takes one comparison.
#[derive(Debug)]
pub(crate) struct Calendar {
    zone: Zone,
    period: Period,
    days: Vec<Day>,
    last: usize,
}

#[derive(Debug)]
struct Day {
    start: Timestamp,
    end: Timestamp,
    usage_date: Date,
}

/// The most days that are remembered: more than three centuries.
const DAYS_MAX: usize = 1 << 17;

impl Calendar {
    pub(crate) fn new(zone: Zone, period: Period) -> Self {
        Self { zone, period, days: Vec::new(), last: 0 }
    }

    /// Returns the first day of the period that contains an instant.
    pub(crate) fn usage_date(&mut self, at: Timestamp) -> Date {
        let contains = |day: &Day| day.start <= at && at < day.end;
        if let Some(day) = self.days.get(self.last).filter(|day| contains(day)) {
            return day.usage_date;
        }
        let index = self.days.partition_point(|day| day.end <= at);
        if let Some(day) = self.days.get(index).filter(|day| contains(day)) {
            self.last = index;
            return day.usage_date;
        }
        let day = self.zone.day(at);
        let usage_date = self.period.start(day);
        let (start, end) = self.zone.span(day, day);
        if self.days.len() < DAYS_MAX {
            self.days.insert(index, Day { start, end, usage_date });
            self.last = index;
        }
        usage_date
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use proptest::prelude::*;

    use super::*;

    fn zone(name: &str) -> Zone {
        name.parse().unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// Not the day of the machine's calendar, nor of UTC.
    #[test]
    fn instant_belongs_to_the_day_of_the_declared_zone() {
        let instant = at("2025-11-29T15:00:00Z");
        assert_eq!(zone("UTC").day(instant), date(2025, 11, 29));
        assert_eq!(zone("Asia/Tokyo").day(instant), date(2025, 11, 30));
        assert_eq!(zone("America/Los_Angeles").day(at("2025-11-29T07:59:59Z")), date(2025, 11, 28));
    }

    /// A single day is not an empty range.
    #[test]
    fn day_ranges_from_its_first_instant_to_the_next_day() {
        let tokyo = zone("Asia/Tokyo");
        let day = date(2025, 11, 29);
        assert_eq!(tokyo.span(day, day), (at("2025-11-28T15:00:00Z"), at("2025-11-29T15:00:00Z")));
        assert_eq!(tokyo.span(day, date(2025, 11, 30)).1, at("2025-11-30T15:00:00Z"));
    }

    #[test]
    fn days_of_23_and_25_hours_are_complete() {
        let berlin = zone("Europe/Berlin");
        let hours = |day| {
            let (start, end) = berlin.span(day, day);
            (end.as_second() - start.as_second()) / 3600
        };
        assert_eq!(
            (hours(date(2025, 3, 30)), hours(date(2025, 10, 26)), hours(date(2025, 7, 1))),
            (23, 25, 24)
        );
    }

    #[test]
    fn day_without_midnight_begins_at_its_first_instant() {
        let paulo = zone("America/Sao_Paulo");
        assert_eq!(paulo.start(date(2018, 11, 4)), at("2018-11-04T03:00:00Z"));
        // Clocks go back from 00:01 to 23:01: each instant belongs to one of the two days, and the days are adjacent.
        let bay = zone("America/Goose_Bay");
        assert_eq!(bay.span(date(2010, 11, 6), date(2010, 11, 6)).1, bay.start(date(2010, 11, 7)));
        assert_eq!(bay.day(bay.start(date(2010, 11, 7))), date(2010, 11, 7));
    }

    #[test]
    fn unknown_zone_is_named() {
        let error = "Asia/Tokio".parse::<Zone>().unwrap_err().to_string();
        assert!(error.contains("\"Asia/Tokio\""), "{error}");
    }

    proptest! {
        #[test]
        fn calendar_agrees_with_the_zone(
            seconds in prop::collection::vec(0_i64..4_000_000_000, 1..60), name in 0_usize..4, period in 0_usize..3,
        ) {
            let zone = zone(["UTC", "Asia/Kathmandu", "America/Goose_Bay", "Pacific/Apia"][name]);
            let period = Period::ALL[period];
            let mut calendar = Calendar::new(zone.clone(), period);
            for second in seconds {
                for instant in [second, second / 86_400 * 86_400, second / 86_400 * 86_400 - 1] {
                    let instant = Timestamp::from_second(instant).unwrap();
                    let day = zone.day(instant);
                    let (start, end) = zone.span(day, day);
                    prop_assert!(start <= instant && instant < end);
                    prop_assert_eq!(calendar.usage_date(instant), period.start(day));
                }
            }
        }
    }
}
