//! Prepares the claim for a request: checks the signature, finds the key and tenant, buffers the body, and computes the
//! fingerprint.

use http::HeaderMap;
use http::request::Parts;
use ichido_core::{ClaimRequest, InDoubtPolicy, Key, Scope};

use crate::concurrency::{Admitted, ConnectionLimit, Slot};
use crate::content::{self, EventContent};
use crate::fingerprint::{self, WHOLE};
use crate::json::Document;
use crate::key::KeyError;
use crate::key_source::KeySource;
use crate::metadata;
use crate::operation::Operation;
use crate::options::{InDoubt, Mode};
use crate::pointer::Pointer;
use crate::problem::{Kind, Problem};
use crate::request_body::{BufferError, BufferedBody, PrefixError, RequestBody, buffer};
use crate::request_id;
use crate::rules::{FingerprintRule, Route, Rules};
use crate::shared::Shared;
use crate::signature::Verification;
use crate::spans::ActiveSpan;
use crate::tenant::TenantError;
use crate::trace_context::TraceContext;
use crate::trait_aliases::HttpBody;

/// `Retry-After` when the budgets for request bodies are used up.
const RETRY_AFTER_SECONDS: u64 = 5;

/// What to do with a request. The contents are boxed, because every future that they pass through reserves space for them.
pub(super) enum Prepared<B> {
    /// Call the service without a claim: the request needs no key and has none.
    Pass(Box<(Parts, RequestBody<B>)>),
    /// Refuse the request. The body is present if it can still be passed on.
    Refuse(Box<(Problem, Parts, Option<RequestBody<B>>)>),
    Claim(Box<Claimable>),
}

impl<B> Prepared<B> {
    fn pass(parts: Parts, body: RequestBody<B>) -> Self {
        Self::Pass(Box::new((parts, body)))
    }

    fn refuse(problem: Problem, parts: Parts, body: Option<RequestBody<B>>) -> Self {
        Self::Refuse(Box::new((problem, parts, body)))
    }
}

/// A request that can be claimed.
pub(super) struct Claimable {
    pub(super) parts: Parts,
    pub(super) body: BufferedBody,
    pub(super) claim: ClaimRequest,
    /// What the event is known by in addition to its key.
    pub(super) content: EventContent,
    /// The slot for running the request, or the problem to respond with if no outcome can be replayed.
    pub(super) slot: Result<Slot, Problem>,
}

/// Whether the headers alone show that a request needs no key and has none.
pub(crate) fn passes_without_key(route: &Route, headers: &HeaderMap) -> bool {
    let is_absent =
        |source: &KeySource| matches!(source, KeySource::Header(name) if !headers.contains_key(name));
    let is_plain = route.preset.is_none() && route.signature.is_none() && route.unclaimed.is_none();
    !route.required && is_plain && route.keys.iter().all(is_absent)
}

/// Prepares a claim. The slot is taken before the body is read.
pub(super) async fn prepare<B>(
    shared: &Shared,
    route: &Route,
    connection: Option<&ConnectionLimit>,
    mut parts: Parts,
    body: B,
) -> Prepared<B>
where
    B: HttpBody,
{
    let rules = &shared.rules;
    let refuse = |problem, parts, body| Prepared::refuse(problem, parts, Some(RequestBody::passed(body)));
    let verification = route.signature.as_ref().map(|signature| {
        let now = shared.ledger.settings().clock.now();
        signature.begin_verification(&parts.headers, now)
    });
    let mut verification = match verification.transpose() {
        Ok(verification) => verification,
        Err(problem) => return refuse(problem, parts, body),
    };
    let search = match KeySearch::in_headers(route, &parts, rules.strict_keys) {
        Ok(search) => search,
        Err(error) => return refuse(key_invalid(&error), parts, body),
    };
    if matches!(search, KeySearch::Absent) && verification.is_none() && route.unclaimed.is_none() {
        return match route.required {
            true => refuse(key_missing(route), parts, body),
            false => Prepared::pass(parts, RequestBody::passed(body)),
        };
    }
    let tenant = match route.tenant(rules).of(&parts) {
        Err(error) if matches!(search, KeySearch::Found(_)) => {
            return refuse(tenant_unknown(&error), parts, body);
        }
        // An error counts only if the body turns out to contain a key.
        tenant => tenant,
    };
    let name = tenant.as_deref().unwrap_or_default();
    let share = route.tenant(rules).share(name, &parts.headers, shared.limits.hasher());
    let admitted = match shared.limits.admit(connection, share) {
        Ok(Admitted::ReplayOnly { problem, .. }) if route.mode == Mode::Observe => {
            return refuse(problem, parts, body);
        }
        Ok(admitted) => admitted,
        Err(problem) => return refuse(problem, parts, body),
    };
    let mut body = match buffer(body, rules, &shared.budgets, verification.as_mut()).await {
        Ok(body) => body,
        Err(error) => return not_buffered(error, rules, parts),
    };
    body.announce_trailers(&mut parts.headers);
    if let Some(Err(problem)) = verification.map(Verification::finish) {
        return Prepared::refuse(problem, parts, Some(RequestBody::buffered(body)));
    }
    match claim_request(shared, route, &parts, &mut body, search, tenant).await {
        Ok(Some((claim, content))) => {
            let slot = match admitted {
                Admitted::Run(slot) => Ok(slot),
                Admitted::ReplayOnly { problem, .. } => Err(problem),
            };
            Prepared::Claim(Box::new(Claimable { parts, body, claim, content, slot }))
        }
        Ok(None) => Prepared::pass(parts, RequestBody::buffered(body)),
        Err(problem) => Prepared::refuse(problem, parts, Some(RequestBody::buffered(body))),
    }
}

/// A key and the source that supplied it.
type FoundKey<'a> = (String, &'a KeySource);

/// The search for the key, as far as the headers allow.
enum KeySearch<'a> {
    Found(FoundKey<'a>),
    /// No source has a key in the headers, and none reads the body.
    Absent,
    /// The first source has no key in the headers but may have one in the body. The later sources are not searched yet.
    InBody(&'a KeySource, &'a [KeySource]),
}

impl<'a> KeySearch<'a> {
    /// Searches the sources in order, up to the first one that may have its key in the body.
    fn in_headers(route: &'a Route, parts: &Parts, strict: bool) -> Result<Self, KeyError> {
        let mut sources = route.keys.as_slice();
        while let Some((source, later)) = sources.split_first() {
            if let Some(text) = source.in_headers(&parts.headers, strict)? {
                return Ok(Self::Found((text, source)));
            }
            if source.may_be_in_body() {
                return Ok(Self::InBody(source, later));
            }
            sources = later;
        }
        Ok(Self::Absent)
    }

    /// The values of the body that the rest of the search needs.
    fn pointers(&self, headers: &HeaderMap) -> Vec<&'a Pointer> {
        match *self {
            Self::Found(_) | Self::Absent => Vec::new(),
            Self::InBody(source, later) => {
                std::iter::once(source).chain(later).flat_map(|source| source.pointers(headers)).collect()
            }
        }
    }

    /// Continues the search in the body, and in the headers for the later sources.
    fn finish(
        self,
        rules: &Rules,
        headers: &HeaderMap,
        document: &Document<'_>,
        body_digest: [u8; 32],
    ) -> Result<Option<FoundKey<'a>>, Problem> {
        let (mut source, mut later) = match self {
            Self::Found(found) => return Ok(Some(found)),
            Self::Absent => return Ok(None),
            Self::InBody(source, later) => (source, later.iter()),
        };
        loop {
            let is_missing = |pointer: &&Pointer| document.get(pointer).is_none();
            // The value may follow in the part that was not read. With a later source, the same request would get a
            // different key.
            if document.is_truncated() && source.pointers(headers).iter().any(is_missing) {
                let max = rules.body_parse_max_bytes;
                let detail = format!(
                    "{source} is not within the first {max} bytes of the body (body_parse_max_bytes)"
                );
                return Err(Problem::new(Kind::BodyTooLarge, detail));
            }
            let in_body = source.in_body(document, body_digest);
            if let Some(text) = in_body.map_err(|error| key_invalid(&error))? {
                return Ok(Some((text, source)));
            }
            source = match later.next() {
                Some(source) => source,
                None => return Ok(None),
            };
            let in_headers = source.in_headers(headers, rules.strict_keys);
            if let Some(text) = in_headers.map_err(|error| key_invalid(&error))? {
                return Ok(Some((text, source)));
            }
        }
    }
}

/// Builds the claim. `None` if the request passes without one.
async fn claim_request(
    shared: &Shared,
    route: &Route,
    parts: &Parts,
    body: &mut BufferedBody,
    search: KeySearch<'_>,
    tenant: Result<String, TenantError>,
) -> Result<Option<(ClaimRequest, EventContent)>, Problem> {
    let pointers = needed_pointers(route, search.pointers(&parts.headers), &parts.headers);
    let max = shared.rules.body_parse_max_bytes;
    let document = match pointers.is_empty() {
        true => Document::default(),
        false => {
            let prefix = body.prefix(max, &shared.budgets).await.map_err(|error| match error {
                PrefixError::OverBudget => over_budget(),
                PrefixError::Disk(error) => disk_failed(&error),
            })?;
            Document::read(&prefix.bytes, prefix.is_whole, &pointers)
        }
    };
    if let Some((pointer, text)) = &route.unclaimed
        && document.text(pointer) == Some(text)
    {
        return Ok(None);
    }
    if document.is_truncated() && matches!(route.fingerprint, FingerprintRule::Json(_)) {
        let detail =
            format!("a body that is compared as JSON may have at most {max} bytes (body_parse_max_bytes)");
        return Err(Problem::new(Kind::BodyTooLarge, detail));
    }
    let found = search.finish(&shared.rules, &parts.headers, &document, body.digest)?;
    let (text, source) = match found {
        Some(found) => found,
        None if route.required => return Err(key_missing(route)),
        None => return Ok(None),
    };
    let tenant = tenant.map_err(|error| tenant_unknown(&error))?;
    let metadata = metadata::of_request(&route.metadata, &document, &shared.instance, ids(parts));
    let operation = Operation::of(parts);
    let scope = Scope::new(tenant, operation.scope(route.mode));
    let content = EventContent::of(route, &scope, &parts.headers, &document, body.digest);
    let fingerprint = fingerprint::of(&route.fingerprint, source, &operation, document, body.digest);
    let key = Key::new(scope, text).map_err(|error| key_invalid(&error))?;
    let caller = route.tenant(&shared.rules).caller(key.index(), &parts.headers);
    let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let in_doubt = match route.in_doubt {
        InDoubt::Reject => InDoubtPolicy::Reject,
        InDoubt::Retry => InDoubtPolicy::Retry { silent_ms: ms(route.timeout.unwrap_or_default()) },
    };
    let claim = ClaimRequest {
        fingerprint,
        caller,
        lease_ms: ms(route.lease),
        retention_ms: ms(route.retention),
        in_doubt,
        metadata,
        ..shared.ledger.request(key)
    };
    Ok(Some((claim, content)))
}

/// What identifies the request in logs and traces: operators find its claim by it, and the other way round.
fn ids(parts: &Parts) -> [(&'static str, Option<String>); 2] {
    let span = parts.extensions.get().map(ActiveSpan::context);
    let context = span.or_else(|| TraceContext::of(&parts.headers));
    let request_id = request_id::of(&parts.headers);
    [
        ("trace_id", context.map(|context| context.trace_id_text())),
        ("request_id", request_id.and_then(|id| id.to_str().ok().map(ToOwned::to_owned))),
    ]
}

/// The values of the body that the claim needs.
fn needed_pointers<'a>(route: &'a Route, for_key: Vec<&'a Pointer>, headers: &HeaderMap) -> Vec<&'a Pointer> {
    let unclaimed = route.unclaimed.iter().map(|(pointer, _)| pointer);
    let metadata = route.metadata.iter().flat_map(|(_, source)| source.pointers());
    let whole = matches!(route.fingerprint, FingerprintRule::Json(_)).then_some(&WHOLE);
    let content = content::pointers(route, headers);
    for_key.into_iter().chain(unclaimed).chain(metadata).chain(content).chain(whole).collect()
}

fn key_invalid(error: &dyn std::error::Error) -> Problem {
    Problem::new(Kind::KeyInvalid, error.to_string())
}

fn key_missing(route: &Route) -> Problem {
    let sources: Vec<_> = route.keys.iter().map(ToString::to_string).collect();
    let detail = format!("this operation requires a key, and none was found in: {}", sources.join(", "));
    Problem::new(Kind::KeyMissing, detail)
}

fn tenant_unknown(error: &TenantError) -> Problem {
    let problem = Problem::new(Kind::TenantUnknown, error.to_string());
    match error {
        TenantError::Unknown(_) => problem,
        TenantError::Unverified(_) => problem.unauthorized(),
    }
}

fn not_buffered<B>(error: BufferError<B>, rules: &Rules, parts: Parts) -> Prepared<B> {
    let (problem, body) = match error {
        BufferError::TooLarge(read, rest) => {
            let max = rules.body_max_bytes;
            let detail = format!("the body of a keyed request may have at most {max} bytes (body_max_bytes)");
            (Problem::new(Kind::BodyTooLarge, detail), Some(RequestBody::rejoined(read, rest)))
        }
        BufferError::OverBudget(read, rest) => (over_budget(), Some(RequestBody::rejoined(read, rest))),
        BufferError::TooSlow(read, rest) => {
            let rate = rules.body_min_rate_bytes;
            let detail =
                format!("the body must arrive at {rate} bytes per second or faster (body_min_rate_bytes)");
            (Problem::new(Kind::BodyTooSlow, detail), Some(RequestBody::rejoined(read, rest)))
        }
        BufferError::Broken(cause) => {
            let detail = format!("the request body is incomplete: {cause}");
            (Problem::new(Kind::BodyBroken, detail), None)
        }
        BufferError::Disk(error) => (disk_failed(&error), None),
    };
    Prepared::refuse(problem, parts, body)
}

fn over_budget() -> Problem {
    let detail = "request bodies have reached their limit (body_memory_total_bytes, body_disk_total_bytes, open files)";
    Problem::new(Kind::Overloaded, detail).retry_after(RETRY_AFTER_SECONDS)
}

fn disk_failed(error: &std::io::Error) -> Problem {
    tracing::error!(%error, "cannot write request body to disk");
    Problem::new(Kind::Overloaded, "the request body could not be buffered").retry_after(RETRY_AFTER_SECONDS)
}
