//! The body of an answer: as the service gave it, as it was kept, decoded, or as it comes.

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

/// How much of a stored answer is decoded at once.
const PIECE: usize = 64 * 1024;

pin_project! {
    /// The body of an answer of the layer.
    pub struct AnswerBody<A> {
        #[pin]
        inner: Inner<A>,
    }
}

pin_project! {
    #[project = InnerProj]
    enum Inner<A> {
        Passed { #[pin] body: A },
        Whole { data: Bytes, trailers: Option<HeaderMap> },
        /// Decoded as it is sent: a small gzip may hold a lot.
        Zipped { data: Box<MultiGzDecoder<Reader<Bytes>>>, trailers: Option<HeaderMap> },
        Coming { frames: mpsc::Receiver<Result<Frame<Bytes>, BoxError>> },
    }
}

impl<A> AnswerBody<A> {
    pub(crate) fn passed(body: A) -> Self {
        Self { inner: Inner::Passed { body } }
    }

    pub(crate) fn whole(data: Bytes, trailers: HeaderMap) -> Self {
        Self { inner: Inner::Whole { data, trailers: if_any(trailers) } }
    }

    /// A body that was kept as gzip and is sent as what it holds.
    pub(crate) fn unzipped(data: Bytes, trailers: HeaderMap) -> Self {
        let data = Box::new(MultiGzDecoder::new(data.reader()));
        Self { inner: Inner::Zipped { data, trailers: if_any(trailers) } }
    }

    pub(crate) fn coming(frames: mpsc::Receiver<Result<Frame<Bytes>, BoxError>>) -> Self {
        Self { inner: Inner::Coming { frames } }
    }
}

impl<A> fmt::Debug for AnswerBody<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.inner {
            Inner::Passed { .. } => f.write_str("AnswerBody(passed)"),
            Inner::Whole { data, .. } => write!(f, "AnswerBody({} bytes)", data.len()),
            Inner::Zipped { .. } => f.write_str("AnswerBody(decoding)"),
            Inner::Coming { .. } => f.write_str("AnswerBody(streaming)"),
        }
    }
}

fn if_any(trailers: HeaderMap) -> Option<HeaderMap> {
    Some(trailers).filter(|trailers| !trailers.is_empty())
}

impl<A> From<Bytes> for AnswerBody<A> {
    fn from(data: Bytes) -> Self {
        Self::whole(data, HeaderMap::new())
    }
}

impl<A> Body for AnswerBody<A>
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
            InnerProj::Zipped { data, trailers } => Poll::Ready(match unzip(data) {
                Ok(piece) if piece.is_empty() => {
                    trailers.take().map(|trailers| Ok(Frame::trailers(trailers)))
                }
                Ok(piece) => Some(Ok(Frame::data(piece))),
                Err(error) => Some(Err(error.into())),
            }),
            InnerProj::Coming { frames } => frames.poll_recv(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Passed { body } => body.is_end_stream(),
            Inner::Whole { data, trailers } => data.is_empty() && trailers.is_none(),
            Inner::Zipped { .. } | Inner::Coming { .. } => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Passed { body } => body.size_hint(),
            Inner::Whole { data, trailers: None } => SizeHint::with_exact(data.len() as u64),
            Inner::Whole { .. } | Inner::Zipped { .. } | Inner::Coming { .. } => SizeHint::default(),
        }
    }
}

/// The next piece; empty at the end.
fn unzip(data: &mut impl Read) -> std::io::Result<Bytes> {
    let mut piece = Vec::new();
    data.take(PIECE as u64).read_to_end(&mut piece)?;
    Ok(piece.into())
}
