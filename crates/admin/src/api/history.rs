//! The timeline of a key, and anomalies, from the history.

use axum::extract::{Json, State};
use http::StatusCode;
use ichido_history::anomalies::Found;
use ichido_history::{Find, History, parse_hash};
use ichido_serve::Problem;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::operators::{ApiResult, ValidQuery, invalid};
use super::problems::{AccessProblems, HistoryProblems};
use crate::histories::ANOMALY_DAYS;
use crate::operator::wire::{AnomaliesQuery, Timeline, TimelineBy, TimelineQuery};
use crate::state::AppState;

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

/// Shows what was unusual in the last 7 days, the oldest first: volume, duplicates, silence, doubt, an instance that differs.
/// Looked for after each full hour.
#[utoipa::path(
    get, path = "/v1/history/anomalies", operation_id = "anomalies", tag = "operators", params(AnomaliesParameters),
    responses(
        (status = 200, description = "The findings.", body = AnomaliesSchema),
        AccessProblems, HistoryProblems,
    ),
)]
pub(super) async fn anomalies(
    State(app): State<AppState>,
    ValidQuery(query): ValidQuery<AnomaliesQuery>,
) -> ApiResult<Found> {
    let days = query.days.unwrap_or(ANOMALY_DAYS);
    if !(1..=ANOMALY_DAYS).contains(&days) {
        let why = format!("days must be between 1 and {ANOMALY_DAYS}.");
        return Err(invalid(StatusCode::BAD_REQUEST, why));
    }
    let now = app.admin.ledger.settings().clock.now();
    let found = app.admin.histories.anomalies(now).await.map_err(|error| unavailable(&error))?;
    let off = || unavailable(&"history.dir is \"off\", or anomalies.enabled is false");
    let mut found = Found::clone(&*found.ok_or_else(off)?);
    found.keep_days(days);
    Ok(Json(found))
}

fn unavailable(error: &impl std::fmt::Display) -> Problem {
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

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct AnomaliesParameters {
    /// How many days back.
    #[param(required = false, minimum = 1, maximum = 7, default = 7)]
    days: u32,
}

/// What was unusual.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Anomalies)]
pub(super) struct AnomaliesSchema {
    anomalies: Vec<Anomaly>,
    /// The hours that were recorded in full. A source is judged after a week.
    known_hours: u64,
    /// The end of the last hour that was judged, in milliseconds since the Unix epoch.
    until: u64,
}

/// Something unusual in one hour.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Anomaly {
    #[schema(pattern = "^(volume|duplicates|silence|in-doubt|instance)$")]
    kind: String,
    /// The start of the hour, in milliseconds since the Unix epoch.
    at: u64,
    route: String,
    /// The channel, repository or account, unless the finding is about a whole route or an instance.
    #[schema(required = true)]
    source: Option<String>,
    /// The instance that differs from the others.
    #[schema(required = true)]
    instance: Option<String>,
    /// What was counted, or a share between 0 and 1.
    observed: f64,
    /// What is usual.
    usual: f64,
    /// All of it as one sentence.
    text: String,
    /// The command that shows the hours around it.
    command: String,
    /// The page of the console that shows the hour: path, query and fragment of its URL.
    page: String,
}
