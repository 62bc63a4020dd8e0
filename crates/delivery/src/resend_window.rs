//! The hours in which spooled batches may be resent: `22:00-06:00 Asia/Tokyo`.
//!
//! The hours are local time, so a window across midnight or a change to daylight saving time works as expected.

use ichido_core::Timestamp;
use jiff::civil::Time;
use jiff::tz::TimeZone;

/// Hours of each day, in a time zone.
#[derive(Clone, Debug, PartialEq)]
pub struct ResendWindow {
    from: Time,
    to: Time,
    zone: TimeZone,
    text: String,
}

impl ResendWindow {
    /// Parses `HH:MM-HH:MM ZONE`. The zone defaults to UTC.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "must look like 22:00-06:00 Asia/Tokyo".to_owned();
        let mut words = text.split_whitespace();
        let (hours, zone) = (words.next().ok_or_else(wrong)?, words.next().unwrap_or("UTC"));
        if words.next().is_some() {
            return Err(wrong());
        }
        let (from, to) = hours.split_once(['-', '–']).ok_or_else(wrong)?;
        let (from, to) = (clock(from).ok_or_else(wrong)?, clock(to).ok_or_else(wrong)?);
        if from == to {
            return Err("starts and ends at the same time".to_owned());
        }
        let zone = match zone {
            "UTC" => TimeZone::UTC,
            name => TimeZone::get(name).map_err(|_| "contains an unknown time zone".to_owned())?,
        };
        Ok(Self { from, to, zone, text: text.trim().to_owned() })
    }

    /// Whether a timestamp is within the window.
    pub fn contains(&self, at: Timestamp) -> bool {
        let ms = i64::try_from(at.0).unwrap_or(i64::MAX);
        let Ok(at) = jiff::Timestamp::from_millisecond(ms) else { return false };
        let time = at.to_zoned(self.zone.clone()).time();
        match self.from < self.to {
            true => self.from <= time && time < self.to,
            false => self.from <= time || time < self.to,
        }
    }

    /// The window as it was configured.
    pub fn text(&self) -> &str {
        &self.text
    }
}

fn clock(text: &str) -> Option<Time> {
    let (hour, minute) = text.split_once(':')?;
    let is_number =
        |text: &str| (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(hour) || !is_number(minute) || minute.len() != 2 {
        return None;
    }
    Time::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::parse_iso;

    fn within(window: &str, at: &str) -> bool {
        ResendWindow::parse(window).unwrap().contains(parse_iso(at).unwrap())
    }

    #[test]
    fn window_may_span_midnight() {
        let nights = "22:00-06:00 Asia/Tokyo";
        for inside in ["2025-01-18T22:00:00+09:00", "2025-01-19T00:00:00+09:00", "2025-01-19T05:59:59+09:00"]
        {
            assert!(within(nights, inside), "{inside}");
        }
        for outside in ["2025-01-18T21:59:59+09:00", "2025-01-18T06:00:00+09:00", "2025-01-18T12:00:00+09:00"]
        {
            assert!(!within(nights, outside), "{outside}");
        }
        assert!(
            within("9:00-17:30", "2025-01-18T17:29:00Z") && !within("9:00-17:30", "2025-01-18T17:30:00Z")
        );
    }

    #[test]
    fn window_follows_local_time_through_daylight_saving_changes() {
        let window = "01:00-03:30 Europe/Berlin";
        // 30 March 2025: at 02:00 the clock goes to 03:00.
        assert!(within(window, "2025-03-30T00:59:00Z") && within(window, "2025-03-30T01:29:00Z"));
        assert!(!within(window, "2025-03-30T01:30:00Z"));
        // 26 October 2025: the hour from 02:00 to 03:00 comes twice.
        assert!(within(window, "2025-10-26T00:30:00Z") && within(window, "2025-10-26T01:30:00Z"));
        assert!(!within(window, "2025-10-26T02:30:00Z"));
    }

    #[test]
    fn invalid_windows_are_rejected() {
        for bad in [
            "",
            "22-6",
            "22:00",
            "25:00-06:00",
            "22:00-06:00 Mars/Base",
            "22:00-22:00",
            "22:00-06:00 UTC x",
            "+2:00-03:00",
        ] {
            assert!(ResendWindow::parse(bad).is_err(), "{bad}");
        }
    }
}
