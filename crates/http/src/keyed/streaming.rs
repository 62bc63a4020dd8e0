//! Streams a response to the client while it is produced.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::CONTENT_LENGTH;
use http::response::Parts;
use http::{HeaderMap, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use ichido_core::{CurrentState, Outcome, Settle};
use ichido_ledger::{BoxError, Elapsed, lazy_timeout};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::granted::{GrantedClaim, doubt_reason};
use super::reply::{DEGRADED, LIFETIME, ReplySender, TRUE};
use crate::content::report;
use crate::metrics::Disposition;
use crate::response_body::ResponseBody;
use crate::trait_aliases::HttpBody;
use crate::verdict::{Verdict, verdict};

/// Frames of a streamed response that are buffered for the client.
const STREAM_AHEAD_MAX: usize = 16;
/// A client that accepts nothing for this long counts as disconnected.
const CLIENT_STALL_MAX: Duration = Duration::from_secs(300);

impl GrantedClaim {
    /// Streams a response that is too large or may be endless. It is stored only if it turns out to fit.
    pub(super) async fn stream<A, E>(
        self,
        mut head: Parts,
        chunks: Vec<Bytes>,
        mut body: A,
        sender: ReplySender<A, E>,
    ) where
        A: HttpBody,
    {
        let (mut client, frames) = Client::new();
        let request = &self.request;
        let verdict = verdict(head.status, &head.headers, request.route());
        let mut copy = StoredCopy::new(&chunks, request.shared.rules.answer_max_bytes);
        let stored_head = head.clone();
        if request.trace.degraded {
            head.headers.insert(DEGRADED, TRUE);
        }
        report(&mut head.headers, &request.trace.reports);
        if verdict == Verdict::Store {
            head.headers.insert(LIFETIME, request.lifetime());
        }
        let (status, declared_len) = (head.status, content_length(&head));
        // A response of known length must make progress. One of unknown length may be silent as long as it likes.
        let known_len = body.size_hint().exact().or(declared_len);
        let limit = request.route().timeout.filter(|_| known_len.is_some());
        if sender.send(Ok(Response::from_parts(head, ResponseBody::streaming(frames)))).is_err() {
            client.gone.cancel();
        }
        for chunk in chunks {
            client.send(Ok(Frame::data(chunk))).await;
        }
        // A client that knows the length would take the last chunk for the end, before the outcome is recorded. So the
        // chunk that completes the body is held back, and the trailers after it.
        let mut held_back = Vec::new();
        let mut trailers = HeaderMap::new();
        // While a client reads, a response may go on for any time. Without a client, it is read up to the lease ceiling.
        let ceiling = request.ledger().settings().lease_ceiling;
        let (sending, gone) = (client.frames.clone(), client.gone.clone());
        let mut abandoned = pin!(async {
            tokio::select! {
                () = sending.closed() => {}
                () = gone.cancelled() => {}
            }
            tokio::time::sleep(ceiling).await;
        });
        let mut cut = loop {
            let next = tokio::select! {
                biased;
                () = &mut abandoned => break Some(BoxError::from("the client disconnected, and the response did not end")),
                next = next_frame_within(limit, &mut body) => next,
            };
            match next {
                Err(_) => break Some("the response body stalled".into()),
                Ok(None) => break None,
                Ok(Some(Err(error))) => break Some(error),
                Ok(Some(Ok(frame))) => {
                    match (frame.data_ref(), frame.trailers_ref()) {
                        (Some(data), _) => copy.push(data),
                        (None, Some(found)) => trailers = found.clone(),
                        (None, None) => {}
                    }
                    if frame.data_ref().is_some_and(Bytes::is_empty) {
                        continue;
                    }
                    if declared_len == Some(copy.len as u64) {
                        held_back.push(frame);
                    } else {
                        for frame in held_back.drain(..).chain([frame]) {
                            client.send(Ok(frame)).await;
                        }
                    }
                }
            }
            if client.gone.is_cancelled() {
                // A body that is always ready must not keep the timer from being polled.
                tokio::task::yield_now().await;
            }
        };
        let cause = cut.as_ref().map(ToString::to_string);
        let disposition = match (&cause, verdict) {
            (Some(cause), _) => {
                self.settle(Settle::Doubt(doubt_reason("the response was cut off", cause))).await;
                Disposition::InDoubt
            }
            (None, Verdict::Release) => {
                self.settle(Settle::Release).await;
                Disposition::Released
            }
            (None, Verdict::InDoubt) => {
                let reason = format!("the service responded with {}", status.as_u16());
                self.settle(Settle::Doubt(reason)).await;
                Disposition::InDoubt
            }
            (None, Verdict::Store) => {
                let outcome = match copy.chunks {
                    Some(chunks) => self.outcome(&stored_head, &chunks, &trailers).0,
                    None => {
                        Outcome::Tombstone(format!("the response was larger than {} bytes", copy.max_bytes))
                    }
                };
                match self.complete(outcome).await {
                    Ok(()) | Err(CurrentState::Absent) if request.trace.degraded => Disposition::Degraded,
                    Ok(()) | Err(CurrentState::Absent) => Disposition::First,
                    Err(CurrentState::Done(_) | CurrentState::Running | CurrentState::InDoubt) => {
                        // The client already has the beginning. Cutting the response off shows that it does not count.
                        cut = Some("the claim was taken over".into());
                        Disposition::Superseded
                    }
                }
            }
        };
        let rest = match cut {
            Some(error) => vec![Err(error)],
            None => held_back.into_iter().map(Ok).collect(),
        };
        for frame in rest {
            client.send(frame).await;
        }
        request.trace.finish(
            &request.shared.metrics,
            &request.shared.rules,
            disposition,
            status,
            cause.as_deref(),
        );
    }
}

type FrameResult = Result<Frame<Bytes>, BoxError>;

/// The client of a streamed response.
struct Client {
    frames: mpsc::Sender<FrameResult>,
    /// Reserved so that a client that stalls always gets the error: its response must not seem complete.
    last: Option<mpsc::OwnedPermit<FrameResult>>,
    gone: CancellationToken,
}

impl Client {
    fn new() -> (Self, mpsc::Receiver<FrameResult>) {
        let (frames, receiver) = mpsc::channel(STREAM_AHEAD_MAX + 1);
        let last = frames.clone().try_reserve_owned().ok();
        (Self { frames, last, gone: CancellationToken::new() }, receiver)
    }

    async fn send(&mut self, frame: FrameResult) {
        if self.gone.is_cancelled() {
            return;
        }
        match lazy_timeout(CLIENT_STALL_MAX, self.frames.send(frame)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => self.gone.cancel(),
            Err(_) => {
                self.gone.cancel();
                if let Some(last) = self.last.take() {
                    last.send(Err("the client stopped reading the response".into()));
                }
            }
        }
    }
}

/// The part of a streamed response that may still be stored.
struct StoredCopy {
    /// `None` if the response has grown too large.
    chunks: Option<Vec<Bytes>>,
    len: usize,
    max_bytes: usize,
}

impl StoredCopy {
    fn new(chunks: &[Bytes], max_bytes: usize) -> Self {
        let mut copy = Self { chunks: Some(Vec::new()), len: 0, max_bytes };
        chunks.iter().for_each(|chunk| copy.push(chunk));
        copy
    }

    fn push(&mut self, chunk: &Bytes) {
        self.len = self.len.saturating_add(chunk.len());
        if self.len > self.max_bytes {
            self.chunks = None;
        }
        if let Some(chunks) = self.chunks.as_mut().filter(|_| !chunk.is_empty()) {
            chunks.push(chunk.clone());
        }
    }
}

pub(super) async fn next_frame_within<A>(
    limit: Option<Duration>,
    body: &mut A,
) -> Result<Option<FrameResult>, Elapsed>
where
    A: HttpBody,
{
    match limit {
        Some(limit) => lazy_timeout(limit, next_frame(body)).await,
        None => Ok(next_frame(body).await),
    }
}

/// The next frame of a response body. A panic in the service cuts the body off.
async fn next_frame<A>(body: &mut A) -> Option<FrameResult>
where
    A: HttpBody,
{
    match AssertUnwindSafe(body.frame()).catch_unwind().await {
        Ok(next) => next.map(|frame| frame.map_err(Into::into)),
        Err(_) => Some(Err("the service panicked".into())),
    }
}

pub(super) fn content_length(head: &Parts) -> Option<u64> {
    head.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
