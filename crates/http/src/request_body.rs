//! The request body that the inner service gets: passed through, or buffered by the layer.

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
pub(crate) use self::buffered::{BufferError, BufferedBody, PrefixError, buffer};
use self::buffered::{SpillFile, Storage};

/// How many bytes of a spilled body are read at a time.
const CHUNK_BYTES: usize = 64 * 1024;

pin_project! {
    /// The request body that the inner service gets: passed through, or buffered by the layer.
    pub struct RequestBody<B> {
        read: Option<Reading>,
        #[pin]
        rest: Option<B>,
        trailers: Option<Box<HeaderMap>>,
        progress: Option<Progress>,
    }
}

/// Tells whoever waits for the response whether the service is still reading the request body.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicBool>);

impl Progress {
    /// Records that the service has read some of the body.
    pub fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the service has read some of the body since the last call.
    pub fn moved(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

struct Reading {
    left: u64,
    source: Source,
}

enum Source {
    Memory(Bytes),
    Disk(SpillFile),
    Busy(JoinHandle<io::Result<(SpillFile, Bytes)>>),
    Gone,
}

impl<B> RequestBody<B> {
    pub(crate) fn passed(body: B) -> Self {
        Self { read: None, rest: Some(body), trailers: None, progress: None }
    }

    pub(crate) fn buffered(body: BufferedBody) -> Self {
        Self::joined(body, None)
    }

    /// A body of which the layer has read a part.
    pub(crate) fn rejoined(read: BufferedBody, rest: B) -> Self {
        if read.len == 0 { Self::passed(rest) } else { Self::joined(read, Some(rest)) }
    }

    fn joined(body: BufferedBody, rest: Option<B>) -> Self {
        let source = match body.storage {
            Storage::Memory(bytes) => Source::Memory(bytes),
            Storage::Disk(disk) => Source::Disk(disk),
        };
        let read = Some(Reading { left: body.len, source });
        Self { read, rest, trailers: body.trailers, progress: None }
    }

    /// Tracks from now on how the body is read. `None` if the whole body has already arrived.
    pub fn progress(&mut self) -> Option<Progress> {
        self.rest.as_ref()?;
        Some(self.progress.get_or_insert_default().clone())
    }
}

/// A whole body, for requests that are sent to the inner service without the layer.
impl<B> From<Bytes> for RequestBody<B> {
    fn from(bytes: Bytes) -> Self {
        let read = Reading { left: bytes.len() as u64, source: Source::Memory(bytes) };
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
            match std::mem::replace(&mut self.source, Source::Gone) {
                Source::Gone => return Poll::Ready(None),
                Source::Memory(bytes) => {
                    self.left = 0;
                    return Poll::Ready((!bytes.is_empty()).then_some(Ok(bytes)));
                }
                Source::Disk(_) if self.left == 0 => return Poll::Ready(None),
                Source::Disk(mut disk) => {
                    let len = usize::try_from(self.left).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
                    self.source = Source::Busy(spawn_blocking(move || {
                        let mut chunk = vec![0; len];
                        disk.file.read_exact(&mut chunk)?;
                        Ok((disk, chunk.into()))
                    }));
                }
                Source::Busy(mut reading) => match pin!(&mut reading).poll(cx) {
                    Poll::Pending => {
                        self.source = Source::Busy(reading);
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(Ok((disk, chunk)))) => {
                        self.left -= chunk.len() as u64;
                        self.source = Source::Disk(disk);
                        return Poll::Ready(Some(Ok(chunk)));
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
            if let Some(chunk) = ready!(reading.poll(cx)) {
                return Poll::Ready(Some(chunk.map(Frame::data).map_err(Into::into)));
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
        // HTTP/1.1 can send trailers only with chunked encoding, which hyper uses only for bodies of unknown length.
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
