//! `POST /v1/usage`: counts a batch.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use ichido_serve::Problem;
use serde::Serialize;

use super::body;
use super::problem;
use super::state::AppState;
use crate::batch::{Batch, Context, RECORDS_MAX, Refusal};
use crate::outcome::{Counts, Outcome, RecordResult};

/// Responses to larger batches leave out single results unless senders need them: some senders read only 64 KiB of
/// a response.
const RESULTS_MAX: usize = 300;

#[derive(Serialize)]
struct BatchResponse<'a> {
    #[serde(rename = "batchIdempotencyKey", skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(flatten)]
    counts: Counts,
    /// An explanation for operators, if the batch was counted in part.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    results: Option<Vec<RecordResult<'a>>>,
}

pub(super) async fn usage(State(state): State<AppState>, request: Request<Body>) -> Response {
    let started = state.options.clock.steady();
    let response = count(&state, request).await.unwrap_or_else(Problem::into_response);
    let took = state.options.clock.steady().saturating_sub(started);
    metrics::histogram!("ichido_meter_request_seconds").record(took.as_secs_f64());
    metrics::counter!("ichido_meter_batches_total", "status" => response.status().as_str().to_owned())
        .increment(1);
    response
}

async fn count(state: &AppState, request: Request<Body>) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let tenant = state.tenant(&head.headers)?;
    let Ok(permit) = state.permits.clone().acquire_owned().await else { return Err(problem::failed()) };
    let bytes = body::read(&head.headers, body, state.options.body_max_bytes).await?;
    let context = Context {
        tenant: &tenant,
        key: key(&head.headers),
        received_at: i64::try_from(state.options.clock.now().0).unwrap_or(i64::MAX),
        profile: state.options.profile,
    };
    let batch = Arc::new(Batch::read(&bytes, &context).map_err(refused)?);
    drop(bytes);
    // A separate task: it finishes even if the sender disconnects, and holds its permit until then.
    let (store, counted_batch) = (state.options.store.clone(), batch.clone());
    let task = state.tasks.spawn(async move {
        let _permit = permit;
        store.count(counted_batch).await
    });
    let outcomes = task.await.map_err(|error| {
        tracing::error!(%error, "task that counts a batch failed");
        problem::failed()
    })??;
    Ok(respond(&batch, &outcomes, state.options.profile.upserts()))
}

/// The key from the header: a string as in RFC 9651, or its bare characters.
fn key(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get("idempotency-key")?.to_str().ok()?.trim();
    Some(text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text))
}

fn refused(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::Malformed(fault) => problem::invalid(fault),
        Refusal::TooManyRecords => problem::too_large(format!(
            "A batch must not have more than {RECORDS_MAX} records; send smaller batches."
        )),
        Refusal::OtherTenant => problem::other_tenant(),
    }
}

fn respond(batch: &Batch, outcomes: &[Outcome], upserts: bool) -> Response {
    let counts = Counts::of(outcomes);
    record_metrics(batch, outcomes, &counts);
    let status = counts.status(upserts);
    if status == StatusCode::UNPROCESSABLE_ENTITY.as_u16() {
        return nothing_counted(outcomes).into_response();
    }
    // If a record is refused, senders must know which: the response lists all results, however many.
    let all = outcomes.len() <= RESULTS_MAX || counts.invalid > 0;
    let results = || {
        batch
            .entries
            .iter()
            .zip(outcomes)
            .map(|(entry, outcome)| RecordResult::new(entry.event_id(), outcome))
    };
    let detail = (counts.invalid > 0).then(|| {
        let Counts { invalid, total, .. } = counts;
        format!(
            "{invalid} of {total} records are invalid and were not counted; results gives the reason for each"
        )
    });
    let results = all.then(|| results().collect());
    let response = BatchResponse { key: batch.key.as_deref(), counts, detail, results };
    let body = serde_json::to_vec(&response).unwrap_or_default();
    let mut response = (StatusCode::from_u16(status).unwrap_or_default(), body).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Reports what is wrong with the first record.
fn nothing_counted(outcomes: &[Outcome]) -> Problem {
    match outcomes.first() {
        Some(Outcome::Invalid(fault)) => problem::no_record(
            format!("records[0]: {}: {}", fault.field, fault.reason),
            format!("records[0].{}", fault.field.trim_start_matches('.')),
        ),
        _ => problem::failed(),
    }
}

fn record_metrics(batch: &Batch, outcomes: &[Outcome], counts: &Counts) {
    for (result, number) in [
        ("inserted", counts.inserted),
        ("updated", counts.updated),
        ("duplicate", counts.duplicates),
        ("conflict", counts.conflicts),
        ("stale", counts.stale),
        ("invalid", counts.invalid),
    ] {
        if number > 0 {
            metrics::counter!("ichido_meter_records_total", "result" => result).increment(number);
        }
    }
    if counts.conflicts + counts.stale + counts.invalid > 0 {
        let first =
            batch.entries.iter().zip(outcomes).find(|(_, outcome)| {
                matches!(outcome, Outcome::Conflict | Outcome::Stale | Outcome::Invalid(_))
            });
        tracing::warn!(
            tenant = batch.tenant,
            batchIdempotencyKey = batch.key,
            conflicts = counts.conflicts,
            stale = counts.stale,
            invalid = counts.invalid,
            first = first.and_then(|(entry, _)| entry.event_id()),
            "some records of a batch were not counted as sent"
        );
    }
}
