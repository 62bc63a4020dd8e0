//! How often an event was repeated, as far as the history tells.

use serde::{Deserialize, Serialize};

use crate::read::{Entry, is_first};

/// The clocks of a store and of the instances may differ by this much.
const CLOCK_SKEW_MS: u64 = 60_000;

/// How often an event was repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeats {
    /// Repeats that were recorded.
    pub count: u64,
    /// Whether the history reaches back to the first delivery. Otherwise there may have been more.
    pub is_complete: bool,
}

impl Repeats {
    /// Counts the repeats of an event in its timeline. `None` if nothing was recorded since it was first seen.
    pub fn of(timeline: &[Entry], first_seen: u64) -> Option<Self> {
        let since = first_seen.saturating_sub(CLOCK_SKEW_MS);
        let of_mark: Vec<_> = timeline.iter().filter(|entry| entry.at >= since).collect();
        // An event that was forgotten and came again is a new one.
        let first = of_mark.iter().rposition(|entry| is_first(&entry.result));
        let count = of_mark.iter().skip(first.unwrap_or(0)).filter(|entry| entry.is_repeat()).count() as u64;
        (first.is_some() || count > 0).then_some(Self { count, is_complete: first.is_some() })
    }
}
