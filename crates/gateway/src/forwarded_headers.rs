//! Tells the upstream about the client: `X-Forwarded-*` and `Forwarded` (RFC 7239).
//!
//! A trusted proxy knows more about the client than this connection shows, so its headers are kept and its address is
//! appended. Anyone else could claim anything: their headers are replaced with what this connection shows.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::{Entry, FORWARDED, HeaderName, HeaderValue};

use ichido_serve::TrustedProxies;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The client end of one connection.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    ip: IpAddr,
    /// The address as a header value, made once for all requests of the connection.
    address: Option<HeaderValue>,
    is_tls: bool,
    is_trusted: bool,
}

impl Peer {
    pub(super) fn new(address: SocketAddr, is_tls: bool, trusted: &TrustedProxies) -> Self {
        // A socket bound to [::] sees IPv4 clients as ::ffff:a.b.c.d.
        let ip = address.ip().to_canonical();
        let address = HeaderValue::try_from(ip.to_string()).ok();
        Self { ip, address, is_tls, is_trusted: trusted.contains(ip) }
    }

    /// Sets the headers of a request. `host` is the host that the request names.
    pub(super) fn set_headers(&self, headers: &mut HeaderMap, host: Option<&HeaderValue>) {
        let has_forwarded = headers.contains_key(FORWARDED);
        let has_x_forwarded = [FOR, HOST, PORT, PROTO].iter().any(|name| headers.contains_key(name));
        if !self.is_trusted && (has_forwarded || has_x_forwarded) {
            [FORWARDED, FOR, HOST, PORT, PROTO].iter().for_each(|name| drop(headers.remove(name)));
        }
        if has_forwarded {
            append(headers, FORWARDED, HeaderValue::try_from(self.element(host)).ok());
        }
        // Behind a proxy that uses only RFC 7239, these would name the proxy as the client.
        if self.is_trusted && has_forwarded && !has_x_forwarded {
            return;
        }
        append(headers, FOR, self.address.clone());
        let own = [(PROTO, Some(HeaderValue::from_static(self.proto()))), (HOST, host.cloned())];
        for (name, value) in own {
            if let (Entry::Vacant(field), Some(value)) = (headers.entry(name), value) {
                field.insert(value);
            }
        }
    }

    fn proto(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    /// This hop as an element of `Forwarded`.
    fn element(&self, host: Option<&HeaderValue>) -> String {
        let mut element = match self.ip {
            IpAddr::V4(ip) => format!("for={ip};proto={}", self.proto()),
            IpAddr::V6(ip) => format!("for=\"[{ip}]\";proto={}", self.proto()),
        };
        let host = host.and_then(|host| host.to_str().ok()).filter(|host| !host.contains(['"', '\\']));
        if let Some(host) = host {
            element.push_str(&format!(";host=\"{host}\""));
        }
        element
    }
}

/// Appends to a list, and joins the list into one header.
fn append(headers: &mut HeaderMap, name: HeaderName, last: Option<HeaderValue>) {
    let Some(mut last) = last else { return };
    if headers.contains_key(&name) {
        let lines = headers.get_all(&name).iter().map(HeaderValue::as_bytes);
        let list = lines.chain([last.as_bytes()]).collect::<Vec<_>>().join(&b", "[..]);
        last = HeaderValue::from_bytes(&list).unwrap_or(last);
    }
    headers.insert(name, last);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The headers that the upstream gets from a peer with this address, sorted by name.
    fn forwarded(address: &str, is_tls: bool, sent: &[(&'static str, &str)]) -> Vec<String> {
        let peer = Peer::new(
            address.parse().unwrap(),
            is_tls,
            &TrustedProxies::check("proxies", &["127.0.0.0/8".to_owned(), "::1/128".to_owned()]).unwrap(),
        );
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.append(*name, value.parse().unwrap());
        }
        peer.set_headers(&mut headers, Some(&HeaderValue::from_static("gateway:8080")));
        let mut headers: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        headers.sort();
        headers
    }

    const PROXY_HEADERS: [(&str, &str); 4] = [
        ("x-forwarded-for", "203.0.113.7"),
        ("x-forwarded-host", "shop.example"),
        ("x-forwarded-port", "443"),
        ("x-forwarded-proto", "https"),
    ];

    #[test]
    fn headers_of_a_trusted_proxy_are_kept_and_its_address_is_appended() {
        for address in ["127.0.0.1:5", "[::ffff:127.0.0.1]:5"] {
            assert_eq!(
                forwarded(address, false, &PROXY_HEADERS),
                [
                    "x-forwarded-for: 203.0.113.7, 127.0.0.1",
                    "x-forwarded-host: shop.example",
                    "x-forwarded-port: 443",
                    "x-forwarded-proto: https"
                ]
            );
        }
    }

    #[test]
    fn headers_of_anyone_else_are_replaced() {
        let forged = [&PROXY_HEADERS[..], &[("forwarded", "for=203.0.113.7;proto=https")]].concat();
        assert_eq!(
            forwarded("192.0.2.9:5", false, &forged),
            [
                "forwarded: for=192.0.2.9;proto=http;host=\"gateway:8080\"",
                "x-forwarded-for: 192.0.2.9",
                "x-forwarded-host: gateway:8080",
                "x-forwarded-proto: http"
            ]
        );
    }

    #[test]
    fn without_headers_the_connection_describes_the_client() {
        let described =
            ["x-forwarded-for: ::1", "x-forwarded-host: gateway:8080", "x-forwarded-proto: https"];
        assert_eq!(forwarded("[::1]:5", true, &[]), described);
    }

    #[test]
    fn a_trusted_proxy_that_sends_forwarded_gets_an_element_appended_and_nothing_else() {
        let sent = [("forwarded", "for=203.0.113.7;proto=https"), ("forwarded", "for=10.0.0.1")];
        let list =
            "for=203.0.113.7;proto=https, for=10.0.0.1, for=\"[::1]\";proto=http;host=\"gateway:8080\"";
        assert_eq!(forwarded("[::1]:5", false, &sent), [format!("forwarded: {list}")]);
    }
}
