//! Summarizes rounds in which contenders took turns, so that a busy moment affects all.

/// The median over all rounds of the ratio of two figures of the same round.
pub(crate) fn ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    median(&ours.iter().zip(theirs).map(|(our, their)| our / their).collect::<Vec<_>>())
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
