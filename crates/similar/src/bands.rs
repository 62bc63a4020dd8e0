//! Bands of MinHash values: texts with the same value in any band are candidates.
//!
//! The features are distributed over bins, and the smallest of each bin is one MinHash value (one permutation hashing). An empty
//! bin borrows from another bin, which its number determines. A band is the hash of some bins. With `rows` bins in each of
//! `bands` bands, texts of similarity s share a band with probability 1 − (1 − s^rows)^bands.

use crate::sketch::{low_half, mix};

/// The most bands: each takes memory for every text.
const BANDS_MAX: usize = 20;
/// The most rows: more would only need more bands.
const ROWS_MAX: i32 = 10;
/// A pair at the threshold is missed with this probability, if its bins are independent.
const MISSED: f64 = 0.005;

/// How texts are divided into bands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Banding {
    rows: usize,
    bands: usize,
}

impl Banding {
    /// The most selective bands that still find texts at this threshold.
    pub(crate) fn for_threshold(threshold: f64) -> Self {
        let fitting = (1..=ROWS_MAX).rev().find_map(|rows| {
            let bands = (1..=BANDS_MAX).find(|bands| {
                let bands = i32::try_from(*bands).unwrap_or(i32::MAX);
                (1.0 - threshold.powi(rows)).powi(bands) <= MISSED
            })?;
            Some(Self { rows: usize::try_from(rows).unwrap_or(1), bands })
        });
        fitting.unwrap_or(Self { rows: 1, bands: BANDS_MAX })
    }

    /// One band more: all features, so that an identical text is always found.
    pub(crate) fn count(self) -> usize {
        self.bands + 1
    }

    /// The bands of a set of features.
    pub(crate) fn of(self, features: &[u32]) -> Box<[u32]> {
        let bins = self.bins(features);
        let hash = |values: &[u32], start: u64| {
            low_half(
                values.iter().fold(start, |hash, value| mix(hash ^ u64::from(*value)).wrapping_add(start)),
            )
        };
        let bands = bins.chunks(self.rows).zip(1..).map(|(rows, number)| hash(rows, number));
        bands.chain(std::iter::once(hash(features, 0))).collect()
    }

    fn bins(self, features: &[u32]) -> Vec<u32> {
        let count = self.rows * self.bands;
        // The kept features of a long text are the smallest hashes, so they are hashed again.
        let mut bins = vec![u32::MAX; count];
        for feature in features {
            let bits = mix(u64::from(*feature));
            let bin = usize::try_from(((bits >> 32) * count as u64) >> 32).unwrap_or_default();
            bins[bin] = bins[bin].min(low_half(bits));
        }
        if features.is_empty() {
            return bins;
        }
        let filled = bins.clone();
        for (bin, value) in bins.iter_mut().enumerate() {
            let mut attempt = 0;
            while *value == u32::MAX {
                attempt += 1;
                let other = mix((bin as u64) << 32 | attempt) % count as u64;
                *value = filled[usize::try_from(other).unwrap_or_default()];
            }
        }
        bins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_thresholds_have_more_selective_bands() {
        let rows: Vec<_> = [0.5, 0.7, 0.8, 0.9, 1.0].map(|t| Banding::for_threshold(t).rows).to_vec();
        assert!(rows.is_sorted(), "{rows:?}");
        assert_eq!(Banding::for_threshold(0.9), Banding { rows: 10, bands: 13 });
        assert_eq!(Banding::for_threshold(1.0), Banding { rows: 10, bands: 1 });
    }

    #[test]
    fn equal_sets_share_all_bands_and_different_ones_none() {
        let banding = Banding::for_threshold(0.9);
        let set = |from: u64| -> Vec<u32> { (from..from + 50).map(|number| low_half(mix(number))).collect() };
        assert_eq!(banding.of(&set(0)), banding.of(&set(0)));
        let (one, other) = (banding.of(&set(0)), banding.of(&set(1_000)));
        assert_eq!(one.len(), banding.count());
        assert!(one.iter().zip(&other).all(|(one, other)| one != other));
    }
}
