//! The admin port: bound first, so that the ledger can be opened under its address, then served.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use futures_util::future::{BoxFuture, Either};
use http::StatusCode;
use http::header::{CONNECTION, HeaderValue};
use hyper::body::Incoming;
use hyper::service::service_fn;
use tokio::net::TcpListener;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service;

use crate::api;
use crate::auth::{Gate, Peer, is_health_check};
use crate::console::{self, Console};
use crate::settings::Settings;
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
    settings: Settings,
}

impl AdminPort {
    /// Binds the port, if [`Settings::check_address`] allows it.
    pub async fn bind(address: SocketAddr, settings: Settings) -> Result<Self, Failure> {
        settings.check_address(address)?;
        let fail = |error: std::io::Error| {
            Failure::usage(format!("cannot listen on admin address {address}: {error}"))
        };
        let listener = TcpListener::bind(address).await.map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        Ok(Self { listener, address, settings })
    }

    /// The address it is bound to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the port.
    pub fn url(&self) -> String {
        let scheme = if self.settings.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The address under which other processes on this machine reach the port, with `https://` if it uses TLS. The
    /// holder of a store writes it there.
    pub fn reachable_address(&self) -> String {
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
        };
        let scheme = if self.settings.tls.is_some() { "https://" } else { "" };
        format!("{scheme}{}", SocketAddr::new(ip, self.address.port()))
    }

    /// Serves until `stop`, then finishes the running requests.
    pub fn serve(self, admin: Admin, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let upkeep = tokio::spawn(run_upkeep(admin.metrics.clone()));
            let api = admin.api.clone();
            let maintaining = tokio::spawn(async move { api.maintain_fallback().await });
            let api = admin.api.clone();
            let actions = TaskTracker::new();
            let audit = self.settings.audit.clone();
            let app = AppState::new(admin, audit, actions.clone());
            let gate = self.gate();
            let console =
                Console::start(app.clone(), self.settings.clone(), gate.sessions().clone(), stop.clone());
            let router = console.with_routes_of(api::router(app));
            self.serve_router(router, gate, actions, stop, DRAIN_TIMEOUT).await;
            upkeep.abort();
            maintaining.abort();
            if tokio::time::timeout(DRAIN_TIMEOUT, api.hand_over()).await.is_err() {
                tracing::warn!("handover to the ledger timed out at shutdown");
            }
        })
    }

    /// Serves the API alone, without the console, and without anything that runs between two requests: the process may be
    /// frozen there for hours. The caller maintains the fallback and folds the metrics.
    ///
    /// Each response closes its connection. Otherwise an idle connection would time out during a freeze, and be closed
    /// just when the client sends its next request.
    pub fn serve_api(
        self,
        admin: Admin,
        stop: CancellationToken,
        drain_timeout: Duration,
    ) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let api = admin.api.clone();
            let actions = TaskTracker::new();
            let audit = self.settings.audit.clone();
            let app = AppState::new(admin, audit, actions.clone());
            let gate = self.gate();
            let router = api::router(app).layer(map_response(close_connection));
            self.serve_router(router, gate, actions, stop, drain_timeout).await;
            api.hand_over().await;
        })
    }

    /// Serves a meter, which has no ledger: health, metrics and the usage pages.
    pub fn serve_meter(
        self,
        health: Health,
        usage: UsageSource,
        stop: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let upkeep = tokio::spawn(run_upkeep(health.metrics.clone()));
            let gate = self.gate();
            let console = console::meter_routes(
                self.settings.clone(),
                gate.sessions().clone(),
                usage,
                health.metrics.clone(),
            );
            let router = api::health_router(health).merge(console);
            self.serve_router(router, gate, TaskTracker::new(), stop, DRAIN_TIMEOUT).await;
            upkeep.abort();
        })
    }

    fn gate(&self) -> Gate {
        let Settings { tokens, trusted_user, .. } = &self.settings;
        Gate::new(self.address, tokens.clone(), trusted_user.clone())
    }

    async fn serve_router(
        self,
        router: Router,
        gate: Gate,
        actions: TaskTracker,
        stop: CancellationToken,
        drain_timeout: Duration,
    ) {
        let tls = self.settings.tls.map(TlsAcceptor::from);
        let listener = Listener { name: "admin", socket: self.listener, tls, limits: LIMITS };
        let deadline = serve_router(listener, router, Some(gate), stop, drain_timeout).await;
        actions.close();
        if tokio::time::timeout_at(deadline, actions.wait()).await.is_err() {
            tracing::warn!(open = actions.len(), "operator actions did not finish in time");
        }
    }
}

/// Serves a router until `stop`; requests must pass the gate, if there is one. See [`Listener::serve`] for what it returns.
pub fn serve_router(
    listener: Listener,
    router: Router,
    gate: Option<Gate>,
    stop: CancellationToken,
    grace: Duration,
) -> BoxFuture<'static, Instant> {
    let gate = gate.map(Arc::new);
    let service_for = move |address: SocketAddr, admission| {
        let (gate, router) = (gate.clone(), router.clone());
        service_fn(move |mut request: http::Request<Incoming>| {
            match gate.as_ref().map(|gate| gate.admit(&mut request, address.ip())).transpose() {
                Err(response) => Either::Left(std::future::ready(Ok(*response))),
                Ok(_) if admission == Admission::HealthChecks && !is_health_check(request.uri().path()) => {
                    Either::Left(std::future::ready(Ok(overloaded().into_response())))
                }
                Ok(visitor) => {
                    request.extensions_mut().insert(Peer(address));
                    if let Some(visitor) = visitor {
                        request.extensions_mut().insert(visitor);
                    }
                    Either::Right(router.clone().call(request))
                }
            }
        })
    };
    Box::pin(listener.serve(service_for, stop, grace))
}

async fn close_connection(mut response: Response) -> Response {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

fn overloaded() -> Problem {
    let title = "All connections are in use; only /healthz and /readyz are served";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", title)
}

async fn run_upkeep(metrics: metrics_exporter_prometheus::PrometheusHandle) {
    let mut interval = tokio::time::interval(metrics::UPKEEP_INTERVAL);
    // After a suspend, one turn replaces the missed ones.
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        metrics.run_upkeep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RawAdmin;
    use crate::auth::{TOKEN_VARIABLE, Tokens};

    #[tokio::test]
    async fn wildcard_address_is_reachable_on_loopback() {
        let tokens = Some(Tokens::admin("s3cret-s3cret-s3cret"));
        let settings = Settings { tokens, ..RawAdmin::default().check().unwrap() };
        let bound = AdminPort::bind("0.0.0.0:0".parse().unwrap(), settings).await.unwrap();
        assert_eq!(bound.reachable_address(), format!("127.0.0.1:{}", bound.address().port()));
        assert_ne!(bound.address().port(), 0);
    }

    #[tokio::test]
    async fn address_outside_loopback_requires_a_token() {
        let settings = RawAdmin::default().check().unwrap();
        let line = AdminPort::bind("0.0.0.0:0".parse().unwrap(), settings).await.unwrap_err().to_string();
        assert!(line.contains("0.0.0.0:0") && line.contains(TOKEN_VARIABLE), "{line}");
    }
}
