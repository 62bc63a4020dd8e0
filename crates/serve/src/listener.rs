//! An accept loop with limits: HTTP/1.1, or HTTP/1.1 and HTTP/2, with or without TLS, and a graceful shutdown.
//!
//! No client can take more than its share. There are limits on the number of connections, on the streams of each, on the
//! time for a request head, and on the time that a client may leave a response unread. A connection that opens requests
//! only to cancel them is closed.

mod connection;
mod request_counter;
mod slots;

use std::convert::Infallible;
use std::error::Error as StdError;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::Service;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::connection::Server;
use self::slots::Slots;
use crate::client_io::ClientIo;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a failed accept, for example for lack of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound port and how to serve it.
pub struct Listener {
    /// What the log calls the listener.
    pub name: &'static str,
    /// The bound socket.
    pub socket: TcpListener,
    /// Accepts TLS connections only, if set.
    pub tls: Option<TlsAcceptor>,
    /// What clients may take.
    pub limits: Limits,
}

/// What the clients of a listener may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once.
    pub connections_max: usize,
    /// Connections beyond `connections_max`, for health checks only. When all are taken, the oldest is closed. If this is
    /// 0, further connections wait in the system's queue instead.
    pub reserved_max: usize,
    /// The HTTP versions that clients may use.
    pub protocol: Protocol,
    /// How long a client may take to send a request head, or keep a connection without one.
    pub head_timeout: Duration,
    /// How long a client may leave a response unread.
    pub write_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 256,
            reserved_max: 0,
            protocol: Protocol::Http1,
            head_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(60),
        }
    }
}

/// The HTTP versions of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/1.1 and HTTP/2.
    Auto {
        /// Requests at once on one HTTP/2 connection.
        streams_max: u32,
    },
}

/// Which requests a connection may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Any request.
    Any,
    /// Health checks only: the connection is one of `reserved_max`. It is closed after one response.
    HealthChecks,
}

impl Listener {
    /// Serves until `stop`, then lets connections finish their requests for at most `drain_timeout`. `service_for` makes
    /// the service of one connection.
    ///
    /// Returns the deadline: the time of the stop plus `drain_timeout`. Connections that are still open continue in the
    /// background until the process exits.
    pub async fn serve<S, B>(
        self,
        service_for: impl Fn(SocketAddr, Admission) -> S,
        stop: CancellationToken,
        drain_timeout: Duration,
    ) -> Instant
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
        B: http_body::Body<Data: Send, Error: Into<Box<dyn StdError + Send + Sync>>> + Send + 'static,
    {
        let Self { name, socket, tls, limits } = self;
        let connections = TaskTracker::new();
        let mut slots = Slots::new(name, &limits);
        let spawn = Spawn {
            tls,
            any: Arc::new(Server::new(&limits, Admission::Any)),
            health_checks: Arc::new(Server::new(&limits, Admission::HealthChecks)),
            stop: stop.clone(),
            connections: connections.clone(),
        };
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = slots.accept(&socket) => accepted,
            };
            match accepted {
                Ok((stream, address, permit)) => {
                    let admission = if permit.is_some() { Admission::Any } else { Admission::HealthChecks };
                    let stream = ClientIo::new(stream, limits.write_timeout, permit);
                    let task = spawn.connection(stream, service_for(address, admission), admission);
                    match admission {
                        Admission::Any => drop(task),
                        Admission::HealthChecks => slots.reserve(task),
                    }
                }
                Err(error) => {
                    tracing::warn!(listener = name, %error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        let deadline = Instant::now() + drain_timeout;
        drop(socket);
        connections.close();
        if tokio::time::timeout_at(deadline, connections.wait()).await.is_err() {
            tracing::warn!(listener = name, open = connections.len(), "connections did not finish in time");
        }
        deadline
    }
}

/// Starts the tasks of connections.
struct Spawn {
    tls: Option<TlsAcceptor>,
    any: Arc<Server>,
    health_checks: Arc<Server>,
    stop: CancellationToken,
    connections: TaskTracker,
}

impl Spawn {
    fn connection<S, B>(
        &self,
        stream: ClientIo<TcpStream>,
        service: S,
        admission: Admission,
    ) -> JoinHandle<()>
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
        B: http_body::Body<Data: Send, Error: Into<Box<dyn StdError + Send + Sync>>> + Send + 'static,
    {
        let server = match admission {
            Admission::Any => self.any.clone(),
            Admission::HealthChecks => self.health_checks.clone(),
        };
        let stop = self.stop.clone();
        match self.tls.clone() {
            None => self.connections.spawn(async move { server.serve(stream, service, stop).await }),
            Some(acceptor) => self.connections.spawn(async move {
                match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => server.serve(stream, service, stop).await,
                    Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                    Err(_) => tracing::debug!("TLS handshake timed out"),
                }
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::Full;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Starts a listener whose responses name the admission of their connection.
    async fn start(limits: Limits, stop: CancellationToken) -> (SocketAddr, JoinHandle<Instant>) {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let service_for = |_, admission| {
            hyper::service::service_fn(move |_: Request<Incoming>| {
                let body = Full::new(Bytes::from(format!("{admission:?}")));
                std::future::ready(Ok::<_, Infallible>(Response::new(body)))
            })
        };
        let listener = Listener { name: "test", socket, tls: None, limits };
        (address, tokio::spawn(listener.serve(service_for, stop, Duration::from_secs(60))))
    }

    async fn send_request(stream: &mut TcpStream, connection: &str) -> String {
        let request = format!("GET / HTTP/1.1\r\nHost: x\r\nConnection: {connection}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = vec![0; 1024];
        let len = stream.read(&mut response).await.unwrap();
        String::from_utf8_lossy(&response[..len]).into_owned()
    }

    #[tokio::test]
    async fn health_checks_are_served_when_all_connections_are_taken() {
        let limits = Limits { connections_max: 1, reserved_max: 1, ..Limits::default() };
        let (address, _) = start(limits, CancellationToken::new()).await;
        let mut first = TcpStream::connect(address).await.unwrap();
        assert!(send_request(&mut first, "keep-alive").await.ends_with("Any"));
        // The oldest reserved connection makes room for the next.
        let mut idle = TcpStream::connect(address).await.unwrap();
        let mut second = TcpStream::connect(address).await.unwrap();
        let response = send_request(&mut second, "keep-alive").await;
        assert!(response.ends_with("HealthChecks") && response.contains("connection: close"), "{response}");
        assert_eq!(idle.read(&mut [0; 1]).await.unwrap_or(0), 0, "the idle connection is closed");
        assert!(send_request(&mut first, "keep-alive").await.ends_with("Any"));
    }

    #[tokio::test]
    async fn without_reserved_connections_further_ones_wait() {
        let stop = CancellationToken::new();
        let (address, listener) =
            start(Limits { connections_max: 1, ..Limits::default() }, stop.clone()).await;
        let mut first = TcpStream::connect(address).await.unwrap();
        assert!(send_request(&mut first, "keep-alive").await.ends_with("Any"));
        let mut second = TcpStream::connect(address).await.unwrap();
        assert!(send_request(&mut first, "close").await.ends_with("Any"));
        assert!(send_request(&mut second, "keep-alive").await.ends_with("Any"));
        stop.cancel();
        let deadline = listener.await.unwrap();
        assert!(Instant::now() < deadline, "idle connections are closed at once");
    }
}
