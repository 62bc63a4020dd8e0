//! From a request to a claim: its key, its tenant, its body, its fingerprint.

use http::HeaderMap;
use http::request::Parts;
use ichido_core::{ClaimRequest, InDoubtPolicy, Key, Scope};

use crate::concurrency::{Admitted, Connection, Slot};
use crate::events::notes;
use crate::fingerprint::{self, WHOLE};
use crate::json::Document;
use crate::key::KeyError;
use crate::key_source::KeySource;
use crate::operation::Operation;
use crate::options::{InDoubt, Mode};
use crate::pointer::Pointer;
use crate::problem::{Kind, Problem};
use crate::request_body::{Collected, Refused, RequestBody, Unread, collect};
use crate::rules::{FingerprintRule, Route, Rules};
use crate::shared::Shared;
use crate::signature::Checking;
use crate::tenant::TenantError;
use crate::trait_aliases::Carried;

/// `Retry-After` when there is no room for the body.
const RETRY_SECONDS: u64 = 5;

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
    /// Leave to claim it, or the answer if it is not remembered.
    pub(crate) slot: Result<Slot, Problem>,
}

/// Reads what is needed for a claim. A slot is taken before the body is read.
pub(crate) async fn prepare<B>(
    shared: &Shared,
    route: &Route,
    connection: Option<&Connection>,
    mut parts: Parts,
    body: B,
) -> Prepared<B>
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
    let search = match KeySearch::in_headers(route, &parts, rules.strict_keys) {
        Ok(search) => search,
        Err(error) => return refuse(invalid(&error), parts, body),
    };
    if matches!(search, KeySearch::Absent) && checking.is_none() && route.unclaimed.is_none() {
        return match route.required {
            true => refuse(missing(route), parts, body),
            false => Prepared::pass(parts, RequestBody::passed(body)),
        };
    }
    let tenant = match route.tenant(rules).of(&parts) {
        Err(error) if matches!(search, KeySearch::Found(_)) => return refuse(unknown(&error), parts, body),
        // Whether there is a key at all the body will tell.
        tenant => tenant,
    };
    let share = route.tenant(rules).share(tenant.as_deref().unwrap_or_default(), &parts.headers);
    let admitted = match shared.slots.admit(connection, &share) {
        Ok(Admitted::Look { problem, .. }) if route.mode == Mode::Observe => {
            return refuse(problem, parts, body);
        }
        Ok(admitted) => admitted,
        Err(problem) => return refuse(problem, parts, body),
    };
    let mut body = match collect(body, rules, &shared.budgets, checking.as_mut()).await {
        Ok(body) => body,
        Err(refused) => return not_collected(refused, rules, parts),
    };
    body.announce_trailers(&mut parts.headers);
    if let Some(Err(problem)) = checking.map(Checking::finish) {
        return Prepared::refuse(problem, parts, Some(RequestBody::collected(body)));
    }
    match name(shared, route, &parts, &mut body, search, tenant).await {
        Ok(Some(claim)) => {
            let slot = match admitted {
                Admitted::Work(slot) => Ok(slot),
                Admitted::Look { problem, .. } => Err(problem),
            };
            Prepared::Ready(Box::new(Ready { parts, body, claim, slot }))
        }
        Ok(None) => Prepared::pass(parts, RequestBody::collected(body)),
        Err(problem) => Prepared::refuse(problem, parts, Some(RequestBody::collected(body))),
    }
}

/// How far the search for the key has come when only the headers are there.
enum KeySearch<'a> {
    Found(Found<'a>),
    /// No source has a key in the headers, and none reads the body.
    Absent,
    /// The body may hold the key of the first of these sources, whose headers hold none.
    InBody(&'a KeySource, &'a [KeySource]),
}

impl<'a> KeySearch<'a> {
    /// Searches the sources in order, up to the first that may have its key in the body.
    fn in_headers(route: &'a Route, parts: &Parts, strict: bool) -> Result<Self, KeyError> {
        let mut sources = route.keys.as_slice();
        while let Some((source, later)) = sources.split_first() {
            if let Some(text) = source.in_headers(&parts.headers, strict)? {
                return Ok(Self::Found((text, source)));
            }
            if source.is_in_body() {
                return Ok(Self::InBody(source, later));
            }
            sources = later;
        }
        Ok(Self::Absent)
    }

    /// The places in the body that the rest of the search needs.
    fn places(&self, headers: &HeaderMap) -> Vec<&'a Pointer> {
        match *self {
            Self::Found(_) | Self::Absent => Vec::new(),
            Self::InBody(source, later) => {
                std::iter::once(source).chain(later).flat_map(|source| source.places(headers)).collect()
            }
        }
    }
}

/// Whether a look at the head shows that a request needs no key and has none.
pub(crate) fn passes(route: &Route, headers: &HeaderMap) -> bool {
    let absent =
        |source: &KeySource| matches!(source, KeySource::Header(name) if !headers.contains_key(name));
    let plain = route.preset.is_none() && route.signature.is_none() && route.unclaimed.is_none();
    !route.required && plain && route.keys.iter().all(absent)
}

async fn name(
    shared: &Shared,
    route: &Route,
    parts: &Parts,
    body: &mut Collected,
    search: KeySearch<'_>,
    tenant: Result<String, TenantError>,
) -> Result<Option<ClaimRequest>, Problem> {
    let places = places(route, search.places(&parts.headers));
    let most = shared.rules.body_parse_max_bytes;
    let document = match places.is_empty() {
        true => Document::default(),
        false => {
            let beginning = body.beginning(most, &shared.budgets).await.map_err(|unread| match unread {
                Unread::NoRoom => no_room(),
                Unread::Disk(error) => not_kept(&error),
            })?;
            Document::read(&beginning.bytes, beginning.is_whole, &places)
        }
    };
    if let Some((place, text)) = &route.unclaimed
        && document.text(place) == Some(text)
    {
        return Ok(None);
    }
    if document.is_cut() && matches!(route.fingerprint, FingerprintRule::Json(_)) {
        let why = "a body that is compared as JSON may have";
        return Err(Problem::new(
            Kind::BodyTooLarge,
            format!("{why} at most {most} bytes (body_parse_max_bytes)"),
        ));
    }
    let found = match search {
        KeySearch::Found(found) => Some(found),
        KeySearch::Absent => None,
        KeySearch::InBody(source, later) => {
            in_body(shared, source, later, &parts.headers, &document, body.digest)?
        }
    };
    let (text, source) = match found {
        Some(found) => found,
        None if route.required => return Err(missing(route)),
        None => return Ok(None),
    };
    let tenant = tenant.map_err(|error| unknown(&error))?;
    let metadata = notes(&route.metadata, &document, &shared.instance);
    let operation = Operation::of(parts);
    let fingerprint = fingerprint::of(&route.fingerprint, source, &operation, document, body.digest);
    let key =
        Key::new(Scope::new(tenant, operation.scope(route.mode)), text).map_err(|error| invalid(&error))?;
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

/// The places in the body that a claim needs.
fn places<'a>(route: &'a Route, of_key: Vec<&'a Pointer>) -> Vec<&'a Pointer> {
    let unclaimed = route.unclaimed.iter().map(|(place, _)| place);
    let notes = route.metadata.iter().flat_map(|(_, note)| note.places());
    let whole = matches!(route.fingerprint, FingerprintRule::Json(_)).then_some(&WHOLE);
    of_key.into_iter().chain(unclaimed).chain(notes).chain(whole).collect()
}

/// Goes on with the search in the body, and in the headers for the sources after the first.
fn in_body<'a>(
    shared: &Shared,
    first: &'a KeySource,
    later: &'a [KeySource],
    headers: &HeaderMap,
    document: &Document<'_>,
    digest: [u8; 32],
) -> Result<Option<Found<'a>>, Problem> {
    let (mut source, mut later) = (first, later.iter());
    loop {
        let is_missing = |place: &&Pointer| document.at(place).is_none();
        // What was not found may follow: by another source the same request would have another key.
        if document.is_cut() && source.places(headers).iter().any(is_missing) {
            let most = shared.rules.body_parse_max_bytes;
            let detail =
                format!("{source} is not within the first {most} bytes of the body (body_parse_max_bytes)");
            return Err(Problem::new(Kind::BodyTooLarge, detail));
        }
        if let Some(text) = source.in_body(document, digest).map_err(|error| invalid(&error))? {
            return Ok(Some((text, source)));
        }
        source = match later.next() {
            Some(source) => source,
            None => return Ok(None),
        };
        let in_headers = source.in_headers(headers, shared.rules.strict_keys);
        if let Some(text) = in_headers.map_err(|error| invalid(&error))? {
            return Ok(Some((text, source)));
        }
    }
}

fn invalid(error: &dyn std::error::Error) -> Problem {
    Problem::new(Kind::KeyInvalid, error.to_string())
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

fn not_collected<B>(refused: Refused<B>, rules: &Rules, parts: Parts) -> Prepared<B> {
    let (problem, body) = match refused {
        Refused::TooLarge(read, rest) => {
            let most = rules.body_max_bytes;
            let detail = format!("keyed requests may carry at most {most} bytes (body_max_bytes)");
            (Problem::new(Kind::BodyTooLarge, detail), Some(RequestBody::rejoined(read, rest)))
        }
        Refused::NoRoom(read, rest) => (no_room(), Some(RequestBody::rejoined(read, rest))),
        Refused::TooSlow(read, rest) => {
            let rate = rules.body_min_rate_bytes;
            let detail =
                format!("a body must arrive at {rate} bytes per second or more (body_min_rate_bytes)");
            (Problem::new(Kind::BodyTooSlow, detail), Some(RequestBody::rejoined(read, rest)))
        }
        Refused::Broken(cause) => {
            let detail = format!("the body did not arrive whole: {cause}");
            (Problem::new(Kind::BodyBroken, detail), None)
        }
        Refused::Disk(error) => (not_kept(&error), None),
    };
    Prepared::refuse(problem, parts, body)
}

fn no_room() -> Problem {
    let detail = "request bodies take all the room they may (body_memory_total_bytes, body_disk_total_bytes, open files)";
    Problem::new(Kind::Overloaded, detail).retry_after(RETRY_SECONDS)
}

fn not_kept(error: &std::io::Error) -> Problem {
    tracing::error!(%error, "cannot write a request body to disk");
    Problem::new(Kind::Overloaded, "the request body could not be kept").retry_after(RETRY_SECONDS)
}
