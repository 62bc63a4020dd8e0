//! When what waits is sent again: `*/15 * * * *`, or `0 3 * * 1-5 Asia/Tokyo`.
//!
//! Minute, hour, day of the month, month, day of the week, and a time zone (UTC without one). Asked once a minute
//! whether the clock on the wall shows such a time: an hour that comes twice in autumn counts twice, which costs a look
//! at the spool; one that does not come in spring is the next day's.

use croner::parser::{CronParser, Seconds, Year};
use ichido_core::Timestamp;
use jiff::tz::TimeZone;

const MINUTE_MS: u64 = 60_000;

/// Some minutes of the year.
#[derive(Clone, Debug, PartialEq)]
pub struct Cron {
    minutes: croner::Cron,
    zone: TimeZone,
}

impl Cron {
    /// Reads an expression.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "RESEND_CRON must look like */15 * * * * or 0 3 * * 1-5 Asia/Tokyo".to_owned();
        let words: Vec<&str> = text.split_whitespace().collect();
        let (minutes, zone) = match words.as_slice() {
            minutes @ [_, _, _, _, _] => (minutes, TimeZone::UTC),
            [minutes @ .., zone] if minutes.len() == 5 => (minutes, zone_of(zone)?),
            _ => return Err(wrong()),
        };
        // The parser passes over what is missing in a list.
        if minutes.iter().any(|field| field.split(',').any(str::is_empty)) {
            return Err(wrong());
        }
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let minutes = parser.parse(&minutes.join(" ")).map_err(|_| wrong())?;
        Ok(Self { minutes, zone })
    }

    /// Whether the minute of this moment is one of those.
    pub fn matches(&self, at: Timestamp) -> bool {
        let minute = at.0 - at.0 % MINUTE_MS;
        let minute = i64::try_from(minute).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        minute.is_some_and(|minute| {
            self.minutes.is_time_matching(&minute.to_zoned(self.zone.clone())).unwrap_or(false)
        })
    }
}

fn zone_of(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name).map_err(|_| "RESEND_CRON names a time zone that is not known".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::parse_iso;

    fn matches(cron: &str, at: &str) -> bool {
        Cron::parse(cron).unwrap().matches(parse_iso(at).unwrap())
    }

    #[test]
    fn each_kind_of_field_is_understood() {
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
        assert!(matches("0 3 1 * 6", "2025-01-18T03:00:00Z"), "either kind of day");
        assert!(matches("0 3 * * * Asia/Tokyo", "2025-01-17T18:00:00Z"));
    }

    #[test]
    fn what_is_no_expression_is_refused() {
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
