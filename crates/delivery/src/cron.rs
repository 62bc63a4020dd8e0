//! A schedule such as `*/15 * * * *` or `0 3 * * 1-5 Asia/Tokyo`.
//!
//! The fields are minute, hour, day of month, month and day of week, then an optional time zone (UTC by default). When
//! clocks change, a fixed time such as `30 2 * * *` occurs once a day: in the first of two equal hours in autumn, and right
//! after the skipped hour in spring. Intervals such as `*/15 * * * *` continue through both.

use croner::parser::{CronParser, Seconds, Year};
use ichido_core::Timestamp;
use jiff::tz::TimeZone;

/// A set of minutes, given as a cron expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Cron {
    minutes: croner::Cron,
    zone: TimeZone,
}

impl Cron {
    /// Parses an expression.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "must look like */15 * * * * or 0 3 * * 1-5 Asia/Tokyo".to_owned();
        let words: Vec<&str> = text.split_whitespace().collect();
        let (minutes, zone) = match words.as_slice() {
            minutes @ [_, _, _, _, _] => (minutes, TimeZone::UTC),
            [minutes @ .., zone] if minutes.len() == 5 => (minutes, zone_of(zone)?),
            _ => return Err(wrong()),
        };
        // The parser ignores empty list items.
        if minutes.iter().any(|field| field.split(',').any(str::is_empty)) {
            return Err(wrong());
        }
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let minutes = parser.parse(&minutes.join(" ")).map_err(|_| wrong())?;
        Ok(Self { minutes, zone })
    }

    /// The first occurrence after this moment, or `None` if the expression never matches, such as 30 February.
    pub fn next_after(&self, at: Timestamp) -> Option<Timestamp> {
        let at = jiff::Timestamp::from_millisecond(i64::try_from(at.0).ok()?).ok()?;
        let next = self.minutes.find_next_occurrence(&at.to_zoned(self.zone.clone()), false).ok()?;
        u64::try_from(next.timestamp().as_millisecond()).ok().map(Timestamp)
    }
}

fn zone_of(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name).map_err(|_| "contains an unknown time zone".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::parse_iso;

    fn next(cron: &str, after: &str) -> Option<Timestamp> {
        Cron::parse(cron).unwrap().next_after(parse_iso(after).unwrap())
    }

    fn at(text: &str) -> Option<Timestamp> {
        Some(parse_iso(text).unwrap())
    }

    #[test]
    fn all_field_types_are_supported() {
        assert_eq!(next("*/15 * * * *", "2025-01-18T12:44:59Z"), at("2025-01-18T12:45:00Z"));
        assert_eq!(
            next("*/15 * * * *", "2025-01-18T12:45:00Z"),
            at("2025-01-18T13:00:00Z"),
            "strictly after"
        );
        assert_eq!(next("5,10-12 0-23/6 * * *", "2025-01-18T18:10:00Z"), at("2025-01-18T18:11:00Z"));
        assert_eq!(next("5,10-12 0-23/6 * * *", "2025-01-18T18:12:00Z"), at("2025-01-19T00:05:00Z"));
        // 18 January 2025 is a Saturday, the 19th a Sunday.
        assert_eq!(next("0 3 * * 6", "2025-01-18T00:00:00Z"), at("2025-01-18T03:00:00Z"));
        assert_eq!(next("0 3 * * 1-5", "2025-01-18T00:00:00Z"), at("2025-01-20T03:00:00Z"));
        assert_eq!(next("0 3 * * 0", "2025-01-18T00:00:00Z"), at("2025-01-19T03:00:00Z"));
        assert_eq!(next("0 3 * * 7", "2025-01-18T00:00:00Z"), at("2025-01-19T03:00:00Z"));
        assert_eq!(
            next("0 3 1 * 6", "2025-01-18T00:00:00Z"),
            at("2025-01-18T03:00:00Z"),
            "day of month or of week"
        );
        assert_eq!(next("0 3 * * * Asia/Tokyo", "2025-01-17T12:00:00Z"), at("2025-01-17T18:00:00Z"));
        assert_eq!(next("0 3 30 2 *", "2025-01-17T12:00:00Z"), None, "30 February");
    }

    #[test]
    fn fixed_time_occurs_once_on_days_when_clocks_change() {
        // In Berlin, 30 March 2025 has no 02:30, and 26 October 2025 has two.
        let cron = "30 2 * * * Europe/Berlin";
        assert_eq!(next(cron, "2025-03-29T12:00:00Z"), at("2025-03-30T01:00:00Z"));
        assert_eq!(next(cron, "2025-03-30T01:00:00Z"), at("2025-03-31T00:30:00Z"));
        assert_eq!(next(cron, "2025-10-25T12:00:00Z"), at("2025-10-26T00:30:00Z"));
        assert_eq!(next(cron, "2025-10-26T00:30:00Z"), at("2025-10-27T01:30:00Z"));
        assert_eq!(next("*/30 * * * * Europe/Berlin", "2025-10-26T00:30:00Z"), at("2025-10-26T01:00:00Z"));
    }

    #[test]
    fn invalid_expressions_are_rejected() {
        for bad in [
            "",
            "* * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 8",
            "*/0 * * * *",
            "5-1 * * * *",
            "a * * * *",
            "* * * * * Mars/Base",
            "* * * * * UTC x",
            "-1 * * * *",
            "1- * * * *",
            ", * * * *",
        ] {
            assert!(Cron::parse(bad).is_err(), "{bad}");
        }
    }
}
