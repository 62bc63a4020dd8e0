//! How likely two different records get one id: the birthday figures.
//!
//! An id begins with day, provider and model, so only records that share all three can meet: a *group*. Among n of them, with
//! hashes of N possible values, the chance that no two are alike is the product of (1 - i/N) for i below n. The logarithm of that product is
//! computed by the Euler-Maclaurin formula, whose error is far below what a double can show; a test compares it with the product
//! itself.

/// So many factors are multiplied as they are: where the last of them are near zero the formula is not good enough.
const FEW: u64 = 4096;

/// The chance that at least two of `ids` hashes of `digits` hexadecimal digits are alike.
pub fn collision(ids: u64, digits: usize) -> f64 {
    -none(ids, values(digits)).exp_m1()
}

/// The chance that this happens in at least one of `groups` groups of as many ids.
pub fn collision_in_any(groups: u64, ids: u64, digits: usize) -> f64 {
    -(none(ids, values(digits)) * float(groups)).exp_m1()
}

/// How many pairs of ids are alike, on average.
pub fn expected_pairs(ids: u64, digits: usize) -> f64 {
    float(ids) * float(ids.saturating_sub(1)) / 2.0 / values(digits)
}

/// The fewest ids among which two are alike at least this likely.
pub fn ids_for(probability: f64, digits: usize) -> u64 {
    let (mut low, mut high) = (0_u64, u64::MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        match collision(middle, digits) >= probability {
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

/// The logarithm of the chance that no two of `ids` are alike among `values` values.
fn none(ids: u64, values: f64) -> f64 {
    let part = float(ids) / values;
    if part > 1.0 {
        return f64::NEG_INFINITY;
    }
    if ids <= FEW {
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

    fn near(value: f64, expected: f64) {
        assert!((value / expected - 1.0).abs() < 1e-9, "{value} is not {expected}");
    }

    /// The product itself.
    fn plainly(ids: u64, values: f64) -> f64 {
        (0..ids).map(|i| (-(i as f64) / values).ln_1p()).sum()
    }

    #[test]
    fn the_formula_is_the_product() {
        for (ids, values) in [
            (23, 365.0),
            (300, 65_536.0),
            (20_000, 65_536.0),
            (60_000, 65_536.0),
            (1_000_000, values(12)),
            (10_000_000, values(12)),
        ] {
            near(none(ids, values), plainly(ids, values));
        }
        near(-none(23, 365.0).exp_m1(), 0.507_297_234_323_986);
    }

    #[test]
    fn ten_million_ids_of_48_bits_collide_with_sixteen_percent() {
        let odds = collision(10_000_000, 12);
        assert!((0.162..0.163).contains(&odds), "{odds}");
        assert!(collision(10_000_000, 32) < 1e-24);
    }

    #[test]
    fn one_id_meets_nobody_and_too_many_must_meet() {
        assert_eq!((collision(0, 12), collision(1, 12)), (0.0, 0.0));
        near(collision(2, 12), 1.0 / values(12));
        assert_eq!(collision(17, 1), 1.0);
        assert!(collision(16, 1) < 1.0);
        assert_eq!(collision_in_any(10, 1, 12), 0.0);
        near(collision_in_any(1, 5000, 12), collision(5000, 12));
        assert!((expected_pairs(10_000_000, 12) - 0.177_635_7).abs() < 1e-6);
    }

    #[test]
    fn the_number_for_a_probability_is_the_first_that_reaches_it() {
        for (probability, digits) in [(0.5, 2), (0.5, 12), (1e-6, 12), (0.01, 12)] {
            let ids = ids_for(probability, digits);
            assert!(collision(ids, digits) >= probability && collision(ids - 1, digits) < probability);
        }
    }
}
