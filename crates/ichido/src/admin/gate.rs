//! Who may come in.
//!
//! On loopback no token is needed, and every page in a browser on this machine can send requests here. Two things tell
//! them apart: under a name of its own (DNS rebinding) a page's `Host` is neither an address nor `localhost`, and a
//! page from elsewhere that posts says so in `Origin`.

use std::net::{IpAddr, SocketAddr};

use http::uri::Authority;
use http::{HeaderMap, HeaderName, Request, StatusCode, header};

use super::{AdminToken, Problem};

/// A caller that found this port through a store says whom it expects: the process that signed there.
pub(crate) const HOLDER: HeaderName = HeaderName::from_static("ichido-holder");

/// Paths that need no token.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// Who may come in to a port.
#[derive(Debug)]
pub(crate) struct Gate {
    on_loopback: bool,
    token: Option<AdminToken>,
}

impl Gate {
    pub(crate) fn new(address: SocketAddr, token: Option<AdminToken>) -> Self {
        Self { on_loopback: address.ip().is_loopback(), token }
    }

    /// Why a request may not come in. For every path, before anything else is looked at.
    pub(crate) fn refusal<B>(&self, request: &Request<B>) -> Option<Problem> {
        self.is_stranger(request.headers()).or_else(|| self.lacks_token(request))
    }

    /// Who is here by mistake or by a trick.
    fn is_stranger(&self, headers: &HeaderMap) -> Option<Problem> {
        if self.on_loopback && !is_local_name(headers) {
            return Some(Problem::new(
                StatusCode::MISDIRECTED_REQUEST,
                "foreign-host",
                "This port answers under an address or localhost",
            ));
        }
        if !is_own_origin(headers) {
            return Some(Problem::new(
                StatusCode::FORBIDDEN,
                "foreign-origin",
                "A page from elsewhere may not call this port",
            ));
        }
        let expected = headers.get(&HOLDER)?;
        (expected.as_bytes() != std::process::id().to_string().as_bytes()).then(|| {
            Problem::new(
                StatusCode::MISDIRECTED_REQUEST,
                "other-process",
                "Here is another process than the one that holds the store",
            )
        })
    }

    /// The token is demanded, if there is one, but of those who ask after our health.
    fn lacks_token<B>(&self, request: &Request<B>) -> Option<Problem> {
        let token = self.token.as_ref()?;
        let is_open = OPEN.contains(&request.uri().path());
        (!is_open && !token.is_shown(request.headers())).then(|| {
            Problem::new(StatusCode::UNAUTHORIZED, "token-refused", "The operator's token is demanded")
        })
    }
}

/// Whether the request names this port by an address or as localhost. A request without a name is from no browser.
fn is_local_name(headers: &HeaderMap) -> bool {
    let mut names = headers.get_all(header::HOST).iter();
    match (names.next(), names.next()) {
        (None, _) => true,
        (Some(name), None) => name.to_str().ok().and_then(host_of).is_some_and(|host| {
            host.eq_ignore_ascii_case("localhost") || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
        }),
        (Some(_), Some(_)) => false,
    }
}

fn host_of(text: &str) -> Option<String> {
    let authority = text.parse::<Authority>().ok()?;
    (!text.contains('@')).then(|| authority.host().to_owned())
}

/// Whether the page that asks, if it is a page, came from this port.
fn is_own_origin(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    let origin = origin.to_str().ok().and_then(|origin| origin.strip_prefix("http://"));
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    matches!((origin, host), (Some(origin), Some(host)) if origin.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_name_of_its_own_is_refused() {
        for local in ["localhost", "LOCALHOST:8070", "127.0.0.1", "127.0.0.1:8070", "[::1]:8070", "[::1]"] {
            assert!(is_local_name(&with(&[(header::HOST, local)])), "{local}");
        }
        assert!(is_local_name(&HeaderMap::new()));
        for foreign in [
            "evil.example",
            "evil.example:8070",
            "localhost.evil.example",
            "127.0.0.1.nip.io",
            "",
            "a@127.0.0.1",
        ] {
            assert!(!is_local_name(&with(&[(header::HOST, foreign)])), "{foreign}");
        }
        let mut two = with(&[(header::HOST, "localhost")]);
        two.append(header::HOST, "evil.example".parse().unwrap());
        assert!(!is_local_name(&two));
    }

    #[test]
    fn a_page_from_elsewhere_is_refused() {
        let from =
            |origin| is_own_origin(&with(&[(header::HOST, "localhost:8070"), (header::ORIGIN, origin)]));
        assert!(from("http://localhost:8070"));
        for foreign in ["https://evil.example", "http://localhost:3000", "null", "http://127.0.0.1:8070"] {
            assert!(!from(foreign), "{foreign}");
        }
    }
}
