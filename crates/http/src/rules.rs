//! The rules: which requests need a key, and what happens to those that have one.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http::Method;
use ichido_core::Scope;
use percent_encoding::percent_decode_str;

use crate::key_source::{IDEMPOTENCY_KEY, KeySource};
use crate::metadata::MetadataSource;
use crate::options::{
    Automatic, ClientErrors, InDoubt, Mode, NoStore, Outage, Preset, ServerErrors, SetCookie,
};
use crate::parse_error::ParseError;
use crate::pointer::Pointer;
use crate::question::{NotAsked, Question};
use crate::signature::Signature;
use crate::tenant::Tenant;

/// The rules of a layer.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The first route that matches a request applies. A request that matches none passes through.
    pub routes: Vec<Route>,
    /// How the tenant of a request is determined, unless its route says otherwise.
    pub tenant: Tenant,
    /// The path where the rules are published. Problem types are paths below it.
    pub policy_path: String,
    /// Whether `Idempotency-Key` must be quoted.
    pub strict_keys: bool,
    /// Larger request bodies are buffered on disk.
    pub body_memory_bytes: u64,
    /// Larger request bodies are refused.
    pub body_max_bytes: u64,
    /// How many bytes of a body are parsed as JSON for keys and fingerprints.
    pub body_parse_max_bytes: u64,
    /// Slower request bodies are refused. In bytes per second, after the first 30 s.
    pub body_min_rate_bytes: u64,
    /// How many bytes all request bodies together may use in memory.
    pub body_memory_total_bytes: u64,
    /// How many bytes all request bodies together may use on disk.
    pub body_disk_total_bytes: u64,
    /// How many request bodies may be on disk at the same time, each in its own file.
    pub body_files_max: u64,
    /// Larger responses are streamed and not stored.
    pub answer_max_bytes: usize,
    /// How many keyed requests may run at the same time.
    pub inflight_max: usize,
    /// How many keyed requests of one tenant may run at the same time.
    pub inflight_max_per_tenant: usize,
    /// How many keyed requests of one connection may run at the same time; see
    /// [`IdempotencyLayer::for_connection`](crate::IdempotencyLayer::for_connection).
    pub inflight_max_per_connection: usize,
}

/// What happens to the requests that match.
#[derive(Clone, Debug)]
pub struct Route {
    /// The requests that the route applies to.
    pub matches: Match,
    /// The sender of events whose conventions this route follows.
    pub preset: Option<Preset>,
    /// How requests must be signed.
    pub signature: Option<Signature>,
    /// Requests whose JSON body has this text here are never claimed.
    pub unclaimed: Option<(Pointer, String)>,
    /// How the tenant is determined. `None`: as in [`Rules::tenant`].
    pub tenant: Option<Tenant>,
    /// The sources of the key, in the order in which they are tried.
    pub keys: Vec<KeySource>,
    /// Whether a request without a key is refused.
    pub required: bool,
    /// Whether the route is enforced or only observed.
    pub mode: Mode,
    /// What a retry gets while the first request is running.
    pub in_flight: InFlight,
    /// What a retry gets if the first request is in doubt.
    pub in_doubt: InDoubt,
    /// What happens while the ledger is unavailable.
    pub outage: Outage,
    /// What a 5xx response means. `None`: gateway errors (502, 504, 520 to 527) leave the claim in doubt, others are
    /// stored.
    pub server_errors: Option<ServerErrors>,
    /// What a 4xx response means. `None`: it is stored. On a route with a preset, 400, 404, 405, 413, 415 and 422
    /// release the key, and the others leave the claim in doubt.
    pub client_errors: Option<ClientErrors>,
    /// What `Cache-Control: no-store` in a response means.
    pub no_store: NoStore,
    /// Whether a replay includes the cookies of the first response.
    pub set_cookie: SetCookie,
    /// How long a response is stored.
    pub retention: Duration,
    /// How long a claim lasts without renewal.
    pub lease: Duration,
    /// How long to wait for the service. `None`: without limit.
    pub timeout: Option<Duration>,
    /// How a retry is told from a different request with the same key.
    pub fingerprint: FingerprintRule,
    /// The metadata that is stored with the claim.
    pub metadata: Vec<(String, MetadataSource)>,
    /// The content by which an event is found under another id.
    pub content: Vec<ContentRule>,
    /// What a hit on content means: a report, or that the event is not run.
    pub content_mode: Mode,
    /// How near duplicates of events are found.
    pub similar: Option<SimilarRule>,
    /// How the service is asked whether an effect in doubt happened.
    pub question: Option<Question>,
}

/// A part of the content of events, under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentRule {
    /// The name, which reports use.
    pub name: String,
    /// Where the value is, tried in order.
    pub sources: Vec<KeySource>,
}

/// How near duplicates of events are found.
#[derive(Clone, Debug, PartialEq)]
pub struct SimilarRule {
    /// The texts of a JSON body that are compared, together.
    pub fields: Vec<Pointer>,
    /// What counts as similar, and for how long.
    pub options: ichido_similar::Options,
    /// What a near duplicate means: a report, or that the event is not run.
    pub mode: Mode,
}

/// How the bodies of requests with the same key are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FingerprintRule {
    /// Byte by byte; not at all if the key was made of fields of the body, because the other fields may then differ.
    #[default]
    Standard,
    /// Byte by byte.
    Raw,
    /// As JSON: member order and white space do not count, nor do the values that these pointers name.
    Json(Vec<Pointer>),
    /// Not at all.
    None,
}

/// What a retry gets while the first request is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlight {
    /// A 409, immediately.
    Conflict,
    /// The first response, or a 409 after this time.
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
            content: Vec::new(),
            content_mode: Mode::Observe,
            similar: None,
            question: None,
        }
    }
}

impl Rules {
    pub(crate) fn route(&self, method: &Method, path: &str) -> Option<usize> {
        if method.is_safe() {
            return None;
        }
        self.routes.iter().position(|route| route.matches.matches(method, path))
    }

    /// The question about a claim.
    pub fn question(&self, scope: &Scope) -> Result<&Question, NotAsked> {
        let (method, target) = scope.route.split_once(' ').ok_or(NotAsked::NoQuestion)?;
        let method = Method::from_str(method).map_err(|_| NotAsked::NoQuestion)?;
        let path = target.split('?').next().unwrap_or_default();
        let route = self.route(&method, path).map(|index| &self.routes[index]);
        let question = route.and_then(|route| route.question.as_ref()).ok_or(NotAsked::NoQuestion)?;
        question.check(scope, target)?;
        Ok(question)
    }

    /// Whether any claim is asked about without an operator.
    pub fn asks_by_itself(&self) -> bool {
        let questions = self.routes.iter().filter_map(|route| route.question.as_ref());
        questions.into_iter().any(|question| question.schedule.automatic != Automatic::Off)
    }

    /// Whether a request matches a signed route except for the spelling of its path: many services read `/events/` or
    /// `/event%73` as `/events`. `route` is the one that the request matches; later routes do not count.
    pub(crate) fn evades_signature(&self, method: &Method, path: &str, route: Option<usize>) -> bool {
        let earlier = &self.routes[..route.unwrap_or(self.routes.len())];
        let is_signed = |route: &Route| route.signature.is_some() && route.mode == Mode::Enforce;
        if method.is_safe()
            || !earlier.iter().any(is_signed)
            || route.is_some_and(|index| is_signed(&self.routes[index]))
        {
            return false;
        }
        let path = LenientPath::new(path);
        earlier.iter().any(|route| is_signed(route) && route.matches.resembles(method, &path))
    }
}

impl Route {
    /// The matching requests, and the preset if there is one.
    pub fn describe(&self) -> String {
        match self.preset {
            Some(preset) => format!("{} ({})", self.matches, preset.as_str()),
            None => self.matches.to_string(),
        }
    }

    /// The tenant rule for this route.
    pub(crate) fn tenant<'a>(&'a self, rules: &'a Rules) -> &'a Tenant {
        self.tenant.as_ref().unwrap_or(&rules.tenant)
    }
}

/// Methods and a path pattern, as in `POST,PATCH /orders/*/items/**`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    methods: Vec<Method>,
    path: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(String),
    Any,
    Rest,
}

impl Match {
    /// `POST` on every path.
    pub(crate) fn any_post() -> Self {
        Self { methods: vec![Method::POST], path: vec![Segment::Rest] }
    }

    /// Whether it matches requests with one method only.
    pub fn is_one_method(&self) -> bool {
        self.methods.len() == 1
    }

    /// Whether it matches one path only.
    pub fn is_one_path(&self) -> bool {
        self.path.iter().all(|segment| matches!(segment, Segment::Literal(_)))
    }

    /// Whether a request with this method and path matches.
    pub fn matches(&self, method: &Method, path: &str) -> bool {
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
                (Segment::Literal(text), Some(part)) if text == part => {}
                _ => return false,
            }
        }
        parts.next().is_none()
    }
}

/// A path as the most lenient service would read it, except for letter case.
struct LenientPath(Vec<String>);

impl LenientPath {
    fn new(path: &str) -> Self {
        let path = percent_decode_str(path).decode_utf8_lossy();
        let mut parts = Vec::new();
        for part in path.split(['/', '\\']) {
            // Some services strip the parameters of a segment before they route the request.
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
    /// Whether a lenient service could take the request for a matching one.
    fn resembles(&self, method: &Method, path: &LenientPath) -> bool {
        if !self.methods.iter().any(|known| known.as_str().eq_ignore_ascii_case(method.as_str())) {
            return false;
        }
        let mut parts = path.0.iter();
        for segment in &self.path {
            match segment {
                Segment::Rest => return true,
                Segment::Any if parts.next().is_some() => {}
                Segment::Any => return false,
                Segment::Literal(text) => {
                    let mut texts = LenientPath::new(text).0.into_iter();
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
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let invalid = |reason: &str| {
            ParseError::new(format!("{text:?} {reason}; expected something like \"POST,PATCH /orders/**\""))
        };
        let (methods, path) = text.split_once(' ').ok_or_else(|| invalid("has no path"))?;
        let methods = methods.split(',').map(|name| name.trim().parse::<Method>());
        let methods: Vec<Method> =
            methods.collect::<Result<_, _>>().map_err(|_| invalid("contains an invalid method"))?;
        if let Some(safe) = methods.iter().find(|method| method.is_safe() || **method == Method::CONNECT) {
            return Err(invalid(&format!("contains {safe}, which needs no key")));
        }
        // A misspelled method would be an extension method, and the route would protect nothing.
        if let Some(method) =
            methods.iter().find(|method| method.as_str().bytes().any(|byte| !byte.is_ascii_uppercase()))
        {
            return Err(invalid(&format!("contains the method {method}; methods are written in capitals")));
        }
        let path =
            path.trim().strip_prefix('/').ok_or_else(|| invalid("has a path that does not start with /"))?;
        let path: Vec<Segment> = path
            .split('/')
            .map(|segment| match segment {
                "**" => Ok(Segment::Rest),
                "*" => Ok(Segment::Any),
                text if text.contains('*') || text.contains(['?', '#']) => {
                    Err(invalid("has a segment that is neither text nor * nor **"))
                }
                text => Ok(Segment::Literal(text.to_owned())),
            })
            .collect::<Result<_, _>>()?;
        if path
            .iter()
            .position(|segment| *segment == Segment::Rest)
            .is_some_and(|index| index + 1 < path.len())
        {
            return Err(invalid("has a segment after **"));
        }
        Ok(Self { methods, path })
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let methods: Vec<_> = self.methods.iter().map(Method::as_str).collect();
        write!(f, "{} ", methods.join(","))?;
        self.path.iter().try_for_each(|segment| match segment {
            Segment::Literal(text) => write!(f, "/{text}"),
            Segment::Any => f.write_str("/*"),
            Segment::Rest => f.write_str("/**"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::{Scheme, Secret};

    fn matches(text: &str, method: &str, path: &str) -> bool {
        text.parse::<Match>().unwrap().matches(&method.parse().unwrap(), path)
    }

    #[test]
    fn a_route_matches_methods_and_segments() {
        assert!(matches("POST,PATCH /**", "PATCH", "/"));
        assert!(!matches("POST,PATCH /**", "PUT", "/orders"));
        assert!(matches("POST /orders", "POST", "/orders"));
        assert!(!matches("POST /orders", "POST", "/orders/"));
        assert!(!matches("POST /orders", "POST", "/orders/1"));
        assert!(matches("POST /orders/*/pay", "POST", "/orders/17/pay"));
        assert!(!matches("POST /orders/*/pay", "POST", "/orders//pay"));
        assert!(matches("POST /orders/**", "POST", "/orders/1/2/3"));
        assert!(matches("POST /orders/**", "POST", "/orders"));
        assert!(!matches("POST /orders/**", "POST", "/ordersx"));
        assert!(matches("POST /", "POST", "/"));
    }

    #[test]
    fn a_match_round_trips_and_invalid_text_is_refused() {
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
    fn a_different_spelling_of_a_signed_path_is_detected() {
        let signature = Signature::new(Scheme::GitHub, &[Secret::new("s").unwrap()]).unwrap();
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
        // A catch-all route after a signed one does not accept other spellings of it; one before it does.
        let all = Route::default();
        assert!(evades(&[routes[0].clone(), all.clone()], "POST", "/slack/events/"));
        assert!(!evades(&[all, routes[0].clone()], "POST", "/slack/events/"));
        let observed = Route { mode: Mode::Observe, ..routes[0].clone() };
        assert!(!evades(&[observed], "POST", "/slack/events/"));
    }

    #[test]
    fn safe_methods_match_no_route() {
        let rules = Rules::default();
        for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE] {
            assert_eq!(rules.route(&method, "/orders"), None);
        }
        assert_eq!(rules.route(&Method::POST, "/orders"), Some(0));
        assert_eq!(rules.route(&Method::PUT, "/orders"), None);
    }
}
