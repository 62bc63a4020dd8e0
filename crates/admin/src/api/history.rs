//! The timeline of a key, from the history.

use axum::extract::{Json, State};
use http::StatusCode;
use ichido_history::{Entry, Find, History, parse_hash};
use ichido_serve::Problem;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::operators::{ApiResult, ValidQuery, invalid};
use super::problems::{AccessProblems, HistoryProblems};
use crate::histories::Unavailable;
use crate::operator::wire::TimelineQuery;
use crate::state::AppState;

/// What was decided about a key.
#[derive(Serialize)]
pub(super) struct Timeline {
    timeline: Vec<Entry>,
}

/// Shows what was decided about a key, the oldest first: first use, repeats, renewals, doubt, and who resolved it. Name exactly one
/// parameter. The history keeps recent decisions only, so an empty timeline does not mean that the key was never used.
#[utoipa::path(
    get, path = "/v1/history/timeline", operation_id = "timeline", tag = "operators", params(TimelineParameters),
    responses(
        (status = 200, description = "The decisions that were kept.", body = TimelineSchema),
        AccessProblems, HistoryProblems,
    ),
)]
pub(super) async fn timeline(
    State(app): State<AppState>,
    ValidQuery(query): ValidQuery<TimelineQuery>,
) -> ApiResult<Timeline> {
    let bad = |detail: &str| Err(invalid(StatusCode::BAD_REQUEST, detail.to_owned()));
    let hash = match query.hash.as_deref().map(parse_hash) {
        Some(None) => return bad("hash must have at least 16 hexadecimal digits."),
        Some(hash) => hash,
        None => None,
    };
    let read = move |history: &History| match (&query.key, &hash, &query.request_id) {
        (Some(key), None, None) => history.timeline(Find::Key(key)).map(Some),
        (None, Some(hash), None) => history.timeline(Find::Hash(hash)).map(Some),
        (None, None, Some(id)) => history.timeline(Find::Request(id)).map(Some),
        _ => Ok(None),
    };
    match app.admin.histories.read(read).await {
        Ok(Some(timeline)) => Ok(Json(Timeline { timeline })),
        Ok(None) => bad("name exactly one of key, hash and request_id."),
        Err(error) => Err(unavailable(&error)),
    }
}

fn unavailable(error: &Unavailable) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "history-unavailable", "The history cannot be read")
        .detail(format!("{error}."))
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct TimelineParameters {
    /// A key, on every route.
    #[param(required = false)]
    key: String,
    /// The hash of a key, as the log prints it: at least 16 hexadecimal digits.
    #[param(required = false)]
    hash: String,
    /// The `X-Request-Id` of a request to the gateway, or the metadata `request_id` of a claim or an event.
    #[param(required = false)]
    request_id: String,
}

/// What was decided about a key.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Timeline)]
pub(super) struct TimelineSchema {
    timeline: Vec<HistoryEntry>,
}

/// A decision about a key.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryEntry {
    /// Milliseconds since the Unix epoch.
    at: u64,
    /// The instance that decided.
    instance: String,
    /// The route of the claim, or `events`.
    route: String,
    /// The channel, repository or account.
    #[schema(required = true)]
    source: Option<String>,
    key: String,
    /// The start of the key's hash.
    hash: String,
    /// What was decided, such as `new`, `duplicate`, `granted`, `replayed` or `in-doubt`.
    result: String,
    /// How long the ledger took, in microseconds.
    latency_us: u64,
    /// Whether the fallback decided.
    degraded: bool,
    /// A reason, or who did it, if that is known.
    #[schema(required = true)]
    detail: Option<String>,
    /// The id of the request, if it had one.
    #[schema(required = true)]
    request_id: Option<String>,
}
