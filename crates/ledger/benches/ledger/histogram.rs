//! Latencies, counted in buckets, so that recording many of them takes no memory worth measuring.

/// Buckets per power of two: a latency is recorded with an error below 1 %.
const STEPS: u64 = 128;

/// A count per bucket.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    buckets: Vec<u32>,
    calls: u64,
    longest_us: u64,
}

impl Histogram {
    pub(crate) fn record(&mut self, us: u64) {
        let bucket = bucket(us);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.calls += 1;
        self.longest_us = self.longest_us.max(us);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        if other.buckets.len() > self.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (ours, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *ours += theirs;
        }
        self.calls += other.calls;
        self.longest_us = self.longest_us.max(other.longest_us);
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    pub(crate) fn longest_us(&self) -> f64 {
        self.longest_us as f64
    }

    /// The latency that this share of the calls did not exceed, in microseconds.
    pub(crate) fn percentile_us(&self, share: f64) -> f64 {
        let rank = (self.calls as f64 * share) as u64;
        let mut seen = 0;
        let reached = self.buckets.iter().position(|count| {
            seen += u64::from(*count);
            seen > rank
        });
        reached.map_or(self.longest_us(), |bucket| lower_bound_us(bucket as u64) as f64)
    }
}

/// Latencies below `2 * STEPS` have a bucket each; from there on, each power of two has `STEPS` buckets.
fn bucket(us: u64) -> usize {
    let doublings = u64::from((us / STEPS).max(1).ilog2());
    (doublings * STEPS + (us >> doublings)) as usize
}

fn lower_bound_us(bucket: u64) -> u64 {
    let doublings = (bucket / STEPS).saturating_sub(1);
    (bucket - doublings * STEPS) << doublings
}
