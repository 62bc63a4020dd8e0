//! The port itself: bound first, so that the ledger can be opened under its address, then served.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse;
use futures_util::future::Either;
use http::StatusCode;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service;

use crate::api;
use crate::auth::{AdminToken, Gate, Peer, TOKEN_VARIABLE, is_open};
use crate::console::{self, Console};
use crate::state::{Admin, Health, Served, Usage};
use ichido_serve::ClientIo;
use ichido_serve::{Failure, Problem, metrics};

/// Connections at once.
const CONNECTIONS: usize = 256;
/// Connections beyond these, for those who ask after our health. If all are taken, the oldest makes room.
const RESERVED: usize = 32;
/// How long a caller may read nothing of an answer.
const READ_PATIENCE: Duration = Duration::from_secs(30);
/// How long a caller may take to say what it wants.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// How long calls that are under way may take after the end was asked for.
const DRAIN: Duration = Duration::from_secs(10);
/// The pause after a connection could not be taken, for want of file descriptors for example.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// An admin port that is bound, and not yet served.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    token: Option<AdminToken>,
}

impl Bound {
    /// Binds the port. Off loopback it demands a token.
    pub async fn bind(address: SocketAddr, token: Option<AdminToken>) -> Result<Self, Failure> {
        if !address.ip().is_loopback() {
            let none = || {
                Failure::usage(format!(
                    "the admin listener {address} is not on loopback and needs a token: set {TOKEN_VARIABLE}"
                ))
            };
            token.as_ref().ok_or_else(none)?.off_loopback(address)?;
        }
        let fail = |error: std::io::Error| Failure::usage(format!("the admin listener {address}: {error}"));
        let listener = TcpListener::bind(address).await.map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        Ok(Self { listener, address, token })
    }

    /// The address it is bound to, with its port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address under which others on this machine reach it: what the holder of a store signs.
    pub fn reach(&self) -> String {
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
        };
        SocketAddr::new(ip, self.address.port()).to_string()
    }

    /// Serves until `stop`, then finishes the calls that are under way.
    pub async fn serve(self, admin: Admin, stop: CancellationToken) {
        let upkeep = tokio::spawn(keep_up(admin.meters.clone()));
        let api = admin.api.clone();
        let looking_after = tokio::spawn(async move { api.look_after_ledger().await });
        let api = admin.api.clone();
        let actions = TaskTracker::new();
        let served = Served { admin: Arc::new(admin), actions: actions.clone() };
        let gate = Gate::new(self.address, self.token.clone());
        let console =
            Console::start(served.clone(), self.token.clone(), gate.sessions().clone(), stop.clone());
        let router = api::router(served).merge(console.routes());
        self.take_calls(router, gate, actions, &stop).await;
        upkeep.abort();
        looking_after.abort();
        if tokio::time::timeout(DRAIN, api.last_words()).await.is_err() {
            tracing::warn!("the ledger could not be told what was answered in its place");
        }
    }

    /// The same for a meter, which has no ledger: it tells how it is, what it did, and what it counted.
    pub async fn serve_meter(self, health: Health, usage: Usage, stop: CancellationToken) {
        let upkeep = tokio::spawn(keep_up(health.meters.clone()));
        let gate = Gate::new(self.address, self.token.clone());
        let console =
            console::of_meter(self.token.clone(), gate.sessions().clone(), usage, health.meters.clone());
        let router = api::health_router(health).merge(console);
        self.take_calls(router, gate, TaskTracker::new(), &stop).await;
        upkeep.abort();
    }

    async fn take_calls(self, router: Router, gate: Gate, actions: TaskTracker, stop: &CancellationToken) {
        let gate = Arc::new(gate);
        let (graceful, mut room) = (GracefulShutdown::new(), Room::default());
        while let Some((stream, peer)) = self.next(stop).await {
            let (place, kind) = room.place();
            let stream = ClientIo::new(stream, READ_PATIENCE, place);
            let connection = connection(stream, kind, Peer(peer), gate.clone(), router.clone());
            let connection = graceful.watch(connection);
            let task = tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection to the admin port broke off");
                }
            });
            if kind == Kind::Reserved {
                room.reserved.push_back(task);
            }
        }
        drop(self.listener);
        actions.close();
        let drained = async { tokio::join!(graceful.shutdown(), actions.wait()) };
        if tokio::time::timeout(DRAIN, drained).await.is_err() {
            tracing::warn!("calls to the admin port were cut off: they took more than {} s", DRAIN.as_secs());
        }
    }

    async fn next(&self, stop: &CancellationToken) -> Option<(TcpStream, SocketAddr)> {
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = stop.cancelled() => return None,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let _ = stream.set_nodelay(true);
                    return Some((stream, peer));
                }
                Err(error) => {
                    tracing::warn!(%error, "the admin port could not take a connection");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    }
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Any,
    /// For questions after our health: there is no room for anything else.
    Reserved,
}

/// Room for connections. Whoever holds all places, for example with requests that are never finished, does not keep
/// others from asking whether the process is alive and ready.
#[derive(Debug)]
struct Room {
    places: Arc<Semaphore>,
    /// The oldest first.
    reserved: VecDeque<JoinHandle<()>>,
}

impl Default for Room {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(CONNECTIONS)), reserved: VecDeque::new() }
    }
}

impl Room {
    /// A place for a new connection. In the reserve the oldest connection goes if there is no other.
    fn place(&mut self) -> (Option<OwnedSemaphorePermit>, Kind) {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return (Some(place), Kind::Any);
        }
        self.reserved.retain(|task| !task.is_finished());
        if self.reserved.len() >= RESERVED
            && let Some(oldest) = self.reserved.pop_front()
        {
            oldest.abort();
        }
        (None, Kind::Reserved)
    }
}

fn connection(
    stream: ClientIo<TcpStream>,
    kind: Kind,
    peer: Peer,
    gate: Arc<Gate>,
    router: Router,
) -> impl hyper_util::server::graceful::GracefulConnection<Error = hyper::Error> {
    let service = service_fn(move |mut request: http::Request<Incoming>| match gate.admit(&request) {
        Err(answer) => Either::Left(std::future::ready(Ok(*answer))),
        Ok(_) if kind == Kind::Reserved && !is_open(request.uri().path()) => {
            Either::Left(std::future::ready(Ok(full().into_response())))
        }
        Ok(visitor) => {
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(visitor);
            Either::Right(router.clone().call(request))
        }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .keep_alive(kind == Kind::Any)
        .serve_connection(TokioIo::new(stream), service)
}

fn full() -> Problem {
    let title = "All connections of this port are taken; only /healthz and /readyz are answered";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", title)
}

async fn keep_up(meters: metrics_exporter_prometheus::PrometheusHandle) {
    let mut turns = tokio::time::interval(metrics::UPKEEP_INTERVAL);
    loop {
        turns.tick().await;
        meters.run_upkeep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_bound_everywhere_is_reached_here() {
        let token = AdminToken::from_text("s3cret-s3cret-s3cret").unwrap();
        let bound = Bound::bind("0.0.0.0:0".parse().unwrap(), Some(token)).await.unwrap();
        assert_eq!(bound.reach(), format!("127.0.0.1:{}", bound.address().port()));
        assert_ne!(bound.address().port(), 0);
    }

    #[tokio::test]
    async fn off_loopback_a_token_is_demanded() {
        let line = Bound::bind("0.0.0.0:0".parse().unwrap(), None).await.unwrap_err().to_string();
        assert!(line.contains("0.0.0.0:0") && line.contains(TOKEN_VARIABLE), "{line}");
    }
}
