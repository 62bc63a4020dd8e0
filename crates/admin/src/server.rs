//! The admin port: bound first, so that the ledger can be opened under its address, then served.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse;
use futures_util::future::Either;
use http::StatusCode;
use hyper::body::Incoming;
use hyper::service::service_fn;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service;

use crate::api;
use crate::auth::{AdminToken, Gate, Peer, TOKEN_VARIABLE, is_health_check};
use crate::console::{self, Console};
use crate::state::{Admin, AppState, Health, UsageSource};
use ichido_serve::listener::{Admission, Limits, Listener, Protocol};
use ichido_serve::{Failure, Problem, metrics};

const LIMITS: Limits = Limits {
    connections_max: 256,
    reserved_max: 32,
    protocol: Protocol::Http1,
    head_timeout: Duration::from_secs(10),
    write_timeout: Duration::from_secs(30),
};
/// How long requests in progress may take after the stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// An admin port that is bound but not served yet.
#[derive(Debug)]
pub struct AdminPort {
    listener: TcpListener,
    address: SocketAddr,
    token: Option<AdminToken>,
}

impl AdminPort {
    /// Binds the port. Outside loopback it requires a token.
    pub async fn bind(address: SocketAddr, token: Option<AdminToken>) -> Result<Self, Failure> {
        if !address.ip().is_loopback() {
            let none = || {
                Failure::usage(format!(
                    "admin listener {address} is not on loopback and requires a token: set {TOKEN_VARIABLE}"
                ))
            };
            token.as_ref().ok_or_else(none)?.check_length(address)?;
        }
        let fail = |error: std::io::Error| {
            Failure::usage(format!("cannot listen on admin address {address}: {error}"))
        };
        let listener = TcpListener::bind(address).await.map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        Ok(Self { listener, address, token })
    }

    /// The address it is bound to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address under which other processes on this machine reach the port. The holder of a store writes it there.
    pub fn reachable_address(&self) -> String {
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
        };
        SocketAddr::new(ip, self.address.port()).to_string()
    }

    /// Serves until `stop`, then finishes the running requests.
    pub async fn serve(self, admin: Admin, stop: CancellationToken) {
        let upkeep = tokio::spawn(run_upkeep(admin.metrics.clone()));
        let api = admin.api.clone();
        let maintaining = tokio::spawn(async move { api.maintain_fallback().await });
        let api = admin.api.clone();
        let actions = TaskTracker::new();
        let app = AppState { admin: Arc::new(admin), actions: actions.clone() };
        let gate = Gate::new(self.address, self.token.clone());
        let console = Console::start(app.clone(), self.token.clone(), gate.sessions().clone(), stop.clone());
        let router = api::router(app).merge(console.routes());
        self.serve_router(router, gate, actions, stop).await;
        upkeep.abort();
        maintaining.abort();
        if tokio::time::timeout(DRAIN_TIMEOUT, api.hand_over()).await.is_err() {
            tracing::warn!("handover to the ledger timed out at shutdown");
        }
    }

    /// Serves a meter, which has no ledger: health, metrics and the usage pages.
    pub async fn serve_meter(self, health: Health, usage: UsageSource, stop: CancellationToken) {
        let upkeep = tokio::spawn(run_upkeep(health.metrics.clone()));
        let gate = Gate::new(self.address, self.token.clone());
        let console =
            console::meter_routes(self.token.clone(), gate.sessions().clone(), usage, health.metrics.clone());
        let router = api::health_router(health).merge(console);
        self.serve_router(router, gate, TaskTracker::new(), stop).await;
        upkeep.abort();
    }

    async fn serve_router(self, router: Router, gate: Gate, actions: TaskTracker, stop: CancellationToken) {
        let gate = Arc::new(gate);
        let service_for = |address, admission| {
            let (gate, router) = (gate.clone(), router.clone());
            service_fn(move |mut request: http::Request<Incoming>| match gate.admit(&request) {
                Err(response) => Either::Left(std::future::ready(Ok(*response))),
                Ok(_) if admission == Admission::HealthChecks && !is_health_check(request.uri().path()) => {
                    Either::Left(std::future::ready(Ok(overloaded().into_response())))
                }
                Ok(visitor) => {
                    request.extensions_mut().insert(Peer(address));
                    request.extensions_mut().insert(visitor);
                    Either::Right(router.clone().call(request))
                }
            })
        };
        let listener = Listener { name: "admin", socket: self.listener, tls: None, limits: LIMITS };
        let deadline = listener.serve(service_for, stop, DRAIN_TIMEOUT).await;
        actions.close();
        if tokio::time::timeout_at(deadline, actions.wait()).await.is_err() {
            tracing::warn!(open = actions.len(), "operator actions did not finish in time");
        }
    }
}

fn overloaded() -> Problem {
    let title = "All connections are in use; only /healthz and /readyz are served";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", title)
}

async fn run_upkeep(metrics: metrics_exporter_prometheus::PrometheusHandle) {
    let mut interval = tokio::time::interval(metrics::UPKEEP_INTERVAL);
    loop {
        interval.tick().await;
        metrics.run_upkeep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn wildcard_address_is_reachable_on_loopback() {
        let token = AdminToken::from_text("s3cret-s3cret-s3cret").unwrap();
        let bound = AdminPort::bind("0.0.0.0:0".parse().unwrap(), Some(token)).await.unwrap();
        assert_eq!(bound.reachable_address(), format!("127.0.0.1:{}", bound.address().port()));
        assert_ne!(bound.address().port(), 0);
    }

    #[tokio::test]
    async fn address_outside_loopback_requires_a_token() {
        let line = AdminPort::bind("0.0.0.0:0".parse().unwrap(), None).await.unwrap_err().to_string();
        assert!(line.contains("0.0.0.0:0") && line.contains(TOKEN_VARIABLE), "{line}");
    }
}
