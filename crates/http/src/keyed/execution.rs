//! A granted claim: run the service, keep its answer, then send it.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{CONTENT_TYPE, UPGRADE};
use http::response::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use ichido_core::{Caller, Grant, Now, Settle};
use ichido_ledger::lazy_timeout;
use tokio::time::Instant;

use super::granted::{Run, reason};
use super::reply::{ATTEMPT, LIFETIME, Reply, Said, in_doubt, in_flight, replay, send};
use super::streaming::{declared, next_within};
use crate::content_encoding as coding;
use crate::failure::{Failure, IntoFailure};
use crate::hop_by_hop::strip_hop_by_hop;
use crate::metrics::End;
use crate::problem::{Kind, Problem};
use crate::request_body::RequestBody;
use crate::response_body::AnswerBody;
use crate::trait_aliases::{Carried, Inner};
use crate::verdict::{Verdict, verdict};

/// How long the end of an answer of unknown length is waited for before its beginning is sent.
const STREAM_AFTER: Duration = Duration::from_secs(2);

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
            let _renewal = ledger.start_renewal(&key, &Grant { left_ms: left_ms / 2, ..grant });
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
            || self.job.ledger().get(&claim.key).await.is_ok_and(|record| {
                record.is_some_and(|record| !Caller::is_other(claim.caller, record.caller))
            })
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
        Some(limit) => lazy_timeout(limit, run).await,
        None => Ok(run.await),
    };
    match ended {
        Ok(Ok(Ok(response))) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            Ran::Failed(Failure::unrequested_upgrade())
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

fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.trim_start().get(..17).is_some_and(|kind| kind.eq_ignore_ascii_case("text/event-stream"))
}
