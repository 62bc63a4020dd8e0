//! A TCP connection to the upstream that notices at once when the upstream has closed it.
//!
//! hyper writes no request to a connection after it has read the end of the stream. But tokio reports the end only after
//! it has polled the socket again. A request written in between may be lost, and nobody can know whether it ran. So the
//! first read after an idle period asks the kernel directly.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::net::TcpStream;
use tower_service::Service;

/// Makes a connection check whether it is still open. It is used from outside the code that reads the connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Probe(Arc<AtomicBool>);

impl Probe {
    /// Lets the next read of the idle connection detect that it was closed, or that it has unsolicited bytes.
    pub(super) fn arm(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn disarm(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// A connection that can be probed.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TokioIo<TcpStream>,
    probe: Probe,
}

/// The probe of a connection with or without TLS.
pub(super) fn probe_of(stream: &MaybeHttpsStream<Socket>) -> Probe {
    match stream {
        MaybeHttpsStream::Http(socket) => socket.probe.clone(),
        MaybeHttpsStream::Https(tls) => tls.inner().get_ref().0.inner().probe.clone(),
    }
}

/// Connects to the upstream.
#[derive(Clone, Debug)]
pub(super) struct Connector(pub(super) HttpConnector);

impl Service<Uri> for Connector {
    type Response = Socket;
    type Error = <HttpConnector as Service<Uri>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Socket, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.0.call(uri);
        Box::pin(async move { Ok(Socket { stream: connecting.await?, probe: Probe::default() }) })
    }
}

impl Connection for Socket {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl Read for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let is_idle = this.probe.disarm();
        match Pin::new(&mut this.stream).poll_read(cx, buffer) {
            Poll::Pending if is_idle => peek(this.stream.inner()),
            read @ (Poll::Pending | Poll::Ready(_)) => read,
        }
    }
}

/// Asks the kernel about an idle connection. Pending: it is open and has no bytes to read. An empty read: it is closed.
fn peek(stream: &TcpStream) -> Poll<io::Result<()>> {
    match SockRef::from(stream).peek(&mut [MaybeUninit::uninit()]) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        Err(error) => Poll::Ready(Err(error)),
        Ok(0) => Poll::Ready(Ok(())),
        Ok(_) => Poll::Ready(Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "unsolicited bytes on an idle connection",
        ))),
    }
}

impl Write for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
