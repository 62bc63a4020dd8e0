//! Headers that belong to one connection.

use http::HeaderMap;
use http::header::{
    CONNECTION, CONTENT_LENGTH, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING,
    UPGRADE,
};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
static HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HTTP2_SETTINGS,
    KEEP_ALIVE,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    PROXY_CONNECTION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Removes the headers that belong to one connection. `Trailer` is not one of them (RFC 9110, 7.6.1): without it, an
/// HTTP/1.1 server sends no trailers.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    // Transfer-Encoding overrides Content-Length (RFC 9112, 6.3). Once it is removed, the length would be believed.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|name| name.trim().parse().ok())
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    // Most messages have none of these, and checking is cheaper than removing.
    if headers.keys().any(|name| HOP_BY_HOP.contains(name)) {
        HOP_BY_HOP.iter().for_each(|name| drop(headers.remove(name)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hop_by_hop_headers_and_those_named_by_connection_are_removed() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Trace"),
            ("x-trace", "1"),
            ("keep-alive", "5"),
            ("te", "trailers"),
            ("etag", "x"),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        strip_hop_by_hop(&mut headers);
        assert_eq!(headers.keys().collect::<Vec<_>>(), ["etag"]);
    }

    #[test]
    fn content_length_is_removed_with_transfer_encoding() {
        for more in [None, Some(("connection", "transfer-encoding"))] {
            let fields = [("content-length", "3"), ("transfer-encoding", "chunked"), ("etag", "x")];
            let mut headers = HeaderMap::new();
            for (name, value) in fields.into_iter().chain(more) {
                headers.insert(name, value.parse().unwrap());
            }
            strip_hop_by_hop(&mut headers);
            assert_eq!(headers.keys().collect::<Vec<_>>(), ["etag"]);
        }
        let mut headers = HeaderMap::new();
        headers.insert("content-length", "3".parse().unwrap());
        strip_hop_by_hop(&mut headers);
        assert_eq!(headers["content-length"], "3");
    }
}
