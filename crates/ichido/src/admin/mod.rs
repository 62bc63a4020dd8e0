//! The admin port: is the process alive, is it ready, what does it count; and an operator's view of the claims.
//!
//! Whoever reaches this port may end doubts and give keys back, so it is on loopback, or demands a token. A browser on
//! the same machine is no operator: calls under a foreign name or from a foreign page are refused ([`gate`]).
//!
//! A process binds first ([`Bound::bind`]), opens its ledger under [`Bound::reach`], so that `ichido ledger …` finds the
//! port through the store, and then serves ([`Bound::serve`]).

mod gate;
mod health;
mod listen;
mod meters;
mod problem;
mod readiness;
mod token;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use ichido_ledger::Ledger;
use metrics_exporter_prometheus::PrometheusHandle;

pub(crate) use self::listen::Bound;
pub(crate) use self::meters::install_meters;
pub(crate) use self::problem::Problem;
pub(crate) use self::readiness::{Probe, Readiness};
pub(crate) use self::token::{AdminToken, TOKEN_VARIABLE};

/// The largest body that an operator sends.
const BODY_BYTES: usize = 1024 * 1024;

/// What an admin port serves.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    /// The ledger that operators look after.
    pub(crate) ledger: Ledger,
    /// What `/readyz` asks.
    pub(crate) readiness: Readiness,
    /// What `/metrics` prints.
    pub(crate) meters: PrometheusHandle,
}

fn router(admin: Admin, address: SocketAddr, token: Option<AdminToken>) -> Router {
    let gate = Arc::new(gate::Gate::new(address, token));
    Router::new()
        .route("/metrics", get(health::metrics))
        .route_layer(from_fn_with_state(gate.clone(), gate::demand_token))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .fallback(problem::no_such_page)
        .method_not_allowed_fallback(problem::no_such_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .layer(from_fn_with_state(gate, gate::refuse_strangers))
        .with_state(admin)
}
