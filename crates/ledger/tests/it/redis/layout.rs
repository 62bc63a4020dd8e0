//! Positions within a claim's value.

/// Since when the state holds; the time of expiry follows.
pub(crate) const SINCE: isize = 44;
/// Bytes before the JSON.
pub(crate) const HEAD: usize = 168;

/// A time as it is stored.
pub(crate) fn time(ms: u64) -> String {
    format!("{ms:016}")
}
