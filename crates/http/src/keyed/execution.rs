//! A granted claim: run the service, keep its answer, then send it.

mod streaming;

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, UPGRADE};
use http::response::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use ichido_core::{Caller, Grant, Limits, Now, Outcome, Settle, Settled};
use ichido_ledger::within;
use tokio::time::Instant;

use self::streaming::next_within;
use crate::content_encoding as coding;
use crate::failure::{Failure, IntoFailure};
use crate::journal::{Asked, Word};
use crate::keyed::{ATTEMPT, Job, LIFETIME, Reply, Said, in_doubt, in_flight, replay, send};
use crate::metrics::End;
use crate::options::{NoStore, SetCookie};
use crate::problem::{Kind, Problem};
use crate::request_body::RequestBody;
use crate::response_body::AnswerBody;
use crate::stored_response::{self as answer, body_of, is_no_store, strip_hop_by_hop};
use crate::trait_aliases::{Carried, Inner};
use crate::verdict::{Verdict, verdict};

/// How long the end of an answer of unknown length is waited for before its beginning is sent.
const STREAM_AFTER: Duration = Duration::from_secs(2);

/// Leave to run the service.
pub(crate) struct Run {
    pub(crate) job: Job,
    pub(crate) grant: Grant,
}

/// What the service did.
enum Ran<A> {
    Answered(Response<A>),
    Failed(Failure),
    Panicked,
}

/// What was read of an answer before the first byte of it is sent.
enum Read {
    Whole(HeaderMap),
    Large,
    Failed(Failure),
}

impl Run {
    pub(crate) async fn run<S, B, A>(self, inner: S, reply: Reply<A, S::Error>)
    where
        S: Inner<B, A>,
        B: Carried,
        A: Carried,
    {
        let (shared, key, grant) = (self.job.shared.clone(), self.job.ready.claim.key.clone(), self.grant);
        let ledger = shared.ledger_of(&shared.rules.routes[self.job.trace.route]);
        match ledger.confirm(&key, &grant).await {
            Ok(true) => {}
            Ok(false) => return send(&self.job, reply, in_flight()),
            Err(error) => {
                tracing::warn!(%error, "a claim could not be confirmed");
                // Nothing ran: without this word the claim would lapse into doubt.
                Box::pin(self.say(Settle::Release)).await;
                let problem =
                    Problem::new(Kind::LedgerUnavailable, "the key could not be checked; nothing was done");
                return send(&self.job, reply, (End::Unavailable, Err(problem.retry_after(1))));
            }
        }
        // Most requests end long before a renewal is due, and need no renewing task. The first one is due after a third
        // of what is left, as if the task had been there from the beginning: half of that has passed when it starts.
        let left_ms = grant.left_ms.max(grant.lease_ms / 2);
        let renewing = async {
            tokio::time::sleep(Duration::from_millis(left_ms / 6)).await;
            let _renewal = ledger.keep(&key, &Grant { left_ms: left_ms / 2, ..grant });
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = self.work(inner, reply) => {}
            () = renewing => {}
        }
    }

    async fn work<S, B, A>(mut self, inner: S, reply: Reply<A, S::Error>)
    where
        S: Inner<B, A>,
        B: Carried,
        A: Carried,
    {
        let limit = self.job.route().timeout;
        let said = match call(inner, self.request(), limit).await {
            // In boxes what is seldom: the future of a request has room for all that may become of it.
            Ran::Failed(failure) => Box::pin(self.failed(failure)).await,
            Ran::Panicked => Box::pin(self.panicked()).await,
            Ran::Answered(response) => {
                let (mut head, mut body) = response.into_parts();
                strip_hop_by_hop(&mut head.headers);
                let mut pieces = Vec::new();
                match self.read(&head, &mut body, &mut pieces).await {
                    Read::Whole(trailers) => self.whole(head, pieces, trailers).await,
                    Read::Failed(failure) => Box::pin(self.failed(failure)).await,
                    Read::Large => return Box::pin(self.stream(head, pieces, body, reply)).await,
                }
            }
        };
        send(&self.job, reply, said);
    }

    fn request<B>(&mut self) -> Request<RequestBody<B>> {
        let ready = &mut self.job.ready;
        let mut parts = Request::new(()).into_parts().0;
        std::mem::swap(&mut parts, &mut ready.parts);
        parts.headers.remove(ATTEMPT);
        // A connection cannot be kept or given again.
        parts.headers.remove(UPGRADE);
        coding::restrict(&mut parts.headers);
        if self.grant.attempt > 1 {
            parts.headers.insert(ATTEMPT, self.grant.attempt.into());
        }
        Request::from_parts(parts, RequestBody::collected(ready.body.take()))
    }

    /// Reads an answer up to the cap.
    async fn read<A>(&self, head: &Parts, body: &mut A, pieces: &mut Vec<Bytes>) -> Read
    where
        A: Carried,
    {
        let most = self.job.shared.rules.answer_max_bytes;
        let known = body.size_hint().exact().or_else(|| declared(head));
        if is_event_stream(&head.headers) || known.is_some_and(|len| len > most as u64) {
            return Read::Large;
        }
        // Of an answer whose length is known every byte is worth waiting for; another one may be endless.
        let until = known.is_none().then(|| Instant::now() + STREAM_AFTER);
        let mut len = 0;
        loop {
            let limit = match until {
                Some(until) => Some(until.saturating_duration_since(Instant::now())),
                None => self.job.route().timeout,
            };
            match next_within(limit, body).await {
                Err(_) if known.is_none() => return Read::Large,
                Err(_) => return Read::Failed(Failure::TimedOut("the answer stopped coming".into())),
                Ok(None) => return Read::Whole(HeaderMap::new()),
                Ok(Some(Err(error))) => return Read::Failed(Failure::Lost(error)),
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => {
                        len += data.len();
                        pieces.push(data);
                        if len > most {
                            return Read::Large;
                        }
                    }
                    Err(frame) => return Read::Whole(frame.into_trailers().unwrap_or_default()),
                },
            }
        }
    }

    async fn whole<A>(&self, head: Parts, pieces: Vec<Bytes>, trailers: HeaderMap) -> Said<A> {
        let route = self.job.route();
        match verdict(head.status, &head.headers, route) {
            Verdict::Release => {
                Box::pin(self.say(Settle::Release)).await;
                (End::Released, Ok(answer(head, pieces, trailers)))
            }
            Verdict::Doubt => {
                let reason = format!("the service answered {}", head.status.as_u16());
                Box::pin(self.say(Settle::Doubt(reason))).await;
                (End::InDoubt, Ok(answer(head, pieces, trailers)))
            }
            Verdict::Store => self.store(head, pieces, trailers).await,
        }
    }

    async fn store<A>(&self, mut head: Parts, pieces: Vec<Bytes>, trailers: HeaderMap) -> Said<A> {
        let (outcome, body) = self.outcome(&head, &pieces, &trailers);
        match self.complete(outcome).await {
            Ok(()) => {
                head.headers.insert(LIFETIME, self.job.lifetime());
                let response = match body {
                    Some(body) => Response::from_parts(head, AnswerBody::whole(body, trailers)),
                    None => answer(head, pieces, trailers),
                };
                (if self.job.trace.degraded { End::Degraded } else { End::First }, Ok(response))
            }
            Err(Now::Done(winner)) if self.may_read_the_winner().await => {
                let (_, answer) = replay(&self.job, winner);
                (End::Superseded, answer)
            }
            Err(Now::Running) => in_flight(),
            Err(Now::InDoubt) => in_doubt(self.job.route()),
            Err(Now::Done(_) | Now::Absent) => (End::Superseded, Ok(answer(head, pieces, trailers))),
        }
    }

    /// Whether the outcome that stands in our place is for our caller. An operator may have freed the key, and another
    /// caller may have used it since.
    async fn may_read_the_winner(&self) -> bool {
        let claim = &self.job.ready.claim;
        claim.caller.is_none()
            || self.job.ledger().look(&claim.key).await.is_ok_and(|record| {
                record.is_some_and(|record| !Caller::is_other(claim.caller, record.caller))
            })
    }

    /// What is kept of an answer, and the body inside it.
    fn outcome(&self, head: &Parts, pieces: &[Bytes], trailers: &HeaderMap) -> (Outcome, Option<Bytes>) {
        let route = self.job.route();
        if route.no_store == NoStore::Tombstone && is_no_store(&head.headers) {
            return (Outcome::Tombstone("the service asked that its answer be not stored".to_owned()), None);
        }
        let packed = answer::pack(head, trailers, route.set_cookie == SetCookie::Keep, pieces);
        match packed.filter(|packed| packed.len() <= Limits::STANDARD.outcome_bytes) {
            Some(packed) => {
                let body = body_of(&packed, pieces.iter().map(Bytes::len).sum());
                (Outcome::Kept(packed), Some(body))
            }
            None => (Outcome::Tombstone("the answer was too large to be kept".to_owned()), None),
        }
    }

    /// Records the outcome. An error is what holds instead: the claim was taken over.
    async fn complete(&self, outcome: Outcome) -> Result<(), Now> {
        let settle = Settle::Complete(outcome);
        match self.job.ledger().settle(&self.job.ready.claim.key, self.grant.token, &settle).await {
            Ok(Settled::Applied) => Ok(()),
            Ok(Settled::Stale(now)) => Err(now),
            Err(error) => {
                // The effect has happened: its answer goes to the caller, its record to a place that lasts.
                self.job.shared.meters.unrecorded.increment(1);
                Box::pin(self.keep(settle, &error)).await;
                Ok(())
            }
        }
    }

    /// A last word other than completion. What the ledger does not take now it hears later.
    async fn say(&self, word: Settle) {
        let key = &self.job.ready.claim.key;
        match self.job.ledger().settle(key, self.grant.token, &word).await {
            Ok(Settled::Applied) => {}
            Ok(Settled::Stale(_)) => {
                tracing::warn!(index = %key.index(), "the claim was taken over before it was settled");
            }
            Err(error) => self.keep(word, &error).await,
        }
    }

    async fn keep(&self, settle: Settle, error: &ichido_ledger::Error) {
        let claim = &self.job.ready.claim;
        let index = claim.key.index();
        let Some(journal) = &self.job.shared.journal else {
            tracing::error!(%index, %error, "the outcome of a request was not recorded; its claim will be in doubt");
            return;
        };
        let word = Word { asked: Asked::of(claim), token: self.grant.token, settle };
        match journal.keep(self.job.ledger(), word, Some(&self.grant)).await {
            Ok(()) => {
                tracing::warn!(%index, %error, "the ledger did not take the end of a request; it waits in the completion journal")
            }
            Err(disk) => {
                tracing::error!(%index, %error, %disk, "neither the ledger nor the completion journal took the end of a request; its claim will be in doubt");
            }
        }
    }

    async fn failed<A>(&self, failure: Failure) -> Said<A> {
        let cause = failure.cause().to_string();
        match failure {
            Failure::NotSent(_) => {
                self.say(Settle::Release).await;
                let problem = Problem::new(
                    Kind::UpstreamUnreachable,
                    "the service could not be reached; nothing was done",
                );
                tracing::warn!(cause, "the service could not be reached");
                (End::Released, Err(problem))
            }
            Failure::TimedOut(_) => {
                self.say(Settle::Doubt(reason("no answer in time", &cause))).await;
                (
                    End::InDoubt,
                    Err(Problem::new(
                        Kind::UpstreamTimeout,
                        "the service did not answer in time; it may have acted",
                    )),
                )
            }
            Failure::Lost(_) => {
                self.say(Settle::Doubt(reason("the answer was lost", &cause))).await;
                (
                    End::InDoubt,
                    Err(Problem::new(
                        Kind::AnswerLost,
                        "the answer of the service was lost; it may have acted",
                    )),
                )
            }
        }
    }

    /// A panic is an answer of 500 without a body, and the route says what that means.
    async fn panicked<A>(&self) -> Said<A> {
        tracing::error!(index = %self.job.ready.claim.key.index(), "the service panicked");
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        self.whole(response.into_parts().0, Vec::new(), HeaderMap::new()).await
    }
}

async fn call<S, B, A>(mut inner: S, request: Request<RequestBody<B>>, limit: Option<Duration>) -> Ran<A>
where
    S: Inner<B, A>,
{
    let run = AssertUnwindSafe(async { inner.call(request).await }).catch_unwind();
    let ended = match limit {
        Some(limit) => within(limit, run).await,
        None => Ok(run.await),
    };
    match ended {
        Ok(Ok(Ok(response))) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            Ran::Failed(Failure::Lost("the service changed protocols unasked".into()))
        }
        Ok(Ok(Ok(response))) => Ran::Answered(response),
        Ok(Ok(Err(error))) => Ran::Failed(error.into_failure()),
        Ok(Err(_)) => Ran::Panicked,
        Err(_) => Ran::Failed(Failure::TimedOut("no answer in time".into())),
    }
}

fn answer<A>(head: Parts, pieces: Vec<Bytes>, trailers: HeaderMap) -> Response<AnswerBody<A>> {
    let body = match <[Bytes; 1]>::try_from(pieces) {
        Ok([piece]) => piece,
        Err(pieces) => pieces.concat().into(),
    };
    Response::from_parts(head, AnswerBody::whole(body, trailers))
}

fn declared(head: &Parts) -> Option<u64> {
    head.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.trim_start().get(..17).is_some_and(|kind| kind.eq_ignore_ascii_case("text/event-stream"))
}

/// A reason that fits the ledger's limit. A cause that says no more than what it caused is said once.
fn reason(what: &str, cause: &str) -> String {
    let mut text = if what == cause { what.to_owned() } else { format!("{what}: {cause}") };
    let mut end = text.len().min(Limits::STANDARD.reason_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}
