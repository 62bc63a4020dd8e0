//! Connections to the service behind, kept for the next request.
//!
//! Whoever uses a connection drives it: the task of a request writes the request and reads its answer itself. With a task
//! for each connection, as hyper's own pool has it, a request takes two more wake-ups, and a third task that waits until
//! the connection is free again.

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

use super::socket::{self, Probe};
use crate::settings::Upstream;

/// From the name of the service to the end of the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long before the service does we close an idle connection, if the service says when that is.
const HEAD_START: Duration = Duration::from_secs(1);
/// A body up to this length lies in buffers of the system if the service does not take it. While a longer one is on its
/// way, someone must drive its connection even if nobody reads the answer.
const SMALL_BYTES: u64 = 32 * 1024;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

pub(super) type Body = RequestBody<Incoming>;
type Connector = HttpsConnector<socket::Connector>;
type Driver = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// The connections that wait for a request, and the way to new ones.
pub(super) struct Pool {
    idle: Mutex<Idle>,
    /// Each connection takes a descriptor; some must be left for the ledger.
    room: Arc<Semaphore>,
    connector: Connector,
    connect_timeout: Duration,
    /// How long a connection is kept for the next request.
    idle_time: Duration,
    place: Uri,
}

#[derive(Default)]
struct Idle {
    /// The latest last, each with the time at which it is closed.
    connections: Vec<(Instant, Box<Connection>)>,
    /// Someone closes what waited for too long.
    is_watched: bool,
}

/// A connection, driven by whoever holds it.
struct Connection {
    sender: SendRequest<Body>,
    /// `None`: it has ended.
    driver: Option<Driver>,
    probe: Probe,
    /// How long the service keeps it, as far as it said.
    kept_for: Option<Duration>,
    _place: OwnedSemaphorePermit,
}

impl Pool {
    /// A pool for requests with these time limits. A request whose limit strikes while it is being sent may have been
    /// done: so connecting, which reaches nobody, has to be given up before.
    pub(super) fn new(
        upstream: &Upstream,
        limits: impl Iterator<Item = Duration>,
        connections_max: usize,
    ) -> Result<Self, http::Error> {
        let connect_timeout = limits.map(|limit| limit / 2).fold(CONNECT_TIMEOUT, Duration::min);
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        // Of several addresses each gets its share.
        tcp.set_connect_timeout(Some(connect_timeout));
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config((*upstream.tls).clone())
            .https_or_http()
            .enable_http1()
            .wrap_connector(socket::Connector(tcp));
        let place = Uri::builder().scheme(upstream.scheme.clone()).authority(upstream.authority.clone());
        let place = place.path_and_query("/").build()?;
        let (idle, idle_time) = (Mutex::default(), upstream.idle_time);
        let room = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
        Ok(Self { idle, room, connector, connect_timeout, idle_time, place })
    }

    /// Sends a request whose address is a path, and waits for the head of its answer.
    pub(super) async fn send(
        self: &Arc<Self>,
        mut request: Request<Body>,
    ) -> Result<Response<Answer>, Failure> {
        let is_small = is_small(request.body());
        loop {
            let (mut connection, is_kept) = match self.take() {
                Some(connection) => (connection, true),
                None => (self.connect().await?, false),
            };
            if is_kept {
                connection.probe.arm();
            }
            let mut answering = pin!(connection.sender.try_send_request(request));
            let answered = poll_fn(|cx| {
                // First: what it reads is what is waited for.
                let lives = connection.drive(cx);
                match answering.as_mut().poll(cx) {
                    Poll::Pending if !lives => Poll::Ready(None),
                    answered @ (Poll::Pending | Poll::Ready(_)) => answered.map(Some),
                }
            });
            match answered.await {
                Some(Ok(response)) => {
                    connection.kept_for = kept_for(response.headers());
                    return Ok(response.map(|body| Answer::new(body, connection, self.clone(), is_small)));
                }
                Some(Err(mut error)) => match error.take_message() {
                    // The service closed it before the request was written.
                    Some(given_back) if is_kept => request = given_back,
                    Some(_) => return Err(Failure::NotSent(error_chain(&error.into_error()).into())),
                    None => return Err(judge(&error.into_error())),
                },
                None => return Err(Failure::Lost("the connection ended".into())),
            }
        }
    }

    async fn connect(&self) -> Result<Box<Connection>, Failure> {
        let limit = self.connect_timeout;
        let late =
            |_| Err(Failure::NotSent(format!("connecting: not within {} ms", limit.as_millis()).into()));
        tokio::time::timeout(limit, self.connect_anyhow()).await.unwrap_or_else(late)
    }

    async fn connect_anyhow(&self) -> Result<Box<Connection>, Failure> {
        let not_sent = |error: &(dyn std::error::Error + 'static)| {
            Failure::NotSent(format!("connecting: {}", error_chain(error)).into())
        };
        let place = self.room.clone().acquire_owned().await.map_err(|error| not_sent(&error))?;
        let mut connector = self.connector.clone();
        poll_fn(|cx| connector.poll_ready(cx)).await.map_err(|error| not_sent(&*error))?;
        let stream = connector.call(self.place.clone()).await.map_err(|error| not_sent(&*error))?;
        let probe = socket::probe(&stream);
        let (sender, driver) = Builder::new().handshake(stream).await.map_err(|error| not_sent(&error))?;
        let driver: Driver = Box::pin(driver.with_upgrades());
        Ok(Box::new(Connection { sender, driver: Some(driver), probe, kept_for: None, _place: place }))
    }

    /// The connection that waited for the shortest time.
    fn take(&self) -> Option<Box<Connection>> {
        let now = Instant::now();
        loop {
            let (until, connection) = self.lock().connections.pop()?;
            if now < until {
                return Some(connection);
            }
        }
    }

    fn keep(self: &Arc<Self>, connection: Box<Connection>) {
        let time = connection.kept_for.map_or(self.idle_time, |time| time.min(self.idle_time));
        if time.is_zero() {
            return;
        }
        let mut idle = self.lock();
        idle.connections.push((Instant::now() + time, connection));
        if !std::mem::replace(&mut idle.is_watched, true) {
            drop(idle);
            tokio::spawn(self.clone().watch());
        }
    }

    /// Closes what waits for too long, until nothing waits.
    async fn watch(self: Arc<Self>) {
        loop {
            let first = self.lock().connections.iter().map(|(until, _)| *until).min();
            tokio::time::sleep_until(first.unwrap_or_else(Instant::now)).await;
            let mut idle = self.lock();
            let now = Instant::now();
            let too_old: Vec<_> = idle.connections.extract_if(.., |(until, _)| *until <= now).collect();
            idle.is_watched = !idle.connections.is_empty();
            let goes_on = idle.is_watched;
            drop(idle);
            drop(too_old);
            if !goes_on {
                return;
            }
        }
    }

    /// Drives a connection until it is free or has ended.
    async fn see_off(self: Arc<Self>, mut connection: Box<Connection>) {
        let free = poll_fn(|cx| match connection.drive(cx) {
            true => connection.sender.poll_ready(cx).map(|ready| ready.is_ok()),
            false => Poll::Ready(false),
        });
        if free.await {
            self.keep(connection);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Connection {
    /// Writes and reads what can be. `false`: it has ended.
    fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(driver) = &mut self.driver else { return false };
        match driver.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(ended) => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection to the service broke");
                }
                // What still waits for it is told by its going.
                self.driver = None;
                false
            }
        }
    }
}

/// The body of an answer, and the connection that it comes by.
#[derive(Debug)]
pub(crate) struct Answer {
    body: Incoming,
    by: Option<(Box<Connection>, Arc<Pool>)>,
}

impl Answer {
    fn new(body: Incoming, connection: Box<Connection>, pool: Arc<Pool>, is_small: bool) -> Self {
        if !is_small {
            tokio::spawn(pool.see_off(connection));
            return Self { body, by: None };
        }
        let mut answer = Self { body, by: Some((connection, pool)) };
        if answer.body.is_end_stream() {
            answer.let_go();
        }
        answer
    }

    /// Has the connection driven by a task of its own from now on: for a change of protocols.
    pub(super) fn let_go(&mut self) {
        let Some((connection, pool)) = self.by.take() else { return };
        match connection.sender.is_ready() {
            true => pool.keep(connection),
            false if connection.driver.is_some() => drop(tokio::spawn(pool.see_off(connection))),
            false => {}
        }
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let Some((connection, _)) = &mut this.by else { return Pin::new(&mut this.body).poll_frame(cx) };
        let mut frame = Pin::new(&mut this.body).poll_frame(cx);
        if frame.is_pending() {
            connection.drive(cx);
            frame = Pin::new(&mut this.body).poll_frame(cx);
        }
        match &frame {
            Poll::Pending => {}
            Poll::Ready(Some(Ok(_))) if !this.body.is_end_stream() => {}
            Poll::Ready(Some(Ok(_)) | None) => this.let_go(),
            Poll::Ready(Some(Err(_))) => this.by = None,
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
    body.size_hint().upper().is_some_and(|most| most <= SMALL_BYTES)
}

/// How long the service keeps a connection, less a head start: a request must not meet its closing.
fn kept_for(headers: &HeaderMap) -> Option<Duration> {
    let parameters = headers.get(KEEP_ALIVE)?.to_str().ok()?.split(',');
    let seconds = parameters.filter_map(|parameter| parameter.trim().strip_prefix("timeout=")).next()?;
    let time = Duration::from_secs(seconds.parse().ok()?);
    Some(time.saturating_sub(HEAD_START).max(time.min(HEAD_START) / 2))
}

/// A request that hyper gave back reached nobody.
fn judge(error: &hyper::Error) -> Failure {
    match error.is_canceled() {
        true => Failure::NotSent(error_chain(error).into()),
        false => Failure::Lost(error_chain(error).into()),
    }
}

#[cfg(test)]
mod tests;
