//! The id that a caller or a proxy gave a request.

use http::{HeaderMap, HeaderName, HeaderValue};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// A longer value is not an id.
const BYTES_MAX: usize = 128;

/// `X-Request-Id`, if it looks like an id.
pub(crate) fn of(headers: &HeaderMap) -> Option<HeaderValue> {
    let id = headers.get(REQUEST_ID)?;
    let is_id = (1..=BYTES_MAX).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic);
    is_id.then(|| id.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_short_visible_text_is_an_id() {
        let of = |text: &str| {
            of(&HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_bytes(text.as_bytes()).unwrap())]))
        };
        assert_eq!(of("7f3c-1").unwrap(), "7f3c-1");
        for text in ["", "a b", "é", &"x".repeat(BYTES_MAX + 1)] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
