//! Health and metrics.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::json;

use super::problems::{AccessProblems, OriginProblems};
use super::schemas::{Alive, Readiness};
use crate::state::Health;

/// Whether the process is alive. Checks no component.
#[utoipa::path(
    get, path = "/healthz", operation_id = "alive", tag = "process", security(),
    responses((status = 200, description = "The process is alive.", body = Alive), OriginProblems),
)]
pub(super) async fn alive() -> Response {
    Json(json!({ "status": "ok" })).into_response()
}

/// Whether every component works.
#[utoipa::path(
    get, path = "/readyz", operation_id = "ready", tag = "process", security(),
    responses(
        (status = 200, description = "Ready.", body = Readiness),
        (status = 503, description = "Not ready.", body = Readiness),
        OriginProblems,
    ),
)]
pub(super) async fn ready(State(health): State<Health>) -> Response {
    let checks = health.readiness.probe_readyz().await;
    let (code, status) = match checks.iter().all(|check| check.ok) {
        true => (StatusCode::OK, "ready"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not-ready"),
    };
    (code, Json(json!({ "status": status, "checks": checks }))).into_response()
}

/// Metrics in the text format of Prometheus.
#[utoipa::path(
    get, path = "/metrics", operation_id = "metrics", tag = "process",
    responses((status = 200, description = "Text exposition format.", body = String, content_type = "text/plain"), AccessProblems),
)]
pub(super) async fn metrics(State(health): State<Health>) -> Response {
    (
        [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        ichido_serve::metrics::render(&health.metrics),
    )
        .into_response()
}
