//! Where things are in a claim's value.

/// Since when its state holds; when it is over follows.
pub(crate) const SINCE: isize = 44;
/// Bytes before the JSON.
pub(crate) const HEAD: usize = 168;

/// A time as it is written.
pub(crate) fn time(ms: u64) -> String {
    format!("{ms:016}")
}
