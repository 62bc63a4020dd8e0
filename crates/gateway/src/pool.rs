//! A pool of connections to the upstream.
//!
//! The user of a connection drives it: the task of a request writes the request and reads its response itself. A task for
//! each connection, as in hyper's own pool, costs each request two more wake-ups and a third task that waits until the
//! connection is idle again.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response, Uri};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use ichido_core::error_chain;
use ichido_http::{Failure, RequestBody};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tower_service::Service;

use super::socket::{self, Probe, probe_of};
use crate::settings::Upstream;

/// From the name lookup to the end of the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long before the upstream we close an idle connection, if the upstream announces its own timeout.
const CLOSE_MARGIN: Duration = Duration::from_secs(1);
/// A request body up to this size fits into socket buffers if the upstream does not read it. While a larger one is being
/// sent, the connection must be driven even if nobody reads the response.
const SMALL_BODY_BYTES: u64 = 32 * 1024;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

pub(super) type Body = RequestBody<Incoming>;
type Connector = HttpsConnector<socket::Connector>;
type Driver = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// Idle connections to the upstream, and how to open new ones.
pub(super) struct Pool {
    idle: Mutex<Idle>,
    /// Limits open connections: each takes a descriptor, and some must be left for the ledger. Shared by all pools of a
    /// gateway.
    permits: Arc<Semaphore>,
    connector: Connector,
    connect_timeout: Duration,
    /// How long an idle connection is kept for the next request.
    idle_timeout: Duration,
    uri: Uri,
}

#[derive(Default)]
struct Idle {
    /// Each with the time at which it is closed; the one used last comes last.
    connections: Vec<(Instant, Box<Connection>)>,
    /// Whether a task is running that closes expired connections.
    has_reaper: bool,
    /// Whether another pool has replaced this one, so that no request will come for an idle connection.
    is_retired: bool,
}

/// A connection, driven by its owner.
struct Connection {
    sender: SendRequest<Body>,
    /// `None` when the connection has closed.
    driver: Option<Driver>,
    probe: Probe,
    /// How long the upstream keeps the connection when idle, if it announced that.
    keep_alive: Option<Duration>,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    /// A pool for requests with these timeouts.
    ///
    /// The effect of a request that times out is unknown. While we are still connecting, nothing was sent, so connecting
    /// must time out first.
    pub(super) fn new(
        upstream: &Upstream,
        timeouts: impl Iterator<Item = Duration>,
        permits: Arc<Semaphore>,
    ) -> Result<Self, http::Error> {
        let connect_timeout = timeouts.map(|timeout| timeout / 2).fold(CONNECT_TIMEOUT, Duration::min);
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        // If the name has several addresses, each gets a share of the timeout.
        tcp.set_connect_timeout(Some(connect_timeout));
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config((*upstream.tls).clone())
            .https_or_http()
            .enable_http1()
            .wrap_connector(socket::Connector(tcp));
        let uri = Uri::builder().scheme(upstream.scheme.clone()).authority(upstream.authority.clone());
        let uri = uri.path_and_query("/").build()?;
        let (idle, idle_timeout) = (Mutex::default(), upstream.idle_time);
        Ok(Self { idle, permits, connector, connect_timeout, idle_timeout, uri })
    }

    /// Closes idle connections now, and the others after their requests.
    pub(super) fn retire(&self) {
        let mut idle = self.lock();
        idle.is_retired = true;
        let connections = std::mem::take(&mut idle.connections);
        drop(idle);
        drop(connections);
    }

    /// Sends a request whose URI is a path, and waits for the head of the response.
    pub(super) async fn send(
        self: &Arc<Self>,
        mut request: Request<Body>,
    ) -> Result<Response<UpstreamBody>, Failure> {
        let is_small = is_small(request.body());
        loop {
            let (mut connection, is_reused) = match self.take() {
                Some(connection) => (connection, true),
                None => (self.connect().await?, false),
            };
            if is_reused {
                connection.probe.arm();
            }
            let mut response = pin!(connection.sender.try_send_request(request));
            let result = poll_fn(|cx| {
                // Drive the connection first: it reads the response.
                let is_open = connection.drive(cx);
                match response.as_mut().poll(cx) {
                    Poll::Pending if !is_open => Poll::Ready(None),
                    result @ (Poll::Pending | Poll::Ready(_)) => result.map(Some),
                }
            });
            match result.await {
                Some(Ok(response)) => {
                    connection.keep_alive = keep_alive(response.headers());
                    return Ok(
                        response.map(|body| UpstreamBody::new(body, connection, self.clone(), is_small))
                    );
                }
                Some(Err(mut error)) => match error.take_message() {
                    // The upstream closed the connection before the request was written.
                    Some(unsent) if is_reused => request = unsent,
                    Some(_) => return Err(Failure::NotSent(error_chain(&error.into_error()).into())),
                    None => return Err(failure(&error.into_error())),
                },
                None => return Err(Failure::Lost("the connection was closed".into())),
            }
        }
    }

    async fn connect(&self) -> Result<Box<Connection>, Failure> {
        let timeout = self.connect_timeout;
        let timed_out =
            |_| Err(Failure::NotSent(format!("cannot connect within {} ms", timeout.as_millis()).into()));
        tokio::time::timeout(timeout, self.connect_without_timeout()).await.unwrap_or_else(timed_out)
    }

    async fn connect_without_timeout(&self) -> Result<Box<Connection>, Failure> {
        let not_sent = |error: &(dyn std::error::Error + 'static)| {
            Failure::NotSent(format!("cannot connect: {}", error_chain(error)).into())
        };
        let permit = self.permits.clone().acquire_owned().await.map_err(|error| not_sent(&error))?;
        let mut connector = self.connector.clone();
        poll_fn(|cx| connector.poll_ready(cx)).await.map_err(|error| not_sent(&*error))?;
        let stream = connector.call(self.uri.clone()).await.map_err(|error| not_sent(&*error))?;
        let probe = probe_of(&stream);
        let (sender, driver) = Builder::new().handshake(stream).await.map_err(|error| not_sent(&error))?;
        let driver: Driver = Box::pin(driver.with_upgrades());
        Ok(Box::new(Connection { sender, driver: Some(driver), probe, keep_alive: None, _permit: permit }))
    }

    /// Takes the idle connection that was used last.
    fn take(&self) -> Option<Box<Connection>> {
        let now = Instant::now();
        loop {
            let (expires_at, connection) = self.lock().connections.pop()?;
            if now < expires_at {
                return Some(connection);
            }
        }
    }

    /// Puts an idle connection back into the pool.
    fn put(self: &Arc<Self>, connection: Box<Connection>) {
        let time = connection.keep_alive.map_or(self.idle_timeout, |time| time.min(self.idle_timeout));
        if time.is_zero() {
            return;
        }
        let mut idle = self.lock();
        if idle.is_retired {
            return;
        }
        idle.connections.push((Instant::now() + time, connection));
        if !std::mem::replace(&mut idle.has_reaper, true) {
            drop(idle);
            tokio::spawn(self.clone().run_reaper());
        }
    }

    /// Closes expired connections until none is idle.
    async fn run_reaper(self: Arc<Self>) {
        loop {
            let next = self.lock().connections.iter().map(|(expires_at, _)| *expires_at).min();
            tokio::time::sleep_until(next.unwrap_or_else(Instant::now)).await;
            let mut idle = self.lock();
            let now = Instant::now();
            let expired: Vec<_> =
                idle.connections.extract_if(.., |(expires_at, _)| *expires_at <= now).collect();
            idle.has_reaper = !idle.connections.is_empty();
            let continues = idle.has_reaper;
            drop(idle);
            drop(expired);
            if !continues {
                return;
            }
        }
    }

    /// Drives a connection until it is idle, and puts it back, or until it is closed.
    async fn drive_until_idle(self: Arc<Self>, mut connection: Box<Connection>) {
        let is_idle = poll_fn(|cx| match connection.drive(cx) {
            true => connection.sender.poll_ready(cx).map(|ready| ready.is_ok()),
            false => Poll::Ready(false),
        });
        if is_idle.await {
            self.put(connection);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("uri", &self.uri).finish_non_exhaustive()
    }
}

impl Connection {
    /// Writes and reads as much as possible. Returns whether the connection is open.
    fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(driver) = &mut self.driver else { return false };
        match driver.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(closed) => {
                if let Err(error) = closed {
                    tracing::debug!(%error, "connection to the upstream failed");
                }
                // Dropping the driver fails the pending request and response body.
                self.driver = None;
                false
            }
        }
    }
}

/// The body of a response, and the connection that it arrives on.
#[derive(Debug)]
pub(crate) struct UpstreamBody {
    body: Incoming,
    connection: Option<(Box<Connection>, Arc<Pool>)>,
}

impl UpstreamBody {
    fn new(body: Incoming, connection: Box<Connection>, pool: Arc<Pool>, is_small: bool) -> Self {
        if !is_small {
            tokio::spawn(pool.drive_until_idle(connection));
            return Self { body, connection: None };
        }
        let mut this = Self { body, connection: Some((connection, pool)) };
        if this.body.is_end_stream() {
            this.detach();
        }
        this
    }

    /// Gives the connection up: an idle one goes back into the pool, any other gets a task that drives it. An upgrade needs
    /// that.
    pub(super) fn detach(&mut self) {
        let Some((connection, pool)) = self.connection.take() else { return };
        match connection.sender.is_ready() {
            true => pool.put(connection),
            false if connection.driver.is_some() => drop(tokio::spawn(pool.drive_until_idle(connection))),
            false => {}
        }
    }
}

impl http_body::Body for UpstreamBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let Some((connection, _)) = &mut this.connection else {
            return Pin::new(&mut this.body).poll_frame(cx);
        };
        let mut frame = Pin::new(&mut this.body).poll_frame(cx);
        if frame.is_pending() {
            connection.drive(cx);
            frame = Pin::new(&mut this.body).poll_frame(cx);
        }
        match &frame {
            Poll::Pending => {}
            Poll::Ready(Some(Ok(_))) if !this.body.is_end_stream() => {}
            Poll::Ready(Some(Ok(_)) | None) => this.detach(),
            Poll::Ready(Some(Err(_))) => this.connection = None,
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

pub(super) fn is_small(body: &Body) -> bool {
    body.size_hint().upper().is_some_and(|max| max <= SMALL_BODY_BYTES)
}

/// How long the upstream keeps an idle connection, less a margin: no request must be sent while the upstream closes it.
fn keep_alive(headers: &HeaderMap) -> Option<Duration> {
    let parameters = headers.get(KEEP_ALIVE)?.to_str().ok()?.split(',');
    let seconds = parameters.filter_map(|parameter| parameter.trim().strip_prefix("timeout=")).next()?;
    let time = Duration::from_secs(seconds.parse().ok()?);
    Some(time.saturating_sub(CLOSE_MARGIN).max(time.min(CLOSE_MARGIN) / 2))
}

/// A request that hyper cancelled was not sent.
fn failure(error: &hyper::Error) -> Failure {
    match error.is_canceled() {
        true => Failure::NotSent(error_chain(error).into()),
        false => Failure::Lost(error_chain(error).into()),
    }
}

#[cfg(test)]
mod tests;
