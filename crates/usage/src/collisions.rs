//! Computes how likely two different records get the same id (the birthday problem).
//!
//! An id begins with day, provider and model, so only records that share all three can collide: a *group*. Among n
//! ids whose hashes have N possible values, the probability that all differ is the product of (1 - i/N) for i below
//! n. Its logarithm is computed with the Euler-Maclaurin formula, whose error is far below the precision of a
//! double; a test compares it with the product itself.

/// Up to this many factors are multiplied directly: the formula is not precise enough where the last of them are
/// near zero.
const DIRECT_MAX: u64 = 4096;

/// The probability that at least two of `ids` hashes of `digits` hexadecimal digits are equal.
pub fn probability(ids: u64, digits: usize) -> f64 {
    -ln_all_differ(ids, values(digits)).exp_m1()
}

/// The probability of a collision in at least one of `groups` groups of `ids` ids each.
pub fn probability_in_any(groups: u64, ids: u64, digits: usize) -> f64 {
    -(ln_all_differ(ids, values(digits)) * float(groups)).exp_m1()
}

/// The expected number of pairs of equal ids.
pub fn expected_pairs(ids: u64, digits: usize) -> f64 {
    float(ids) * float(ids.saturating_sub(1)) / 2.0 / values(digits)
}

/// The smallest number of ids that collide with at least this probability.
pub fn ids_for(target: f64, digits: usize) -> u64 {
    let (mut low, mut high) = (0_u64, u64::MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        match probability(middle, digits) >= target {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    low
}

fn values(digits: usize) -> f64 {
    16_f64.powi(i32::try_from(digits).unwrap_or(i32::MAX))
}

fn float(number: u64) -> f64 {
    number as f64
}

/// The logarithm of the probability that `ids` hashes with `values` possible values all differ.
fn ln_all_differ(ids: u64, values: f64) -> f64 {
    let part = float(ids) / values;
    if part > 1.0 {
        return f64::NEG_INFINITY;
    }
    if ids <= DIRECT_MAX {
        return (0..ids).map(|i| (-float(i) / values).ln_1p()).sum();
    }
    if part >= 1.0 {
        return f64::NEG_INFINITY;
    }
    let log = (-part).ln_1p();
    // The sum of ln(1 - i/N) for i from 0 to n - 1: the integral, half of the last value, and the first correction.
    -values * area(part) - log / 2.0 - (1.0 / (1.0 - part) - 1.0) / (12.0 * values)
}

/// (1 - t) ln(1 - t) + t, which is t²/2 + t³/6 + t⁴/12 + …
fn area(t: f64) -> f64 {
    if t > 0.1 {
        return (1.0 - t) * (-t).ln_1p() + t;
    }
    let (mut sum, mut power) = (0.0, t);
    for k in 2..40_u32 {
        power *= t;
        sum += power / f64::from(k * (k - 1));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_near(value: f64, expected: f64) {
        assert!((value / expected - 1.0).abs() < 1e-9, "{value} is not {expected}");
    }

    /// The product itself.
    fn ln_product(ids: u64, values: f64) -> f64 {
        (0..ids).map(|i| (-(i as f64) / values).ln_1p()).sum()
    }

    #[test]
    fn formula_agrees_with_the_product() {
        for (ids, values) in [
            (23, 365.0),
            (300, 65_536.0),
            (20_000, 65_536.0),
            (60_000, 65_536.0),
            (1_000_000, values(12)),
            (10_000_000, values(12)),
        ] {
            assert_near(ln_all_differ(ids, values), ln_product(ids, values));
        }
        assert_near(-ln_all_differ(23, 365.0).exp_m1(), 0.507_297_234_323_986);
    }

    #[test]
    fn ten_million_ids_of_48_bits_collide_with_sixteen_percent() {
        let odds = probability(10_000_000, 12);
        assert!((0.162..0.163).contains(&odds), "{odds}");
        assert!(probability(10_000_000, 32) < 1e-24);
    }

    #[test]
    fn one_id_cannot_collide_and_too_many_must() {
        assert_eq!((probability(0, 12), probability(1, 12)), (0.0, 0.0));
        assert_near(probability(2, 12), 1.0 / values(12));
        assert_eq!(probability(17, 1), 1.0);
        assert!(probability(16, 1) < 1.0);
        assert_eq!(probability_in_any(10, 1, 12), 0.0);
        assert_near(probability_in_any(1, 5000, 12), probability(5000, 12));
        assert!((expected_pairs(10_000_000, 12) - 0.177_635_7).abs() < 1e-6);
    }

    #[test]
    fn number_of_ids_is_the_first_that_reaches_the_probability() {
        for (target, digits) in [(0.5, 2), (0.5, 12), (1e-6, 12), (0.01, 12)] {
            let ids = ids_for(target, digits);
            assert!(probability(ids, digits) >= target && probability(ids - 1, digits) < target);
        }
    }
}
