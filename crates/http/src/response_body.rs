//! The body of a response: passed through, replayed, decompressed, or streamed.

use std::fmt;
use std::io::Read;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::buf::Reader;
use bytes::{Buf, Bytes};
use flate2::read::MultiGzDecoder;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use ichido_ledger::BoxError;
use pin_project_lite::pin_project;
use tokio::sync::mpsc;

/// How many bytes of a stored response are decompressed at a time.
const CHUNK_BYTES: usize = 64 * 1024;

pin_project! {
    /// The body of a response from the layer.
    pub struct ResponseBody<A> {
        #[pin]
        inner: Inner<A>,
    }
}

pin_project! {
    #[project = InnerProj]
    enum Inner<A> {
        Passed { #[pin] body: A },
        Whole { data: Bytes, trailers: Option<HeaderMap> },
        /// Decompressed while it is sent, because a small gzip may expand to a large body.
        Gzip { data: Box<MultiGzDecoder<Reader<Bytes>>>, trailers: Option<HeaderMap> },
        Streaming { frames: mpsc::Receiver<Result<Frame<Bytes>, BoxError>> },
    }
}

impl<A> ResponseBody<A> {
    pub(crate) fn passed(body: A) -> Self {
        Self { inner: Inner::Passed { body } }
    }

    pub(crate) fn whole(data: Bytes, trailers: HeaderMap) -> Self {
        Self { inner: Inner::Whole { data, trailers: non_empty(trailers) } }
    }

    /// A body that was stored as gzip and is sent decompressed.
    pub(crate) fn gunzip(data: Bytes, trailers: HeaderMap) -> Self {
        let data = Box::new(MultiGzDecoder::new(data.reader()));
        Self { inner: Inner::Gzip { data, trailers: non_empty(trailers) } }
    }

    pub(crate) fn streaming(frames: mpsc::Receiver<Result<Frame<Bytes>, BoxError>>) -> Self {
        Self { inner: Inner::Streaming { frames } }
    }
}

impl<A> fmt::Debug for ResponseBody<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.inner {
            Inner::Passed { .. } => f.write_str("ResponseBody(passed through)"),
            Inner::Whole { data, .. } => write!(f, "ResponseBody({} bytes)", data.len()),
            Inner::Gzip { .. } => f.write_str("ResponseBody(decompressing)"),
            Inner::Streaming { .. } => f.write_str("ResponseBody(streaming)"),
        }
    }
}

fn non_empty(trailers: HeaderMap) -> Option<HeaderMap> {
    Some(trailers).filter(|trailers| !trailers.is_empty())
}

impl<A> From<Bytes> for ResponseBody<A> {
    fn from(data: Bytes) -> Self {
        Self::whole(data, HeaderMap::new())
    }
}

impl<A> Body for ResponseBody<A>
where
    A: Body<Data = Bytes>,
    A::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().inner.project() {
            InnerProj::Passed { body } => body.poll_frame(cx).map_err(Into::into),
            InnerProj::Whole { data, .. } if !data.is_empty() => {
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(data)))))
            }
            InnerProj::Whole { trailers, .. } => {
                Poll::Ready(trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
            }
            InnerProj::Gzip { data, trailers } => Poll::Ready(match next_chunk(data) {
                Ok(chunk) if chunk.is_empty() => {
                    trailers.take().map(|trailers| Ok(Frame::trailers(trailers)))
                }
                Ok(chunk) => Some(Ok(Frame::data(chunk))),
                Err(error) => Some(Err(error.into())),
            }),
            InnerProj::Streaming { frames } => frames.poll_recv(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Passed { body } => body.is_end_stream(),
            Inner::Whole { data, trailers } => data.is_empty() && trailers.is_none(),
            Inner::Gzip { .. } | Inner::Streaming { .. } => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Passed { body } => body.size_hint(),
            Inner::Whole { data, trailers: None } => SizeHint::with_exact(data.len() as u64),
            Inner::Whole { .. } | Inner::Gzip { .. } | Inner::Streaming { .. } => SizeHint::default(),
        }
    }
}

/// The next chunk; empty at the end.
fn next_chunk(data: &mut impl Read) -> std::io::Result<Bytes> {
    let mut chunk = Vec::new();
    data.take(CHUNK_BYTES as u64).read_to_end(&mut chunk)?;
    Ok(chunk.into())
}
