//! Replies to keyed requests: replays, conflicts, and the bookkeeping that every reply needs.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use ichido_core::{Caller, Outcome};
use tokio::sync::oneshot;

use super::request::KeyedRequest;
use crate::content::report;
use crate::content_encoding;
use crate::metrics::Disposition;
use crate::options::{InDoubt, Mode};
use crate::problem::{Kind, Problem};
use crate::response_body::ResponseBody;
use crate::rules::Route;
use crate::stored_response::StoredResponse;

const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
pub(super) const LIFETIME: HeaderName = HeaderName::from_static("idempotency-key-lifetime");
pub(super) const ATTEMPT: HeaderName = HeaderName::from_static("idempotency-attempt");
pub(super) const DEGRADED: HeaderName = HeaderName::from_static("idempotency-degraded");
pub(super) const TRUE: HeaderValue = HeaderValue::from_static("true");
/// `Retry-After` for a request that is still running, and for a key that could not be checked.
pub(super) const RETRY_AFTER_SECONDS: u64 = 1;

pub(super) type ReplySender<A, E> = oneshot::Sender<Result<Response<ResponseBody<A>>, E>>;

/// The response for the caller, and how it is counted.
pub(super) type Reply<A> = (Disposition, Result<Response<ResponseBody<A>>, Problem>);

pub(super) fn send<A, E>(request: &KeyedRequest, sender: ReplySender<A, E>, reply: Reply<A>) {
    // The caller may have disconnected. The request is finished and recorded either way.
    let _ = sender.send(Ok(finish(request, reply)));
}

/// Counts and logs the reply, and builds the response.
pub(super) fn finish<A>(
    request: &KeyedRequest,
    (disposition, response): Reply<A>,
) -> Response<ResponseBody<A>> {
    let (shared, detail) = (&request.shared, response.as_ref().err().map(|problem| problem.kind.code()));
    let mut response = match response {
        Ok(response) => response,
        Err(problem) => problem.into_response(&shared.rules.policy_path),
    };
    if request.trace.degraded {
        response.headers_mut().insert(DEGRADED, TRUE);
    }
    report(response.headers_mut(), &request.trace.reports);
    request.trace.finish(&shared.metrics, &shared.rules, disposition, response.status(), detail);
    response
}

/// The outcome of a recently completed request, if this process still has it in memory.
pub(super) fn cached_outcome(request: &KeyedRequest) -> Option<Outcome> {
    if request.route().mode == Mode::Observe || request.shared.journal.is_some() {
        return None;
    }
    request.ledger().cached_outcome(&request.claimable.claim)
}

pub(super) fn replay<A>(request: &KeyedRequest, outcome: Outcome) -> Reply<A> {
    let bytes = match outcome {
        Outcome::Kept(bytes) => bytes,
        // The sender of an event only needs to know that the event was handled.
        Outcome::Tombstone(_) if request.route().preset.is_some() => {
            let mut response = Response::new(ResponseBody::whole(Bytes::new(), HeaderMap::new()));
            response.headers_mut().insert(REPLAYED, TRUE);
            return (Disposition::Replayed, Ok(response));
        }
        Outcome::Tombstone(reason) => {
            return (Disposition::NotKept, Err(Problem::new(Kind::AnswerNotKept, reason)));
        }
    };
    let Ok(mut stored) = StoredResponse::read(&bytes) else {
        tracing::error!(index = %request.claimable.claim.key.index(), "cannot read stored response");
        let problem = Problem::new(Kind::AnswerNotKept, "the stored response cannot be read");
        return (Disposition::NotKept, Err(problem));
    };
    let send_as_stored =
        request.accepts_gzip || stored.body.is_empty() || !content_encoding::is_gzipped(&stored.headers);
    let body = if send_as_stored {
        ResponseBody::whole(stored.body, stored.trailers)
    } else {
        content_encoding::remove_gzip(&mut stored.headers, &mut stored.trailers);
        ResponseBody::gunzip(stored.body, stored.trailers)
    };
    let mut response = Response::new(body);
    *response.status_mut() = stored.status;
    *response.headers_mut() = stored.headers;
    response.headers_mut().insert(REPLAYED, TRUE);
    response.headers_mut().insert(LIFETIME, request.lifetime());
    (Disposition::Replayed, Ok(response))
}

/// The reply to a retry of a request whose completion is still in the journal.
pub(super) fn journaled_reply<A>(request: &KeyedRequest) -> Option<Reply<A>> {
    let claim = &request.claimable.claim;
    let (completed, outcome) = request.shared.journal.as_ref()?.outcome(&claim.key)?;
    Some(if Caller::is_other(claim.caller, completed.caller) {
        caller_changed()
    } else if completed.fingerprint != claim.fingerprint {
        mismatch()
    } else {
        replay(request, outcome)
    })
}

pub(super) fn in_flight<A>() -> Reply<A> {
    let problem = Problem::new(Kind::InFlight, "a request with the same key is still being processed");
    (Disposition::Conflict, Err(problem.retry_after(RETRY_AFTER_SECONDS)))
}

pub(super) fn in_doubt<A>(route: &Route) -> Reply<A> {
    let problem =
        Problem::new(Kind::InDoubt, "the first request with this key may or may not have taken effect");
    let retry_after = route.timeout.filter(|_| route.in_doubt == InDoubt::Retry);
    let problem = match retry_after {
        Some(time) => problem.retry_after(time.as_secs().max(1)),
        None => problem,
    };
    (Disposition::InDoubt, Err(problem))
}

pub(super) fn mismatch<A>() -> Reply<A> {
    let detail = "the key was already used with a different body; use a new key for each new request";
    (Disposition::Mismatch, Err(Problem::new(Kind::KeyReused, detail)))
}

pub(super) fn caller_changed<A>() -> Reply<A> {
    let detail = "the key was already used with different credentials; this request was not run. If callers change their \
        credentials, the operator must set `tenant` to what identifies a caller";
    (Disposition::CallerChanged, Err(Problem::new(Kind::CallerChanged, detail)))
}

/// The ledger did not respond, and the service was not called.
pub(super) fn ledger_unavailable<A>() -> Reply<A> {
    let problem =
        Problem::new(Kind::LedgerUnavailable, "the key could not be checked; the request was not run");
    (Disposition::Unavailable, Err(problem.retry_after(RETRY_AFTER_SECONDS)))
}
