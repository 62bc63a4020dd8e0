//! Moments as text.

use ichido_core::Timestamp;

/// A moment as it stands in names of files: `20250118T120530Z`.
pub(crate) fn compact(at: Timestamp) -> String {
    moment(at).strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// A moment as it stands in files: ISO 8601 in UTC.
pub fn iso(at: Timestamp) -> String {
    let format = if at.0.is_multiple_of(1000) { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%.3fZ" };
    moment(at).strftime(format).to_string()
}

/// The same to the second.
pub(crate) fn iso_seconds(at: Timestamp) -> String {
    iso(Timestamp(at.0 - at.0 % 1000))
}

/// Reads a moment in ISO 8601, with any offset.
pub fn parse_iso(text: &str) -> Option<Timestamp> {
    let at: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(at.as_millisecond()).ok().map(Timestamp)
}

/// A moment that the calendar knows; beyond its end, its end.
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
    fn moments_come_back() {
        for text in ["2025-01-18T12:05:30Z", "2025-01-18T12:05:30.125Z"] {
            assert_eq!(iso(parse_iso(text).unwrap()), text);
        }
        assert_eq!(parse_iso("2025-01-18T21:05:30+09:00"), parse_iso("2025-01-18T12:05:30Z"));
        assert_eq!(parse_iso("yesterday"), None);
        assert!(iso(Timestamp(u64::MAX)).starts_with("9999-12-"));
    }
}
