//! What is usual at an hour: median and MAD of the hours before.

use super::WINDOW_HOURS;

pub(super) const HOUR_MS: u64 = 3_600_000;
pub(super) const DAY: usize = 24;
pub(super) const WEEK: usize = 7 * DAY;
/// Weeks and days that a median needs, of those that the window has.
const WEEKS_MIN: usize = 3;
const DAYS_MIN: usize = 5;
const DAYS_MAX: usize = 14;
/// Hours that a median over all hours needs.
pub(super) const HOURS_MIN: usize = 24;
/// Makes the MAD of normally distributed values their standard deviation.
const MAD_TO_DEVIATION: f64 = 1.4826;

/// The hours that a baseline consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Basis {
    HourOfWeek,
    HourOfDay,
    Overall,
}

/// What is usual at an hour.
///
/// The hours before and after it count as well: people who start an hour earlier in summer are not unusual.
#[derive(Clone, Copy, Debug)]
pub(super) struct Baseline {
    pub(super) basis: Basis,
    /// The smallest of the three medians.
    pub(super) low: f64,
    /// The median at the hour itself.
    pub(super) centre: f64,
    /// The largest of the three medians.
    pub(super) high: f64,
    /// The smallest value, except for one.
    pub(super) smallest: f64,
    /// The largest value, except for one.
    pub(super) largest: f64,
}

impl Baseline {
    /// The baseline of the hour `at`. `first` is the first hour that counts, `value` what is known of an hour.
    pub(super) fn at(at: usize, first: usize, value: impl Fn(usize) -> Option<f64>) -> Option<Self> {
        let first = first.max(at.saturating_sub(WINDOW_HOURS));
        let value = |hour: usize| if hour >= first { value(hour) } else { None };
        let has_weeks = at - first.min(at) >= WEEKS_MIN * WEEK;
        let weekly = || Self::periodic(at, WEEK, WINDOW_HOURS / WEEK, WEEKS_MIN, &value);
        let of_week = if has_weeks { weekly() } else { None };
        of_week
            .map(|baseline| Self { basis: Basis::HourOfWeek, ..baseline })
            .or_else(|| Self::periodic(at, DAY, DAYS_MAX, DAYS_MIN, &value))
            .or_else(|| Self::overall(first..at, &value))
    }

    fn periodic(
        at: usize,
        period: usize,
        periods: usize,
        min: usize,
        value: &impl Fn(usize) -> Option<f64>,
    ) -> Option<Self> {
        let mut all = Vec::with_capacity(3 * periods);
        let mut medians = [0.0; 3];
        for (shift, median_of) in medians.iter_mut().enumerate() {
            // One hour earlier, the hour itself, one hour later.
            let hours = (1..=periods).filter_map(|number| (at + shift).checked_sub(period * number + 1));
            let start = all.len();
            all.extend(hours.filter_map(value));
            if all.len() - start < min {
                return None;
            }
            *median_of = median(&mut all[start..])?;
        }
        let low = medians.into_iter().fold(f64::INFINITY, f64::min);
        let high = medians.into_iter().fold(0.0, f64::max);
        let (smallest, largest) = inner_range(&mut all);
        Some(Self { basis: Basis::HourOfDay, low, centre: medians[1], high, smallest, largest })
    }

    fn overall(hours: std::ops::Range<usize>, value: &impl Fn(usize) -> Option<f64>) -> Option<Self> {
        let mut all: Vec<f64> = hours.filter_map(value).collect();
        if all.len() < HOURS_MIN {
            return None;
        }
        let centre = median(&mut all)?;
        let (smallest, largest) = inner_range(&mut all);
        Some(Self { basis: Basis::Overall, low: centre, centre, high: centre, smallest, largest })
    }
}

/// The smallest and the largest value, each except for one.
fn inner_range(values: &mut [f64]) -> (f64, f64) {
    values.sort_unstable_by(f64::total_cmp);
    match values {
        [_, second, .., last_but_one, _] => (*second, *last_but_one),
        [first, .., last] => (*first, *last),
        _ => (0.0, 0.0),
    }
}

/// The median. The order of the values changes.
pub(super) fn median(values: &mut [f64]) -> Option<f64> {
    let middle = values.len() / 2;
    let is_even = values.len().is_multiple_of(2);
    let (below, at, _) =
        (!values.is_empty()).then(|| values.select_nth_unstable_by(middle, f64::total_cmp))?;
    let below = below.iter().copied().max_by(f64::total_cmp);
    Some(match below {
        Some(below) if is_even => f64::midpoint(below, *at),
        _ => *at,
    })
}

/// The standard deviation that outliers do not change, from distances to the centre.
pub(super) fn deviation(distances: &mut [f64]) -> Option<f64> {
    median(distances).map(|mad| mad * MAD_TO_DEVIATION)
}

/// The value below which 99 of 100 lie. The order of the values changes.
pub(super) fn upper_percentile(values: &mut [f64]) -> f64 {
    let rank = (values.len() * 99 / 100).min(values.len().saturating_sub(1));
    match values.is_empty() {
        true => 0.0,
        false => *values.select_nth_unstable_by(rank, f64::total_cmp).1,
    }
}

/// Makes the standard deviation of a count that depends on chance alone 1, whatever its mean.
pub(super) fn count_scale(count: f64) -> f64 {
    2.0 * (count + 0.375).sqrt()
}

/// The same for a share of `n`: its standard deviation is then 1 / √n.
pub(super) fn share_scale(share: f64) -> f64 {
    2.0 * share.clamp(0.0, 1.0).sqrt().asin()
}
