//! Runs the service for a granted claim: the response is stored before it is sent.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{CONTENT_TYPE, UPGRADE};
use http::response::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use ichido_core::{Caller, CurrentState, Grant, Settle};
use ichido_ledger::lazy_timeout;
use tokio::time::Instant;

use super::granted::{GrantedClaim, doubt_reason};
use super::reply::{
    ATTEMPT, LIFETIME, Reply, ReplySender, in_doubt, in_flight, ledger_unavailable, replay, send,
};
use super::streaming::{content_length, next_frame_within};
use crate::content_encoding;
use crate::failure::{Failure, IntoFailure};
use crate::hop_by_hop::strip_hop_by_hop;
use crate::metrics::Disposition;
use crate::problem::{Kind, Problem};
use crate::request_body::RequestBody;
use crate::response_body::ResponseBody;
use crate::trait_aliases::{HttpBody, InnerService};
use crate::verdict::{Verdict, verdict};

/// A response of unknown length that has not ended after this time is streamed.
const STREAM_AFTER: Duration = Duration::from_secs(2);

/// The result of calling the service.
enum CallResult<A> {
    Response(Response<A>),
    Failed(Failure),
    Panicked,
}

/// What was read of a response body before any of it is sent.
enum ReadResult {
    /// The whole body; these are its trailers.
    Whole(HeaderMap),
    /// The body is too large to store or may be endless.
    Stream,
    Failed(Failure),
}

impl GrantedClaim {
    /// Confirms the grant, then calls the service while the lease is renewed.
    pub(super) async fn run<S, B, A>(self, inner: S, sender: ReplySender<A, S::Error>)
    where
        S: InnerService<B, A>,
        B: HttpBody,
        A: HttpBody,
    {
        let shared = self.request.shared.clone();
        let (key, grant) = (self.request.claimable.claim.key.clone(), self.grant);
        let ledger = shared.ledger_of(&shared.rules.routes[self.request.trace.route]);
        match ledger.confirm(&key, &grant).await {
            Ok(true) => {}
            Ok(false) => return send(&self.request, sender, in_flight()),
            Err(error) => {
                tracing::warn!(%error, "cannot confirm claim");
                // Nothing ran. Without a release, the claim would lapse and become in doubt.
                Box::pin(self.settle(Settle::Release)).await;
                return send(&self.request, sender, ledger_unavailable());
            }
        }
        // Most requests end long before a renewal is due, so the renewing task starts late. The first renewal is due
        // after a third of the remaining lease, as if the task had run from the start: half of that has passed when it
        // starts.
        let left_ms = grant.left_ms.max(grant.lease_ms / 2);
        let mut work = pin!(self.call_and_settle(inner, sender));
        if lazy_timeout(Duration::from_millis(left_ms / 6), work.as_mut()).await.is_err() {
            let _renewal = ledger.start_renewal(&key, &Grant { left_ms: left_ms / 2, ..grant });
            work.await;
        }
    }

    async fn call_and_settle<S, B, A>(mut self, inner: S, sender: ReplySender<A, S::Error>)
    where
        S: InnerService<B, A>,
        B: HttpBody,
        A: HttpBody,
    {
        let timeout = self.request.route().timeout;
        let reply = match call(inner, self.service_request(), timeout).await {
            // Rare cases are boxed: the future of every request reserves space for its largest branch.
            CallResult::Failed(failure) => Box::pin(self.failed(failure)).await,
            CallResult::Panicked => Box::pin(self.panicked()).await,
            CallResult::Response(response) => {
                let (mut head, mut body) = response.into_parts();
                strip_hop_by_hop(&mut head.headers);
                let mut chunks = Vec::new();
                match self.read(&head, &mut body, &mut chunks).await {
                    ReadResult::Whole(trailers) => self.respond(head, chunks, trailers).await,
                    ReadResult::Failed(failure) => Box::pin(self.failed(failure)).await,
                    ReadResult::Stream => return Box::pin(self.stream(head, chunks, body, sender)).await,
                }
            }
        };
        send(&self.request, sender, reply);
    }

    /// The request for the service.
    fn service_request<B>(&mut self) -> Request<RequestBody<B>> {
        let claimable = &mut self.request.claimable;
        let mut parts = Request::new(()).into_parts().0;
        std::mem::swap(&mut parts, &mut claimable.parts);
        parts.headers.remove(ATTEMPT);
        // An upgraded connection can be neither stored nor replayed.
        parts.headers.remove(UPGRADE);
        content_encoding::restrict(&mut parts.headers);
        if self.grant.attempt > 1 {
            parts.headers.insert(ATTEMPT, self.grant.attempt.into());
        }
        Request::from_parts(parts, RequestBody::buffered(claimable.body.take()))
    }

    /// Reads a response body of at most `answer_max_bytes`.
    async fn read<A>(&self, head: &Parts, body: &mut A, chunks: &mut Vec<Bytes>) -> ReadResult
    where
        A: HttpBody,
    {
        let max_bytes = self.request.shared.rules.answer_max_bytes;
        let known_len = body.size_hint().exact().or_else(|| content_length(head));
        if is_event_stream(&head.headers) || known_len.is_some_and(|len| len > max_bytes as u64) {
            return ReadResult::Stream;
        }
        // A response of known length is waited for. One of unknown length may be endless.
        let stream_at = known_len.is_none().then(|| Instant::now() + STREAM_AFTER);
        let mut len = 0;
        loop {
            let limit = match stream_at {
                Some(stream_at) => Some(stream_at.saturating_duration_since(Instant::now())),
                None => self.request.route().timeout,
            };
            match next_frame_within(limit, body).await {
                Err(_) if known_len.is_none() => return ReadResult::Stream,
                Err(_) => return ReadResult::Failed(Failure::TimedOut("the response body stalled".into())),
                Ok(None) => return ReadResult::Whole(HeaderMap::new()),
                Ok(Some(Err(error))) => return ReadResult::Failed(Failure::Lost(error)),
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => {
                        len += data.len();
                        chunks.push(data);
                        if len > max_bytes {
                            return ReadResult::Stream;
                        }
                    }
                    Err(frame) => return ReadResult::Whole(frame.into_trailers().unwrap_or_default()),
                },
            }
        }
    }

    /// Settles the claim by the verdict on a response that has been read whole.
    async fn respond<A>(&self, head: Parts, chunks: Vec<Bytes>, trailers: HeaderMap) -> Reply<A> {
        match verdict(head.status, &head.headers, self.request.route()) {
            Verdict::Release => {
                Box::pin(self.settle(Settle::Release)).await;
                (Disposition::Released, Ok(response(head, chunks, trailers)))
            }
            Verdict::InDoubt => {
                let reason = format!("the service responded with {}", head.status.as_u16());
                Box::pin(self.settle(Settle::Doubt(reason))).await;
                (Disposition::InDoubt, Ok(response(head, chunks, trailers)))
            }
            Verdict::Store => self.store(head, chunks, trailers).await,
        }
    }

    async fn store<A>(&self, mut head: Parts, chunks: Vec<Bytes>, trailers: HeaderMap) -> Reply<A> {
        let (outcome, body) = self.outcome(&head, &chunks, &trailers);
        match self.complete(outcome).await {
            Ok(()) => {
                head.headers.insert(LIFETIME, self.request.lifetime());
                let response = match body {
                    Some(body) => Response::from_parts(head, ResponseBody::whole(body, trailers)),
                    None => response(head, chunks, trailers),
                };
                let disposition = match self.request.trace.degraded {
                    true => Disposition::Degraded,
                    false => Disposition::First,
                };
                (disposition, Ok(response))
            }
            Err(CurrentState::Done(winner)) if self.may_replay_winner().await => {
                let (_, response) = replay(&self.request, winner);
                (Disposition::Superseded, response)
            }
            Err(CurrentState::Running) => in_flight(),
            Err(CurrentState::InDoubt) => in_doubt(self.request.route()),
            Err(CurrentState::Done(_) | CurrentState::Absent) => {
                (Disposition::Superseded, Ok(response(head, chunks, trailers)))
            }
        }
    }

    /// Whether the outcome that was recorded instead of ours belongs to our caller. An operator may have released the
    /// claim, and a different caller may have used the key since.
    async fn may_replay_winner(&self) -> bool {
        let claim = &self.request.claimable.claim;
        claim.caller.is_none()
            || self.request.ledger().get(&claim.key).await.is_ok_and(|record| {
                record.is_some_and(|record| !Caller::is_other(claim.caller, record.caller))
            })
    }

    async fn failed<A>(&self, failure: Failure) -> Reply<A> {
        let cause = failure.cause().to_string();
        match failure {
            Failure::NotSent(_) => {
                self.settle(Settle::Release).await;
                tracing::warn!(cause, "cannot reach service");
                let detail = "the service could not be reached; the request was not run";
                (Disposition::Released, Err(Problem::new(Kind::UpstreamUnreachable, detail)))
            }
            Failure::TimedOut(_) => {
                self.settle(Settle::Doubt(doubt_reason("the service timed out", &cause))).await;
                let detail = "the service did not respond in time; the request may have taken effect";
                (Disposition::InDoubt, Err(Problem::new(Kind::UpstreamTimeout, detail)))
            }
            Failure::Lost(_) => {
                self.settle(Settle::Doubt(doubt_reason("the response was lost", &cause))).await;
                let detail = "the response of the service was lost; the request may have taken effect";
                (Disposition::InDoubt, Err(Problem::new(Kind::AnswerLost, detail)))
            }
        }
    }

    /// Treats a panic as a response of 500 without a body. The route's rules say what that means.
    async fn panicked<A>(&self) -> Reply<A> {
        tracing::error!(index = %self.request.claimable.claim.key.index(), "service panicked");
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        self.respond(response.into_parts().0, Vec::new(), HeaderMap::new()).await
    }
}

async fn call<S, B, A>(
    mut inner: S,
    request: Request<RequestBody<B>>,
    timeout: Option<Duration>,
) -> CallResult<A>
where
    S: InnerService<B, A>,
{
    let calling = AssertUnwindSafe(async { inner.call(request).await }).catch_unwind();
    let called = match timeout {
        Some(timeout) => lazy_timeout(timeout, calling).await,
        None => Ok(calling.await),
    };
    match called {
        Ok(Ok(Ok(response))) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            CallResult::Failed(Failure::unrequested_upgrade())
        }
        Ok(Ok(Ok(response))) => CallResult::Response(response),
        Ok(Ok(Err(error))) => CallResult::Failed(error.into_failure()),
        Ok(Err(_)) => CallResult::Panicked,
        Err(_) => CallResult::Failed(Failure::TimedOut("the service timed out".into())),
    }
}

fn response<A>(head: Parts, chunks: Vec<Bytes>, trailers: HeaderMap) -> Response<ResponseBody<A>> {
    let body = match <[Bytes; 1]>::try_from(chunks) {
        Ok([chunk]) => chunk,
        Err(chunks) => chunks.concat().into(),
    };
    Response::from_parts(head, ResponseBody::whole(body, trailers))
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.trim_start().get(..17);
    media_type.is_some_and(|media_type| media_type.eq_ignore_ascii_case("text/event-stream"))
}
