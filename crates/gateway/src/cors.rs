//! CORS fields of answers: pages of the origins that a route names may read what the gateway answers.
//!
//! Preflight requests are `OPTIONS` and match no route: the service answers them, and so decides who may call. This module
//! only makes answers readable that the service never saw (problems, replays), or saw for another origin (replays).

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS,
    HeaderValue, ORIGIN, VARY,
};
use http::{HeaderMap, Request};
use ichido_http::{Match, Route};

use crate::settings::Origins;

/// Fields of ours that a page may want to read.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "idempotency-replayed, idempotency-key-lifetime, idempotency-degraded, idempotency-unprotected, retry-after, link, \
     x-should-retry, stripe-should-retry",
);

/// The origins of each route.
#[derive(Debug)]
pub(super) struct Cors(Vec<(Match, Option<Origins>)>);

/// What the answer to one request says.
pub(super) enum CrossOrigin {
    /// Any page may read it, without credentials.
    Any,
    /// Pages of this origin may read it, with credentials.
    Allowed(HeaderValue),
    /// It would say something else to other origins.
    Other,
}

impl Cors {
    /// `None`: no route names origins.
    pub(super) fn new(routes: &[Route], origins: Vec<Option<Origins>>) -> Option<Self> {
        let is_used = origins.iter().any(Option::is_some);
        is_used.then(|| Self(routes.iter().map(|route| route.matches.clone()).zip(origins).collect()))
    }

    pub(super) fn of<B>(&self, request: &Request<B>) -> Option<CrossOrigin> {
        let path = request.uri().path();
        let route = self.0.iter().find(|(matches, _)| matches.matches(request.method(), path));
        let origin = request.headers().get(ORIGIN);
        Some(match (route?.1.as_ref()?, origin) {
            (Origins::Any, _) => CrossOrigin::Any,
            (Origins::Only(list), Some(origin)) if list.contains(origin) => {
                CrossOrigin::Allowed(origin.clone())
            }
            (Origins::Only(_), _) => CrossOrigin::Other,
        })
    }
}

impl CrossOrigin {
    pub(super) fn apply(self, headers: &mut HeaderMap) {
        let origin = match self {
            Self::Any => Some(HeaderValue::from_static("*")),
            Self::Allowed(origin) => {
                headers.append(VARY, HeaderValue::from_static("origin"));
                headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
                Some(origin)
            }
            Self::Other => {
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

    /// The fields that are added to an answer of the service for an origin.
    fn said(origins: Origins, origin: &str, earlier: &[(&'static str, &str)]) -> Vec<String> {
        let cors = Cors::new(&[Route::default()], vec![Some(origins)]).unwrap();
        let request = Request::post("/orders").header(ORIGIN, origin).body(()).unwrap();
        let mut headers = HeaderMap::new();
        earlier.iter().for_each(|(name, value)| drop(headers.insert(*name, value.parse().unwrap())));
        cors.of(&request).unwrap().apply(&mut headers);
        let mut said: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        said.retain(|field| !field.starts_with("access-control-expose-headers"));
        said.sort();
        said
    }

    #[test]
    fn a_listed_origin_may_read_whoever_asked_first() {
        let list = || {
            Origins::Only(vec!["https://a.example".parse().unwrap(), "https://b.example".parse().unwrap()])
        };
        let stored = [("access-control-allow-origin", "https://a.example")];
        assert_eq!(
            said(list(), "https://b.example", &stored),
            [
                "access-control-allow-credentials: true",
                "access-control-allow-origin: https://b.example",
                "vary: origin"
            ]
        );
        assert_eq!(said(list(), "https://evil.example", &[]), ["vary: origin"]);
        assert_eq!(said(Origins::Any, "https://evil.example", &[]), ["access-control-allow-origin: *"]);
    }

    #[test]
    fn only_requests_of_routes_with_origins_are_concerned() {
        assert!(Cors::new(&[Route::default()], vec![None]).is_none());
        let routes =
            ["POST /a", "POST /**"].map(|text| Route { matches: text.parse().unwrap(), ..Route::default() });
        let cors = Cors::new(&routes, vec![None, Some(Origins::Any)]).unwrap();
        for (method, path, is_concerned) in
            [("POST", "/a", false), ("POST", "/b", true), ("OPTIONS", "/b", false)]
        {
            let request = Request::builder().method(method).uri(path).body(()).unwrap();
            assert_eq!(cors.of(&request).is_some(), is_concerned, "{method} {path}");
        }
    }
}
