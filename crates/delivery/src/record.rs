//! A record: one JSON object, kept byte for byte as it was read, and the key that identifies it.

use std::fmt;
use std::sync::{Arc, OnceLock};

use ichido_core::to_hex;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// A double represents any number of up to 15 digits exactly. Longer numbers may collide.
const SAFE_DIGITS: usize = 15;

/// One JSON object to deliver.
#[derive(Clone)]
pub struct Record {
    json: Arc<RawValue>,
    /// Computed on first use: a batch from the spool already has a key, so its records are never asked for theirs.
    key: OnceLock<Arc<str>>,
}

/// The value is valid JSON, but not an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record must be a JSON object")]
pub struct NotARecord;

impl Record {
    /// Wraps a JSON value, which must be an object.
    pub fn new(json: Box<RawValue>) -> Result<Self, NotARecord> {
        // The value is valid JSON without surrounding whitespace, so its first byte shows its type.
        match json.get().starts_with('{') {
            true => Ok(Self { json: Arc::from(json), key: OnceLock::new() }),
            false => Err(NotARecord),
        }
    }

    /// Parses a record.
    pub fn parse(text: &str) -> Result<Self, NotARecord> {
        Self::new(RawValue::from_string(text.trim().to_owned()).map_err(|_| NotARecord)?)
    }

    /// The text, exactly as it was read.
    pub fn json(&self) -> &str {
        self.json.get()
    }

    /// The record as a JSON value that serializes unchanged.
    pub fn raw(&self) -> &RawValue {
        &self.json
    }

    /// `metadata.source_event_id`, else `source_event_id`, else `idempotency_key`, else a hash of the content.
    pub fn key(&self) -> &str {
        self.key.get_or_init(|| {
            let named = named(self.json());
            Arc::from(named.unwrap_or_else(|| to_hex(&Sha256::digest(canonical(self.json())))))
        })
    }

    /// A string field at the top level.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        let [value] = fields(self.json(), [name])?;
        text(value)
    }

    /// A string field in `metadata`.
    pub(crate) fn metadata_text(&self, name: &str) -> Option<String> {
        let [metadata] = fields(self.json(), ["metadata"])?;
        let [value] = fields(metadata?.get(), [name])?;
        text(value)
    }
}

/// Prints only the length: a record may contain personal data.
impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Record({} bytes)", self.json().len())
    }
}

fn named(json: &str) -> Option<String> {
    let [metadata, source_event_id, idempotency_key] =
        fields(json, ["metadata", "source_event_id", "idempotency_key"])?;
    let inner = metadata.and_then(|metadata| fields(metadata.get(), ["source_event_id"]));
    inner
        .and_then(|[source_event_id]| text(source_event_id))
        .or_else(|| text(source_event_id))
        .or_else(|| text(idempotency_key))
}

fn text(value: Option<&RawValue>) -> Option<String> {
    let text: String = serde_json::from_str(value?.get()).ok()?;
    (!text.is_empty()).then_some(text)
}

/// The values of these fields of an object. If a field occurs twice, the last one counts.
fn fields<'a, const N: usize>(json: &'a str, names: [&str; N]) -> Option<[Option<&'a RawValue>; N]> {
    Names(names).deserialize(&mut serde_json::Deserializer::from_str(json)).ok()
}

struct Names<'n, const N: usize>([&'n str; N]);

impl<'de, const N: usize> DeserializeSeed<'de> for Names<'_, N> {
    type Value = [Option<&'de RawValue>; N];

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, const N: usize> Visitor<'de> for Names<'_, N> {
    type Value = [Option<&'de RawValue>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = [None; N];
        while let Some(index) = map.next_key_seed(Which(&self.0))? {
            match index {
                Some(index) => found[index] = Some(map.next_value()?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}

/// Maps a field name to its index among the wanted names.
struct Which<'n>(&'n [&'n str]);

impl<'de> DeserializeSeed<'de> for Which<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Which<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|wanted| *wanted == name))
    }
}

/// The canonical form (RFC 8785), or the text itself if that form would lose digits of a number.
fn canonical(json: &str) -> Vec<u8> {
    if has_long_number(json) {
        return json.as_bytes().to_vec();
    }
    let value: Option<serde_json::Value> = serde_json::from_str(json).ok();
    value
        .and_then(|value| serde_json_canonicalizer::to_vec(&value).ok())
        .unwrap_or_else(|| json.as_bytes().to_vec())
}

fn has_long_number(json: &str) -> bool {
    let (mut in_text, mut escaped, mut digits) = (false, false, 0);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'0'..=b'9' => digits += 1,
            b'.' | b'-' | b'+' => {}
            b'e' | b'E' if digits > 0 => {}
            _ => digits = 0,
        }
        if digits > SAFE_DIGITS {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> String {
        Record::parse(text).unwrap().key().to_owned()
    }

    #[test]
    fn first_field_present_is_the_key() {
        assert_eq!(
            key(r#"{"metadata":{"source_event_id":"m"},"source_event_id":"s","idempotency_key":"i"}"#),
            "m"
        );
        assert_eq!(key(r#"{"metadata":{},"source_event_id":"s","idempotency_key":"i"}"#), "s");
        assert_eq!(key(r#"{"metadata":7,"source_event_id":"","idempotency_key":"i"}"#), "i");
        assert_eq!(key(r#"{"b":1,"a":2}"#), key(r#"{ "a": 2, "b": 1.0 }"#));
        assert_eq!(key("{}"), to_hex(&Sha256::digest("{}")));
    }

    #[test]
    fn long_numbers_that_differ_in_the_last_digit_have_different_keys() {
        assert_ne!(key(r#"{"n":9007199254740993}"#), key(r#"{"n":9007199254740992}"#));
        assert_eq!(key(r#"{"n":"9007199254740993","m":1}"#), key(r#"{"m":1,"n":"9007199254740993"}"#));
    }

    #[test]
    fn last_of_two_equal_fields_counts_even_if_escaped() {
        assert_eq!(key(r#"{"source_event_id":"a","source_event_id":"b"}"#), "b");
        assert_eq!(key(r#"{"source\u005fevent_id":"\u0061"}"#), "a");
        // A lone surrogate is not a valid field name, but the record is still accepted.
        let odd = r#"{"\ud800":1}"#;
        assert_eq!(key(odd), to_hex(&Sha256::digest(odd)));
    }

    #[test]
    fn record_is_an_object_and_keeps_its_bytes() {
        let text = r#"{"n": 1.50, "\u0061":"\/é" , "n": 2}"#;
        assert_eq!(Record::parse(text).unwrap().json(), text);
        for other in ["[]", "1", "\"x\"", "null", "", "{", "{}{}"] {
            assert!(Record::parse(other).is_err(), "{other}");
        }
    }
}
