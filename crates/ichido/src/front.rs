//! A front door: accepts connections, speaks HTTP/1.1 and HTTP/2, with or without TLS, and closes in good order.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
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
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_BYTES);
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
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(io), service).into_owned();
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "a connection broke");
    }
}
