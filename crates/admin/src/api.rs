//! The HTTP API: event checks, two-phase claims, operator requests, health and metrics.
//!
//! A request is read and checked as a whole before it reaches the ledger, so a refused request marks nothing. Claims
//! made here are *remote*: their callers renew them, not this process, and they outlive it.
//!
//! Limits: a body of 32 MiB, enough for 10,000 events with 3 KB of metadata each; 10,000 events; keys of 1 to 1,024
//! bytes; metadata of 8 KiB; nonces of 1 to 255 bytes; fingerprints of 1 to 1,024 bytes; leases of up to an hour;
//! retention of up to 3,660 days.

mod claims;
mod doubts;
mod event_operators;
mod event_schemas;
mod events;
mod fields;
mod health;
mod history;
mod openapi;
mod operators;
mod problems;
mod request_body;
mod responses;
mod schemas;
mod spans;
mod trace;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRef};
use axum::middleware::{from_fn_with_state, map_response};
use ichido_serve::{metrics, problem};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::limits::OPERATOR_BODY_BYTES_MAX;
use crate::state::{AppState, Health};

/// The route of every claim made through the API. Routes of the gateway start with a method, so the two never collide.
const ROUTE: &str = "/v1/claims";

/// The routes of a process that has no ledger.
pub(crate) fn health_router(health: Health) -> Router {
    let (router, _) = health_routes().split_for_parts();
    with_fallbacks(router).with_state(health)
}

/// All routes of a process that has a ledger.
pub(crate) fn router(app: AppState) -> Router {
    let (router, _) = routes().split_for_parts();
    let router = with_fallbacks(router).layer(DefaultBodyLimit::max(OPERATOR_BODY_BYTES_MAX));
    let router = match app.admin.api.tracer.clone() {
        Some(tracer) => router.layer(from_fn_with_state(tracer, spans::trace)),
        None => router,
    };
    router.with_state(app)
}

/// The routes with their description.
fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::with_openapi(openapi::base())
        .routes(routes!(events::check))
        .routes(routes!(event_operators::list))
        .routes(routes!(event_operators::one))
        .routes(routes!(event_operators::forget))
        .routes(routes!(event_operators::erase))
        .routes(routes!(operators::list, claims::claim))
        .routes(routes!(claims::renew))
        .routes(routes!(claims::complete))
        .routes(routes!(claims::release))
        .routes(routes!(claims::doubt))
        .routes(routes!(operators::one))
        .routes(routes!(operators::resolve))
        .routes(routes!(doubts::triage))
        .routes(routes!(doubts::ask))
        .routes(routes!(doubts::resolve_all))
        .routes(routes!(operators::release))
        .routes(routes!(operators::forget))
        .routes(routes!(operators::erase))
        .routes(routes!(operators::sweep))
        .routes(routes!(operators::verify))
        .routes(routes!(operators::backup))
        .routes(routes!(operators::compact))
        .routes(routes!(operators::stats))
        .routes(routes!(operators::capabilities))
        .routes(routes!(history::timeline))
        .routes(routes!(history::anomalies))
        .routes(routes!(trace::trace))
        .layer(map_response(metrics::count_api_error))
        .merge(health_routes())
        .routes(routes!(openapi::document))
}

fn health_routes<S: Clone + Send + Sync + 'static>() -> OpenApiRouter<S>
where
    Health: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(health::alive))
        .routes(routes!(health::ready))
        .routes(routes!(health::metrics))
}

fn with_fallbacks<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    router.fallback(problem::not_found).method_not_allowed_fallback(problem::method_not_allowed)
}
