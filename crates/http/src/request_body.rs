//! The body that the service behind gets: as it came, or as it was collected.

mod budget;
mod buffered;

use std::fmt;
use std::io::{self, Read};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use ichido_ledger::BoxError;
use pin_project_lite::pin_project;
use tokio::task::{JoinHandle, spawn_blocking};

pub(crate) use self::budget::Budgets;
pub(crate) use self::buffered::{Collected, Refused, Unread, collect};
use self::buffered::{Place, Spill};

/// How much of a spilled body is read at once.
const PIECE: usize = 64 * 1024;

pin_project! {
    /// The body that the service behind gets: as it came, or as it was collected.
    pub struct RequestBody<B> {
        read: Option<Reading>,
        #[pin]
        rest: Option<B>,
        trailers: Option<Box<HeaderMap>>,
        progress: Option<Progress>,
    }
}

/// Whether a body is still being taken, for whoever waits for the answer to it.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicBool>);

impl Progress {
    /// Notes that a piece was taken.
    pub fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a piece was taken since this was last asked.
    pub fn moved(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

struct Reading {
    left: u64,
    place: Reader,
}

enum Reader {
    Memory(Bytes),
    Disk(Spill),
    Busy(JoinHandle<io::Result<(Spill, Bytes)>>),
    Gone,
}

impl<B> RequestBody<B> {
    pub(crate) fn passed(body: B) -> Self {
        Self { read: None, rest: Some(body), trailers: None, progress: None }
    }

    pub(crate) fn collected(collected: Collected) -> Self {
        Self::joined(collected, None)
    }

    /// What was read of a body, and what was not.
    pub(crate) fn rejoined(collected: Collected, rest: B) -> Self {
        if collected.len == 0 { Self::passed(rest) } else { Self::joined(collected, Some(rest)) }
    }

    fn joined(collected: Collected, rest: Option<B>) -> Self {
        let place = match collected.place {
            Place::Memory(bytes) => Reader::Memory(bytes),
            Place::Disk(disk) => Reader::Disk(disk),
        };
        let read = Some(Reading { left: collected.len, place });
        Self { read, rest, trailers: collected.trailers, progress: None }
    }

    /// Tells from now on how a body that still comes from its sender is taken. `None`: it is all here.
    pub fn progress(&mut self) -> Option<Progress> {
        self.rest.as_ref()?;
        Some(self.progress.get_or_insert_default().clone())
    }
}

/// A body that is all here: for requests that a service behind the layer gets directly.
impl<B> From<Bytes> for RequestBody<B> {
    fn from(bytes: Bytes) -> Self {
        let read = Reading { left: bytes.len() as u64, place: Reader::Memory(bytes) };
        Self { read: Some(read), rest: None, trailers: None, progress: None }
    }
}

impl<B> fmt::Debug for RequestBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.read, &self.rest) {
            (Some(read), None) => write!(f, "RequestBody({} bytes)", read.left),
            (_, Some(_)) | (None, None) => f.write_str("RequestBody(streaming)"),
        }
    }
}

impl Reading {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            match std::mem::replace(&mut self.place, Reader::Gone) {
                Reader::Gone => return Poll::Ready(None),
                Reader::Memory(bytes) => {
                    self.left = 0;
                    return Poll::Ready((!bytes.is_empty()).then_some(Ok(bytes)));
                }
                Reader::Disk(_) if self.left == 0 => return Poll::Ready(None),
                Reader::Disk(mut disk) => {
                    let len = usize::try_from(self.left).unwrap_or(PIECE).min(PIECE);
                    self.place = Reader::Busy(spawn_blocking(move || {
                        let mut piece = vec![0; len];
                        disk.file.read_exact(&mut piece)?;
                        Ok((disk, piece.into()))
                    }));
                }
                Reader::Busy(mut reading) => match pin!(&mut reading).poll(cx) {
                    Poll::Pending => {
                        self.place = Reader::Busy(reading);
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(Ok((disk, piece)))) => {
                        self.left -= piece.len() as u64;
                        self.place = Reader::Disk(disk);
                        return Poll::Ready(Some(Ok(piece)));
                    }
                    Poll::Ready(Ok(Err(error))) => return Poll::Ready(Some(Err(error))),
                    Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(io::Error::other(error)))),
                },
            }
        }
    }
}

impl<B> Body for RequestBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.project();
        if let Some(reading) = this.read {
            if let Some(piece) = ready!(reading.poll(cx)) {
                return Poll::Ready(Some(piece.map(Frame::data).map_err(Into::into)));
            }
            *this.read = None;
        }
        match this.rest.as_pin_mut() {
            Some(rest) => {
                let frame = ready!(rest.poll_frame(cx));
                if let Some(progress) = this.progress {
                    progress.note();
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            None => Poll::Ready(this.trailers.take().map(|trailers| Ok(Frame::trailers(*trailers)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.read.as_ref().is_none_or(|reading| reading.left == 0)
            && self.rest.as_ref().is_none_or(Body::is_end_stream)
            && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        // HTTP/1.1 sends trailers only after chunks, and chunks only where it does not know the length.
        if self.trailers.is_some() {
            return SizeHint::default();
        }
        let left = self.read.as_ref().map_or(0, |reading| reading.left);
        let mut hint = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(left));
        }
        hint.set_lower(hint.lower().saturating_add(left));
        hint
    }
}

#[cfg(test)]
mod tests;
