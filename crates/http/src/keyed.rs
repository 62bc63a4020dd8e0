//! Keyed requests: claimed, run once even if the caller goes, answered.

mod execution;
mod observe;
pub(crate) mod prepare;

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use ichido_core::{Caller, Claim, ClaimRequest, Outcome, Settle};
use ichido_ledger::{Effect, Error, Kind as LedgerKind, Ledger};
use tokio::runtime::Handle;
use tokio::sync::oneshot::{self, error::RecvError};

use crate::concurrency::Connection;
use crate::content_encoding as coding;
use crate::journal::{Asked, Word};
use crate::keyed::execution::Run;
use crate::keyed::prepare::{Prepared, Ready, prepare};
use crate::layer::Shared;
use crate::metrics::{End, Pass, Trace};
use crate::options::{InDoubt, Mode, Outage};
use crate::problem::{Kind, Problem};
use crate::request_body::RequestBody;
use crate::response_body::AnswerBody;
use crate::rules::{InFlight, Route};
use crate::stored_response::Answer;
use crate::trait_aliases::{Carried, Inner};

pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
pub(crate) const LIFETIME: HeaderName = HeaderName::from_static("idempotency-key-lifetime");
pub(crate) const ATTEMPT: HeaderName = HeaderName::from_static("idempotency-attempt");
pub(crate) const DEGRADED: HeaderName = HeaderName::from_static("idempotency-degraded");
const UNPROTECTED: HeaderName = HeaderName::from_static("idempotency-unprotected");
pub(crate) const TRUE: HeaderValue = HeaderValue::from_static("true");
/// What a caller is told to wait before it asks again for a request that is under way.
const RETRY_SECONDS: u64 = 1;

pub(crate) type Reply<A, E> = oneshot::Sender<Result<Response<AnswerBody<A>>, E>>;

/// Everything about one keyed request but the service and the reply.
pub(crate) struct Job {
    pub(crate) shared: Arc<Shared>,
    pub(crate) trace: Trace,
    /// Boxed: a job is handed from future to future, and each of them has room for it.
    pub(crate) ready: Box<Ready>,
    /// Whether the caller takes answers in gzip.
    takes_gzip: bool,
}

impl Job {
    pub(crate) fn route(&self) -> &Route {
        &self.shared.rules.routes[self.trace.route]
    }

    /// How long an answer of this route is kept, for callers.
    pub(crate) fn lifetime(&self) -> HeaderValue {
        self.shared.lifetimes[self.trace.route].clone()
    }

    /// The ledger that this route asks.
    pub(crate) fn ledger(&self) -> &Ledger {
        self.shared.ledger_of(self.route())
    }
}

impl Shared {
    /// The ledger that a route asks.
    pub(crate) fn ledger_of(&self, route: &Route) -> &Ledger {
        match (route.outage, &self.fallback) {
            (Outage::Fallback, Some(ledger)) => ledger,
            _ => &self.ledger,
        }
    }
}

/// Answers a request of a route.
pub(crate) async fn keyed<S, B, A>(
    shared: Arc<Shared>,
    connection: Option<Connection>,
    mut inner: S,
    mut trace: Trace,
    parts: Parts,
    body: B,
) -> Result<Response<AnswerBody<A>>, S::Error>
where
    S: Inner<B, A>,
    B: Carried,
    A: Carried,
{
    let route = &shared.rules.routes[trace.route];
    let ready = match prepare(&shared, route, connection.as_ref(), parts, body).await {
        Prepared::Ready(ready) => ready,
        Prepared::Pass(request) => {
            let (parts, body) = *request;
            // An event without an id is unusual, and logged like a keyed request. A caller may choose to send no key.
            let is_event = route.preset.is_some();
            let passing =
                if is_event { None } else { shared.meters.pass(Pass::Unkeyed(trace.route), &parts) };
            let answer = Box::pin(inner.call(Request::from_parts(parts, body))).await;
            let status = answer.as_ref().ok().map(Response::status);
            if is_event {
                let status = status.unwrap_or(StatusCode::BAD_GATEWAY);
                trace.end(&shared.meters, &shared.rules, End::Unkeyed, status, None);
            } else if let Some(passing) = passing {
                passing.end(status);
            }
            return Ok(answer?.map(AnswerBody::passed));
        }
        Prepared::Refuse(refused) => {
            let (problem, parts, body) = *refused;
            let end = if problem.kind == Kind::Overloaded { End::Overloaded } else { End::Refused };
            trace.end(&shared.meters, &shared.rules, end, problem.status(), Some(problem.kind.word()));
            return match (route.mode, body) {
                (Mode::Observe, Some(body)) => {
                    let answer = Box::pin(inner.call(Request::from_parts(parts, body))).await;
                    Ok(answer?.map(AnswerBody::passed))
                }
                _ => Ok(problem.into_response(&shared.rules.policy_path)),
            };
        }
    };
    trace.index = Some(ready.claim.key.index());
    let observed = route.mode == Mode::Observe;
    let takes_gzip = coding::takes_gzip(&ready.parts.headers);
    let job = Job { shared: shared.clone(), trace, ready, takes_gzip };
    if let Some(outcome) = remembered(&job) {
        return Ok(conclude(&job, replay(&job, outcome)));
    }
    if let Err(problem) = &job.ready.slot {
        let problem = problem.clone();
        return Ok(conclude(&job, (End::Overloaded, Err(problem))));
    }
    let (reply, answer) = oneshot::channel();
    let work = Box::pin(shared.tasks.track_future(async move {
        // Given back even if the service panics, and so is the slot, which is part of the job.
        let _counted = job.shared.meters.begin();
        if observed {
            Box::pin(observe::observe(job, inner, reply)).await;
        } else {
            claim(job, inner, reply).await;
        }
    }));
    answered(Work { left: Some(work), runtime: None }, answer).await.unwrap_or_else(|_| {
        let problem = Problem::new(Kind::HandlerFailed, "the request was given up");
        Ok(problem.into_response(&shared.rules.policy_path))
    })
}

/// Work on a request, done by whoever waits for the answer. It must not end with its caller: what is left of it when the
/// caller goes, or when an answer is sent before its end, goes on in a task of its own.
struct Work<F: Future<Output = ()> + Send + 'static> {
    left: Option<Pin<Box<F>>>,
    /// Known since it had to wait.
    runtime: Option<Handle>,
}

impl<F: Future<Output = ()> + Send + 'static> Work<F> {
    /// A panic ends it, and with it goes the sender of the answer.
    fn drive(&mut self, cx: &mut Context<'_>) {
        let Some(left) = &mut self.left else { return };
        match catch_unwind(AssertUnwindSafe(|| left.as_mut().poll(cx))) {
            Ok(Poll::Pending) => {
                self.runtime.get_or_insert_with(Handle::current);
            }
            Ok(Poll::Ready(())) | Err(_) => self.left = None,
        }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Drop for Work<F> {
    fn drop(&mut self) {
        // Before it had to wait, nothing was begun that could be left undone.
        if let (Some(left), Some(runtime)) = (self.left.take(), self.runtime.take()) {
            runtime.spawn(left);
        }
    }
}

async fn answered<T>(
    mut work: Work<impl Future<Output = ()> + Send>,
    mut answer: oneshot::Receiver<T>,
) -> Result<T, RecvError> {
    poll_fn(|cx| {
        work.drive(cx);
        Pin::new(&mut answer).poll(cx)
    })
    .await
}

/// Asks the ledger, and does what it says.
async fn claim<S, B, A>(mut job: Job, inner: S, reply: Reply<A, S::Error>)
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

/// What is said to the caller, and how it is counted.
pub(crate) type Said<A> = (End, Result<Response<AnswerBody<A>>, Problem>);

pub(crate) fn send<A, E>(job: &Job, reply: Reply<A, E>, said: Said<A>) {
    // The caller may have gone; what it asked for is done and kept all the same.
    let _ = reply.send(Ok(conclude(job, said)));
}

/// Counts what is said, and makes it the answer.
fn conclude<A>(job: &Job, (end, answer): Said<A>) -> Response<AnswerBody<A>> {
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
fn remembered(job: &Job) -> Option<Outcome> {
    if job.route().mode == Mode::Observe || job.shared.journal.is_some() {
        return None;
    }
    job.ledger().recall(&job.ready.claim)
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
fn of_journal<A>(job: &Job) -> Option<Said<A>> {
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

fn mismatch<A>() -> Said<A> {
    let detail = "the key was used before with another body; do not reuse keys across requests";
    (End::Mismatch, Err(Problem::new(Kind::KeyReused, detail)))
}

pub(crate) fn caller_changed<A>() -> Said<A> {
    let detail = "the key was used before with other credentials, and nothing was done now; if callers change their \
        credentials, the operator must say with the setting `tenant` what tells them apart";
    (End::CallerChanged, Err(Problem::new(Kind::CallerChanged, detail)))
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
