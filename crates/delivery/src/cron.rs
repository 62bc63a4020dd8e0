//! A schedule such as `*/15 * * * *` or `0 3 * * 1-5 Asia/Tokyo`.
//!
//! The fields are minute, hour, day of month, month and day of week, then an optional time zone (UTC by default). The
//! schedule is compared with local time once a minute. An hour that occurs twice in autumn matches twice, which costs
//! one extra pass over the spool. An hour that is skipped in spring does not match until the next day.

use croner::parser::{CronParser, Seconds, Year};
use ichido_core::Timestamp;
use jiff::tz::TimeZone;

const MINUTE_MS: u64 = 60_000;

/// A set of minutes, given as a cron expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Cron {
    minutes: croner::Cron,
    zone: TimeZone,
}

impl Cron {
    /// Parses an expression.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "RESEND_CRON must look like */15 * * * * or 0 3 * * 1-5 Asia/Tokyo".to_owned();
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

    /// Whether the schedule contains the minute of this timestamp.
    pub fn matches(&self, at: Timestamp) -> bool {
        let minute = at.0 - at.0 % MINUTE_MS;
        let minute = i64::try_from(minute).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        minute.is_some_and(|minute| {
            self.minutes.is_time_matching(&minute.to_zoned(self.zone.clone())).unwrap_or(false)
        })
    }
}

fn zone_of(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name).map_err(|_| "RESEND_CRON contains an unknown time zone".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::parse_iso;

    fn matches(cron: &str, at: &str) -> bool {
        Cron::parse(cron).unwrap().matches(parse_iso(at).unwrap())
    }

    #[test]
    fn all_field_types_are_supported() {
        assert!(
            matches("*/15 * * * *", "2025-01-18T12:45:59Z")
                && !matches("*/15 * * * *", "2025-01-18T12:46:00Z")
        );
        assert!(matches("5,10-12 0-23/6 * * *", "2025-01-18T18:11:00Z"));
        assert!(!matches("5,10-12 0-23/6 * * *", "2025-01-18T19:11:00Z"));
        // 18 January 2025 is a Saturday, the 19th a Sunday.
        assert!(
            matches("0 3 * * 6", "2025-01-18T03:00:00Z") && !matches("0 3 * * 1-5", "2025-01-18T03:00:00Z")
        );
        assert!(matches("0 3 * * 0", "2025-01-19T03:00:00Z") && matches("0 3 * * 7", "2025-01-19T03:00:00Z"));
        assert!(matches("0 3 1 * 6", "2025-01-18T03:00:00Z"), "day of month or day of week");
        assert!(matches("0 3 * * * Asia/Tokyo", "2025-01-17T18:00:00Z"));
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
            assert!(Cron::parse(bad).is_err_and(|error| error.contains("RESEND_CRON")), "{bad}");
        }
    }
}
