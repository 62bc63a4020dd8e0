//! One id, followed through everything that this process has recorded.

use axum::extract::{Json, State};
use http::StatusCode;
use ichido_serve::Problem;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::operators::{ApiResult, ValidQuery, invalid};
use super::problems::{AccessProblems, ParameterProblems};
use crate::operator::wire::TraceQuery;
use crate::state::AppState;
use crate::trace::{ID_CHARS_MAX, LookedInto, NotLookedInto, Place, Trace, is_id};

/// Follows one id through receipts, batches, the meter, claims, decisions and the audit log, the oldest first. It lists the places
/// that were looked into, and those that were not, with the reason.
#[utoipa::path(
    get, path = "/v1/trace", operation_id = "trace", tag = "operators", params(TraceParameters),
    responses(
        (status = 200, description = "What was found, and where.", body = TraceSchema),
        AccessProblems, ParameterProblems,
    ),
)]
pub(super) async fn trace(
    State(app): State<AppState>,
    ValidQuery(TraceQuery { id }): ValidQuery<TraceQuery>,
) -> ApiResult<Trace> {
    if !is_id(&id) {
        let why = format!("id must have 1 to {ID_CHARS_MAX} characters.");
        return Err(invalid(StatusCode::BAD_REQUEST, why));
    }
    let trace = app.trace(&id).await.map_err(|error| {
        tracing::error!(%error, "a trace panicked");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "The trace was interrupted")
    })?;
    Ok(Json(trace))
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct TraceParameters {
    /// The event id of a record; the key of a batch, or its first 12 characters or more; the key of a claim or an event; the hash
    /// of a key, as the log prints it; or the id of a request.
    #[param(min_length = 1, max_length = 1024)]
    id: String,
}

/// What was found about an id.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Trace)]
pub(super) struct TraceSchema {
    id: String,
    /// Whether anything was found.
    found: bool,
    /// What happened, oldest first.
    timeline: Vec<TraceEvent>,
    /// How many later events are left out.
    omitted: u64,
    looked_into: Vec<LookedInto>,
    /// Also places that were searched in part.
    not_looked_into: Vec<NotLookedInto>,
}

/// Something that happened to an id.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TraceEvent {
    /// RFC 3339, in UTC.
    at: String,
    place: Place,
    /// What happened, such as `request`, `delivered`, `counted`, `in-doubt`, or the action of an operator.
    event: String,
    /// The key of the batch, the claim or the event.
    #[schema(nullable = false)]
    key: Option<String>,
    /// What else is known, by name.
    #[schema(required = false)]
    details: Map<String, Value>,
}
