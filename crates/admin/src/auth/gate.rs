//! Decides for each request whether it is admitted.
//!
//! On loopback no token is needed, so any page in a browser on this machine can send requests here. Two checks keep
//! such pages out: a page under its own name (DNS rebinding) sends a `Host` that is neither an address nor
//! `localhost`, and a page of another origin sends a foreign `Origin` or `Sec-Fetch-Site`.
//!
//! If a token is required, programs send it with each request. Users enter it once on the console's sign-in page and
//! get a session, or an authenticating proxy names them ([`TrustedUser`]). Both open the console and the metrics, never
//! the claim API: a browser sends them along with requests that its user did not mean to send.

use std::net::{IpAddr, SocketAddr};

use axum::response::{IntoResponse, Response};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, Method, Request, StatusCode, header};

use super::sessions::Sessions;
use super::token::{Access, Tokens};
use super::trusted_user::TrustedUser;
use super::visitor::Visitor;
use crate::browser::{is_page_request, see_other};
use ichido_serve::Problem;

/// The process id that the caller expects here, if it found this port through a store.
pub(crate) const HOLDER_HEADER: HeaderName = HeaderName::from_static("ichido-holder");

/// Health checks need no token.
const HEALTH_PATHS: [&str; 2] = ["/healthz", "/readyz"];
/// Prefix of the claim API.
const API_PATH: &str = "/v1/";
/// Prefix of the console's static files.
pub(crate) const ASSETS_PATH: &str = "/assets/";

/// Admits or refuses the requests to one port.
#[derive(Debug)]
pub struct Gate {
    on_loopback: bool,
    tokens: Option<Tokens>,
    trusted_user: Option<TrustedUser>,
    sessions: Sessions,
}

impl Gate {
    /// Creates the gate of a port. Without tokens and a proxy's users, everyone has full access.
    pub fn new(address: SocketAddr, tokens: Option<Tokens>, trusted_user: Option<TrustedUser>) -> Self {
        let sessions = Sessions::new(address.port());
        Self { on_loopback: address.ip().is_loopback(), tokens, trusted_user, sessions }
    }

    /// The sessions of the console.
    pub(crate) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Admits a request, or returns the response that refuses it. Runs before anything else looks at the request.
    pub fn admit<B>(&self, request: &mut Request<B>, peer: IpAddr) -> Result<Visitor, Box<Response>> {
        let admitted = match self.check_origin(request, peer) {
            Some(problem) => Err(Box::new(problem.into_response())),
            None => self.visitor(request, peer),
        };
        if let Some(trusted_user) = &self.trusted_user {
            trusted_user.strip(request.headers_mut());
        }
        admitted
    }

    /// Refuses requests from foreign pages, and requests that are meant for another process.
    fn check_origin<B>(&self, request: &Request<B>, peer: IpAddr) -> Option<Problem> {
        let headers = request.headers();
        if self.on_loopback && !is_local_name(headers) {
            return Some(Problem::new(
                StatusCode::MISDIRECTED_REQUEST,
                "foreign-host",
                "The Host header must be an IP address or localhost",
            ));
        }
        let forwarded = self.trusted_user.as_ref().and_then(|trusted| trusted.forwarded_host(headers, peer));
        if !is_own_origin(headers, forwarded) || !is_own_page(request.method(), headers) {
            return Some(Problem::new(
                StatusCode::FORBIDDEN,
                "foreign-origin",
                "Pages of other origins may not call this port",
            ));
        }
        let expected = headers.get(&HOLDER_HEADER)?;
        (expected.as_bytes() != std::process::id().to_string().as_bytes()).then(|| {
            Problem::new(
                StatusCode::MISDIRECTED_REQUEST,
                "other-process",
                "This is not the process that holds the store",
            )
        })
    }

    /// Identifies the visitor. If access is restricted, only health checks and the sign-in page are open to everyone.
    fn visitor<B>(&self, request: &Request<B>, peer: IpAddr) -> Result<Visitor, Box<Response>> {
        if self.tokens.is_none() && self.trusted_user.is_none() {
            return Ok(self.sessions.open_access());
        }
        let (path, headers) = (request.uri().path(), request.headers());
        let visitor = match self.tokens.as_ref().and_then(|tokens| tokens.find_in(headers)) {
            Some((name, access)) => Some(self.sessions.token_holder(name, access)),
            None if path.starts_with(API_PATH) => None,
            None => self.sessions.find(headers).or_else(|| self.proxy_user(headers, peer)),
        };
        let refused = |problem: Problem| Err(Box::new(problem.into_response()));
        match visitor {
            Some(visitor) if visitor.access == Some(Access::Read) && path.starts_with(API_PATH) => {
                refused(Problem::new(
                    StatusCode::FORBIDDEN,
                    "read-only",
                    "A read-only token cannot use the claim API",
                ))
            }
            Some(visitor) => Ok(visitor),
            None if is_health_check(path) || is_public_page(path) => Ok(self.sessions.signed_out()),
            None if !path.starts_with(API_PATH) && is_page_request(request) => {
                Err(Box::new(see_other("/sign-in")))
            }
            None => {
                refused(Problem::new(StatusCode::UNAUTHORIZED, "token-refused", "A valid token is required"))
            }
        }
    }

    fn proxy_user(&self, headers: &HeaderMap, peer: IpAddr) -> Option<Visitor> {
        let (name, access) = self.trusted_user.as_ref()?.find(headers, peer)?;
        Some(self.sessions.proxy_user(name, access))
    }
}

/// Whether the path is a health check.
pub(crate) fn is_health_check(path: &str) -> bool {
    HEALTH_PATHS.contains(&path)
}

/// Whether the page is open to visitors who have not signed in.
fn is_public_page(path: &str) -> bool {
    matches!(path, "/sign-in" | "/language") || path.starts_with(ASSETS_PATH)
}

/// Whether `Host` is an address or `localhost`. A request without `Host` does not come from a browser.
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

/// Whether the request comes from a page of this port, or from no page at all. `forwarded`: the host of our pages, as the
/// proxy in front of them says.
fn is_own_origin(headers: &HeaderMap, forwarded: Option<&str>) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    // Behind a TLS proxy, our own pages have an https origin.
    let origin = origin.to_str().ok();
    let origin =
        origin.and_then(|origin| origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")));
    let host = forwarded.or_else(|| headers.get(header::HOST)?.to_str().ok());
    matches!((origin, host), (Some(origin), Some(host)) if origin.eq_ignore_ascii_case(host))
}

/// Whether the request comes from one of our pages, follows a link to one, or does not come from a browser.
fn is_own_page(method: &Method, headers: &HeaderMap) -> bool {
    let header = |name: &str| headers.get(name).map(|value| value.as_bytes());
    match header("sec-fetch-site") {
        None | Some(b"same-origin" | b"none") => true,
        Some(_) => {
            *method == Method::GET
                && header("sec-fetch-mode") == Some(b"navigate")
                && header("sec-fetch-dest") == Some(b"document")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn foreign_host_name_is_refused() {
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
    fn foreign_origin_is_refused() {
        let headers = |origin| with(&[(header::HOST, "localhost:8070"), (header::ORIGIN, origin)]);
        let from = |origin| is_own_origin(&headers(origin), None);
        assert!(from("http://localhost:8070"));
        assert!(is_own_origin(&headers("https://ichido.example"), Some("ichido.example")));
        assert!(!is_own_origin(&headers("http://localhost:8070"), Some("ichido.example")));
        for foreign in ["https://evil.example", "http://localhost:3000", "null", "http://127.0.0.1:8070"] {
            assert!(!from(foreign), "{foreign}");
        }
    }

    #[test]
    fn cross_site_requests_may_only_navigate() {
        let fetch = |method, site: &'static str, mode: &'static str, dest: &'static str| {
            let name = HeaderName::from_static;
            let fields = [("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)];
            is_own_page(&method, &with(&fields.map(|(field, value)| (name(field), value))))
        };
        assert!(is_own_page(&Method::POST, &HeaderMap::new()), "no browser");
        assert!(fetch(Method::POST, "same-origin", "navigate", "document"));
        assert!(fetch(Method::GET, "none", "navigate", "document"), "typed by hand");
        assert!(fetch(Method::GET, "cross-site", "navigate", "document"), "a link");
        assert!(!fetch(Method::POST, "cross-site", "navigate", "document"), "a form elsewhere");
        assert!(!fetch(Method::POST, "same-site", "navigate", "document"), "a form on another port");
        assert!(!fetch(Method::GET, "cross-site", "navigate", "iframe"), "a frame elsewhere");
        assert!(!fetch(Method::GET, "cross-site", "no-cors", "script"), "a script elsewhere");
    }
}
