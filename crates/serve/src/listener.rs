//! A front door: accepts connections, speaks HTTP/1.1 and HTTP/2, with or without TLS, and closes in good order.
//!
//! No client takes more than its share: the number of connections has a bound, and so have the streams of each, the time
//! for a head, and the time that a client may read nothing. A connection that opens requests only to give them up is told
//! to go away.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client_io::ClientIo;

/// How long a client may take for the head of a request, or keep a connection without one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may read nothing of an answer.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest head of a request. It may have 100 fields: hyper's own bound, and with another one it would make room for
/// them anew for each request.
const HEAD_BYTES: u32 = 64 * 1024;
/// Streams that a client may reset before they reached the service; then its connection is closed.
const RESETS_PENDING: usize = 20;
/// Streams that we may reset for what a client sends; then its connection is closed.
const RESETS_BY_US: usize = 128;
/// Requests that a client may give up on one connection, if they are the larger part; then it is told to go away.
const GIVEN_UP: u64 = 128;
/// How long such a client may take to go.
const GOING_TIMEOUT: Duration = Duration::from_secs(5);
/// After an accept fails for lack of something (files, memory), it is tried again after this.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A listener without room says so no more often than this.
const FULL_AGAIN: Duration = Duration::from_secs(60);

/// A port, and how it is spoken with.
pub struct Front {
    pub listener: TcpListener,
    pub tls: Option<TlsAcceptor>,
    pub limits: Limits,
}

/// What the clients of a port may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once. The next ones wait in the system's queue.
    pub connections: usize,
    /// Requests at once on one HTTP/2 connection.
    pub streams: u32,
}

impl Front {
    /// Serves until told to stop, then lets every connection end its request, for at most `grace`. `welcome` makes the
    /// service of one connection.
    pub async fn serve<S, B>(
        self,
        welcome: impl Fn(SocketAddr) -> S,
        stop: CancellationToken,
        grace: Duration,
    ) where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
        B: http_body::Body<Data: Send, Error: Into<Box<dyn StdError + Send + Sync>>> + Send + 'static,
    {
        let builder = Arc::new(builder(self.limits.streams));
        let (connections, mut room) = (TaskTracker::new(), Room::new(self.limits.connections));
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = room.accept(&self.listener) => accepted,
            };
            match accepted {
                Ok((stream, address, place)) => {
                    let stream = ClientIo::new(stream, READ_TIMEOUT, Some(place));
                    self.take(stream, welcome(address), builder.clone(), stop.clone(), &connections);
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(self.listener);
        connections.close();
        if tokio::time::timeout(grace, connections.wait()).await.is_err() {
            tracing::warn!("some connections did not end in time and are cut");
        }
    }

    fn take<S, B>(
        &self,
        stream: ClientIo<TcpStream>,
        service: S,
        builder: Arc<Builder<TokioExecutor>>,
        stop: CancellationToken,
        connections: &TaskTracker,
    ) where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
        B: http_body::Body<Data: Send, Error: Into<Box<dyn StdError + Send + Sync>>> + Send + 'static,
    {
        match self.tls.clone() {
            None => drop(connections.spawn(converse(stream, service, builder, stop))),
            Some(acceptor) => drop(connections.spawn(async move {
                match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => converse(stream, service, builder, stop).await,
                    Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                    Err(_) => tracing::debug!("a TLS handshake took too long"),
                }
            })),
        }
    }
}

/// Room for the connections of a listener.
struct Room {
    places: Arc<Semaphore>,
    most: usize,
    warned: Option<Instant>,
}

impl Room {
    fn new(most: usize) -> Self {
        let most = most.min(Semaphore::MAX_PERMITS);
        Self { places: Arc::new(Semaphore::new(most)), most, warned: None }
    }

    /// The next connection, once there is room for it.
    async fn accept(
        &mut self,
        listener: &TcpListener,
    ) -> std::io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
        if self.places.available_permits() == 0 && self.warned.is_none_or(|at| at.elapsed() > FULL_AGAIN) {
            self.warned = Some(Instant::now());
            tracing::warn!(connections_max = self.most, "too many connections: new ones wait");
        }
        let place = self.places.clone().acquire_owned().await.map_err(std::io::Error::other)?;
        let (stream, address) = listener.accept().await?;
        let _ = stream.set_nodelay(true);
        Ok((stream, address, place))
    }
}

fn builder(streams: u32) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // Most answers are small: to copy one behind its head takes less than to hand the system two pieces.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES as usize)
        .writev(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(streams)
        .max_header_list_size(HEAD_BYTES)
        .max_pending_accept_reset_streams(RESETS_PENDING)
        .max_local_error_reset_streams(RESETS_BY_US)
        .keep_alive_interval(HEAD_TIMEOUT);
    builder
}

async fn converse<I, S, B>(io: I, service: S, builder: Arc<Builder<TokioExecutor>>, stop: CancellationToken)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data: Send, Error: Into<Box<dyn StdError + Send + Sync>>> + Send + 'static,
{
    let tally = Arc::new(Tally::default());
    let service = Counting { service, tally: tally.clone() };
    let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(io), service).into_owned());
    let mut stopped = pin!(stop.cancelled());
    // hyper's own limit for a head begins only when it is clear which version of HTTP is spoken.
    let mut limit = Some(Box::pin(tokio::time::sleep(HEAD_TIMEOUT)));
    let (mut is_closing, mut is_sent_away) = (false, false);
    let ended = poll_fn(|cx| {
        loop {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(Some(ended));
            }
            if is_closing || !(tally.is_abuse() || stopped.as_mut().poll(cx).is_ready()) {
                break;
            }
            is_closing = true;
            is_sent_away = tally.is_abuse();
            if is_sent_away {
                limit = Some(Box::pin(tokio::time::sleep(GOING_TIMEOUT)));
            }
            connection.as_mut().graceful_shutdown();
        }
        match &mut limit {
            None => Poll::Pending,
            Some(_) if !is_sent_away && tally.begun.load(Ordering::Relaxed) > 0 => {
                limit = None;
                Poll::Pending
            }
            Some(limit) => limit.as_mut().poll(cx).map(|()| None),
        }
    });
    match ended.await {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!(%error, "a connection broke"),
        None => tracing::debug!("a connection brought no request in time, or did not go"),
    }
    if is_sent_away {
        let given_up = tally.given_up.load(Ordering::Relaxed);
        tracing::warn!(given_up, "closed a connection whose client gave up most of its requests");
    }
}

/// The requests of one connection.
#[derive(Debug, Default)]
struct Tally {
    begun: AtomicU64,
    /// Those whose answer the client did not wait for.
    given_up: AtomicU64,
}

impl Tally {
    /// A request that is given up has begun work that goes on: a client that does so all the time is not after answers.
    fn is_abuse(&self) -> bool {
        let given_up = self.given_up.load(Ordering::Relaxed);
        given_up >= GIVEN_UP && given_up > self.begun.load(Ordering::Relaxed) / 2
    }
}

/// Counts the requests of a connection.
struct Counting<S> {
    service: S,
    tally: Arc<Tally>,
}

impl<R, S: Service<R>> Service<R> for Counting<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = Counted<S::Future>;

    fn call(&self, request: R) -> Counted<S::Future> {
        self.tally.begun.fetch_add(1, Ordering::Relaxed);
        Counted { future: self.service.call(request), open: Open(Some(self.tally.clone())) }
    }
}

pin_project! {
    /// The answer to a request, or that it was given up.
    struct Counted<F> {
        #[pin]
        future: F,
        open: Open,
    }
}

/// A request without an answer.
struct Open(Option<Arc<Tally>>);

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let answered = this.future.poll(cx);
        if answered.is_ready() {
            this.open.0 = None;
        }
        answered
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(tally) = &self.0 {
            tally.given_up.fetch_add(1, Ordering::Relaxed);
        }
    }
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
        tokio::spawn(converse(theirs, service, Arc::new(builder(10)), CancellationToken::new()));
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

    #[tokio::test]
    async fn a_client_that_gives_up_most_of_its_requests_is_sent_away() {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let begun = Arc::new(AtomicU64::new(0));
        let counted = begun.clone();
        let service = hyper::service::service_fn(move |_: Request<Incoming>| {
            counted.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>()
        });
        tokio::spawn(converse(theirs, service, Arc::new(builder(10)), CancellationToken::new()));
        let (mut sender, connection) = h2::client::handshake(ours).await.unwrap();
        let connection = tokio::spawn(connection);
        let mut opened = 0;
        while let Ok(ready) = sender.clone().ready().await {
            sender = ready;
            let request = Request::get("http://x/").body(()).unwrap();
            let Ok((_, mut stream)) = sender.send_request(request, true) else { break };
            opened += 1;
            assert!(opened <= 2 * GIVEN_UP, "it is never sent away");
            // Only a request that has begun work is given up.
            while begun.load(Ordering::Relaxed) < opened && !connection.is_finished() {
                tokio::task::yield_now().await;
            }
            stream.send_reset(h2::Reason::CANCEL);
        }
        drop(sender);
        connection.await.unwrap().unwrap();
        assert!(opened >= GIVEN_UP, "sent away after {opened}");
    }

    #[test]
    fn a_client_may_give_up_some_requests() {
        let tally = |begun: u64, given_up: u64| Tally { begun: begun.into(), given_up: given_up.into() };
        assert!(!tally(GIVEN_UP - 1, GIVEN_UP - 1).is_abuse());
        assert!(tally(GIVEN_UP, GIVEN_UP).is_abuse());
        assert!(!tally(3 * GIVEN_UP, GIVEN_UP).is_abuse());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_came_may_take_longer_than_its_head() {
        let (said, took) = say(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        assert!(said.ends_with("hello") && took >= HEAD_TIMEOUT * 3, "{took:?}: {said}");
    }
}
