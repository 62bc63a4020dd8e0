//! The body of an answer: as the service gave it, as it was kept, or as it comes.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use ichido_ledger::BoxError;
use pin_project_lite::pin_project;
use tokio::sync::mpsc;

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
        Coming { frames: mpsc::Receiver<Result<Frame<Bytes>, BoxError>> },
    }
}

impl<A> AnswerBody<A> {
    pub(crate) fn passed(body: A) -> Self {
        Self { inner: Inner::Passed { body } }
    }

    pub(crate) fn whole(data: Bytes, trailers: HeaderMap) -> Self {
        Self {
            inner: Inner::Whole { data, trailers: Some(trailers).filter(|trailers| !trailers.is_empty()) },
        }
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
            Inner::Coming { .. } => f.write_str("AnswerBody(streaming)"),
        }
    }
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
            InnerProj::Coming { frames } => frames.poll_recv(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Passed { body } => body.is_end_stream(),
            Inner::Whole { data, trailers } => data.is_empty() && trailers.is_none(),
            Inner::Coming { .. } => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Passed { body } => body.size_hint(),
            Inner::Whole { data, trailers: None } => SizeHint::with_exact(data.len() as u64),
            Inner::Whole { .. } | Inner::Coming { .. } => SizeHint::default(),
        }
    }
}
