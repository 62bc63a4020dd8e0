//! The claim API: events that are marked once, and two-phase claims for callers in any language.
//!
//! A call is read and checked as a whole before the ledger hears of it, so a call that is refused marks nothing. Claims
//! made here are *remote*: their callers renew them, this process does not, and they outlive it.
//!
//! Limits: a body of 32 MiB, which takes 10,000 events with 3 KB of metadata each; 10,000 events; keys of 1 to 1,024
//! bytes; metadata of 8 KiB; nonces of 1 to 255 bytes; fingerprints of 1 to 1,024 bytes; leases of up to an hour;
//! retention of up to 3,660 days.

mod claims;
mod events;
mod fields;
mod health;
mod openapi;
mod operators;
mod request_body;
mod responses;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::map_response;
use axum::routing::{get, post};
use ichido_serve::{metrics, problem};

use crate::limits::OPERATOR_BODY_BYTES_MAX;
use crate::state::{AppState, Health};

/// The scope of every claim that is made here. Routes of the gateway begin with a method, so no claim of theirs is meant.
const ROUTE: &str = "/v1/claims";

/// The paths of a process that has no ledger.
pub(crate) fn health_router(health: Health) -> Router {
    Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .with_state(health)
}

pub(crate) fn router(app: AppState) -> Router {
    Router::new()
        .route("/v1/events/check", post(events::check))
        .route("/v1/claims", get(operators::list).post(claims::claim))
        .route("/v1/claims/renew", post(claims::renew))
        .route("/v1/claims/complete", post(claims::complete))
        .route("/v1/claims/release", post(claims::release))
        .route("/v1/claims/doubt", post(claims::doubt))
        .route("/v1/claims/one", get(operators::one))
        .route("/v1/claims/resolve", post(operators::resolve))
        .route("/v1/claims/release-by-operator", post(operators::release))
        .route("/v1/ledger/sweep", post(operators::sweep))
        .route("/v1/ledger/stats", get(operators::stats))
        .route("/v1/ledger/capabilities", get(operators::capabilities))
        .layer(map_response(metrics::count_api_error))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .route("/openapi.json", get(openapi::described))
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .layer(DefaultBodyLimit::max(OPERATOR_BODY_BYTES_MAX))
        .with_state(app)
}
