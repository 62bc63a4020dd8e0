//! `POST /v1/usage`

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use serde::Serialize;

use super::body;
use super::problem::Problem;
use super::state::Served;
use crate::batch::{About, Batch, MOST_RECORDS, Refusal};
use crate::outcome::{Counts, Outcome, Told};

/// Answers for batches of more records say of single ones only what senders must know: some read no more than 64 KiB of an answer.
const ALL_TOLD: usize = 300;

#[derive(Serialize)]
struct Answer<'a> {
    #[serde(rename = "batchIdempotencyKey", skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(flatten)]
    counts: Counts,
    /// What a person must know of a batch that was counted in part.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    results: Option<Vec<Told<'a>>>,
}

pub(super) async fn usage(State(served): State<Served>, request: Request<Body>) -> Response {
    let started = served.parts.clock.steady();
    let answer = count(&served, request).await.unwrap_or_else(Problem::into_response);
    let took = served.parts.clock.steady().saturating_sub(started);
    metrics::histogram!("ichido_meter_request_seconds").record(took.as_secs_f64());
    metrics::counter!("ichido_meter_batches_total", "status" => answer.status().as_str().to_owned())
        .increment(1);
    answer
}

async fn count(served: &Served, request: Request<Body>) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let tenant = served.tenant(&head.headers)?;
    let Ok(room) = served.room.clone().acquire_owned().await else { return Err(Problem::broken_off()) };
    let bytes = body::read(&head.headers, body, served.parts.body_max_bytes).await?;
    let about = About {
        tenant: &tenant,
        key: key(&head.headers),
        received_at: i64::try_from(served.parts.clock.now().0).unwrap_or(i64::MAX),
        profile: served.parts.profile,
    };
    let batch = Arc::new(Batch::read(&bytes, &about).map_err(refused)?);
    drop(bytes);
    // In a task of its own: who hangs up stops nothing, and leaves its place only when it is done.
    let (store, counted) = (served.parts.store.clone(), batch.clone());
    let counting = served.under_way.spawn(async move {
        let _room = room;
        store.count(counted).await
    });
    let outcomes = counting.await.map_err(|error| {
        tracing::error!(%error, "counting a batch broke off");
        Problem::broken_off()
    })??;
    Ok(answer(&batch, &outcomes, served.parts.profile.upserts()))
}

/// The key in the head: a string as in RFC 9651, or its bare characters.
fn key(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get("idempotency-key")?.to_str().ok()?.trim();
    Some(text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text))
}

fn refused(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::NotUnderstood(fault) => Problem::invalid(fault),
        Refusal::TooMany => Problem::too_large(format!(
            "A batch must not have more than {MOST_RECORDS} records; send smaller batches."
        )),
        Refusal::OtherTenant => Problem::other_tenant(),
    }
}

fn answer(batch: &Batch, outcomes: &[Outcome], upserts: bool) -> Response {
    let counts = Counts::of(outcomes);
    note(batch, outcomes, &counts);
    let status = counts.status(upserts);
    if status == StatusCode::UNPROCESSABLE_ENTITY.as_u16() {
        return nothing_counted(outcomes).into_response();
    }
    // With a record that is refused, everyone must know which: then all are told, however many.
    let all = outcomes.len() <= ALL_TOLD || counts.invalid > 0;
    let told =
        || batch.entries.iter().zip(outcomes).map(|(entry, outcome)| Told::new(entry.event_id(), outcome));
    let detail = (counts.invalid > 0).then(|| {
        let Counts { invalid, total, .. } = counts;
        format!(
            "{invalid} of {total} records are invalid and were not counted; results gives the reason for each"
        )
    });
    let results = all.then(|| told().collect());
    let answer = Answer { key: batch.key.as_deref(), counts, detail, results };
    let body = serde_json::to_vec(&answer).unwrap_or_default();
    let mut response = (StatusCode::from_u16(status).unwrap_or_default(), body).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// What is wrong with the first record.
fn nothing_counted(outcomes: &[Outcome]) -> Problem {
    match outcomes.first() {
        Some(Outcome::Invalid(fault)) => Problem::no_record(
            format!("records[0]: {}: {}", fault.field, fault.reason),
            format!("records[0].{}", fault.field.trim_start_matches('.')),
        ),
        _ => Problem::broken_off(),
    }
}

fn note(batch: &Batch, outcomes: &[Outcome], counts: &Counts) {
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
            "some records of a batch were not counted as they came"
        );
    }
}
