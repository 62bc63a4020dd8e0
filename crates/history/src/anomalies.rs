//! Finds what is unusual in the counts by the hour. Pure: counts in, findings out, without files and clocks.
//!
//! Every hour is compared with a **baseline** of the hours before it: median and MAD, by hour of the week once three weeks are
//! known, by hour of the day after one week, over all hours if too many are missing. A finding needs four things at once, so that
//! small numbers, rhythm, growth and a shift to daylight saving time raise no alarm:
//!
//! - enough decisions, in the hour or in its baseline;
//! - a distance from the baseline of several standard deviations, which are never taken to be smaller than chance makes them;
//! - a factor (twice as many, a third as many), whatever the statistics say;
//! - a value beyond those that were seen at this hour, one hour earlier, or one hour later.
//!
//! An hour that was not recorded in full is unknown, not empty. A source is judged from its second week on. A finding that goes on is
//! reported once: again only after it was absent for the cool-down.

mod baseline;
mod checked;
mod evidence;
mod finding;
mod hourly;
mod instances;
mod kind;
mod sentences;
mod series;
mod settings;
mod sources;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::RangeInclusive;

pub use checked::{Checked, Found, check};
pub use finding::Finding;
pub use kind::Kind;
pub use series::{Counts, Observed, Series};
pub use settings::{AnomalySettings, RawAnomalies, Sensitivity};

/// The hours of history that a baseline is made of, and how many are read: 30 days.
pub const WINDOW_HOURS: usize = 30 * 24;

/// Finds what is unusual in these hours (since 1970), the oldest first.
pub fn find(observed: &Observed, hours: RangeInclusive<u64>, settings: &AnomalySettings) -> Vec<Finding> {
    let cool_down = u64::from(settings.cool_down_hours);
    let limit = settings.sensitivity.deviations();
    let index = |hour: u64| usize::try_from(hour.saturating_sub(observed.first_hour)).unwrap_or(usize::MAX);
    let judged = index(hours.start().saturating_sub(cool_down))..index(hours.end().saturating_add(1));
    let mut found = Vec::new();
    for series in &observed.sources {
        sources::judge(series, judged.clone(), limit, &mut found);
    }
    for series in &observed.routes {
        sources::judge_doubts(series, judged.clone(), limit, &mut found);
    }
    instances::judge(&observed.instances, judged, limit, &mut found);
    found.sort_by_key(|raw| raw.at);
    let mut last: HashMap<(Kind, &str, &str), u64> = HashMap::new();
    found.retain(|raw| {
        let hour = observed.first_hour + raw.at as u64;
        let before = last.insert((raw.kind, &raw.series.route, &raw.series.name), hour);
        before.is_none_or(|before| hour - before > cool_down) && hours.contains(&hour)
    });
    found.into_iter().map(|raw| raw.describe(observed.first_hour)).collect()
}
