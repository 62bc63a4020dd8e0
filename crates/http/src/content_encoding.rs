//! Content encodings of stored responses: a response that was stored as gzip is decompressed for clients that do not accept
//! gzip.
//!
//! A retry may accept different encodings than the first request. So the service may compress a response that will be
//! stored only with gzip, which can be undone here, and only if the first client accepts it.

use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_ENCODING, ETAG, HeaderName, HeaderValue, VARY};

/// Digests of the compressed bytes.
static DIGESTS: [HeaderName; 4] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("repr-digest"),
];

/// Whether a client accepts gzip. It does not if it does not say so.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
    let mut accepts_any = false;
    for encoding in lines.flat_map(|line| line.split(',')) {
        let mut parts = encoding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let is_accepted =
            weight.is_none_or(|weight| weight.trim().parse().is_ok_and(|weight: f32| weight > 0.0));
        if is_gzip(name) {
            return is_accepted;
        }
        accepts_any |= name == "*" && is_accepted;
    }
    accepts_any
}

/// Limits the encodings that the service may use for a response that will be stored.
pub(crate) fn restrict(headers: &mut HeaderMap) {
    if headers.contains_key(ACCEPT_ENCODING) {
        let encoding = if accepts_gzip(headers) { "gzip" } else { "identity" };
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(encoding));
    }
}

/// Whether gzip is the only encoding of a body.
pub(crate) fn is_gzipped(headers: &HeaderMap) -> bool {
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    encodings
        .next()
        .and_then(|encoding| encoding.to_str().ok())
        .is_some_and(|encoding| is_gzip(encoding.trim()))
        && encodings.next().is_none()
}

/// Adapts the headers and trailers of a gzipped response to the decompressed body.
pub(crate) fn remove_gzip(headers: &mut HeaderMap, trailers: &mut HeaderMap) {
    headers.remove(CONTENT_ENCODING);
    // Byte ranges refer to the compressed bytes.
    headers.remove(ACCEPT_RANGES);
    for digest in &DIGESTS {
        headers.remove(digest);
        trailers.remove(digest);
    }
    headers.append(VARY, HeaderValue::from_static("accept-encoding"));
    // Different bytes with the same meaning need a weak tag.
    let weak = headers.get(ETAG).and_then(|tag| tag.to_str().ok()).filter(|tag| tag.starts_with('"'));
    if let Some(Ok(weak)) = weak.map(|tag| HeaderValue::try_from(format!("W/{tag}"))) {
        headers.insert(ETAG, weak);
    }
}

fn is_gzip(encoding: &str) -> bool {
    encoding.eq_ignore_ascii_case("gzip") || encoding.eq_ignore_ascii_case("x-gzip")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepting(lines: &[&str]) -> HeaderMap {
        lines.iter().map(|line| (ACCEPT_ENCODING, line.parse().unwrap())).collect()
    }

    #[test]
    fn a_client_accepts_gzip_only_if_it_says_so() {
        for lines in [
            &["gzip"][..],
            &["br, GZIP;q=0.5"],
            &["deflate", "x-gzip"],
            &["*"],
            &["*;q=0.1, br"],
            &["gzip ; q=1.000"],
        ] {
            assert!(accepts_gzip(&accepting(lines)), "{lines:?}");
        }
        for lines in [
            &[][..],
            &[""],
            &["identity"],
            &["br, deflate"],
            &["gzip;q=0"],
            &["gzip; q=0.000, *"],
            &["*;q=0"],
            &["gzip;q=x"],
        ] {
            assert!(!accepts_gzip(&accepting(lines)), "{lines:?}");
        }
    }

    #[test]
    fn the_service_may_use_only_encodings_that_can_be_undone() {
        for (lines, left) in [
            (&["gzip, deflate, br"][..], Some("gzip")),
            (&["br", "zstd"], Some("identity")),
            (&["gzip;q=0, br"], Some("identity")),
            (&[], None),
        ] {
            let mut headers = accepting(lines);
            restrict(&mut headers);
            assert_eq!(headers.get(ACCEPT_ENCODING).map(|value| value.to_str().unwrap()), left, "{lines:?}");
        }
    }

    #[test]
    fn a_decompressed_response_has_no_headers_about_its_compressed_bytes() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("content-encoding", "gzip"),
            ("etag", "\"v1\""),
            ("content-md5", "x"),
            ("repr-digest", "sha-256=:x:"),
            ("accept-ranges", "bytes"),
            ("location", "/orders/1"),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        assert!(is_gzipped(&headers));
        let mut trailers = HeaderMap::from_iter([(DIGESTS[0].clone(), HeaderValue::from_static("x"))]);
        remove_gzip(&mut headers, &mut trailers);
        let mut left: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        left.sort_unstable();
        assert_eq!(left, [("etag", "W/\"v1\""), ("location", "/orders/1"), ("vary", "accept-encoding")]);
        assert!(trailers.is_empty());
    }
}
