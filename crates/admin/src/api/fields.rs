//! The pieces that calls are made of, and their limits.

use std::borrow::Cow;
use std::fmt;

use ichido_core::{Fingerprint, LimitError, Limits, Metadata, Nonce};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Unexpected, Visitor};

use super::request_body::refused;
use ichido_serve::Problem;

/// The longest name that a caller gives one of its calls.
const NONCE_BYTES: usize = 255;
/// The longest text that stands for what is asked.
const FINGERPRINT_BYTES: usize = 1024;

/// Text; borrowed from the body unless something in it is escaped.
#[derive(Debug)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfText;
        impl<'de> Visitor<'de> for OfText {
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
        deserializer.deserialize_str(OfText)
    }
}

/// Whole numbers up to here are exact as floating point, too.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// A whole number that is not negative.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole(u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfWhole;
        impl Visitor<'_> for OfWhole {
            type Value = Whole;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number of at least 1")
            }
            fn visit_u64<E>(self, number: u64) -> Result<Whole, E> {
                Ok(Whole(number))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Whole, E> {
                u64::try_from(number)
                    .map(Whole)
                    .map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
            }
            /// JSON has one kind of numbers: 5.0 is whole.
            fn visit_f64<E: Error>(self, number: f64) -> Result<Whole, E> {
                let wrong = || E::invalid_value(Unexpected::Float(number), &self);
                match number.fract() == 0.0 && (0.0..=WHOLE_MAX).contains(&number) {
                    true => format!("{number:.0}").parse().map(Whole).map_err(|_| wrong()),
                    false => Err(wrong()),
                }
            }
        }
        deserializer.deserialize_u64(OfWhole)
    }
}

/// Names and values, both text.
#[derive(Debug)]
pub(super) struct Pairs(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfPairs;
        impl<'de> Visitor<'de> for OfPairs {
            type Value = Pairs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(OfPairs)
    }
}

/// Where a field is: its name, below the event it belongs to if it is of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(pub(super) Option<usize>);

impl Place {
    pub(super) fn refuses(self, field: &str, what: &str) -> Problem {
        match self.0 {
            Some(number) => refused(&format!("events[{number}].{field}"), what),
            None => refused(field, what),
        }
    }

    /// A limit of the ledger's: its words begin with the field.
    pub(super) fn limit(self, field: &str, error: &LimitError) -> Problem {
        let words = error.to_string();
        let what = words.strip_prefix(field).map_or(words.as_str(), str::trim_start);
        self.refuses(field, what)
    }

    pub(super) fn metadata(self, pairs: Option<Pairs>) -> Result<Metadata, Problem> {
        match pairs {
            None => Ok(Metadata::default()),
            Some(pairs) => Metadata::new(pairs.0).map_err(|error| self.limit("metadata", &error)),
        }
    }

    /// Callers name their calls by any text; sixteen bytes of its digest stand for it.
    pub(super) fn nonce(self, text: &str) -> Result<Nonce, Problem> {
        self.within("nonce", text, NONCE_BYTES)?;
        let digest = Fingerprint::of(["nonce", text]);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest.as_bytes()[..16]);
        Ok(Nonce::from_bytes(bytes))
    }

    pub(super) fn fingerprint(self, text: Option<Text<'_>>) -> Result<Fingerprint, Problem> {
        let Some(Text(text)) = text else { return Ok(Fingerprint::NONE) };
        self.within("fingerprint", &text, FINGERPRINT_BYTES)?;
        Ok(Fingerprint::of(["api", &*text]))
    }

    pub(super) fn within(self, field: &str, text: &str, most: usize) -> Result<(), Problem> {
        match text.len() {
            0 => Err(self.refuses(field, "is empty")),
            size if size > most => {
                Err(self.refuses(field, &format!("is {size} bytes; at most {most} are allowed")))
            }
            _ => Ok(()),
        }
    }
}

/// A length of time in milliseconds.
pub(super) fn lease_ms(given: Option<Whole>, default: u64) -> Result<u64, Problem> {
    bounded("lease_ms", given, default, Limits::STANDARD.lease_ms)
}

/// A length of time that is given in seconds, in milliseconds.
pub(super) fn from_seconds(field: &str, given: Option<Whole>, default_ms: u64) -> Result<u64, Problem> {
    let most = Limits::STANDARD.retention_ms / 1000;
    Ok(bounded(field, given, default_ms.div_ceil(1000), most)? * 1000)
}

fn bounded(field: &str, given: Option<Whole>, default: u64, most: u64) -> Result<u64, Problem> {
    match given {
        None => Ok(default),
        Some(Whole(value)) if (1..=most).contains(&value) => Ok(value),
        Some(Whole(value)) => Err(refused(field, &format!("is {value}; it must be between 1 and {most}"))),
    }
}
