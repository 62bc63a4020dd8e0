//! The fields of requests, and their limits.

use std::borrow::Cow;
use std::fmt;

use ichido_core::{Fingerprint, LimitError, Limits, Metadata, Nonce};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Unexpected, Visitor};

use super::request_body::invalid_field;
use ichido_serve::Problem;

/// The longest nonce.
const NONCE_BYTES_MAX: usize = 255;
/// The longest fingerprint.
const FINGERPRINT_BYTES_MAX: usize = 1024;

/// Text, borrowed from the body unless it contains escapes.
#[derive(Debug)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
            fn visit_string<E>(self, text: String) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text)))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// Whole numbers up to this one are exact as floating point.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// A whole number that is not negative.
#[derive(Clone, Copy, Debug)]
pub(super) struct WholeNumber(u64);

impl<'de> Deserialize<'de> for WholeNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WholeNumberVisitor;
        impl Visitor<'_> for WholeNumberVisitor {
            type Value = WholeNumber;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number of at least 1")
            }
            fn visit_u64<E>(self, number: u64) -> Result<WholeNumber, E> {
                Ok(WholeNumber(number))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<WholeNumber, E> {
                u64::try_from(number)
                    .map(WholeNumber)
                    .map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
            }
            /// JSON has only one kind of number: 5.0 is a whole number.
            fn visit_f64<E: Error>(self, number: f64) -> Result<WholeNumber, E> {
                let wrong = || E::invalid_value(Unexpected::Float(number), &self);
                match number.fract() == 0.0 && (0.0..=EXACT_MAX).contains(&number) {
                    true => format!("{number:.0}").parse().map(WholeNumber).map_err(|_| wrong()),
                    false => Err(wrong()),
                }
            }
        }
        deserializer.deserialize_u64(WholeNumberVisitor)
    }
}

/// Names and values, both strings.
#[derive(Debug)]
pub(super) struct StringMap(Vec<(String, String)>);

impl<'de> Deserialize<'de> for StringMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StringMapVisitor;
        impl<'de> Visitor<'de> for StringMapVisitor {
            type Value = StringMap;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<StringMap, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(StringMap(pairs))
            }
        }
        deserializer.deserialize_map(StringMapVisitor)
    }
}

impl StringMap {
    /// The names and values, as they were written.
    pub(super) fn into_pairs(self) -> Vec<(String, String)> {
        self.0
    }
}

/// Where a field is: at the top level, or in the event with this number.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldPath(pub(super) Option<usize>);

impl FieldPath {
    pub(super) fn invalid(self, field: &str, what: &str) -> Problem {
        match self.0 {
            Some(number) => invalid_field(&format!("events[{number}].{field}"), what),
            None => invalid_field(field, what),
        }
    }

    /// The ledger's messages about limits start with the name of the field.
    pub(super) fn limit_exceeded(self, field: &str, error: &LimitError) -> Problem {
        let message = error.to_string();
        let what = message.strip_prefix(field).map_or(message.as_str(), str::trim_start);
        self.invalid(field, what)
    }

    pub(super) fn metadata(self, pairs: Option<StringMap>) -> Result<Metadata, Problem> {
        match pairs {
            None => Ok(Metadata::default()),
            Some(pairs) => Metadata::new(pairs.0).map_err(|error| self.limit_exceeded("metadata", &error)),
        }
    }

    /// A nonce may be any text. The ledger stores sixteen bytes of its digest.
    pub(super) fn nonce(self, text: &str) -> Result<Nonce, Problem> {
        self.check_length("nonce", text, NONCE_BYTES_MAX)?;
        let digest = Fingerprint::of(["nonce", text]);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest.as_bytes()[..16]);
        Ok(Nonce::from_bytes(bytes))
    }

    pub(super) fn fingerprint(self, text: Option<Text<'_>>) -> Result<Fingerprint, Problem> {
        let Some(Text(text)) = text else { return Ok(Fingerprint::NONE) };
        self.check_length("fingerprint", &text, FINGERPRINT_BYTES_MAX)?;
        Ok(Fingerprint::of(["api", &*text]))
    }

    pub(super) fn check_length(self, field: &str, text: &str, max: usize) -> Result<(), Problem> {
        match text.len() {
            0 => Err(self.invalid(field, "is empty")),
            size if size > max => {
                Err(self.invalid(field, &format!("is {size} bytes; at most {max} are allowed")))
            }
            _ => Ok(()),
        }
    }
}

/// Checks a lease.
pub(super) fn lease_ms(given: Option<WholeNumber>, default: u64) -> Result<u64, Problem> {
    bounded("lease_ms", given, default, Limits::STANDARD.lease_ms)
}

/// Checks a duration in seconds, and converts it to milliseconds.
pub(super) fn seconds_as_ms(
    field: &str,
    given: Option<WholeNumber>,
    default_ms: u64,
) -> Result<u64, Problem> {
    let max = Limits::STANDARD.retention_ms / 1000;
    Ok(bounded(field, given, default_ms.div_ceil(1000), max)? * 1000)
}

fn bounded(field: &str, given: Option<WholeNumber>, default: u64, max: u64) -> Result<u64, Problem> {
    match given {
        None => Ok(default),
        Some(WholeNumber(value)) if (1..=max).contains(&value) => Ok(value),
        Some(WholeNumber(value)) => {
            Err(invalid_field(field, &format!("is {value}; it must be between 1 and {max}")))
        }
    }
}
