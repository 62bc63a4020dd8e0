//! Sums of money that lose no digit.
//!
//! Numbers are kept as multiples of 10⁻²⁰ in 128 bits. A decimal type with a floating point would round a sum whose parts have
//! many places, silently; here a sum that does not fit is an error, which a million records of the largest amount do not reach.

use std::fmt;

use rust_decimal::Decimal;

/// Decimal places that are kept.
pub(crate) const PLACES: u32 = 20;
/// No record costs this much.
pub(crate) const LIMIT: Decimal = Decimal::from_parts(0xD4A5_1000, 0xE8, 0, false, 0);

/// A sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Exact(i128);

impl Exact {
    /// Reads a decimal number as this crate and PostgreSQL write it: no exponent.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        let part = part.trim_end_matches('0');
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let places = u32::try_from(part.len()).ok().filter(|places| *places <= PLACES)?;
        if whole.is_empty() || !digits(whole) || !digits(part) {
            return None;
        }
        let whole = whole.parse::<i128>().ok()?.checked_mul(10_i128.pow(PLACES))?;
        let part = match part {
            "" => 0,
            part => part.parse::<i128>().ok()? * 10_i128.pow(PLACES - places),
        };
        Some(Self(sign * whole.checked_add(part)?))
    }

    pub(crate) fn add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }
}

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = 10_u128.pow(PLACES);
        let (sign, number) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        let part = format!("{:020}", number % unit);
        let part = part.trim_end_matches('0');
        let point = if part.is_empty() { "" } else { "." };
        write!(f, "{sign}{}{point}{part}", number / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_as_they_were_but_for_zeros_at_the_end() {
        for (text, same) in [
            ("0", "0"),
            ("0.0000000", "0"),
            ("12.3400", "12.34"),
            ("-0.5", "-0.5"),
            ("999999999999.00000000000000000001", "999999999999.00000000000000000001"),
        ] {
            assert_eq!(Exact::parse(text).unwrap().to_string(), same);
        }
        for text in ["", ".5", "1e3", "NaN", "1.2.3", "0.000000000000000000001", "+1", "--1"] {
            assert_eq!(Exact::parse(text), None, "{text}");
        }
    }

    #[test]
    fn sums_are_exact_where_floats_are_not() {
        let sum = ["0.1", "0.2", "1000000000000.00000000000000000001"];
        let sum =
            sum.into_iter().fold(Exact::default(), |sum, text| sum.add(Exact::parse(text).unwrap()).unwrap());
        assert_eq!(sum.to_string(), "1000000000000.30000000000000000001");
        assert_eq!(Exact(i128::MAX).add(Exact(1)), None);
    }

    #[test]
    fn the_limit_is_a_million_million() {
        assert_eq!(LIMIT, Decimal::from(1_000_000_000_000_u64));
    }
}
