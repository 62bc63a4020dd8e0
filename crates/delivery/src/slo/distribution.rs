//! Exact percentiles in memory that is bounded by the number of different values.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Distribution {
    counts: BTreeMap<u64, u64>,
    total: u64,
}

impl Distribution {
    pub(super) fn add(&mut self, value: u64) {
        *self.counts.entry(value).or_default() += 1;
        self.total += 1;
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The smallest value that at least 95 % of all values do not exceed.
    pub(super) fn p95(&self) -> Option<u64> {
        let rank = (self.total * 95).div_ceil(100);
        let mut seen = 0;
        self.counts.iter().find_map(|(value, count)| {
            seen += count;
            (seen >= rank).then_some(*value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_is_a_value_that_was_measured() {
        let p95 = |values: &[u64]| {
            let mut all = Distribution::default();
            values.iter().for_each(|value| all.add(*value));
            all.p95()
        };
        assert_eq!(p95(&[]), None);
        assert_eq!(p95(&[7]), Some(7));
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(p95(&hundred), Some(95));
        assert_eq!(p95(&[1, 1, 1, 9]), Some(9));
    }
}
