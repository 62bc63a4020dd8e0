//! Claims a keyed request.

use http::{HeaderName, Request, Response, StatusCode};
use ichido_core::{Claim, ClaimRequest, Settle};
use ichido_ledger::{Effect, Error, Kind as LedgerKind};

use super::granted::Run;
use super::prepare::Ready;
use super::reply::{
    ATTEMPT, RETRY_SECONDS, Reply, TRUE, caller_changed, in_doubt, in_flight, mismatch, of_journal, replay,
    send,
};
use super::request::Job;
use crate::journal::{Asked, Word};
use crate::metrics::End;
use crate::options::Outage;
use crate::problem::{Kind, Problem};
use crate::request_body::RequestBody;
use crate::response_body::AnswerBody;
use crate::rules::InFlight;
use crate::trait_aliases::{Carried, Inner};

const UNPROTECTED: HeaderName = HeaderName::from_static("idempotency-unprotected");

/// Asks the ledger, and does what it says.
pub(crate) async fn claim<S, B, A>(mut job: Job, inner: S, reply: Reply<A, S::Error>)
where
    S: Inner<B, A>,
    B: Carried,
    A: Carried,
{
    if let Some(answer) = of_journal(&job) {
        return send(&job, reply, answer);
    }
    let request = &job.ready.claim;
    let claimed = match job.route().in_flight {
        InFlight::Conflict => job.ledger().claim(request).await,
        InFlight::Wait(time) => Box::pin(job.ledger().claim_or_wait(request, time)).await,
    };
    let claimed = match claimed {
        Ok(claimed) => claimed,
        Err(error) => return Box::pin(unclaimed(job, inner, reply, error)).await,
    };
    job.trace.degraded = claimed.degraded;
    let answer = match claimed.claim {
        Claim::Granted(grant) => {
            job.trace.attempt = grant.attempt;
            return Run { job, grant }.run(inner, reply).await;
        }
        Claim::Done(outcome) => replay(&job, outcome),
        // What the ledger takes for unfinished may have ended here while it was asked.
        Claim::Held { .. } => of_journal(&job).unwrap_or_else(in_flight),
        Claim::InDoubt(_) => of_journal(&job).unwrap_or_else(|| in_doubt(job.route())),
        Claim::Mismatch => mismatch(),
        Claim::CallerChanged => caller_changed(),
    };
    send(&job, reply, answer);
}

/// The ledger gave no answer.
async fn unclaimed<S, B, A>(job: Job, inner: S, reply: Reply<A, S::Error>, error: Error)
where
    S: Inner<B, A>,
    B: Carried,
    A: Carried,
{
    if let LedgerKind::Limit(limit) = error.kind() {
        let problem = Problem::new(Kind::KeyInvalid, limit.to_string());
        return send(&job, reply, (End::Refused, Err(problem)));
    }
    // The first request may have ended while this one asked.
    if let Some(answer) = of_journal(&job) {
        take_back(&job, &error).await;
        return send(&job, reply, answer);
    }
    if job.route().outage == Outage::Open && error.is_outage() {
        tracing::warn!(%error, "the ledger is out; a keyed request runs unprotected");
        return unprotected(job, inner, reply).await;
    }
    tracing::warn!(%error, "a keyed request could not be claimed");
    take_back(&job, &error).await;
    let problem = Problem::new(Kind::LedgerUnavailable, "the key could not be checked; nothing was done");
    send(&job, reply, (End::Unavailable, Err(problem.retry_after(RETRY_SECONDS))));
    give_back(&job, &error).await;
}

/// A claim whose answer never came may have been granted, and nothing ran: the ledger hears of it when it is back.
async fn take_back(job: &Job, error: &Error) {
    // In a long outage every request comes here; beyond some number their claims are left to lapse.
    let perhaps_granted = error.effect() == Effect::Unknown;
    let Some(journal) = job.shared.journal.as_ref().filter(|journal| perhaps_granted && journal.has_room())
    else {
        return;
    };
    let claim = &job.ready.claim;
    let word = Word { asked: Asked::of(claim), token: claim.token, settle: Settle::Release };
    if let Err(error) = journal.keep(job.ledger(), word, None).await {
        tracing::warn!(%error, "the completion journal could not be written");
    }
}

/// The same without a journal. An embedded ledger decides a claim even if its caller went, and what it is told later
/// it hears later: so the release is said behind the claim, when the caller has its answer.
async fn give_back(job: &Job, error: &Error) {
    if job.shared.journal.is_some() || error.effect() == Effect::None {
        return;
    }
    let ClaimRequest { key, token, .. } = &job.ready.claim;
    if let Err(error) = job.ledger().release(key, *token).await {
        tracing::warn!(index = %key.index(), %error, "a claim that may have been granted to nobody was not given back; it may be in doubt");
    }
}

async fn unprotected<S, B, A>(job: Job, mut inner: S, reply: Reply<A, S::Error>)
where
    S: Inner<B, A>,
{
    let Job { shared, trace, ready, .. } = job;
    let Ready { parts, body, .. } = *ready;
    let mut request = Request::from_parts(parts, RequestBody::collected(body));
    request.headers_mut().remove(ATTEMPT);
    let answer = inner.call(request).await.map(|response| {
        let mut response = response.map(AnswerBody::passed);
        response.headers_mut().insert(UNPROTECTED, TRUE);
        response
    });
    let status = answer.as_ref().map_or(StatusCode::BAD_GATEWAY, Response::status);
    trace.end(&shared.meters, &shared.rules, End::Unprotected, status, None);
    let _ = reply.send(answer);
}
