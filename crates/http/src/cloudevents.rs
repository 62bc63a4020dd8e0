//! The key of a CloudEvent: its source and id, in both content modes of the HTTP binding.
//!
//! In binary mode they are the headers `ce-source` and `ce-id`, in structured mode members of the JSON body. An event has
//! the same key in both modes. The length of the source precedes it, so that two different events never get the same key.

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
static POINTERS: LazyLock<[Pointer; 2]> = LazyLock::new(|| ["/source", "/id"].map(Pointer::known));

/// The key in the headers of a request in binary mode.
pub(crate) fn in_headers(headers: &HeaderMap) -> Result<Option<String>, KeyError> {
    if is_structured(headers) {
        return Ok(None);
    }
    match (attribute(headers, &SOURCE, "ce-source")?, attribute(headers, &ID, "ce-id")?) {
        (Some(source), Some(id)) => key(&source, &id).map(Some),
        _ => Ok(None),
    }
}

/// The values of the body that make up the key, which is there in structured mode only.
pub(crate) fn pointers(headers: &HeaderMap) -> Vec<&'static Pointer> {
    if is_structured(headers) { POINTERS.iter().collect() } else { Vec::new() }
}

/// The key in the body of a request in structured mode.
pub(crate) fn in_body(document: &Document<'_>) -> Result<Option<String>, KeyError> {
    match POINTERS.each_ref().map(|pointer| document.text(pointer)) {
        [Some(source), Some(id)] => key(source, id).map(Some),
        _ => Ok(None),
    }
}

fn is_structured(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case("application/cloudevents+json")
}

/// An attribute as the HTTP binding encodes it: first the quotes are removed, then percent-encoding is decoded once.
fn attribute(
    headers: &HeaderMap,
    name: &HeaderName,
    display_name: &'static str,
) -> Result<Option<String>, KeyError> {
    let mut lines = headers.get_all(name).iter();
    let Some(line) = lines.next() else { return Ok(None) };
    if lines.next().is_some() {
        return Err(KeyError::Several { name: display_name });
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

fn key(source: &str, id: &str) -> Result<String, KeyError> {
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
        in_body(&Document::read(body.as_bytes(), true, &pointers(&headers)))
    }

    #[test]
    fn an_event_has_the_same_key_in_both_modes() {
        let key = Some("7:/sensor A 234-1".to_owned());
        assert_eq!(binary(&[("ce-source", "/sensor"), ("ce-id", "A 234-1")]), Ok(key.clone()));
        assert_eq!(binary(&[("ce-source", "/sensor"), ("ce-id", "A%20234-1")]), Ok(key.clone()));
        assert_eq!(binary(&[("ce-source", "\"/sensor\""), ("ce-id", r#""A \234-1""#)]), Ok(key.clone()));
        let body = r#"{"specversion":"1.0","id":"A 234-1","source":"/sensor","data":{"id":"x"}}"#;
        for kind in ["application/cloudevents+json", "Application/CloudEvents+JSON; charset=utf-8"] {
            assert_eq!(structured(kind, body), Ok(key.clone()));
        }
        let euro = binary(&[("ce-source", "/s"), ("ce-id", "Euro%20%E2%82%AC%20%F0%9F%98%80")]);
        assert_eq!(euro, structured("application/cloudevents+json", r#"{"id":"Euro € 😀","source":"/s"}"#));
    }

    #[test]
    fn separators_do_not_make_two_events_collide() {
        let events = [
            ("/a", "b c"),
            ("/a b", "c"),
            ("/a%20b", "c"),
            ("2:/a b", "c"),
            ("/a b c", "d"),
            ("/a", "b c%20"),
        ];
        let keys: Vec<_> = events
            .iter()
            .map(|(source, id)| binary(&[("ce-source", &source.replace('%', "%25")), ("ce-id", id)]).unwrap())
            .collect();
        for (index, key) in keys.iter().enumerate() {
            assert!(key.is_some() && keys.iter().skip(index + 1).all(|other| other != key), "{key:?}");
        }
    }

    #[test]
    fn a_long_source_is_hashed() {
        let long =
            |end: &str| binary(&[("ce-source", &format!("/{}", "s".repeat(900))), ("ce-id", end)]).unwrap();
        assert_ne!(long("1"), long("2"));
        assert_eq!(long("1"), long("1"));
        assert!(long("1").unwrap().starts_with("cloudevent:"));
    }

    #[test]
    fn a_request_that_is_not_an_event_has_no_key() {
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
