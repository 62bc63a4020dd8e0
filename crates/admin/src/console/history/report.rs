//! The figures of the history page: counts by the hour for whole days, and the sources with the most repeats.

use std::collections::BTreeMap;

use ichido_history::{By, Count, Error, History, OfRoute, SourceCount, is_first, is_repeat};

pub(super) const HOUR_MS: u64 = 3_600_000;
pub(super) const HOURS_PER_DAY: usize = 24;
const DAY_MS: u64 = 24 * HOUR_MS;

/// The decisions of whole days in UTC. The last day is today.
pub(super) struct Report {
    /// Days since 1970.
    pub(super) first_day: u64,
    pub(super) days: usize,
    /// One for each hour of each day, also of those without decisions.
    pub(super) hours: Vec<Hour>,
    /// Those with the most repeats first.
    pub(super) sources: Vec<Source>,
}

/// The decisions of an hour, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hour {
    /// Requests and events that came in: the first ones with their keys, and repeats.
    pub(super) received: u64,
    pub(super) repeats: u64,
    /// Claims that became in doubt, and requests that met one.
    pub(super) in_doubt: u64,
    /// Decisions that the fallback made.
    pub(super) fallback: u64,
    /// Calls that failed because the ledger was unavailable.
    pub(super) unavailable: u64,
    decisions: u64,
    latency_us: u64,
    pub(super) latency_max_us: u64,
}

/// What came from one channel, repository or account.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) received: u64,
    pub(super) repeats: u64,
}

/// Hours on end in which the fallback decided, or the ledger was unavailable.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DegradedPeriod {
    /// In milliseconds since 1970.
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) fallback: u64,
    pub(super) unavailable: u64,
}

impl Hour {
    /// Unknown if nothing was decided.
    pub(super) fn latency_mean_us(&self) -> Option<u64> {
        self.latency_us.checked_div(self.decisions)
    }

    fn count(count: &Count) -> Self {
        let of = |is_counted: bool| if is_counted { count.count } else { 0 };
        let result = count.result.as_str();
        Self {
            received: of(is_first(result) || is_repeat(result)),
            repeats: of(is_repeat(result)),
            in_doubt: of(["in-doubt", "declared-in-doubt"].contains(&result)),
            fallback: count.degraded,
            unavailable: of(result == "unavailable"),
            decisions: count.count,
            latency_us: count.latency_mean_us.saturating_mul(count.count),
            latency_max_us: count.latency_max_us,
        }
    }

    fn add(self, other: &Self) -> Self {
        Self {
            received: self.received + other.received,
            repeats: self.repeats + other.repeats,
            in_doubt: self.in_doubt + other.in_doubt,
            fallback: self.fallback + other.fallback,
            unavailable: self.unavailable + other.unavailable,
            decisions: self.decisions + other.decisions,
            latency_us: self.latency_us.saturating_add(other.latency_us),
            latency_max_us: self.latency_max_us.max(other.latency_max_us),
        }
    }

    pub(super) fn sum<'a>(hours: impl IntoIterator<Item = &'a Self>) -> Self {
        hours.into_iter().fold(Self::default(), Self::add)
    }
}

impl Report {
    /// Reads all decisions, or those on one route, without their sources.
    pub(super) fn read(
        history: &History,
        now: u64,
        days: usize,
        of_route: Option<&OfRoute>,
    ) -> Result<Self, Error> {
        let first_day = (now / DAY_MS + 1).saturating_sub(days as u64);
        let from = first_day * DAY_MS;
        let (counts, sources) = match of_route {
            None => (history.counts(By::Hour, from, now)?, history.sources(from, now)?),
            Some(of_route) => (history.hours_of(of_route, from, now)?, Vec::new()),
        };
        Ok(Self::new(first_day, days, &counts, sources))
    }

    fn new(first_day: u64, days: usize, counts: &[Count], by_source: Vec<SourceCount>) -> Self {
        let mut hours = vec![Hour::default(); days * HOURS_PER_DAY];
        for count in counts {
            let slot = count.group.parse().ok().and_then(|start| slot(first_day, start));
            if let Some(slot) = slot.and_then(|slot| hours.get_mut(slot)) {
                *slot = slot.add(&Hour::count(count));
            }
        }
        let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for SourceCount { source, result, count } in by_source {
            let (received, repeats) = sums.entry(source).or_default();
            *received += if is_first(&result) || is_repeat(&result) { count } else { 0 };
            *repeats += if is_repeat(&result) { count } else { 0 };
        }
        let sources = sums.into_iter().map(|(name, (received, repeats))| Source { name, received, repeats });
        let mut sources: Vec<_> = sources.filter(|source| source.received > 0).collect();
        sources.sort_by(|one, other| {
            (other.repeats, other.received).cmp(&(one.repeats, one.received)).then(one.name.cmp(&other.name))
        });
        Self { first_day, days, hours, sources }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hours.iter().all(|hour| hour.decisions == 0)
    }

    pub(super) fn total(&self) -> Hour {
        Hour::sum(&self.hours)
    }

    /// The start of an hour, in milliseconds since 1970.
    pub(super) fn start_of(&self, hour: usize) -> u64 {
        self.first_day * DAY_MS + hour as u64 * HOUR_MS
    }

    /// The hour of a moment, if it is one of the report's.
    pub(super) fn slot_of(&self, at: u64) -> Option<usize> {
        slot(self.first_day, at).filter(|slot| *slot < self.hours.len())
    }

    pub(super) fn degraded_periods(&self) -> Vec<DegradedPeriod> {
        let mut periods: Vec<DegradedPeriod> = Vec::new();
        let degraded = self.hours.iter().enumerate().filter(|(_, hour)| hour.fallback + hour.unavailable > 0);
        for (slot, Hour { fallback, unavailable, .. }) in degraded {
            let (from, to) = (self.start_of(slot), self.start_of(slot + 1));
            match periods.last_mut().filter(|last| last.to == from) {
                Some(last) => {
                    last.to = to;
                    last.fallback += fallback;
                    last.unavailable += unavailable;
                }
                None => {
                    periods.push(DegradedPeriod { from, to, fallback: *fallback, unavailable: *unavailable })
                }
            }
        }
        periods
    }
}

/// The number of an hour, from the first one of a day.
fn slot(first_day: u64, at: u64) -> Option<usize> {
    usize::try_from(at.checked_sub(first_day * DAY_MS)? / HOUR_MS).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(hour: u64, result: &str, count: u64, degraded: u64) -> Count {
        let (group, result) = ((hour * HOUR_MS).to_string(), result.to_owned());
        Count { group, result, count, degraded, latency_mean_us: 100 * hour, latency_max_us: 1_000 * hour }
    }

    #[test]
    fn counts_are_put_into_their_hours() {
        let counts = [
            count(47, "new", 1_000, 0),
            count(48, "new", 10, 0),
            count(48, "duplicate", 5, 5),
            count(49, "completed", 7, 0),
            count(49, "unavailable", 3, 0),
            count(51, "declared-in-doubt", 1, 1),
            count(9_999, "new", 1, 0),
        ];
        let source = |source: &str, result: &str, count| SourceCount {
            source: source.to_owned(),
            result: result.to_owned(),
            count,
        };
        let by_source = vec![
            source("a", "new", 9),
            source("b", "new", 2),
            source("b", "replayed", 1),
            source("c", "completed", 9),
        ];
        let report = Report::new(2, 7, &counts, by_source);
        assert_eq!(report.hours.len(), 7 * 24);
        let first = report.hours[0];
        assert_eq!((first.received, first.repeats, first.latency_mean_us()), (15, 5, Some(4_800)));
        assert_eq!((report.hours[1].received, report.hours[1].unavailable), (0, 3));
        assert_eq!(report.hours[2].latency_mean_us(), None, "nothing happened, so nothing is known");
        assert_eq!(report.total().in_doubt, 1);
        assert_eq!((report.slot_of(51 * HOUR_MS + 1), report.slot_of(47 * HOUR_MS)), (Some(3), None));
        assert_eq!(report.slot_of(u64::MAX), None);
        let periods: Vec<_> = report.degraded_periods();
        let periods: Vec<_> = periods
            .iter()
            .map(|period| (period.from / HOUR_MS, period.to / HOUR_MS, period.fallback, period.unavailable))
            .collect();
        assert_eq!(periods, [(48, 50, 5, 3), (51, 52, 1, 0)]);
        let names: Vec<_> = report.sources.iter().map(|source| (&*source.name, source.repeats)).collect();
        assert_eq!(names, [("b", 1), ("a", 0)]);
    }
}
