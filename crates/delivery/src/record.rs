//! A record: one JSON object, kept byte for byte as it was read, and the key it is known by.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// Digits that a double holds whatever they are. A number with more may share its double with another number.
const SAFE_DIGITS: usize = 15;

/// One JSON object on its way.
#[derive(Clone, Debug)]
pub struct Record {
    json: Arc<RawValue>,
    key: Arc<str>,
}

/// What is no record: valid JSON, but no object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record must be a JSON object")]
pub struct NotARecord;

impl Record {
    /// Takes a JSON value as a record.
    pub fn new(json: Box<RawValue>) -> Result<Self, NotARecord> {
        let fields = fields(json.get()).ok_or(NotARecord)?;
        let key = named(&fields).unwrap_or_else(|| hex::encode(Sha256::digest(canonical(json.get()))));
        drop(fields);
        Ok(Self { json: Arc::from(json), key: Arc::from(key) })
    }

    /// Reads a record from text.
    pub fn parse(text: &str) -> Result<Self, NotARecord> {
        Self::new(RawValue::from_string(text.trim().to_owned()).map_err(|_| NotARecord)?)
    }

    /// The text, exactly as it was read.
    pub fn json(&self) -> &str {
        self.json.get()
    }

    /// The text as a JSON value that is written unchanged.
    pub fn raw(&self) -> &RawValue {
        &self.json
    }

    /// `metadata.source_event_id`, else `source_event_id`, else `idempotency_key`, else a hash of the content.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// A field of text at the top level.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        text(&fields(self.json())?, name)
    }

    /// A field of text in `metadata`.
    pub(crate) fn metadata_text(&self, name: &str) -> Option<String> {
        text(&self::fields(fields(self.json())?.get("metadata")?.get())?, name)
    }
}

type Fields<'a> = HashMap<Cow<'a, str>, &'a RawValue>;

fn fields(json: &str) -> Option<Fields<'_>> {
    serde_json::from_str(json).ok()
}

fn named(fields: &Fields<'_>) -> Option<String> {
    let metadata = fields.get("metadata").and_then(|metadata| self::fields(metadata.get()));
    metadata
        .and_then(|metadata| text(&metadata, "source_event_id"))
        .or_else(|| text(fields, "source_event_id"))
        .or_else(|| text(fields, "idempotency_key"))
}

fn text(fields: &Fields<'_>, name: &str) -> Option<String> {
    let text: String = serde_json::from_str(fields.get(name)?.get()).ok()?;
    (!text.is_empty()).then_some(text)
}

/// The canonical form (RFC 8785), or the text itself where that form would lose digits of a number.
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
    fn the_key_is_the_first_name_that_is_there() {
        assert_eq!(
            key(r#"{"metadata":{"source_event_id":"m"},"source_event_id":"s","idempotency_key":"i"}"#),
            "m"
        );
        assert_eq!(key(r#"{"metadata":{},"source_event_id":"s","idempotency_key":"i"}"#), "s");
        assert_eq!(key(r#"{"metadata":7,"source_event_id":"","idempotency_key":"i"}"#), "i");
        assert_eq!(key(r#"{"b":1,"a":2}"#), key(r#"{ "a": 2, "b": 1.0 }"#));
        assert_eq!(key("{}"), hex::encode(Sha256::digest("{}")));
    }

    #[test]
    fn numbers_that_differ_in_a_late_digit_have_keys_of_their_own() {
        assert_ne!(key(r#"{"n":9007199254740993}"#), key(r#"{"n":9007199254740992}"#));
        assert_eq!(key(r#"{"n":"9007199254740993","m":1}"#), key(r#"{"m":1,"n":"9007199254740993"}"#));
    }

    #[test]
    fn a_record_is_an_object_and_keeps_its_bytes() {
        let text = r#"{"n": 1.50, "\u0061":"\/é" , "n": 2}"#;
        assert_eq!(Record::parse(text).unwrap().json(), text);
        for other in ["[]", "1", "\"x\"", "null", "", "{", "{}{}"] {
            assert!(Record::parse(other).is_err(), "{other}");
        }
    }
}
