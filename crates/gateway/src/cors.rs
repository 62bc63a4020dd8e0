//! CORS headers: pages of the origins that a route allows may read the gateway's responses.
//!
//! Preflight requests are `OPTIONS` and match no route: the upstream responds to them, and so decides who may call. This
//! module only makes responses readable that the upstream did not send (problems), or sent for another origin (replays).

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS,
    HeaderValue, ORIGIN, VARY,
};
use http::{HeaderMap, Request};
use ichido_http::{Match, Route};

use crate::settings::Origins;

/// Our own headers that a page may want to read.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "idempotency-replayed, idempotency-key-lifetime, idempotency-degraded, idempotency-unprotected, \
     idempotency-same-content, idempotency-similar-to, retry-after, link, x-should-retry, stripe-should-retry",
);

/// The allowed origins of each route.
#[derive(Debug)]
pub(super) struct Cors(Vec<(Match, Option<Origins>)>);

/// The CORS headers of one response.
pub(super) enum CorsHeaders {
    /// Any page may read the response, without credentials.
    Any,
    /// Pages of this origin may read the response, with credentials.
    Allowed(HeaderValue),
    /// No page may read the response, but pages of other origins could.
    Denied,
}

impl Cors {
    /// `None` if no route allows origins.
    pub(super) fn new(routes: &[Route], origins: Vec<Option<Origins>>) -> Option<Self> {
        let is_used = origins.iter().any(Option::is_some);
        is_used.then(|| Self(routes.iter().map(|route| route.matches.clone()).zip(origins).collect()))
    }

    /// The CORS headers of the response to a request, if its route allows origins.
    pub(super) fn headers_for<B>(&self, request: &Request<B>) -> Option<CorsHeaders> {
        let path = request.uri().path();
        let route = self.0.iter().find(|(matches, _)| matches.matches(request.method(), path));
        let origin = request.headers().get(ORIGIN);
        Some(match (route?.1.as_ref()?, origin) {
            (Origins::Any, _) => CorsHeaders::Any,
            (Origins::Only(list), Some(origin)) if list.contains(origin) => {
                CorsHeaders::Allowed(origin.clone())
            }
            (Origins::Only(_), _) => CorsHeaders::Denied,
        })
    }
}

impl CorsHeaders {
    /// Sets the headers of the response.
    pub(super) fn apply(self, headers: &mut HeaderMap) {
        let origin = match self {
            Self::Any => Some(HeaderValue::from_static("*")),
            Self::Allowed(origin) => {
                headers.append(VARY, HeaderValue::from_static("origin"));
                headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
                Some(origin)
            }
            Self::Denied => {
                headers.append(VARY, HeaderValue::from_static("origin"));
                None
            }
        };
        if let Some(origin) = origin {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.append(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The headers of a response of the upstream to this origin, after ours were set.
    fn headers(origins: Origins, origin: &str, from_upstream: &[(&'static str, &str)]) -> Vec<String> {
        let cors = Cors::new(&[Route::default()], vec![Some(origins)]).unwrap();
        let request = Request::post("/orders").header(ORIGIN, origin).body(()).unwrap();
        let mut headers = HeaderMap::new();
        from_upstream.iter().for_each(|(name, value)| drop(headers.insert(*name, value.parse().unwrap())));
        cors.headers_for(&request).unwrap().apply(&mut headers);
        let mut lines: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.retain(|line| !line.starts_with("access-control-expose-headers"));
        lines.sort();
        lines
    }

    #[test]
    fn an_allowed_origin_may_read_a_replay_for_another_origin() {
        let list = || {
            Origins::Only(vec!["https://a.example".parse().unwrap(), "https://b.example".parse().unwrap()])
        };
        let stored = [("access-control-allow-origin", "https://a.example")];
        assert_eq!(
            headers(list(), "https://b.example", &stored),
            [
                "access-control-allow-credentials: true",
                "access-control-allow-origin: https://b.example",
                "vary: origin"
            ]
        );
        assert_eq!(headers(list(), "https://evil.example", &[]), ["vary: origin"]);
        assert_eq!(headers(Origins::Any, "https://evil.example", &[]), ["access-control-allow-origin: *"]);
    }

    #[test]
    fn only_routes_with_origins_get_cors_headers() {
        assert!(Cors::new(&[Route::default()], vec![None]).is_none());
        let routes =
            ["POST /a", "POST /**"].map(|text| Route { matches: text.parse().unwrap(), ..Route::default() });
        let cors = Cors::new(&routes, vec![None, Some(Origins::Any)]).unwrap();
        for (method, path, has_headers) in
            [("POST", "/a", false), ("POST", "/b", true), ("OPTIONS", "/b", false)]
        {
            let request = Request::builder().method(method).uri(path).body(()).unwrap();
            assert_eq!(cors.headers_for(&request).is_some(), has_headers, "{method} {path}");
        }
    }
}
