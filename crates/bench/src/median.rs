//! Summarizes a series of measurements.

/// The median over all rounds of the ratio of two figures of the same round.
pub fn ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    median(ours.iter().zip(theirs).map(|(our, their)| our / their).collect())
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
