//! Latencies from the buckets of a histogram.

/// The most values that one metric of a line may have.
const VALUES_MAX: u64 = 100;

/// How many values are at most as large as each bound. Ordered by bound; the last one is infinite.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Buckets(Vec<(f64, u64)>);

impl Buckets {
    pub(super) fn add(&mut self, bound: f64, count: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == bound) {
            Some((_, known)) => *known += count,
            None => self.0.push((bound, count)),
        }
    }

    pub(super) fn since(&self, earlier: &Self) -> Self {
        let before =
            |bound: f64| earlier.0.iter().find(|(known, _)| *known == bound).map_or(0, |(_, count)| *count);
        Self(self.0.iter().map(|(bound, count)| (*bound, count.saturating_sub(before(*bound)))).collect())
    }
}

/// Up to 100 values in milliseconds, at even ranks: their percentiles are those of the histogram, within a bucket.
pub(super) fn values_ms(buckets: &Buckets) -> Vec<f64> {
    let all = buckets.0.last().map_or(0, |(_, count)| *count);
    let count = all.min(VALUES_MAX);
    #[allow(clippy::cast_precision_loss, reason = "ranks within a bucket")]
    let value = |number: u64| {
        // In the middle of the share of all values that this one stands for.
        let rank = (number as f64 + 0.5) * all as f64 / count as f64;
        let (mut lower, mut below) = (0.0, 0);
        for (bound, count) in &buckets.0 {
            if *count as f64 >= rank {
                let share = (rank - below as f64) / (count - below).max(1) as f64;
                // Nothing is known about values beyond the last bound.
                let seconds = if bound.is_finite() { lower + (bound - lower) * share } else { lower };
                return (seconds * 1e6).round() / 1e3;
            }
            (lower, below) = (*bound, *count);
        }
        0.0
    };
    (0..count).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(counts: &[(f64, u64)]) -> Buckets {
        Buckets(counts.to_vec())
    }

    #[test]
    fn values_lie_in_their_buckets() {
        let seconds = buckets(&[(0.001, 2), (0.01, 3), (f64::INFINITY, 4)]);
        assert_eq!(values_ms(&seconds), [0.25, 0.75, 5.5, 10.0]);
        assert!(values_ms(&buckets(&[(0.001, 0), (f64::INFINITY, 0)])).is_empty());
        assert!(values_ms(&Buckets::default()).is_empty());
    }

    #[test]
    fn many_values_are_thinned_out_evenly() {
        let seconds = buckets(&[(0.001, 900_000), (0.01, 1_000_000), (f64::INFINITY, 1_000_000)]);
        let values = values_ms(&seconds);
        assert_eq!(values.len(), 100);
        assert_eq!(values.iter().filter(|value| **value <= 1.0).count(), 90);
    }

    #[test]
    fn only_what_is_new_counts() {
        let earlier = buckets(&[(0.001, 5), (f64::INFINITY, 6)]);
        let now = buckets(&[(0.001, 5), (f64::INFINITY, 8)]);
        assert_eq!(values_ms(&now.since(&earlier)), [1.0, 1.0]);
    }
}
