//! Where a request's key comes from: a field, a place in its JSON body, several places, or the body itself.

use std::fmt;
use std::str::FromStr;

use http::{HeaderMap, HeaderName};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::cloudevents;
use crate::json::Document;
use crate::key::{self, KeyError};
use crate::parse_error::SourceError;
use crate::pointer::Pointer;

/// The field of the draft.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A place where a key may stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A header field. `Idempotency-Key` is read as a structured field, any other as plain text.
    Header(HeaderName),
    /// A text or number in a JSON body.
    Json(Pointer),
    /// Text with places in a JSON body between; absent unless all of them are there.
    Template(Template),
    /// The content of these places in a JSON body, hashed.
    Fields(Vec<Pointer>),
    /// The whole body, hashed.
    Body,
    /// Source and id of a CloudEvent, in its fields or its body.
    CloudEvent,
}

/// Literal text and pointers in turn, as in `{/event/files/0/id}_{/event/ts}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Place(Pointer),
}

impl FromStr for Template {
    type Err = SourceError;
    fn from_str(text: &str) -> Result<Self, SourceError> {
        let bad = || SourceError::new(format!("{text:?} is not a template such as {{/a}}_{{/b}}"));
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (place, after) = after.split_once('}').ok_or_else(bad)?;
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            pieces.push(Piece::Place(place.parse()?));
            rest = after;
        }
        if rest.contains('}') || !pieces.iter().any(|piece| matches!(piece, Piece::Place(_))) {
            return Err(bad());
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Ok(Self(pieces))
    }
}

impl FromStr for KeySource {
    type Err = SourceError;
    fn from_str(text: &str) -> Result<Self, SourceError> {
        match text.split_once(':') {
            Some(("header", name)) => {
                let name = name.trim().parse();
                name.map(Self::Header)
                    .map_err(|_| SourceError::new(format!("{text:?} does not name a header field")))
            }
            Some(("json", pointer)) => Ok(Self::Json(pointer.parse()?)),
            Some(("template", template)) => Ok(Self::Template(template.parse()?)),
            Some(("fields", pointers)) => Ok(Self::Fields(
                pointers.split(',').map(|pointer| pointer.trim().parse()).collect::<Result<_, _>>()?,
            )),
            None if text == "body" => Ok(Self::Body),
            None if text == "cloudevents" => Ok(Self::CloudEvent),
            _ => Err(SourceError::new(format!(
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
            Self::Template(Template(pieces)) => {
                f.write_str("template:")?;
                pieces.iter().try_for_each(|piece| match piece {
                    Piece::Text(text) => f.write_str(text),
                    Piece::Place(pointer) => write!(f, "{{{pointer}}}"),
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
    /// Whether the key may stand in the body.
    pub(crate) fn is_in_body(&self) -> bool {
        !matches!(self, Self::Header(_))
    }

    /// Whether the key is what stands at some places, so that the rest of the body is no part of it.
    pub(crate) fn is_content(&self) -> bool {
        matches!(self, Self::Fields(_))
    }

    /// The key in a field.
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

    /// The places of a JSON body that this key is made of.
    pub(crate) fn places(&self, headers: &HeaderMap) -> Vec<&Pointer> {
        match self {
            Self::Header(_) | Self::Body => Vec::new(),
            Self::Json(pointer) => vec![pointer],
            Self::Template(Template(pieces)) => {
                let places = pieces.iter().filter_map(|piece| match piece {
                    Piece::Place(pointer) => Some(pointer),
                    Piece::Text(_) => None,
                });
                places.collect()
            }
            Self::Fields(pointers) => pointers.iter().collect(),
            Self::CloudEvent => cloudevents::places(headers),
        }
    }

    /// The key in a body. A body that is no JSON is an empty document.
    pub(crate) fn in_body(
        &self,
        document: &Document<'_>,
        digest: [u8; 32],
    ) -> Result<Option<String>, KeyError> {
        match self {
            Self::Header(_) => Ok(None),
            Self::Json(pointer) => document.text(pointer).map(|text| key::plain(text.as_bytes())).transpose(),
            Self::Template(Template(pieces)) => {
                let texts = pieces.iter().map(|piece| match piece {
                    Piece::Text(text) => Some(text.as_str()),
                    Piece::Place(pointer) => document.text(pointer),
                });
                texts.collect::<Option<String>>().map(|text| key::plain(text.as_bytes())).transpose()
            }
            Self::Fields(pointers) => {
                let found: Vec<_> = pointers.iter().map(|pointer| document.at(pointer)).collect();
                if found.iter().all(Option::is_none) {
                    return Ok(None);
                }
                // A place that is absent and one that is null are told apart: each is wrapped.
                let wrapped: Vec<Vec<&Value>> =
                    found.into_iter().map(|value| value.into_iter().collect()).collect();
                let canonical =
                    serde_json_canonicalizer::to_vec(&wrapped).map_err(|_| KeyError::Malformed)?;
                Ok(Some(format!("fields:{}", hex::encode(Sha256::digest(canonical)))))
            }
            Self::Body => Ok(Some(format!("body:{}", hex::encode(digest)))),
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
        let document = Document::read(body.as_bytes(), true, &source.places(&HeaderMap::new()));
        source.in_body(&document, [7; 32])
    }

    fn found(text: &str, json: &Value) -> Option<String> {
        key(text, &json.to_string()).unwrap()
    }

    #[test]
    fn a_source_is_written_as_it_is_read() {
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
    fn places_in_a_body() {
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
    fn fields_are_the_same_whatever_their_order_and_another_when_one_changes() {
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
