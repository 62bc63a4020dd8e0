//! From a request to a claim: its key, its tenant, its body, its fingerprint.

use http::HeaderMap;
use http::request::Parts;
use ichido_core::{ClaimRequest, InDoubtPolicy, Key, Scope};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::bounds::Carried;
use crate::events::notes;
use crate::fingerprint;
use crate::json;
use crate::key::KeyError;
use crate::layer::Shared;
use crate::problem::{Kind, Problem};
use crate::request::{Collected, PAUSE, Refused, RequestBody, collect};
use crate::rules::{FingerprintRule, Route};
use crate::signature::Checking;
use crate::source::KeySource;
use crate::tenant::TenantError;
use crate::words::{InDoubt, Mode};

/// A path longer than this is kept by its hash.
const ROUTE_BYTES: usize = 512;

/// What to do with a request. In boxes: it is handed from future to future, and each of them has room for it.
pub(crate) enum Prepared<B> {
    /// It needs no key and has none.
    Pass(Box<(Parts, RequestBody<B>)>),
    /// It cannot be claimed. The body, if it can still be passed on.
    Refuse(Box<(Problem, Parts, Option<RequestBody<B>>)>),
    /// It can be claimed.
    Ready(Box<Ready>),
}

impl<B> Prepared<B> {
    fn pass(parts: Parts, body: RequestBody<B>) -> Self {
        Self::Pass(Box::new((parts, body)))
    }

    fn refuse(problem: Problem, parts: Parts, body: Option<RequestBody<B>>) -> Self {
        Self::Refuse(Box::new((problem, parts, body)))
    }
}

/// A key, and what supplied it.
type Found<'a> = (String, &'a KeySource);

/// A request that can be claimed.
pub(crate) struct Ready {
    pub(crate) parts: Parts,
    pub(crate) body: Collected,
    pub(crate) claim: ClaimRequest,
}

/// Reads what is needed for a claim.
pub(crate) async fn prepare<B>(shared: &Shared, route: &Route, parts: Parts, body: B) -> Prepared<B>
where
    B: Carried,
{
    let rules = &shared.rules;
    let refuse = |problem, parts, body| Prepared::refuse(problem, parts, Some(RequestBody::passed(body)));
    let checking = route.signature.as_ref().map(|signature| {
        let now = shared.ledger.settings().clock.now();
        signature.begin(&parts.headers, now)
    });
    let mut checking = match checking.transpose() {
        Ok(checking) => checking,
        Err(problem) => return refuse(problem, parts, body),
    };
    let found = match in_head(route, &parts, rules.strict_keys) {
        Ok(found) => found,
        Err(error) => return refuse(Problem::new(Kind::KeyInvalid, error.to_string()), parts, body),
    };
    if found.is_none() && checking.is_none() && !reads_body(route) {
        return match route.required {
            true => refuse(missing(route), parts, body),
            false => Prepared::pass(parts, RequestBody::passed(body)),
        };
    }
    let tenant = match route.tenant(rules).of(&parts) {
        Err(error) if found.is_some() => return refuse(unknown(&error), parts, body),
        // Whether there is a key at all the body will tell.
        tenant => tenant,
    };
    let (memory, most) = (rules.body_memory_bytes, rules.body_max_bytes);
    // What is only observed gets the answer that it would get without the layer, however long it takes to ask.
    let pause = (route.mode == Mode::Enforce).then_some(PAUSE);
    let mut body = match collect(body, memory, most, pause, checking.as_mut()).await {
        Ok(body) => body,
        Err(refused) => return not_collected(refused, most, parts),
    };
    if let Some(Err(problem)) = checking.map(Checking::finish) {
        return Prepared::refuse(problem, parts, Some(RequestBody::collected(body)));
    }
    match name(shared, route, &parts, &mut body, found, tenant).await {
        Ok(Some(claim)) => Prepared::Ready(Box::new(Ready { parts, body, claim })),
        Ok(None) => Prepared::pass(parts, RequestBody::collected(body)),
        Err(problem) => Prepared::refuse(problem, parts, Some(RequestBody::collected(body))),
    }
}

/// The key, if it stands in the head and no source before it may stand in the body.
fn in_head<'a>(route: &'a Route, parts: &Parts, strict: bool) -> Result<Option<Found<'a>>, KeyError> {
    for source in &route.keys {
        let found = source.in_headers(&parts.headers, strict)?;
        if found.is_some() || source.is_in_body() {
            return Ok(found.map(|text| (text, source)));
        }
    }
    Ok(None)
}

/// Whether a look at the head shows that a request needs no key and has none.
pub(crate) fn passes(route: &Route, headers: &HeaderMap) -> bool {
    let absent =
        |source: &KeySource| matches!(source, KeySource::Header(name) if !headers.contains_key(name));
    let plain = route.preset.is_none() && route.signature.is_none() && route.unclaimed.is_none();
    !route.required && plain && route.keys.iter().all(absent)
}

/// Whether anything but the fingerprint is read from the body.
fn reads_body(route: &Route) -> bool {
    route.unclaimed.is_some() || route.keys.iter().any(|source| source.is_in_body())
}

async fn name(
    shared: &Shared,
    route: &Route,
    parts: &Parts,
    body: &mut Collected,
    found: Option<Found<'_>>,
    tenant: Result<String, TenantError>,
) -> Result<Option<ClaimRequest>, Problem> {
    let disk = |error: std::io::Error| {
        tracing::error!(%error, "a request body could not be kept on disk");
        Problem::new(Kind::Overloaded, "the request body could not be kept").retry_after(5)
    };
    let wants_json = found.is_none() || matches!(route.fingerprint, FingerprintRule::Json(_));
    let wants_json = wants_json || route.unclaimed.is_some() || !route.metadata.is_empty();
    let json = if wants_json { body.json().await.map_err(disk)? } else { None };
    if let Some((place, text)) = &route.unclaimed {
        let found = json.as_ref().and_then(|json| place.find(json)).and_then(json::scalar);
        if found == Some(text) {
            return Ok(None);
        }
    }
    let (text, source) = match found {
        Some(found) => found,
        None => match in_body(shared, route, parts, json.as_ref(), body.digest)? {
            Some(found) => found,
            None if route.required => return Err(missing(route)),
            None => return Ok(None),
        },
    };
    let tenant = tenant.map_err(|error| unknown(&error))?;
    let metadata = notes(route, json.as_ref(), &shared.instance);
    let fingerprint = fingerprint::of(&route.fingerprint, source, parts, json, body.digest);
    let key = Key::new(Scope::new(tenant, operation(route, parts)), text)
        .map_err(|error| Problem::new(Kind::KeyInvalid, error.to_string()))?;
    let caller = route.tenant(&shared.rules).caller(key.index(), &parts.headers);
    let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let in_doubt = match route.in_doubt {
        InDoubt::Reject => InDoubtPolicy::Reject,
        InDoubt::Retry => InDoubtPolicy::Retry { silent_ms: ms(route.timeout.unwrap_or_default()) },
    };
    Ok(Some(ClaimRequest {
        fingerprint,
        caller,
        lease_ms: ms(route.lease),
        retention_ms: ms(route.retention),
        in_doubt,
        metadata,
        ..shared.ledger.request(key)
    }))
}

fn in_body<'a>(
    shared: &Shared,
    route: &'a Route,
    parts: &Parts,
    json: Option<&Value>,
    digest: [u8; 32],
) -> Result<Option<Found<'a>>, Problem> {
    for source in &route.keys {
        let in_head = source.in_headers(&parts.headers, shared.rules.strict_keys);
        let found = match in_head {
            Ok(None) => source.in_body(&parts.headers, json, digest),
            found => found,
        };
        match found {
            Ok(None) => {}
            Ok(Some(text)) => return Ok(Some((text, source))),
            Err(error) => return Err(Problem::new(Kind::KeyInvalid, error.to_string())),
        }
    }
    Ok(None)
}

/// The part of the scope that names the operation: another method, path or query is another operation. A query may
/// hold secrets, so it is kept by its hash. What is only observed does not meet what is enforced later.
fn operation(route: &Route, parts: &Parts) -> String {
    let short = |text: &str| hex::encode(&Sha256::digest(text)[..16]);
    let mut text = String::with_capacity(64 + parts.uri.path().len().min(ROUTE_BYTES));
    if route.mode == Mode::Observe {
        text.push_str("observe ");
    }
    text.push_str(parts.method.as_str());
    text.push(' ');
    match parts.uri.path() {
        path if path.len() <= ROUTE_BYTES => text.push_str(path),
        path => text.push_str(&format!("sha256:{}", short(path))),
    }
    if let Some(query) = parts.uri.query() {
        text.push('?');
        text.push_str(&short(query));
    }
    text
}

fn missing(route: &Route) -> Problem {
    let places: Vec<_> = route.keys.iter().map(ToString::to_string).collect();
    let detail = format!("this operation requires a key, and none was found in: {}", places.join(", "));
    Problem::new(Kind::KeyMissing, detail)
}

fn unknown(error: &TenantError) -> Problem {
    let problem = Problem::new(Kind::TenantUnknown, error.to_string());
    match error {
        TenantError::Unknown(_) => problem,
        TenantError::Unverified(_) => problem.unauthorized(),
    }
}

fn not_collected<B>(refused: Refused<B>, most: u64, parts: Parts) -> Prepared<B> {
    match refused {
        Refused::TooLarge(read, rest) => {
            let problem =
                Problem::new(Kind::BodyTooLarge, format!("keyed requests may carry at most {most} bytes"));
            Prepared::refuse(problem, parts, Some(RequestBody::rejoined(read, rest)))
        }
        Refused::Broken(cause) => {
            let problem = Problem::new(Kind::BodyBroken, format!("the body did not arrive whole: {cause}"));
            Prepared::refuse(problem, parts, None)
        }
        Refused::Disk(error) => {
            tracing::error!(%error, "a request body could not be kept on disk");
            let problem = Problem::new(Kind::Overloaded, "the request body could not be kept").retry_after(5);
            Prepared::refuse(problem, parts, None)
        }
    }
}
