//! Replies to keyed requests.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use ichido_core::{Caller, Outcome};
use tokio::sync::oneshot;

use super::request::Job;
use crate::content_encoding as coding;
use crate::metrics::End;
use crate::options::{InDoubt, Mode};
use crate::problem::{Kind, Problem};
use crate::response_body::AnswerBody;
use crate::rules::Route;
use crate::stored_response::Answer;

pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
pub(crate) const LIFETIME: HeaderName = HeaderName::from_static("idempotency-key-lifetime");
pub(crate) const ATTEMPT: HeaderName = HeaderName::from_static("idempotency-attempt");
pub(crate) const DEGRADED: HeaderName = HeaderName::from_static("idempotency-degraded");
pub(crate) const TRUE: HeaderValue = HeaderValue::from_static("true");
/// What a caller is told to wait before it asks again for a request that is under way.
pub(crate) const RETRY_SECONDS: u64 = 1;

pub(crate) type Reply<A, E> = oneshot::Sender<Result<Response<AnswerBody<A>>, E>>;

/// What is said to the caller, and how it is counted.
pub(crate) type Said<A> = (End, Result<Response<AnswerBody<A>>, Problem>);

pub(crate) fn send<A, E>(job: &Job, reply: Reply<A, E>, said: Said<A>) {
    // The caller may have gone; what it asked for is done and kept all the same.
    let _ = reply.send(Ok(conclude(job, said)));
}

/// Counts what is said, and makes it the answer.
pub(crate) fn conclude<A>(job: &Job, (end, answer): Said<A>) -> Response<AnswerBody<A>> {
    let (shared, detail) = (&job.shared, answer.as_ref().err().map(|problem| problem.kind.word()));
    let mut response = match answer {
        Ok(response) => response,
        Err(problem) => problem.into_response(&shared.rules.policy_path),
    };
    if job.trace.degraded {
        response.headers_mut().insert(DEGRADED, TRUE);
    }
    job.trace.end(&shared.meters, &shared.rules, end, response.status(), detail);
    response
}

/// The outcome of a request that was completed lately. To find it takes no work that would have to be looked after.
pub(crate) fn remembered(job: &Job) -> Option<Outcome> {
    if job.route().mode == Mode::Observe || job.shared.journal.is_some() {
        return None;
    }
    job.ledger().cached_outcome(&job.ready.claim)
}

pub(crate) fn replay<A>(job: &Job, outcome: Outcome) -> Said<A> {
    let bytes = match outcome {
        Outcome::Kept(bytes) => bytes,
        // A sender of events asks whether it was handled, and nothing else.
        Outcome::Tombstone(_) if job.route().preset.is_some() => {
            let mut response = Response::new(AnswerBody::whole(Bytes::new(), HeaderMap::new()));
            response.headers_mut().insert(REPLAYED, TRUE);
            return (End::Replayed, Ok(response));
        }
        Outcome::Tombstone(reason) => {
            return (End::NotKept, Err(Problem::new(Kind::AnswerNotKept, reason)));
        }
    };
    let Ok(mut answer) = Answer::read(&bytes) else {
        tracing::error!(index = %job.ready.claim.key.index(), "a stored answer cannot be read");
        return (End::NotKept, Err(Problem::new(Kind::AnswerNotKept, "the stored answer cannot be read")));
    };
    let body = if job.takes_gzip || answer.body.is_empty() || !coding::is_gzipped(&answer.headers) {
        AnswerBody::whole(answer.body, answer.trailers)
    } else {
        coding::decoded(&mut answer.headers, &mut answer.trailers);
        AnswerBody::unzipped(answer.body, answer.trailers)
    };
    let mut response = Response::new(body);
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    response.headers_mut().insert(REPLAYED, TRUE);
    response.headers_mut().insert(LIFETIME, job.lifetime());
    (End::Replayed, Ok(response))
}

/// The answer to a repeat of a request whose end the ledger has not heard of yet.
pub(crate) fn of_journal<A>(job: &Job) -> Option<Said<A>> {
    let claim = &job.ready.claim;
    let (finished, outcome) = job.shared.journal.as_ref()?.outcome(&claim.key)?;
    Some(if Caller::is_other(claim.caller, finished.caller) {
        caller_changed()
    } else if finished.fingerprint != claim.fingerprint {
        mismatch()
    } else {
        replay(job, outcome)
    })
}

pub(crate) fn in_flight<A>() -> Said<A> {
    let problem = Problem::new(Kind::InFlight, "a request with the same key is being processed");
    (End::Conflict, Err(problem.retry_after(RETRY_SECONDS)))
}

pub(crate) fn in_doubt<A>(route: &Route) -> Said<A> {
    let problem =
        Problem::new(Kind::InDoubt, "the first request with this key may or may not have taken effect");
    let retry = route.timeout.filter(|_| route.in_doubt == InDoubt::Retry);
    (
        End::InDoubt,
        Err(match retry {
            Some(time) => problem.retry_after(time.as_secs().max(1)),
            None => problem,
        }),
    )
}

pub(crate) fn mismatch<A>() -> Said<A> {
    let detail = "the key was used before with another body; do not reuse keys across requests";
    (End::Mismatch, Err(Problem::new(Kind::KeyReused, detail)))
}

pub(crate) fn caller_changed<A>() -> Said<A> {
    let detail = "the key was used before with other credentials, and nothing was done now; if callers change their \
        credentials, the operator must say with the setting `tenant` what tells them apart";
    (End::CallerChanged, Err(Problem::new(Kind::CallerChanged, detail)))
}
