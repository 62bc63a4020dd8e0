//! The name of a CloudEvent: its source and its id together, in both ways in which HTTP carries one.
//!
//! In binary mode they are the fields `ce-source` and `ce-id`, in structured mode members of the JSON body. The same
//! event has the same name in both. The source is written with its length before it, so that no choice of characters
//! makes two events meet.

use std::sync::LazyLock;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};

use crate::json::Document;
use crate::key::{KeyError, MAX_CHARS};
use crate::pointer::Pointer;

const ID: HeaderName = HeaderName::from_static("ce-id");
const SOURCE: HeaderName = HeaderName::from_static("ce-source");
/// Source and id in a JSON body.
static PLACES: LazyLock<[Pointer; 2]> = LazyLock::new(|| ["/source", "/id"].map(Pointer::known));

/// The name in the fields of a request in binary mode.
pub(crate) fn in_headers(headers: &HeaderMap) -> Result<Option<String>, KeyError> {
    if is_structured(headers) {
        return Ok(None);
    }
    match (attribute(headers, &SOURCE, "ce-source")?, attribute(headers, &ID, "ce-id")?) {
        (Some(source), Some(id)) => name(&source, &id).map(Some),
        _ => Ok(None),
    }
}

/// Where the name stands in the body of a request, which it does in structured mode only.
pub(crate) fn places(headers: &HeaderMap) -> Vec<&'static Pointer> {
    if is_structured(headers) { PLACES.iter().collect() } else { Vec::new() }
}

/// The name in the body of a request in structured mode.
pub(crate) fn in_body(document: &Document<'_>) -> Result<Option<String>, KeyError> {
    match PLACES.each_ref().map(|place| document.text(place)) {
        [Some(source), Some(id)] => name(source, id).map(Some),
        _ => Ok(None),
    }
}

fn is_structured(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/cloudevents+json")
}

/// An attribute as the binding for HTTP writes it: quotes are undone, then one round of percent signs.
fn attribute(
    headers: &HeaderMap,
    name: &HeaderName,
    shown: &'static str,
) -> Result<Option<String>, KeyError> {
    let mut lines = headers.get_all(name).iter();
    let Some(line) = lines.next() else { return Ok(None) };
    if lines.next().is_some() {
        return Err(KeyError::Several { name: shown });
    }
    let line = std::str::from_utf8(line.as_bytes()).map_err(|_| KeyError::Malformed)?;
    let plain = unquoted(line.trim());
    percent_decode_str(&plain)
        .decode_utf8()
        .map(|text| Some(text.into_owned()))
        .map_err(|_| KeyError::Malformed)
}

fn unquoted(text: &str) -> String {
    let Some(inside) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else {
        return text.to_owned();
    };
    let mut plain = String::with_capacity(inside.len());
    let mut characters = inside.chars();
    while let Some(character) = characters.next() {
        plain.push(if character == '\\' { characters.next().unwrap_or('\\') } else { character });
    }
    plain
}

fn name(source: &str, id: &str) -> Result<String, KeyError> {
    if source.is_empty() || id.is_empty() {
        return Err(KeyError::Empty);
    }
    let text = format!("{}:{source} {id}", source.len());
    if text.chars().any(char::is_control) {
        return Err(KeyError::Malformed);
    }
    match text.chars().count() {
        count if count <= MAX_CHARS => Ok(text),
        _ => Ok(format!("cloudevent:{}", hex::encode(Sha256::digest(text)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary(pairs: &[(&str, &str)]) -> Result<Option<String>, KeyError> {
        let pairs = pairs.iter().map(|(name, value)| {
            (name.parse::<HeaderName>().unwrap(), http::HeaderValue::from_bytes(value.as_bytes()).unwrap())
        });
        let mut headers = HeaderMap::new();
        pairs.for_each(|(name, value)| {
            headers.append(name, value);
        });
        in_headers(&headers)
    }

    fn structured(kind: &str, body: &str) -> Result<Option<String>, KeyError> {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, kind.parse().unwrap())]);
        in_body(&Document::read(body.as_bytes(), true, &places(&headers)))
    }

    #[test]
    fn an_event_has_one_name_in_both_modes() {
        let name = Some("7:/sensor A 234-1".to_owned());
        assert_eq!(binary(&[("ce-source", "/sensor"), ("ce-id", "A 234-1")]), Ok(name.clone()));
        assert_eq!(binary(&[("ce-source", "/sensor"), ("ce-id", "A%20234-1")]), Ok(name.clone()));
        assert_eq!(binary(&[("ce-source", "\"/sensor\""), ("ce-id", r#""A \234-1""#)]), Ok(name.clone()));
        let body = r#"{"specversion":"1.0","id":"A 234-1","source":"/sensor","data":{"id":"x"}}"#;
        for kind in ["application/cloudevents+json", "Application/CloudEvents+JSON; charset=utf-8"] {
            assert_eq!(structured(kind, body), Ok(name.clone()));
        }
        let euro = binary(&[("ce-source", "/s"), ("ce-id", "Euro%20%E2%82%AC%20%F0%9F%98%80")]);
        assert_eq!(euro, structured("application/cloudevents+json", r#"{"id":"Euro € 😀","source":"/s"}"#));
    }

    #[test]
    fn no_separator_makes_two_events_meet() {
        let names = [
            ("/a", "b c"),
            ("/a b", "c"),
            ("/a%20b", "c"),
            ("2:/a b", "c"),
            ("/a b c", "d"),
            ("/a", "b c%20"),
        ];
        let names: Vec<_> = names
            .iter()
            .map(|(source, id)| binary(&[("ce-source", &source.replace('%', "%25")), ("ce-id", id)]).unwrap())
            .collect();
        for (at, one) in names.iter().enumerate() {
            assert!(one.is_some() && names.iter().skip(at + 1).all(|other| other != one), "{one:?}");
        }
    }

    #[test]
    fn a_long_source_is_kept_by_its_hash() {
        let long =
            |end: &str| binary(&[("ce-source", &format!("/{}", "s".repeat(900))), ("ce-id", end)]).unwrap();
        assert_ne!(long("1"), long("2"));
        assert_eq!(long("1"), long("1"));
        assert!(long("1").unwrap().starts_with("cloudevent:"));
    }

    #[test]
    fn what_is_no_event_has_no_name() {
        assert_eq!(binary(&[("ce-id", "1")]), Ok(None));
        assert_eq!(binary(&[("ce-source", "/s")]), Ok(None));
        assert_eq!(binary(&[("ce-source", "/s"), ("ce-id", "")]), Err(KeyError::Empty));
        assert_eq!(binary(&[("ce-source", "/s"), ("ce-id", "a%00b")]), Err(KeyError::Malformed));
        assert_eq!(binary(&[("ce-source", "/s"), ("ce-id", "%ff")]), Err(KeyError::Malformed));
        let twice = binary(&[("ce-source", "/s"), ("ce-id", "1"), ("ce-id", "2")]);
        assert_eq!(twice, Err(KeyError::Several { name: "ce-id" }));
        let body = r#"{"id":"1","source":"/s"}"#;
        assert_eq!(structured("application/json", body), Ok(None));
        assert_eq!(structured("application/cloudevents-batch+json", &format!("[{body}]")), Ok(None));
        assert_eq!(structured("application/cloudevents+json", "{\"id\":\"1\"}"), Ok(None));
    }
}
