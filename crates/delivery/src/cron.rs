//! When what waits is sent again: `*/15 * * * *`, or `0 3 * * 1-5 Asia/Tokyo`.
//!
//! Minute, hour, day of the month, month, day of the week, and a time zone (UTC without one). Asked once a minute
//! whether the clock on the wall shows such a time: an hour that comes twice in autumn counts twice, which costs a look
//! at the spool; one that does not come in spring is the next day's.

use ichido_core::Timestamp;
use jiff::tz::TimeZone;

/// Some minutes of the year.
#[derive(Clone, Debug, PartialEq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether both kinds of day are restricted: then either will do, as cron has always had it.
    either_day: bool,
    zone: TimeZone,
}

impl Cron {
    /// Reads an expression.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "RESEND_CRON must look like */15 * * * * or 0 3 * * 1-5 Asia/Tokyo".to_owned();
        let words: Vec<&str> = text.split_whitespace().collect();
        let ([minutes, hours, days, months, weekdays], zone) = match words.as_slice() {
            [a, b, c, d, e] => ([*a, *b, *c, *d, *e], "UTC"),
            [a, b, c, d, e, zone] => ([*a, *b, *c, *d, *e], *zone),
            _ => return Err(wrong()),
        };
        let either_day = days != "*" && weekdays != "*";
        let zone = match zone {
            "UTC" => TimeZone::UTC,
            name => TimeZone::get(name)
                .map_err(|_| "RESEND_CRON names a time zone that is not known".to_owned())?,
        };
        let weekdays = field(weekdays, 0, 7).ok_or_else(wrong)?;
        Ok(Self {
            minutes: field(minutes, 0, 59).ok_or_else(wrong)?,
            hours: field(hours, 0, 23).ok_or_else(wrong)?,
            days: field(days, 1, 31).ok_or_else(wrong)?,
            months: field(months, 1, 12).ok_or_else(wrong)?,
            // Sunday is 0 and 7.
            weekdays: weekdays | (weekdays >> 7 & 1),
            either_day,
            zone,
        })
    }

    /// Whether the minute of this moment is one of those.
    pub fn matches(&self, at: Timestamp) -> bool {
        let ms = i64::try_from(at.0).unwrap_or(i64::MAX);
        let Ok(at) = jiff::Timestamp::from_millisecond(ms) else { return false };
        let at = at.to_zoned(self.zone.clone());
        let has = |set: u64, value: i8| u32::try_from(value).is_ok_and(|value| set >> value & 1 == 1);
        let day = has(self.days, at.day());
        let weekday = has(self.weekdays, at.weekday().to_sunday_zero_offset());
        let is_day = if self.either_day { day || weekday } else { day && weekday };
        has(self.minutes, at.minute()) && has(self.hours, at.hour()) && has(self.months, at.month()) && is_day
    }
}

/// A field as a set of numbers: `*`, `5`, `1-5`, `*/15`, `0-30/10`, and lists of these.
fn field(text: &str, least: u32, most: u32) -> Option<u64> {
    text.split(',').try_fold(0, |set, part| Some(set | range(part, least, most)?))
}

fn range(part: &str, least: u32, most: u32) -> Option<u64> {
    let (span, step) = match part.split_once('/') {
        Some((span, step)) => (span, number(step)?),
        None => (part, 1),
    };
    let (from, to) = match span.split_once('-') {
        _ if span == "*" => (least, most),
        Some((from, to)) => (number(from)?, number(to)?),
        None if part.contains('/') => (number(span)?, most),
        None => (number(span)?, number(span)?),
    };
    if step == 0 || from < least || to > most || from > to {
        return None;
    }
    let numbers = (from..=to).step_by(usize::try_from(step).ok()?);
    Some(numbers.fold(0, |set, number| set | 1 << number))
}

fn number(text: &str) -> Option<u32> {
    ((1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::parse_iso;

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
