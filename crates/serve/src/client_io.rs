//! A client connection that counts against the listener's limit and is closed if the client stops reading.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;

/// A connection whose writes must make progress.
///
/// Only a pending write times out. A connection with nothing to send, such as an event stream between two events, may be
/// idle for any length of time.
#[derive(Debug)]
pub(crate) struct ClientIo<I> {
    io: I,
    write_timeout: Duration,
    /// Runs while a write is pending.
    timer: Option<Pin<Box<Sleep>>>,
    /// Released when the connection is closed, even after an upgrade to a tunnel.
    _permit: Option<OwnedSemaphorePermit>,
}

impl<I> ClientIo<I> {
    /// Wraps `io`. A write fails when the client has read nothing for `write_timeout`.
    pub(crate) fn new(io: I, write_timeout: Duration, permit: Option<OwnedSemaphorePermit>) -> Self {
        Self { io, write_timeout, timer: None, _permit: permit }
    }

    fn limit_write(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.timer = None;
            return written;
        }
        let timeout = self.write_timeout;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        timer
            .as_mut()
            .poll(cx)
            .map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "the client stopped reading")))
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
        self.limit_write(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, pieces);
        self.limit_write(cx, written)
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

    const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

    fn pair() -> (DuplexStream, ClientIo<DuplexStream>, Arc<Semaphore>) {
        let (ours, theirs) = tokio::io::duplex(1000);
        let permits = Arc::new(Semaphore::new(1));
        let permit = permits.clone().try_acquire_owned().unwrap();
        (ours, ClientIo::new(theirs, WRITE_TIMEOUT, Some(permit)), permits)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stops_reading_is_disconnected_and_its_permit_released() {
        let (_client, mut connection, permits) = pair();
        let started = Instant::now();
        let error = connection.write_all(&[0; 5000]).await.unwrap_err();
        assert_eq!((error.kind(), started.elapsed()), (io::ErrorKind::TimedOut, WRITE_TIMEOUT));
        assert_eq!(permits.available_permits(), 0);
        drop(connection);
        assert_eq!(permits.available_permits(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_is_served() {
        let (mut client, mut connection, _permits) = pair();
        let writing = tokio::spawn(async move { connection.write_all(&[0; 10_000]).await });
        let mut read = 0;
        while read < 10_000 {
            tokio::time::sleep(WRITE_TIMEOUT - Duration::from_secs(1)).await;
            read += client.read(&mut [0; 500]).await.unwrap();
        }
        writing.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_stream_may_be_idle() {
        let (mut client, mut connection, _permits) = pair();
        for _ in 0..3 {
            tokio::time::sleep(WRITE_TIMEOUT * 10).await;
            connection.write_all(b"event").await.unwrap();
            client.read_exact(&mut [0; 5]).await.unwrap();
        }
    }
}
