//! Money: decimals read and written with their own digits, and never a float in between.

use std::borrow::Cow;

use rust_decimal::Decimal;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use thiserror::Error;

/// The most decimal places that a price may have. Dify writes seven; old rows were floats and have more.
pub const MOST_PLACES: u32 = 18;
/// No single price reaches this: with [`MOST_PLACES`] it still fits a decimal.
pub const PRICE_LIMIT: Decimal = Decimal::from_parts(1_000_000_000, 0, 0, false, 0);

/// Why a text is no amount of money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// No number at all.
    #[error("not a number")]
    NotANumber,
    /// Less than nothing.
    #[error("must not be negative")]
    Negative,
    /// More digits than can be kept.
    #[error("has more digits than can be kept exactly")]
    TooPrecise,
    /// More than any price.
    #[error("must be less than 1,000,000,000")]
    TooLarge,
}

/// Reads a decimal number, with or without an exponent, and loses no digit of it.
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
        _ => Error::NotANumber,
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

/// A price as a source gives it: not negative, and small enough that sums stay exact.
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
    if number.scale() <= MOST_PLACES {
        return Ok(number);
    }
    let shorter = number.normalize();
    if shorter.scale() > MOST_PLACES { Err(Error::TooPrecise) } else { Ok(shorter) }
}

/// Writes a decimal as a JSON number with its own digits. Only for serde_json.
pub fn serialize<S: Serializer>(number: &Decimal, serializer: S) -> Result<S::Ok, S::Error> {
    RawValue::from_string(number.to_string()).map_err(serde::ser::Error::custom)?.serialize(serializer)
}

/// Reads a decimal from a JSON number, or from a string that holds one.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Decimal, D::Error> {
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    from_json(&raw).map_err(serde::de::Error::custom)
}

/// The same of a value that was kept as text.
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
