//! Content codings of stored answers: a client that does not take gzip gets an answer that was stored as gzip decoded.
//!
//! The client of a replay need not be the client of the first request. So the service may code an answer that will be
//! stored only with gzip, which can be undone here, and only if the first client takes it.

use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_ENCODING, ETAG, HeaderName, HeaderValue, VARY};

/// Digests of the coded bytes.
static DIGESTS: [HeaderName; 4] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("repr-digest"),
];

/// Whether a client takes gzip. One that does not mention it is taken at its word.
pub(crate) fn takes_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
    let mut others = false;
    for coding in lines.flat_map(|line| line.split(',')) {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let is_taken =
            weight.is_none_or(|weight| weight.trim().parse().is_ok_and(|weight: f32| weight > 0.0));
        if is_gzip(name) {
            return is_taken;
        }
        others |= name == "*" && is_taken;
    }
    others
}

/// Limits what the service may use for an answer that will be stored.
pub(crate) fn restrict(headers: &mut HeaderMap) {
    if headers.contains_key(ACCEPT_ENCODING) {
        let coding = if takes_gzip(headers) { "gzip" } else { "identity" };
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(coding));
    }
}

/// Whether a body is coded with gzip, and with nothing else.
pub(crate) fn is_gzipped(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    codings.next().and_then(|coding| coding.to_str().ok()).is_some_and(|coding| is_gzip(coding.trim()))
        && codings.next().is_none()
}

/// Makes the fields of a coded answer those of the decoded one.
pub(crate) fn decoded(headers: &mut HeaderMap, trailers: &mut HeaderMap) {
    headers.remove(CONTENT_ENCODING);
    // A part of the coded bytes is no part of the decoded ones.
    headers.remove(ACCEPT_RANGES);
    for digest in &DIGESTS {
        headers.remove(digest);
        trailers.remove(digest);
    }
    headers.append(VARY, HeaderValue::from_static("accept-encoding"));
    // Other bytes with the same meaning have a weak tag.
    let weak = headers.get(ETAG).and_then(|tag| tag.to_str().ok()).filter(|tag| tag.starts_with('"'));
    if let Some(Ok(weak)) = weak.map(|tag| HeaderValue::try_from(format!("W/{tag}"))) {
        headers.insert(ETAG, weak);
    }
}

fn is_gzip(coding: &str) -> bool {
    coding.eq_ignore_ascii_case("gzip") || coding.eq_ignore_ascii_case("x-gzip")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepting(lines: &[&str]) -> HeaderMap {
        lines.iter().map(|line| (ACCEPT_ENCODING, line.parse().unwrap())).collect()
    }

    #[test]
    fn gzip_is_taken_by_those_who_say_so() {
        for lines in [
            &["gzip"][..],
            &["br, GZIP;q=0.5"],
            &["deflate", "x-gzip"],
            &["*"],
            &["*;q=0.1, br"],
            &["gzip ; q=1.000"],
        ] {
            assert!(takes_gzip(&accepting(lines)), "{lines:?}");
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
            assert!(!takes_gzip(&accepting(lines)), "{lines:?}");
        }
    }

    #[test]
    fn the_service_may_use_only_what_can_be_undone() {
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
    fn a_decoded_answer_says_nothing_about_its_coded_bytes() {
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
        decoded(&mut headers, &mut trailers);
        let mut left: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        left.sort_unstable();
        assert_eq!(left, [("etag", "W/\"v1\""), ("location", "/orders/1"), ("vary", "accept-encoding")]);
        assert!(trailers.is_empty());
    }
}
