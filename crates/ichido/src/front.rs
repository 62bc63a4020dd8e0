//! A front door: accepts connections, speaks HTTP/1.1 and HTTP/2, with or without TLS, and closes in good order.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// How long a client may take for the head of a request, or keep a connection without one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest head of a request. It may have 100 fields: hyper's own bound, and with another one it would make room for
/// them anew for each request.
const HEAD_BYTES: usize = 64 * 1024;
/// After an accept fails for lack of something (files, memory), it is tried again after this.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Counts an answer that says that something went wrong on this side. `port` is `gateway` or `api`.
pub(crate) fn count_error(port: &'static str, status: StatusCode) {
    if status.is_server_error() {
        metrics::counter!("ichido_errors_total", "port" => port, "status" => status.as_str().to_owned())
            .increment(1);
    }
}

/// A port, and how it is spoken with.
pub(crate) struct Front {
    pub(crate) listener: TcpListener,
    pub(crate) tls: Option<TlsAcceptor>,
}

impl Front {
    /// Serves until told to stop, then lets every connection end its request, for at most `grace`. `welcome` makes the
    /// service of one connection.
    pub(crate) async fn serve<S, B>(
        self,
        welcome: impl Fn(SocketAddr) -> S,
        stop: CancellationToken,
        grace: Duration,
    ) where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
        B: http_body::Body<Data: Send, Error: Into<Box<dyn StdError + Send + Sync>>> + Send + 'static,
    {
        let builder = Arc::new(builder());
        let graceful = GracefulShutdown::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, address)) => {
                    self.take(stream, welcome(address), builder.clone(), graceful.watcher());
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(self.listener);
        if tokio::time::timeout(grace, graceful.shutdown()).await.is_err() {
            tracing::warn!("some connections did not end in time and are cut");
        }
    }

    fn take<S, B>(
        &self,
        stream: TcpStream,
        service: S,
        builder: Arc<Builder<TokioExecutor>>,
        watcher: Watcher,
    ) where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
        B: http_body::Body<Data: Send, Error: Into<Box<dyn StdError + Send + Sync>>> + Send + 'static,
    {
        let _ = stream.set_nodelay(true);
        match self.tls.clone() {
            None => drop(tokio::spawn(converse(stream, service, builder, watcher))),
            Some(acceptor) => drop(tokio::spawn(async move {
                match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => converse(stream, service, builder, watcher).await,
                    Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                    Err(_) => tracing::debug!("a TLS handshake took too long"),
                }
            })),
        }
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // Most answers are small: to copy one behind its head takes less than to hand the system two pieces.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        .writev(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(HEAD_BYTES).unwrap_or(u32::MAX))
        .keep_alive_interval(HEAD_TIMEOUT);
    builder
}

async fn converse<I, S, B>(io: I, service: S, builder: Arc<Builder<TokioExecutor>>, watcher: Watcher)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data: Send, Error: Into<Box<dyn StdError + Send + Sync>>> + Send + 'static,
{
    let begun = Arc::new(AtomicBool::new(false));
    let service = Noting { service, begun: begun.clone() };
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(io), service).into_owned();
    match with_a_beginning(watcher.watch(connection), &begun).await {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!(%error, "a connection broke"),
        None => tracing::debug!("a connection brought no request in time"),
    }
}

/// Notes that a first request came.
struct Noting<S> {
    service: S,
    begun: Arc<AtomicBool>,
}

impl<R, S: Service<R>> Service<R> for Noting<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn call(&self, request: R) -> S::Future {
        if !self.begun.load(Ordering::Relaxed) {
            self.begun.store(true, Ordering::Relaxed);
        }
        self.service.call(request)
    }
}

/// Drives a connection, which is cut if no request has come in time: hyper's own limit begins only when it is clear
/// which version of HTTP is spoken. Once one came nothing is left of this but a look.
async fn with_a_beginning<C: Future>(connection: C, begun: &AtomicBool) -> Option<C::Output> {
    let mut connection = pin!(connection);
    let mut limit = Some(Box::pin(tokio::time::sleep(HEAD_TIMEOUT)));
    poll_fn(|cx| {
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            return Poll::Ready(Some(ended));
        }
        match &mut limit {
            None => Poll::Pending,
            Some(_) if begun.load(Ordering::Relaxed) => {
                limit = None;
                Poll::Pending
            }
            Some(limit) => limit.as_mut().poll(cx).map(|()| None),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::Full;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;

    /// What comes back for these bytes, and how long it takes until the connection ends.
    async fn say(bytes: &[u8]) -> (String, Duration) {
        let (mut ours, theirs) = tokio::io::duplex(4096);
        let service = hyper::service::service_fn(|_: Request<Incoming>| async {
            tokio::time::sleep(HEAD_TIMEOUT * 3).await;
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"hello"))))
        });
        let graceful = GracefulShutdown::new();
        tokio::spawn(converse(theirs, service, Arc::new(builder()), graceful.watcher()));
        let started = Instant::now();
        ours.write_all(bytes).await.unwrap();
        let mut all = Vec::new();
        ours.read_to_end(&mut all).await.unwrap();
        (String::from_utf8_lossy(&all).into_owned(), started.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_brings_no_request_is_closed() {
        for bytes in ["", "P", "PRI * HTTP/2.0\r\n\r\nSM", "GET / HTT"] {
            let (said, took) = say(bytes.as_bytes()).await;
            assert!(took < HEAD_TIMEOUT * 2, "{bytes:?}: {took:?}");
            assert!(!said.contains("hello"), "{bytes:?}: {said}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_came_may_take_longer_than_its_head() {
        let (said, took) = say(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        assert!(said.ends_with("hello") && took >= HEAD_TIMEOUT * 3, "{took:?}: {said}");
    }
}
