//! Timestamps as text.

use ichido_core::Timestamp;

/// Formats a timestamp for a file name: `20250118T120530Z`.
pub(crate) fn compact(at: Timestamp) -> String {
    moment(at).strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// Formats a timestamp as ISO 8601 in UTC, with milliseconds if there are any.
pub fn iso(at: Timestamp) -> String {
    let format = if at.0.is_multiple_of(1000) { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%.3fZ" };
    moment(at).strftime(format).to_string()
}

/// Formats a timestamp as ISO 8601 in UTC, to the second.
pub(crate) fn iso_seconds(at: Timestamp) -> String {
    iso(Timestamp(at.0 - at.0 % 1000))
}

/// Parses an ISO 8601 timestamp with any offset.
pub fn parse_iso(text: &str) -> Option<Timestamp> {
    let at: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(at.as_millisecond()).ok().map(Timestamp)
}

/// Converts a timestamp, clamped to the range of the calendar.
fn moment(at: Timestamp) -> jiff::Timestamp {
    i64::try_from(at.0)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok())
        .unwrap_or(jiff::Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_round_trip() {
        for text in ["2025-01-18T12:05:30Z", "2025-01-18T12:05:30.125Z"] {
            assert_eq!(iso(parse_iso(text).unwrap()), text);
        }
        assert_eq!(parse_iso("2025-01-18T21:05:30+09:00"), parse_iso("2025-01-18T12:05:30Z"));
        assert_eq!(parse_iso("yesterday"), None);
        assert!(iso(Timestamp(u64::MAX)).starts_with("9999-12-"));
    }
}
