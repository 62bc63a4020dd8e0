//! Sources of keys: a header, values in the JSON body, or the whole body.

use std::fmt;
use std::str::FromStr;

use http::{HeaderMap, HeaderName};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::cloudevents;
use crate::json::Document;
use crate::key::{self, KeyError};
use crate::parse_error::ParseError;
use crate::pointer::Pointer;

/// The header of the IETF draft.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Where the key of a request comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A header. `Idempotency-Key` is parsed as a structured field, any other header as plain text.
    Header(HeaderName),
    /// A string or number in the JSON body.
    Json(Pointer),
    /// Text with values of the JSON body in between. There is no key unless all values exist.
    Template(Template),
    /// A hash of these values of the JSON body.
    Fields(Vec<Pointer>),
    /// A hash of the whole body.
    Body,
    /// The source and id of a CloudEvent, from its headers or body.
    CloudEvent,
}

/// Literal text and pointers, as in `{/event/files/0/id}_{/event/ts}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Value(Pointer),
}

impl FromStr for Template {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let invalid = || ParseError::new(format!("{text:?} is not a template such as {{/a}}_{{/b}}"));
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (pointer, after) = after.split_once('}').ok_or_else(invalid)?;
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            parts.push(Part::Value(pointer.parse()?));
            rest = after;
        }
        if rest.contains('}') || !parts.iter().any(|part| matches!(part, Part::Value(_))) {
            return Err(invalid());
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }
}

impl FromStr for KeySource {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text.split_once(':') {
            Some(("header", name)) => {
                let name = name.trim().parse();
                name.map(Self::Header)
                    .map_err(|_| ParseError::new(format!("{text:?} does not name a header")))
            }
            Some(("json", pointer)) => Ok(Self::Json(pointer.parse()?)),
            Some(("template", template)) => Ok(Self::Template(template.parse()?)),
            Some(("fields", pointers)) => Ok(Self::Fields(
                pointers.split(',').map(|pointer| pointer.trim().parse()).collect::<Result<_, _>>()?,
            )),
            None if text == "body" => Ok(Self::Body),
            None if text == "cloudevents" => Ok(Self::CloudEvent),
            _ => Err(ParseError::new(format!(
                "{text:?} is not header:NAME, json:/pointer, template:{{/pointer}}, fields:/a,/b, body or cloudevents"
            ))),
        }
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Json(pointer) => write!(f, "json:{pointer}"),
            Self::Template(Template(parts)) => {
                f.write_str("template:")?;
                parts.iter().try_for_each(|part| match part {
                    Part::Text(text) => f.write_str(text),
                    Part::Value(pointer) => write!(f, "{{{pointer}}}"),
                })
            }
            Self::Fields(pointers) => {
                let pointers: Vec<_> = pointers.iter().map(ToString::to_string).collect();
                write!(f, "fields:{}", pointers.join(","))
            }
            Self::Body => f.write_str("body"),
            Self::CloudEvent => f.write_str("cloudevents"),
        }
    }
}

impl KeySource {
    /// Whether the key may be in the body.
    pub(crate) fn may_be_in_body(&self) -> bool {
        !matches!(self, Self::Header(_))
    }

    /// Whether the key is a hash of fields, so that the rest of the body may differ between retries.
    pub(crate) fn hashes_fields(&self) -> bool {
        matches!(self, Self::Fields(_))
    }

    /// The key in the headers.
    pub(crate) fn in_headers(&self, headers: &HeaderMap, strict: bool) -> Result<Option<String>, KeyError> {
        let name = match self {
            Self::Header(name) => name,
            Self::CloudEvent => return cloudevents::in_headers(headers),
            Self::Json(_) | Self::Template(_) | Self::Fields(_) | Self::Body => return Ok(None),
        };
        let mut lines = headers.get_all(name).iter();
        let Some(line) = lines.next() else { return Ok(None) };
        let is_draft = *name == IDEMPOTENCY_KEY;
        if lines.next().is_some() {
            return Err(KeyError::Several { name: if is_draft { "Idempotency-Key" } else { "key" } });
        }
        if is_draft { key::parse(line.as_bytes(), strict) } else { key::plain(line.as_bytes()) }.map(Some)
    }

    /// The values of the JSON body that make up this key.
    pub(crate) fn pointers(&self, headers: &HeaderMap) -> Vec<&Pointer> {
        match self {
            Self::Header(_) | Self::Body => Vec::new(),
            Self::Json(pointer) => vec![pointer],
            Self::Template(Template(parts)) => {
                let values = parts.iter().filter_map(|part| match part {
                    Part::Value(pointer) => Some(pointer),
                    Part::Text(_) => None,
                });
                values.collect()
            }
            Self::Fields(pointers) => pointers.iter().collect(),
            Self::CloudEvent => cloudevents::pointers(headers),
        }
    }

    /// The key in the body. A body that is not JSON counts as an empty document.
    pub(crate) fn in_body(
        &self,
        document: &Document<'_>,
        body_digest: [u8; 32],
    ) -> Result<Option<String>, KeyError> {
        match self {
            Self::Header(_) => Ok(None),
            Self::Json(pointer) => document.text(pointer).map(|text| key::plain(text.as_bytes())).transpose(),
            Self::Template(Template(parts)) => {
                let texts = parts.iter().map(|part| match part {
                    Part::Text(text) => Some(text.as_str()),
                    Part::Value(pointer) => document.text(pointer),
                });
                texts.collect::<Option<String>>().map(|text| key::plain(text.as_bytes())).transpose()
            }
            Self::Fields(pointers) => {
                let found: Vec<_> = pointers.iter().map(|pointer| document.get(pointer)).collect();
                if found.iter().all(Option::is_none) {
                    return Ok(None);
                }
                // Each value is wrapped in a list, so that an absent value differs from null.
                let wrapped: Vec<Vec<&Value>> =
                    found.into_iter().map(|value| value.into_iter().collect()).collect();
                let canonical =
                    serde_json_canonicalizer::to_vec(&wrapped).map_err(|_| KeyError::Malformed)?;
                Ok(Some(format!("fields:{}", hex::encode(Sha256::digest(canonical)))))
            }
            Self::Body => Ok(Some(format!("body:{}", hex::encode(body_digest)))),
            Self::CloudEvent => cloudevents::in_body(document),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn source(text: &str) -> KeySource {
        text.parse().unwrap()
    }

    fn key(text: &str, body: &str) -> Result<Option<String>, KeyError> {
        let source = source(text);
        let document = Document::read(body.as_bytes(), true, &source.pointers(&HeaderMap::new()));
        source.in_body(&document, [7; 32])
    }

    fn found(text: &str, json: &Value) -> Option<String> {
        key(text, &json.to_string()).unwrap()
    }

    #[test]
    fn a_source_round_trips_through_text() {
        for text in [
            "header:idempotency-key",
            "json:/event_id",
            "template:a{/x/0}_{/y}z",
            "fields:/a,/b~1c",
            "body",
            "cloudevents",
        ] {
            assert_eq!(source(text).to_string(), text);
        }
        for text in [
            "",
            "header:",
            "header:a b",
            "json:event",
            "json:/a~2",
            "template:plain",
            "template:{/a",
            "template:/a}",
            "fields:",
            "cookie:x",
        ] {
            assert!(text.parse::<KeySource>().is_err(), "{text}");
        }
    }

    #[test]
    fn values_in_a_body_make_keys() {
        let slack = json!({"event_id": "Ev1", "n": 17, "event": {"ts": "1.2", "files": [{"id": "F9"}]}});
        assert_eq!(found("json:/event_id", &slack).unwrap(), "Ev1");
        assert_eq!(found("json:/n", &slack).unwrap(), "17");
        assert_eq!(found("json:/event", &slack), None);
        assert_eq!(found("template:{/event/files/0/id}_{/event/ts}", &slack).unwrap(), "F9_1.2");
        assert_eq!(found("template:{/event/files/1/id}_{/event/ts}", &slack), None);
        assert_eq!(key("json:/event_id", "no json"), Ok(None));
        assert_eq!(key("json:/e", "{\"e\":\"\"}"), Err(KeyError::Empty));
    }

    #[test]
    fn the_hash_of_fields_ignores_order_and_changes_with_each_value() {
        let one = found("fields:/a,/b", &json!({"a": 1, "b": {"x": 1, "y": 2}, "id": 1})).unwrap();
        assert_eq!(one, found("fields:/a,/b", &json!({"id": 2, "b": {"y": 2, "x": 1}, "a": 1})).unwrap());
        assert_ne!(one, found("fields:/a,/b", &json!({"a": 1, "b": {"x": 1, "y": 3}})).unwrap());
        assert_ne!(
            found("fields:/a,/b", &json!({"a": 1})),
            found("fields:/a,/b", &json!({"a": 1, "b": null}))
        );
        assert_eq!(found("fields:/a,/b", &json!({"c": 1})), None);
    }
}
