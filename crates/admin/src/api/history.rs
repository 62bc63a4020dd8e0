//! The timeline of a key, from the history.

use axum::extract::{Json, State};
use http::StatusCode;
use ichido_history::{Entry, Find, History, parse_hash};
use ichido_serve::Problem;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::operators::{ApiResult, ValidQuery};
use super::problems::{AccessProblems, HistoryProblems};
use crate::histories::Unavailable;
use crate::operator::wire::{TimelineBy, TimelineQuery};
use crate::state::AppState;

/// What was decided about a key.
#[derive(Serialize)]
pub(super) struct Timeline {
    timeline: Vec<Entry>,
}

/// Shows what was decided about a key, the oldest first: first use, repeats, renewals, doubt, and who resolved it.
/// The history keeps recent decisions only, so an empty timeline does not mean that the key was never used.
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
    let TimelineQuery { find, by } = query;
    let read = move |history: &History| match by {
        TimelineBy::Any => history.search(&find),
        TimelineBy::Key => history.timeline(Find::Key(&find)),
        // What is not a hash is not the hash of any key.
        TimelineBy::Hash => {
            parse_hash(&find).map_or(Ok(Vec::new()), |hash| history.timeline(Find::Hash(&hash)))
        }
        TimelineBy::RequestId => history.timeline(Find::Request(&find)),
    };
    let timeline = app.admin.histories.read(read).await.map_err(|error| unavailable(&error))?;
    Ok(Json(Timeline { timeline }))
}

fn unavailable(error: &Unavailable) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "history-unavailable", "The history cannot be read")
        .detail(format!("{error}."))
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct TimelineParameters {
    /// A key, on every route; the hash of a key, as the log prints it, with at least 16 hexadecimal digits; the `X-Request-Id` of a
    /// request to the gateway; or the metadata `request_id` of a claim or an event.
    find: String,
    /// Which of them it is. By default they are tried one after another.
    #[param(required = false, inline)]
    by: TimelineBy,
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
