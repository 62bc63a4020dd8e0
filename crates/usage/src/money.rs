//! Amounts of money: decimals that are read, added and written with all their digits, never as floats.

use std::borrow::Cow;
use std::fmt;

use rust_decimal::Decimal;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use thiserror::Error;

/// The most decimal places a price may have. Dify writes seven; prices that old versions stored as floats have more.
pub const PRICE_PLACES_MAX: u32 = 18;
/// The decimal places that a sum keeps.
pub const SUM_PLACES: u32 = 20;
/// Every price is below this limit; with [`PRICE_PLACES_MAX`] decimal places it still fits a [`Decimal`].
pub const PRICE_LIMIT: Decimal = Decimal::from_parts(1_000_000_000, 0, 0, false, 0);

/// Why a text is not a valid amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// Not a number.
    #[error("not a number")]
    NotANumber,
    /// Negative.
    #[error("must not be negative")]
    Negative,
    /// More digits than can be kept.
    #[error("has more digits than can be kept exactly")]
    TooPrecise,
    /// Too large.
    #[error("must be less than 1,000,000,000")]
    TooLarge,
}

/// Parses a decimal number, with or without an exponent, without losing a digit.
pub fn parse(text: &str) -> Result<Decimal, Error> {
    let (digits, exponent) = match text.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().map_err(|_| Error::NotANumber)?),
        None => (text, 0),
    };
    let numeric = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+');
    if digits.is_empty() || !digits.bytes().all(numeric) || !digits.bytes().any(|byte| byte.is_ascii_digit())
    {
        return Err(Error::NotANumber);
    }
    let number = Decimal::from_str_exact(digits).map_err(|error| match error {
        rust_decimal::Error::Underflow | rust_decimal::Error::ScaleExceedsMaximumPrecision(_) => {
            Error::TooPrecise
        }
        rust_decimal::Error::ExceedsMaximumPossibleValue => Error::TooLarge,
        rust_decimal::Error::ErrorString(_)
        | rust_decimal::Error::LessThanMinimumPossibleValue
        | rust_decimal::Error::ConversionTo(_) => Error::NotANumber,
    })?;
    shift(number, exponent)
}

fn shift(mut number: Decimal, exponent: i32) -> Result<Decimal, Error> {
    if number.is_zero() {
        return Ok(number);
    }
    let places = i64::from(number.scale()) - i64::from(exponent);
    if places >= 0 {
        let places = u32::try_from(places).map_err(|_| Error::TooPrecise)?;
        return number.set_scale(places).map(|()| number).map_err(|_| Error::TooPrecise);
    }
    let zeros =
        u32::try_from(-places).ok().and_then(|zeros| 10_i128.checked_pow(zeros)).ok_or(Error::TooLarge)?;
    let mantissa = number.mantissa().checked_mul(zeros).ok_or(Error::TooLarge)?;
    Decimal::try_from_i128_with_scale(mantissa, 0).map_err(|_| Error::TooLarge)
}

/// Checks a price: not negative, and small enough that sums stay exact.
pub fn price(number: Decimal) -> Result<Decimal, Error> {
    if number.is_zero() {
        return Ok(number.abs());
    }
    if number.is_sign_negative() {
        return Err(Error::Negative);
    }
    if number >= PRICE_LIMIT {
        return Err(Error::TooLarge);
    }
    if number.scale() <= PRICE_PLACES_MAX {
        return Ok(number);
    }
    let shorter = number.normalize();
    if shorter.scale() > PRICE_PLACES_MAX { Err(Error::TooPrecise) } else { Ok(shorter) }
}

/// A sum of amounts, exact in any order.
///
/// It counts multiples of 10⁻²⁰ in 128 bits. A floating-point decimal would silently round a sum whose parts have
/// many places. Here, a sum that does not fit is an error; a million records of the largest amount do fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Multiples of 10⁻²⁰.
    units: i128,
    /// The most decimal places of any amount.
    places: u32,
}

impl Sum {
    /// Parses an amount without an exponent, as [`Decimal`] and PostgreSQL write it. It may have more digits than a
    /// [`Decimal`] holds.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        let part = part.trim_end_matches('0');
        let numeric = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !numeric(whole) || !numeric(part) {
            return Err(Error::NotANumber);
        }
        let places = u32::try_from(part.len()).ok().filter(|places| *places <= SUM_PLACES);
        let places = places.ok_or(Error::TooPrecise)?;
        let number = |text: &str| match text {
            "" => Ok(0),
            text => text.parse::<i128>().map_err(|_| Error::TooLarge),
        };
        let whole = number(whole)?.checked_mul(10_i128.pow(SUM_PLACES)).ok_or(Error::TooLarge)?;
        let part = number(part)? * 10_i128.pow(SUM_PLACES - places);
        let units = whole.checked_add(part).ok_or(Error::TooLarge)?;
        Ok(Self { units: sign * units, places })
    }

    /// Adds a price.
    pub fn add(&mut self, number: Decimal) -> Result<(), Error> {
        let number = price(number)?;
        if number.is_zero() && number.scale() <= self.places {
            return Ok(());
        }
        let missing = 10_i128.pow(SUM_PLACES.saturating_sub(number.scale()));
        let units = number.mantissa().checked_mul(missing).ok_or(Error::TooLarge)?;
        self.join(Self { units, places: number.scale().min(SUM_PLACES) })
    }

    /// Adds another sum.
    pub fn join(&mut self, other: Self) -> Result<(), Error> {
        self.units = self.units.checked_add(other.units).ok_or(Error::TooLarge)?;
        self.places = self.places.max(other.places);
        Ok(())
    }

    /// Returns the sum as a decimal with as many places as its most precise amount.
    pub fn total(self) -> Result<Decimal, Error> {
        let unused = 10_i128.pow(SUM_PLACES - self.places);
        Decimal::try_from_i128_with_scale(self.units / unused, self.places).map_err(|_| Error::TooLarge)
    }
}

/// Writes all digits, without trailing zeros.
impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = 10_u128.pow(SUM_PLACES);
        let (sign, units) = (if self.units < 0 { "-" } else { "" }, self.units.unsigned_abs());
        let part = format!("{:020}", units % unit);
        let part = part.trim_end_matches('0');
        let point = if part.is_empty() { "" } else { "." };
        write!(f, "{sign}{}{point}{part}", units / unit)
    }
}

/// Serializes a decimal as a JSON number with all its digits. Works with serde_json only.
pub fn serialize<S: Serializer>(number: &Decimal, serializer: S) -> Result<S::Ok, S::Error> {
    RawValue::from_string(number.to_string()).map_err(serde::ser::Error::custom)?.serialize(serializer)
}

/// Deserializes a decimal from a JSON number, or from a string that contains one.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Decimal, D::Error> {
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    from_json(&raw).map_err(serde::de::Error::custom)
}

/// Reads a decimal from a raw JSON value.
pub fn from_json(raw: &RawValue) -> Result<Decimal, Error> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'"') => {
            let text: Cow<'_, str> = serde_json::from_str(text).map_err(|_| Error::NotANumber)?;
            parse(text.trim())
        }
        Some(b'-' | b'0'..=b'9') => parse(text),
        _ => Err(Error::NotANumber),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_keep_every_digit_or_are_refused() {
        for (text, number) in [
            ("0.0197304", "0.0197304"),
            ("1.50", "1.50"),
            ("-0.5", "-0.5"),
            ("1e-7", "0.0000001"),
            ("1.2345E-05", "0.000012345"),
            ("2.5e3", "2500"),
            ("0e99", "0"),
            ("0.1234567890123456789012345678", "0.1234567890123456789012345678"),
        ] {
            assert_eq!(parse(text).map(|number| number.to_string()).as_deref(), Ok(number), "{text}");
        }
        for text in ["", "abc", "NaN", "inf", "1,5", "1_000", ".", "-", "1e", "0x10", "1 2", "é"] {
            assert_eq!(parse(text), Err(Error::NotANumber), "{text}");
        }
        assert_eq!(parse("0.12345678901234567890123456789"), Err(Error::TooPrecise));
        assert_eq!(parse("1e-40"), Err(Error::TooPrecise));
        assert!(parse("1e40").is_err() && parse("99999999999999999999999999999999").is_err());
    }

    #[test]
    fn price_has_limits() {
        let price = |text| price(parse(text).unwrap()).map(|number| number.to_string());
        assert_eq!(price("-0").as_deref(), Ok("0"));
        assert_eq!(price("-0.0000001"), Err(Error::Negative));
        assert_eq!(price("1000000000"), Err(Error::TooLarge));
        assert_eq!(price("0.1000000000000000000000000000").as_deref(), Ok("0.1"));
        assert_eq!(price("0.0000000000000000001"), Err(Error::TooPrecise));
    }

    #[derive(Debug, Serialize, Deserialize)]
    struct Bill {
        #[serde(with = "super")]
        cost: Decimal,
    }

    #[test]
    fn json_keeps_all_digits_in_both_directions() {
        for digits in ["0.1", "1.50", "0.0197304", "12345678901234567.8901234567", "9007199254740993"] {
            let json = format!("{{\"cost\":{digits}}}");
            let bill: Bill = serde_json::from_str(&json).unwrap();
            assert_eq!(bill.cost.to_string(), digits);
            assert_eq!(serde_json::to_string(&bill).unwrap(), json);
            let bill: Bill = serde_json::from_str(&format!("{{\"cost\":\"{digits}\"}}")).unwrap();
            assert_eq!(bill.cost.to_string(), digits);
        }
        for json in ["{\"cost\":null}", "{\"cost\":[1]}", "{\"cost\":true}", "{\"cost\":\"x\"}"] {
            let error = serde_json::from_str::<Bill>(json).unwrap_err().to_string();
            assert!(error.contains("not a number"), "{error}");
        }
        let value: serde_json::Value = serde_json::from_str("{\"cost\":0.25}").unwrap();
        assert_eq!(serde_json::from_value::<Bill>(value).unwrap().cost.to_string(), "0.25");
    }

    /// In floats, ten times 0.1 is 0.9999999999999999.
    #[test]
    fn ten_dimes_are_one() {
        let mut sum = Sum::default();
        for _ in 0..10 {
            sum.add(parse("0.1").unwrap()).unwrap();
        }
        assert_eq!(sum.total().unwrap().to_string(), "1.0");
    }

    #[test]
    fn amounts_come_back_without_zeros_at_the_end() {
        for (text, same) in [
            ("0", "0"),
            ("0.0000000", "0"),
            ("12.3400", "12.34"),
            ("-0.5", "-0.5"),
            ("999999999999.00000000000000000001", "999999999999.00000000000000000001"),
        ] {
            assert_eq!(Sum::parse(text).unwrap().to_string(), same);
        }
        for text in ["", ".5", "1e3", "NaN", "1.2.3", "+1", "--1"] {
            assert_eq!(Sum::parse(text), Err(Error::NotANumber), "{text}");
        }
        assert_eq!(Sum::parse("0.000000000000000000001"), Err(Error::TooPrecise));
        assert_eq!(Sum::parse("9000000000000000000000"), Err(Error::TooLarge));
    }

    #[test]
    fn sum_with_more_digits_than_a_decimal_is_exact() {
        let mut sum = Sum::default();
        for text in ["0.1", "0.2", "1000000000000.00000000000000000001"] {
            sum.join(Sum::parse(text).unwrap()).unwrap();
        }
        assert_eq!(sum.to_string(), "1000000000000.30000000000000000001");
        assert_eq!(sum.total(), Err(Error::TooLarge));
        let mut largest = Sum { units: i128::MAX, places: 0 };
        assert_eq!(largest.join(Sum { units: 1, places: 0 }), Err(Error::TooLarge));
    }

    proptest! {
        /// Compares with whole numbers of the smallest unit, which need no decimals.
        #[test]
        fn sums_are_exact_in_any_order(mut prices in prop::collection::vec((0_u64..1_000_000_000_000, 0_u32..13), 0..50)) {
            let expected: u128 = prices.iter().map(|(mantissa, scale)| u128::from(*mantissa) * 10_u128.pow(12 - scale)).sum();
            let places = prices.iter().map(|(_, scale)| *scale).max().unwrap_or(0);
            for _ in 0..2 {
                let mut sum = Sum::default();
                for (mantissa, scale) in &prices {
                    let number = Decimal::from_i128_with_scale(i128::from(*mantissa), *scale);
                    if number < PRICE_LIMIT {
                        sum.add(number).unwrap();
                    } else {
                        sum.join(Sum { units: number.mantissa() * 10_i128.pow(SUM_PLACES - scale), places: *scale }).unwrap();
                    }
                }
                let total = sum.total().unwrap();
                prop_assert_eq!(total.scale(), places);
                let units = total.mantissa() * 10_i128.pow(12 - places);
                prop_assert_eq!(units, i128::try_from(expected).unwrap());
                prices.reverse();
            }
        }
    }
}
