//! The body of a keyed request: read whole before anything is claimed, hashed on its way, on disk if it is large.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue, TRAILER};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use ichido_ledger::{BoxError, within};
use pin_project_lite::pin_project;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::json;
use crate::signature::Checking;

/// How much of a spilled body is read at once.
const PIECE: usize = 64 * 1024;
/// How long a client may pause within a body.
pub(crate) const PAUSE: Duration = Duration::from_secs(30);

/// A request body that arrived.
#[derive(Debug)]
pub(crate) struct Collected {
    place: Place,
    len: u64,
    pub(crate) digest: [u8; 32],
    /// They go on with the body. Like the head, they are no part of the fingerprint.
    pub(crate) trailers: Option<Box<HeaderMap>>,
}

enum Place {
    Memory(Bytes),
    /// Without a name: it is gone when it is closed.
    Disk(File),
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory(_) => "Memory",
            Self::Disk(_) => "Disk",
        })
    }
}

/// Why a body was not taken.
#[derive(Debug)]
pub(crate) enum Refused<B> {
    /// Larger than allowed. What was read, and the rest.
    TooLarge(Option<Collected>, B),
    /// It did not arrive whole.
    Broken(BoxError),
    /// The disk did not take it.
    Disk(io::Error),
}

/// Reads a body. Its signature, if it has one, is checked on the way.
pub(crate) async fn collect<B>(
    body: B,
    memory: u64,
    most: u64,
    pause: Option<Duration>,
    mut checking: Option<&mut Checking>,
) -> Result<Collected, Refused<B>>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    if body.size_hint().lower() > most {
        return Err(Refused::TooLarge(None, body));
    }
    let mut body = body;
    let mut gather = Gather::default();
    loop {
        let next = match pause {
            Some(pause) => within(pause, body.frame()).await,
            None => Ok(body.frame().await),
        };
        let Ok(next) = next else {
            return Err(Refused::Broken("the sender paused for too long".into()));
        };
        let Some(frame) = next else { break };
        let frame = frame.map_err(|error| Refused::Broken(error.into()))?;
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => {
                gather.trailers = frame.into_trailers().ok().filter(|found| !found.is_empty()).map(Box::new);
                continue;
            }
        };
        if let Some(checking) = checking.as_mut() {
            checking.update(&data);
        }
        let len = gather.len + data.len() as u64;
        gather.push(data, memory).await.map_err(Refused::Disk)?;
        if len > most {
            let collected = gather.finish().map_err(Refused::Disk)?;
            return Err(Refused::TooLarge(Some(collected), body));
        }
    }
    gather.finish().map_err(Refused::Disk)
}

#[derive(Default)]
struct Gather {
    first: Bytes,
    more: BytesMut,
    disk: Option<File>,
    len: u64,
    hash: Sha256,
    trailers: Option<Box<HeaderMap>>,
}

impl Gather {
    async fn push(&mut self, data: Bytes, memory: u64) -> io::Result<()> {
        self.hash.update(&data);
        self.len += data.len() as u64;
        if self.disk.is_none() && self.len <= memory {
            // Most bodies come in one piece, and that piece is then the body.
            if self.first.is_empty() && self.more.is_empty() {
                self.first = data;
            } else {
                if self.more.is_empty() {
                    self.more.extend_from_slice(&std::mem::take(&mut self.first));
                }
                self.more.extend_from_slice(&data);
            }
            return Ok(());
        }
        let held = [std::mem::take(&mut self.first), std::mem::take(&mut self.more).freeze(), data];
        let disk = self.disk.take();
        let written = spawn_blocking(move || {
            let mut disk = match disk {
                Some(disk) => disk,
                None => tempfile::tempfile()?,
            };
            held.iter().try_for_each(|piece| disk.write_all(piece))?;
            Ok::<_, io::Error>(disk)
        });
        self.disk = Some(written.await.map_err(io::Error::other)??);
        Ok(())
    }

    fn finish(self) -> io::Result<Collected> {
        let place = match self.disk {
            Some(mut disk) => {
                disk.rewind()?;
                Place::Disk(disk)
            }
            None if self.more.is_empty() => Place::Memory(self.first),
            None => Place::Memory(self.more.freeze()),
        };
        let (len, digest, trailers) = (self.len, self.hash.finalize().into(), self.trailers);
        Ok(Collected { place, len, digest, trailers })
    }
}

impl Collected {
    /// Makes the head of a request fit for trailers: framed by chunks, and with the names that HTTP/1.1 sends on.
    pub(crate) fn announce_trailers(&self, head: &mut HeaderMap) {
        let Some(trailers) = &self.trailers else { return };
        head.remove(CONTENT_LENGTH);
        let names: Vec<_> = trailers.keys().map(HeaderName::as_str).collect();
        if let Ok(names) = HeaderValue::try_from(names.join(", ")) {
            head.insert(TRAILER, names);
        }
    }

    /// The body itself, and an empty one in its place.
    pub(crate) fn take(&mut self) -> Self {
        let empty = Self { place: Place::Memory(Bytes::new()), len: 0, digest: [0; 32], trailers: None };
        std::mem::replace(self, empty)
    }

    /// The body as JSON, if it is.
    pub(crate) async fn json(&mut self) -> io::Result<Option<Value>> {
        match &mut self.place {
            Place::Memory(bytes) => Ok(json::parse(bytes)),
            Place::Disk(disk) => {
                let mut file = disk.try_clone()?;
                let parsed = spawn_blocking(move || {
                    let mut bytes = Vec::new();
                    file.read_to_end(&mut bytes)?;
                    file.rewind()?;
                    Ok(json::parse(&bytes))
                });
                parsed.await.map_err(io::Error::other)?
            }
        }
    }
}

pin_project! {
    /// The body that the service behind gets: as it came, or as it was read.
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
    Disk(File),
    Busy(JoinHandle<io::Result<(File, Bytes)>>),
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
    pub(crate) fn rejoined(collected: Option<Collected>, rest: B) -> Self {
        match collected {
            Some(collected) => Self::joined(collected, Some(rest)),
            None => Self::passed(rest),
        }
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
                        disk.read_exact(&mut piece)?;
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
mod tests {
    use http_body_util::{Full, StreamBody};

    use super::*;

    fn pieces(count: usize, size: usize) -> impl Body<Data = Bytes, Error = BoxError> + Unpin {
        let pieces = (0..count)
            .map(move |at| Ok(Frame::data(Bytes::from(vec![u8::try_from(at % 251).unwrap(); size]))));
        StreamBody::new(futures_util::stream::iter(pieces))
    }

    async fn whole(collected: Collected) -> Bytes {
        let body = RequestBody::<Full<Bytes>>::collected(collected);
        assert!(body.size_hint().exact().is_some());
        body.collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn a_spilled_body_is_the_same_body() {
        let small = collect(pieces(40, 1000), 1 << 20, 1 << 30, None, None).await.ok().unwrap();
        let spilled = collect(pieces(40, 1000), 5_500, 1 << 30, None, None).await.ok().unwrap();
        assert!(matches!(small.place, Place::Memory(_)) && matches!(spilled.place, Place::Disk(_)));
        assert_eq!((small.digest, small.len), (spilled.digest, spilled.len));
        assert_eq!(whole(small).await, whole(spilled).await);
        let large = collect(pieces(3, 200_000), 1000, 1 << 30, None, None).await.ok().unwrap();
        assert_eq!(whole(large).await.len(), 600_000);
    }

    #[tokio::test]
    async fn one_piece_is_not_copied() {
        let piece = Bytes::from_static(b"{\"a\":1}");
        let mut collected = collect(Full::new(piece.clone()), 100, 100, None, None).await.unwrap();
        let Place::Memory(kept) = &collected.place else { panic!("in memory") };
        assert_eq!(kept.as_ptr(), piece.as_ptr());
        let json = collected.json().await.unwrap().unwrap();
        assert_eq!(json::scalar(&json["a"]), Some("1"));
    }

    #[tokio::test]
    async fn json_is_read_from_disk_and_the_body_is_whole_afterwards() {
        let text = format!("{{\"a\":\"{}\"}}", "x".repeat(5000));
        let mut collected =
            collect(Full::new(Bytes::from(text.clone())), 10, 10_000, None, None).await.unwrap();
        assert_eq!(collected.json().await.unwrap().unwrap()["a"].as_str().unwrap().len(), 5000);
        assert_eq!(whole(collected).await, text);
    }

    #[tokio::test]
    async fn too_large_is_refused_before_it_is_read_or_as_soon_as_it_shows() {
        let known = collect(Full::new(Bytes::from(vec![0; 101])), 10, 100, None, None).await;
        assert!(matches!(known, Err(Refused::TooLarge(None, _))));
        let Err(Refused::TooLarge(Some(read), rest)) = collect(pieces(20, 10), 30, 100, None, None).await
        else {
            panic!("too large")
        };
        assert_eq!(read.len, 110);
        let rejoined = RequestBody::rejoined(Some(read), rest).collect().await.unwrap().to_bytes();
        assert_eq!(rejoined, pieces(20, 10).collect().await.unwrap().to_bytes());
    }

    #[tokio::test]
    async fn a_body_that_still_comes_tells_how_it_is_taken() {
        let mut body = RequestBody::passed(pieces(2, 1));
        let progress = body.progress().unwrap();
        assert!(!progress.moved());
        body.frame().await.unwrap().unwrap();
        assert!(progress.moved() && !progress.moved());
        let here = collect(pieces(2, 1), 100, 100, None, None).await.ok().unwrap();
        assert!(RequestBody::<Full<Bytes>>::collected(here).progress().is_none());
    }

    #[tokio::test]
    async fn a_cut_body_is_no_body() {
        let cut = [Ok(Frame::data(Bytes::from_static(b"abc"))), Err(BoxError::from("cut"))];
        let body = StreamBody::new(futures_util::stream::iter(cut));
        assert!(matches!(collect(body, 100, 100, None, None).await, Err(Refused::Broken(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_pause_breaks_a_body_unless_there_is_no_limit() {
        let slow = || {
            let pieces = futures_util::stream::unfold(0, |at| async move {
                tokio::time::sleep(if at == 1 { PAUSE * 2 } else { PAUSE / 2 }).await;
                (at < 3).then(|| (Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"x"))), at + 1))
            });
            StreamBody::new(Box::pin(pieces))
        };
        assert!(matches!(collect(slow(), 100, 100, Some(PAUSE), None).await, Err(Refused::Broken(_))));
        assert_eq!(whole(collect(slow(), 100, 100, None, None).await.ok().unwrap()).await, "xxx");
    }
}
