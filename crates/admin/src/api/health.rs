//! Alive, ready, and what was counted.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::json;

use crate::state::Health;

/// The process lives: no part is asked.
pub(super) async fn alive() -> Response {
    Json(json!({ "status": "ok" })).into_response()
}

/// Every part works, or which does not.
pub(super) async fn ready(State(health): State<Health>) -> Response {
    let checks = health.readiness.probe_readyz().await;
    let (status, word) = match checks.iter().all(|check| check.ok) {
        true => (StatusCode::OK, "ready"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not-ready"),
    };
    (status, Json(json!({ "status": word, "checks": checks }))).into_response()
}

pub(super) async fn metrics(State(health): State<Health>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], health.metrics.render())
        .into_response()
}
