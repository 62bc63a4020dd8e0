//! The one time zone in which days are counted.
//!
//! A day begins at its first moment in that zone and ends where the next begins. So each moment lies in one day, also where clocks were set
//! back over midnight, and the days of an export are spans of time that touch and do not overlap.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use thiserror::Error;

use crate::period::Period;

/// A time zone by its name, as `Asia/Tokyo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    zone: TimeZone,
    name: String,
}

/// A name that no time zone has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown time zone {0:?}; a name such as UTC or Asia/Tokyo is needed")]
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
    /// The first moment of a day. The ends of time begin and end where time does.
    pub fn start(&self, day: Date) -> Timestamp {
        match day.to_zoned(self.zone.clone()).and_then(|somewhen| somewhen.start_of_day()) {
            Ok(start) => start.timestamp(),
            Err(_) if day.year() < 0 => Timestamp::MIN,
            Err(_) => Timestamp::MAX,
        }
    }

    /// From the first moment of one day to the end of another, which is the first moment that is not part of it.
    pub fn span(&self, first: Date, last: Date) -> (Timestamp, Timestamp) {
        (self.start(first), self.start(next(last)))
    }

    /// The day in which a moment lies.
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

/// The periods of moments. Days that were met are remembered, so that a moment costs a comparison.
#[derive(Debug)]
pub(crate) struct Calendar {
    zone: Zone,
    period: Period,
    days: Vec<Known>,
    last: usize,
}

#[derive(Debug)]
struct Known {
    start: Timestamp,
    end: Timestamp,
    usage_date: Date,
}

/// More days than this are not remembered: some three centuries.
const MOST_DAYS: usize = 1 << 17;

impl Calendar {
    pub(crate) fn new(zone: Zone, period: Period) -> Self {
        Self { zone, period, days: Vec::new(), last: 0 }
    }

    /// The first day of the period in which a moment lies.
    pub(crate) fn usage_date(&mut self, at: Timestamp) -> Date {
        let holds = |known: &Known| known.start <= at && at < known.end;
        if let Some(known) = self.days.get(self.last).filter(|known| holds(known)) {
            return known.usage_date;
        }
        let place = self.days.partition_point(|known| known.end <= at);
        if let Some(known) = self.days.get(place).filter(|known| holds(known)) {
            self.last = place;
            return known.usage_date;
        }
        let day = self.zone.day(at);
        let usage_date = self.period.start(day);
        let (start, end) = self.zone.span(day, day);
        if self.days.len() < MOST_DAYS {
            self.days.insert(place, Known { start, end, usage_date });
            self.last = place;
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

    /// The old exporter mixed the machine's calendar, UTC and the account's.
    #[test]
    fn old_mistake_4_a_moment_has_one_day_and_it_is_that_of_the_declared_zone() {
        let moment = at("2025-11-29T15:00:00Z");
        assert_eq!(zone("UTC").day(moment), date(2025, 11, 29));
        assert_eq!(zone("Asia/Tokyo").day(moment), date(2025, 11, 30));
        assert_eq!(zone("America/Los_Angeles").day(at("2025-11-29T07:59:59Z")), date(2025, 11, 28));
    }

    #[test]
    fn days_of_23_and_25_hours_are_whole() {
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
    fn a_day_whose_midnight_was_skipped_begins_at_its_first_moment() {
        let paulo = zone("America/Sao_Paulo");
        assert_eq!(paulo.start(date(2018, 11, 4)), at("2018-11-04T03:00:00Z"));
        // Set back from 00:01 to 23:01: each moment is in one of the two days, and the days touch.
        let bay = zone("America/Goose_Bay");
        assert_eq!(bay.span(date(2010, 11, 6), date(2010, 11, 6)).1, bay.start(date(2010, 11, 7)));
        assert_eq!(bay.day(bay.start(date(2010, 11, 7))), date(2010, 11, 7));
    }

    #[test]
    fn an_unknown_zone_is_named() {
        let error = "Asia/Tokio".parse::<Zone>().unwrap_err().to_string();
        assert!(error.contains("\"Asia/Tokio\""), "{error}");
    }

    proptest! {
        #[test]
        fn the_calendar_remembers_what_the_zone_says(
            seconds in prop::collection::vec(0_i64..4_000_000_000, 1..60), name in 0_usize..4, period in 0_usize..3,
        ) {
            let zone = zone(["UTC", "Asia/Kathmandu", "America/Goose_Bay", "Pacific/Apia"][name]);
            let period = Period::ALL[period];
            let mut calendar = Calendar::new(zone.clone(), period);
            for second in seconds {
                for moment in [second, second / 86_400 * 86_400, second / 86_400 * 86_400 - 1] {
                    let moment = Timestamp::from_second(moment).unwrap();
                    let day = zone.day(moment);
                    let (start, end) = zone.span(day, day);
                    prop_assert!(start <= moment && moment < end);
                    prop_assert_eq!(calendar.usage_date(moment), period.start(day));
                }
            }
        }
    }
}
