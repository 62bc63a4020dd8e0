//! The rules: which requests need a key, and what happens to those that have one.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http::Method;
use percent_encoding::percent_decode_str;

use crate::events::Note;
use crate::key_source::{IDEMPOTENCY_KEY, KeySource};
use crate::options::{ClientErrors, InDoubt, Mode, NoStore, Outage, Preset, ServerErrors, SetCookie};
use crate::parse_error::SourceError;
use crate::pointer::Pointer;
use crate::signature::Signature;
use crate::tenant::Tenant;

/// Everything that the layer is told.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The first route that fits a request counts; a request that fits none passes.
    pub routes: Vec<Route>,
    /// Whose key it is.
    pub tenant: Tenant,
    /// Where the rules are published, and under which the problem types lie.
    pub policy_path: String,
    /// Take quoted keys only.
    pub strict_keys: bool,
    /// Larger request bodies go to disk while they are hashed.
    pub body_memory_bytes: u64,
    /// Larger request bodies are refused.
    pub body_max_bytes: u64,
    /// How much of a body is read for keys and fingerprints that are made of its JSON.
    pub body_parse_max_bytes: u64,
    /// Slower request bodies are refused: in bytes per second, after the first 30 s.
    pub body_min_rate_bytes: u64,
    /// What the request bodies of all requests may take in memory.
    pub body_memory_total_bytes: u64,
    /// What the request bodies of all requests may take on disk.
    pub body_disk_total_bytes: u64,
    /// How many request bodies may be on disk at once, each in a file.
    pub body_files_max: u64,
    /// Larger answers are streamed and not kept.
    pub answer_max_bytes: usize,
    /// How much keyed work may be under way at once.
    pub inflight_max: usize,
    /// The same for one tenant.
    pub inflight_max_per_tenant: usize,
    /// The same for one connection; see [`IdempotencyLayer::for_connection`](crate::IdempotencyLayer::for_connection).
    pub inflight_max_per_connection: usize,
}

/// What happens to a keyed request.
#[derive(Clone, Debug)]
pub struct Route {
    /// Which requests.
    pub matches: Match,
    /// The sender whose ways this route follows.
    pub preset: Option<Preset>,
    /// What a request must be signed with.
    pub signature: Option<Signature>,
    /// Requests that are never claimed: those with this text at this place.
    pub unclaimed: Option<(Pointer, String)>,
    /// Whose keys these are; `None`: as the rules say.
    pub tenant: Option<Tenant>,
    /// Where the key may stand, tried in order.
    pub keys: Vec<KeySource>,
    /// Refuse a request without a key.
    pub required: bool,
    /// Enforce, or count and let pass.
    pub mode: Mode,
    /// A repeat while the first is under way.
    pub in_flight: InFlight,
    /// A repeat of a request whose end nobody knows.
    pub in_doubt: InDoubt,
    /// The ledger cannot be asked.
    pub outage: Outage,
    /// What an answer of 5xx means; `None`: those that tell of a gateway's trouble (502, 504, 520 to 527) are doubt, the
    /// others are kept.
    pub server_errors: Option<ServerErrors>,
    /// What an answer of 4xx means; `None`: it is kept, but on a route for events the key is free again after 400, 404,
    /// 405, 413, 415 and 422, and the others are doubt.
    pub client_errors: Option<ClientErrors>,
    /// What `Cache-Control: no-store` in an answer means.
    pub no_store: NoStore,
    /// Whether a repeat gets the cookies of the first answer.
    pub set_cookie: SetCookie,
    /// How long an answer is kept.
    pub retention: Duration,
    /// How long a claim holds without renewal.
    pub lease: Duration,
    /// How long the service behind may be silent. `None`: for ever.
    pub timeout: Option<Duration>,
    /// What tells a repeat from another request with the same key.
    pub fingerprint: FingerprintRule,
    /// What is noted beside the claim.
    pub metadata: Vec<(String, Note)>,
}

/// How a body is compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FingerprintRule {
    /// Byte by byte, but not at all where places in the body made the key: what lies elsewhere is then another matter.
    #[default]
    Standard,
    /// Byte by byte.
    Raw,
    /// As JSON: order of names and white space do not count, nor what lies at these places.
    Json(Vec<Pointer>),
    /// Not at all.
    None,
}

/// What a repeat gets while the first is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlight {
    /// 409 at once.
    Conflict,
    /// The first answer, or 409 after so long.
    Wait(Duration),
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            routes: vec![Route::default()],
            tenant: Tenant::Auto,
            policy_path: "/.well-known/idempotency".to_owned(),
            strict_keys: false,
            body_memory_bytes: 1 << 20,
            body_max_bytes: 64 << 20,
            body_parse_max_bytes: 1 << 20,
            body_min_rate_bytes: 1024,
            body_memory_total_bytes: 256 << 20,
            body_disk_total_bytes: 4 << 30,
            body_files_max: 256,
            answer_max_bytes: 1 << 20,
            inflight_max: 10_000,
            inflight_max_per_tenant: 5_000,
            inflight_max_per_connection: 128,
        }
    }
}

impl Default for Route {
    fn default() -> Self {
        Self {
            matches: Match { methods: vec![Method::POST, Method::PATCH], path: vec![Segment::Rest] },
            preset: None,
            signature: None,
            unclaimed: None,
            tenant: None,
            keys: vec![KeySource::Header(IDEMPOTENCY_KEY)],
            required: true,
            mode: Mode::Enforce,
            in_flight: InFlight::Conflict,
            in_doubt: InDoubt::Reject,
            outage: Outage::Closed,
            server_errors: None,
            client_errors: None,
            no_store: NoStore::Keep,
            set_cookie: SetCookie::Drop,
            retention: Duration::from_secs(86_400),
            lease: Duration::from_secs(30),
            timeout: None,
            fingerprint: FingerprintRule::Standard,
            metadata: Vec::new(),
        }
    }
}

impl Rules {
    pub(crate) fn route(&self, method: &Method, path: &str) -> Option<usize> {
        if method.is_safe() {
            return None;
        }
        self.routes.iter().position(|route| route.matches.fits(method, path))
    }

    /// Whether a request is one of a signed route but for its spelling: many services read `/events/` or `/event%73` as
    /// `/events`. `route` is the one that it fits; what stands behind it does not count.
    pub(crate) fn evades_signature(&self, method: &Method, path: &str, route: Option<usize>) -> bool {
        let first = &self.routes[..route.unwrap_or(self.routes.len())];
        let checks = |route: &Route| route.signature.is_some() && route.mode == Mode::Enforce;
        if method.is_safe() || !first.iter().any(checks) || route.is_some_and(|at| checks(&self.routes[at])) {
            return false;
        }
        let path = Spelled::new(path);
        first.iter().any(|route| checks(route) && route.matches.resembles(method, &path))
    }
}

impl Route {
    /// The requests, and the sender if it is a known one.
    pub fn describe(&self) -> String {
        match self.preset {
            Some(preset) => format!("{} ({})", self.matches, preset.as_str()),
            None => self.matches.to_string(),
        }
    }

    /// The tenant's rule that counts here.
    pub(crate) fn tenant<'a>(&'a self, rules: &'a Rules) -> &'a Tenant {
        self.tenant.as_ref().unwrap_or(&rules.tenant)
    }
}

/// Methods and a path, as in `POST,PATCH /orders/*/items/**`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    methods: Vec<Method>,
    path: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Is(String),
    Any,
    Rest,
}

impl Match {
    /// `POST` on every path.
    pub(crate) fn posts() -> Self {
        Self { methods: vec![Method::POST], path: vec![Segment::Rest] }
    }

    /// Whether a request with this method and path is meant.
    pub fn fits(&self, method: &Method, path: &str) -> bool {
        if !self.methods.contains(method) {
            return false;
        }
        if self.path == [Segment::Rest] {
            return true;
        }
        let mut parts = path.strip_prefix('/').unwrap_or(path).split('/');
        for segment in &self.path {
            match (segment, parts.next()) {
                (Segment::Rest, _) => return true,
                (Segment::Any, Some(part)) if !part.is_empty() => {}
                (Segment::Is(text), Some(part)) if text == part => {}
                _ => return false,
            }
        }
        parts.next().is_none()
    }
}

/// A path in the spelling that the most forgiving service would give it, but for capitals.
struct Spelled(Vec<String>);

impl Spelled {
    fn new(path: &str) -> Self {
        let path = percent_decode_str(path).decode_utf8_lossy();
        let mut parts = Vec::new();
        for part in path.split(['/', '\\']) {
            // Parameters of a segment, which some services take away before they look.
            match part.split(';').next().unwrap_or_default() {
                "" | "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(part.to_owned()),
            }
        }
        Self(parts)
    }
}

impl Match {
    /// Whether this is meant, whatever the spelling.
    fn resembles(&self, method: &Method, path: &Spelled) -> bool {
        if !self.methods.iter().any(|known| known.as_str().eq_ignore_ascii_case(method.as_str())) {
            return false;
        }
        let mut parts = path.0.iter();
        for segment in &self.path {
            match segment {
                Segment::Rest => return true,
                Segment::Any if parts.next().is_some() => {}
                Segment::Any => return false,
                Segment::Is(text) => {
                    let mut texts = Spelled::new(text).0.into_iter();
                    if !texts.all(|text| parts.next().is_some_and(|part| part.eq_ignore_ascii_case(&text))) {
                        return false;
                    }
                }
            }
        }
        parts.next().is_none()
    }
}

impl FromStr for Match {
    type Err = SourceError;
    fn from_str(text: &str) -> Result<Self, SourceError> {
        let bad = |why: &str| {
            SourceError::new(format!("{text:?} {why}; expected something like \"POST,PATCH /orders/**\""))
        };
        let (methods, path) = text.split_once(' ').ok_or_else(|| bad("has no path"))?;
        let methods = methods.split(',').map(|name| name.trim().parse::<Method>());
        let methods: Vec<Method> = methods.collect::<Result<_, _>>().map_err(|_| bad("names no method"))?;
        if let Some(safe) = methods.iter().find(|method| method.is_safe() || **method == Method::CONNECT) {
            return Err(bad(&format!("names {safe}, which needs no key")));
        }
        // An extension method that is a typing error of a known one would protect nothing.
        if let Some(odd) =
            methods.iter().find(|method| method.as_str().bytes().any(|byte| !byte.is_ascii_uppercase()))
        {
            return Err(bad(&format!("names the method {odd}; methods are written in capitals")));
        }
        let path =
            path.trim().strip_prefix('/').ok_or_else(|| bad("has a path that does not begin with /"))?;
        let path: Vec<Segment> = path
            .split('/')
            .map(|segment| match segment {
                "**" => Ok(Segment::Rest),
                "*" => Ok(Segment::Any),
                text if text.contains('*') || text.contains(['?', '#']) => {
                    Err(bad("has a segment that is neither text nor * nor **"))
                }
                text => Ok(Segment::Is(text.to_owned())),
            })
            .collect::<Result<_, _>>()?;
        if path.iter().position(|segment| *segment == Segment::Rest).is_some_and(|at| at + 1 < path.len()) {
            return Err(bad("has something behind **"));
        }
        Ok(Self { methods, path })
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let methods: Vec<_> = self.methods.iter().map(Method::as_str).collect();
        write!(f, "{} ", methods.join(","))?;
        self.path.iter().try_for_each(|segment| match segment {
            Segment::Is(text) => write!(f, "/{text}"),
            Segment::Any => f.write_str("/*"),
            Segment::Rest => f.write_str("/**"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::{Scheme, Secret};

    fn fits(text: &str, method: &str, path: &str) -> bool {
        text.parse::<Match>().unwrap().fits(&method.parse().unwrap(), path)
    }

    #[test]
    fn a_route_fits_methods_and_segments() {
        assert!(fits("POST,PATCH /**", "PATCH", "/"));
        assert!(!fits("POST,PATCH /**", "PUT", "/orders"));
        assert!(fits("POST /orders", "POST", "/orders"));
        assert!(!fits("POST /orders", "POST", "/orders/"));
        assert!(!fits("POST /orders", "POST", "/orders/1"));
        assert!(fits("POST /orders/*/pay", "POST", "/orders/17/pay"));
        assert!(!fits("POST /orders/*/pay", "POST", "/orders//pay"));
        assert!(fits("POST /orders/**", "POST", "/orders/1/2/3"));
        assert!(fits("POST /orders/**", "POST", "/orders"));
        assert!(!fits("POST /orders/**", "POST", "/ordersx"));
        assert!(fits("POST /", "POST", "/"));
    }

    #[test]
    fn a_match_is_written_as_it_is_read_and_nonsense_is_refused() {
        for text in ["POST,PATCH /**", "DELETE /a/*/b", "POST /"] {
            assert_eq!(text.parse::<Match>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "POST",
            "/orders",
            "GET /x",
            "POST orders",
            "post /x",
            "POST /a*",
            "POST /**/a",
            "POST /a?b=1",
            "POST, /x",
            "CONNECT /x",
        ] {
            assert!(text.parse::<Match>().is_err(), "{text}");
        }
    }

    #[test]
    fn another_spelling_of_a_signed_route_is_seen_through() {
        let signature = Signature::new(Scheme::GitHub, Secret::new("s").into_iter().collect());
        let signed = |text: &str| Route {
            matches: text.parse().unwrap(),
            signature: signature.clone(),
            ..Route::default()
        };
        let evades = |routes: &[Route], method: &str, path: &str| {
            let (rules, method) =
                (Rules { routes: routes.to_vec(), ..Rules::default() }, method.parse().unwrap());
            rules.evades_signature(&method, path, rules.route(&method, path))
        };
        let routes = [signed("POST /slack/events"), signed("POST /hooks/*/in"), signed("POST /Own/a%20b")];
        for path in [
            "/slack/events/",
            "//slack/events",
            "/slack//events",
            "/slack/event%73",
            "/slack%2Fevents",
            "/Slack/Events",
            "/slack/./events",
            "/x/../slack/events",
            "/slack/events;a=b",
            "/slack\\events",
            "/hooks/x/in/",
            "/own/a b",
        ] {
            assert!(evades(&routes, "POST", path), "{path}");
        }
        assert!(evades(&routes, "post", "/slack/events"));
        for (method, path) in [
            ("POST", "/slack/events"),
            ("POST", "/slack/event"),
            ("POST", "/slack"),
            ("POST", "/slack/events/more"),
            ("POST", "/hooks//in"),
            ("PUT", "/slack/events/"),
            ("GET", "/slack/events/"),
        ] {
            assert!(!evades(&routes, method, path), "{method} {path}");
        }
        // A route for all the rest takes no other spelling of a signed one; a route that stands before it does.
        let all = Route::default();
        assert!(evades(&[routes[0].clone(), all.clone()], "POST", "/slack/events/"));
        assert!(!evades(&[all, routes[0].clone()], "POST", "/slack/events/"));
        let observed = Route { mode: Mode::Observe, ..routes[0].clone() };
        assert!(!evades(&[observed], "POST", "/slack/events/"));
    }

    #[test]
    fn safe_methods_need_no_key_whatever_the_routes_say() {
        let rules = Rules::default();
        for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE] {
            assert_eq!(rules.route(&method, "/orders"), None);
        }
        assert_eq!(rules.route(&Method::POST, "/orders"), Some(0));
        assert_eq!(rules.route(&Method::PUT, "/orders"), None);
    }
}
