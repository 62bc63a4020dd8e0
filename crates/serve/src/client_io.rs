//! A client's connection: it counts against the connections that a listener takes, and is cut if its client does not
//! read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;

/// A connection whose writes must make progress.
///
/// Only a write that waits is limited: a connection that has nothing to say, such as a live stream between two events,
/// may be silent for as long as it likes.
#[derive(Debug)]
pub struct ClientIo<I> {
    io: I,
    patience: Duration,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
    /// Given back when the connection is closed, also if it became a tunnel.
    _place: Option<OwnedSemaphorePermit>,
}

impl<I> ClientIo<I> {
    /// `patience`: how long the client may read nothing while there is something to read.
    pub fn new(io: I, patience: Duration, place: Option<OwnedSemaphorePermit>) -> Self {
        Self { io, patience, waiting: None, _place: place }
    }

    fn written(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        waiting
            .as_mut()
            .poll(cx)
            .map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for ClientIo<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for ClientIo<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.written(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, pieces);
        self.written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::sync::Semaphore;
    use tokio::time::Instant;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn pair() -> (DuplexStream, ClientIo<DuplexStream>, Arc<Semaphore>) {
        let (ours, theirs) = tokio::io::duplex(1000);
        let places = Arc::new(Semaphore::new(1));
        let place = places.clone().try_acquire_owned().unwrap();
        (ours, ClientIo::new(theirs, PATIENCE, Some(place)), places)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_cut_and_its_place_is_free() {
        let (_client, mut connection, places) = pair();
        let started = Instant::now();
        let error = connection.write_all(&[0; 5000]).await.unwrap_err();
        assert_eq!((error.kind(), started.elapsed()), (io::ErrorKind::TimedOut, PATIENCE));
        assert_eq!(places.available_permits(), 0);
        drop(connection);
        assert_eq!(places.available_permits(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_is_served() {
        let (mut client, mut connection, _places) = pair();
        let writing = tokio::spawn(async move { connection.write_all(&[0; 10_000]).await });
        let mut read = 0;
        while read < 10_000 {
            tokio::time::sleep(PATIENCE - Duration::from_secs(1)).await;
            read += client.read(&mut [0; 500]).await.unwrap();
        }
        writing.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_live_stream_may_be_silent() {
        let (mut client, mut connection, _places) = pair();
        for _ in 0..3 {
            tokio::time::sleep(PATIENCE * 10).await;
            connection.write_all(b"event").await.unwrap();
            client.read_exact(&mut [0; 5]).await.unwrap();
        }
    }
}
