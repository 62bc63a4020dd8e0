//! An answer that is sent as it comes.

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
use ichido_core::{Now, Outcome, Settle};
use ichido_ledger::{BoxError, Elapsed, lazy_timeout};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::granted::{Run, reason};
use super::reply::{DEGRADED, LIFETIME, Reply, TRUE};
use crate::metrics::End;
use crate::response_body::AnswerBody;
use crate::trait_aliases::Carried;
use crate::verdict::{Verdict, verdict};

/// Pieces of a streamed answer that wait for the client.
const STREAM_AHEAD: usize = 16;
/// A client that takes nothing for so long counts as gone.
const STALLED: Duration = Duration::from_secs(300);

impl Run {
    /// An answer that is too large, or may be endless: sent as it comes, and kept only if it turns out to fit.
    pub(super) async fn stream<A, E>(
        self,
        mut head: Parts,
        pieces: Vec<Bytes>,
        mut body: A,
        reply: Reply<A, E>,
    ) where
        A: Carried,
    {
        let (mut client, coming) = Client::new();
        let verdict = verdict(head.status, &head.headers, self.job.route());
        let mut kept = Kept::new(&pieces, self.job.shared.rules.answer_max_bytes);
        let stored_head = head.clone();
        if self.job.trace.degraded {
            head.headers.insert(DEGRADED, TRUE);
        }
        if verdict == Verdict::Store {
            head.headers.insert(LIFETIME, self.job.lifetime());
        }
        let (status, declared) = (head.status, declared(&head));
        // An answer of known length has an end to come to; another one may be silent for as long as it likes.
        let known = body.size_hint().exact().or(declared);
        let limit = self.job.route().timeout.filter(|_| known.is_some());
        if reply.send(Ok(Response::from_parts(head, AnswerBody::coming(coming)))).is_err() {
            client.gone.cancel();
        }
        for piece in pieces {
            client.send(Ok(Frame::data(piece))).await;
        }
        // A client that knows the length would take the last piece for the end, before the end is recorded.
        // So what completes it is held back, and the trailers behind it.
        let mut held = Vec::new();
        let mut trailers = HeaderMap::new();
        // While a client reads, an answer may go on for as long as it likes; for nobody it is read for a while only.
        let ceiling = self.job.ledger().settings().lease_ceiling;
        let (frames, gone) = (client.frames.clone(), client.gone.clone());
        let mut given_up = pin!(async {
            tokio::select! {
                () = frames.closed() => {}
                () = gone.cancelled() => {}
            }
            tokio::time::sleep(ceiling).await;
        });
        let mut cut = loop {
            let next = tokio::select! {
                biased;
                () = &mut given_up => break Some(BoxError::from("its client has gone, and it did not end")),
                next = next_within(limit, &mut body) => next,
            };
            match next {
                Err(_) => break Some("the answer stopped coming".into()),
                Ok(None) => break None,
                Ok(Some(Err(error))) => break Some(error),
                Ok(Some(Ok(frame))) => {
                    match (frame.data_ref(), frame.trailers_ref()) {
                        (Some(data), _) => kept.push(data),
                        (None, Some(found)) => trailers = found.clone(),
                        (None, None) => {}
                    }
                    if frame.data_ref().is_some_and(Bytes::is_empty) {
                        continue;
                    }
                    if declared == Some(kept.len as u64) {
                        held.push(frame);
                    } else {
                        for frame in held.drain(..).chain([frame]) {
                            client.send(Ok(frame)).await;
                        }
                    }
                }
            }
            if client.gone.is_cancelled() {
                // A body that is always ready must not keep the clock from being looked at.
                tokio::task::yield_now().await;
            }
        };
        let cause = cut.as_ref().map(ToString::to_string);
        let end = match (&cause, verdict) {
            (Some(cause), _) => {
                self.say(Settle::Doubt(reason("the answer was cut", cause))).await;
                End::InDoubt
            }
            (None, Verdict::Release) => {
                self.say(Settle::Release).await;
                End::Released
            }
            (None, Verdict::Doubt) => {
                self.say(Settle::Doubt(format!("the service answered {}", status.as_u16()))).await;
                End::InDoubt
            }
            (None, Verdict::Store) => {
                let outcome = match kept.pieces {
                    Some(pieces) => self.outcome(&stored_head, &pieces, &trailers).0,
                    None => Outcome::Tombstone(format!("the answer was larger than {} bytes", kept.most)),
                };
                match self.complete(outcome).await {
                    Ok(()) | Err(Now::Absent) if self.job.trace.degraded => End::Degraded,
                    Ok(()) | Err(Now::Absent) => End::First,
                    Err(Now::Done(_) | Now::Running | Now::InDoubt) => {
                        // Its beginning is with the client already; a cut end says that it is not the answer.
                        cut = Some("the request was taken over".into());
                        End::Superseded
                    }
                }
            }
        };
        let rest = match cut {
            Some(error) => vec![Err(error)],
            None => held.into_iter().map(Ok).collect(),
        };
        for frame in rest {
            client.send(frame).await;
        }
        self.job.trace.end(&self.job.shared.meters, &self.job.shared.rules, end, status, cause.as_deref());
    }
}

type Piece = Result<Frame<Bytes>, BoxError>;

/// The client of a streamed answer.
struct Client {
    frames: mpsc::Sender<Piece>,
    /// A place in the queue, however full it is: an answer that nobody took must not seem to end well.
    last: Option<mpsc::OwnedPermit<Piece>>,
    gone: CancellationToken,
}

impl Client {
    fn new() -> (Self, mpsc::Receiver<Piece>) {
        let (frames, coming) = mpsc::channel(STREAM_AHEAD + 1);
        let last = frames.clone().try_reserve_owned().ok();
        (Self { frames, last, gone: CancellationToken::new() }, coming)
    }

    async fn send(&mut self, piece: Piece) {
        if self.gone.is_cancelled() {
            return;
        }
        match lazy_timeout(STALLED, self.frames.send(piece)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => self.gone.cancel(),
            Err(_) => {
                self.gone.cancel();
                if let Some(last) = self.last.take() {
                    last.send(Err("nothing of the answer was taken for too long".into()));
                }
            }
        }
    }
}

/// What may still be kept of a streamed answer.
struct Kept {
    pieces: Option<Vec<Bytes>>,
    len: usize,
    most: usize,
}

impl Kept {
    fn new(pieces: &[Bytes], most: usize) -> Self {
        let mut kept = Self { pieces: Some(Vec::new()), len: 0, most };
        pieces.iter().for_each(|piece| kept.push(piece));
        kept
    }

    fn push(&mut self, piece: &Bytes) {
        self.len = self.len.saturating_add(piece.len());
        if self.len > self.most {
            self.pieces = None;
        }
        if let Some(pieces) = self.pieces.as_mut().filter(|_| !piece.is_empty()) {
            pieces.push(piece.clone());
        }
    }
}

/// The next piece of an answer, if it comes in time.
pub(super) async fn next_within<A>(limit: Option<Duration>, body: &mut A) -> Result<Option<Piece>, Elapsed>
where
    A: Carried,
{
    match limit {
        Some(limit) => lazy_timeout(limit, next_frame(body)).await,
        None => Ok(next_frame(body).await),
    }
}

/// The next piece of an answer. A service that panics while it writes one has cut it.
async fn next_frame<A>(body: &mut A) -> Option<Piece>
where
    A: Carried,
{
    match AssertUnwindSafe(body.frame()).catch_unwind().await {
        Ok(next) => next.map(|frame| frame.map_err(Into::into)),
        Err(_) => Some(Err("the service panicked".into())),
    }
}

pub(super) fn declared(head: &Parts) -> Option<u64> {
    head.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
