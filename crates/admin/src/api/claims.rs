//! Two-phase claims: asked for, kept alive, and ended by their callers.

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{Request, StatusCode};
use ichido_core::{Claim, ClaimRequest, Holder, Key, Limits, Outcome, Scope, Settled, Token};
use ichido_ledger::{Claimed, Error, Ledger};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::ROUTE;
use super::fields::{FieldPath, StringMap, Text, WholeNumber, lease_ms, seconds_as_ms};
use super::request_body::{RequestBody, invalid_field, read_body};
use super::responses::{ClaimResponse, Conflict};
use crate::operator::Refusal;
use crate::state::AppState;
use ichido_serve::Problem;

type ApiResult = Result<Response, Problem>;

const TOP_LEVEL: FieldPath = FieldPath(None);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimBody<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow)]
    fingerprint: Option<Text<'a>>,
    lease_ms: Option<WholeNumber>,
    retention_seconds: Option<WholeNumber>,
    metadata: Option<StringMap>,
    #[serde(borrow)]
    nonce: Option<Text<'a>>,
}

pub(super) async fn claim(State(app): State<AppState>, request: Request<Body>) -> ApiResult {
    let raw = read_body(&app.admin.api, request).await?;
    let request = request_of(&app.admin.api.ledger, raw.parse()?)?;
    let ledger = app.admin.api.ledger.clone();
    let claimed = app.run_to_completion(async move { ledger.claim(&request).await }).await?;
    let Claimed { claim, degraded } = claimed.map_err(ledger_problem)?;
    Ok(match claim {
        Claim::Granted(grant) => ClaimResponse::granted(&grant, degraded).into_response(StatusCode::CREATED),
        Claim::Done(outcome) => ClaimResponse::done(outcome, degraded).into_response(StatusCode::OK),
        Claim::Held { retry_after_ms } => Conflict::in_flight(retry_after_ms, degraded).into_response(),
        Claim::InDoubt(doubt) => Conflict::in_doubt(&doubt, degraded).into_response(),
        // Claims of the API have no caller, so nobody is told that it changed.
        Claim::Mismatch | Claim::CallerChanged => Conflict::key_reused(degraded).into_response(),
    })
}

fn request_of(ledger: &Ledger, body: ClaimBody<'_>) -> Result<ClaimRequest, Problem> {
    let mut request = ledger.request(key_of(&body.key)?);
    request.fingerprint = TOP_LEVEL.fingerprint(body.fingerprint)?;
    request.lease_ms = lease_ms(body.lease_ms, request.lease_ms)?;
    request.retention_ms = seconds_as_ms("retention_seconds", body.retention_seconds, request.retention_ms)?;
    request.metadata = TOP_LEVEL.metadata(body.metadata)?;
    request.holder = Holder::Remote;
    if let Some(Text(nonce)) = body.nonce {
        request.nonce = TOP_LEVEL.nonce(&nonce)?;
    }
    Ok(request)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RenewBody<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow)]
    token: Text<'a>,
    lease_ms: Option<WholeNumber>,
}

pub(super) async fn renew(State(app): State<AppState>, request: Request<Body>) -> ApiResult {
    let raw = read_body(&app.admin.api, request).await?;
    let body: RenewBody<'_> = raw.parse()?;
    let (key, token) = key_and_token(&body.key, &body.token)?;
    let ledger = app.admin.api.ledger.clone();
    let lease_ms = lease_ms(body.lease_ms, ledger.settings().lease_ms)?;
    let renewed = app.run_to_completion(async move { ledger.renew(&key, token, lease_ms).await }).await?;
    settled(renewed, &ClaimResponse::renewed(lease_ms))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CompleteBody<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow)]
    token: Text<'a>,
    #[serde(borrow)]
    outcome: &'a RawValue,
}

pub(super) async fn complete(State(app): State<AppState>, request: Request<Body>) -> ApiResult {
    let raw = read_body(&app.admin.api, request).await?;
    let body: CompleteBody<'_> = raw.parse()?;
    let (key, token) = key_and_token(&body.key, &body.token)?;
    let outcome = outcome_of(&raw, body.outcome)?;
    let ledger = app.admin.api.ledger.clone();
    let completed = app.run_to_completion(async move { ledger.complete(&key, token, outcome).await }).await?;
    settled(completed, &ClaimResponse::of("done"))
}

/// The outcome, byte by byte as it was written, without a copy where it is most of the body.
fn outcome_of(body: &RequestBody, outcome: &RawValue) -> Result<Outcome, Problem> {
    let (size, max) = (outcome.get().len(), Limits::STANDARD.outcome_bytes);
    if size > max {
        return Err(invalid_field("outcome", &format!("is {size} bytes; at max {max} are allowed")));
    }
    let bytes = match size > body.bytes.len() / 2 {
        true => body.bytes.slice_ref(outcome.get().as_bytes()),
        false => Bytes::copy_from_slice(outcome.get().as_bytes()),
    };
    Ok(Outcome::Kept(bytes))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReleaseBody<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow)]
    token: Text<'a>,
}

pub(super) async fn release(State(app): State<AppState>, request: Request<Body>) -> ApiResult {
    let raw = read_body(&app.admin.api, request).await?;
    let body: ReleaseBody<'_> = raw.parse()?;
    let (key, token) = key_and_token(&body.key, &body.token)?;
    let ledger = app.admin.api.ledger.clone();
    let released = app.run_to_completion(async move { ledger.release(&key, token).await }).await?;
    settled(released, &ClaimResponse::of("released"))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DoubtBody<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow)]
    token: Text<'a>,
    #[serde(borrow)]
    reason: Text<'a>,
}

pub(super) async fn doubt(State(app): State<AppState>, request: Request<Body>) -> ApiResult {
    let raw = read_body(&app.admin.api, request).await?;
    let body: DoubtBody<'_> = raw.parse()?;
    let (key, token) = key_and_token(&body.key, &body.token)?;
    TOP_LEVEL.check_length("reason", &body.reason.0, Limits::STANDARD.reason_bytes)?;
    let (ledger, reason) = (app.admin.api.ledger.clone(), body.reason.0.into_owned());
    let doubted =
        app.run_to_completion(async move { ledger.declare_in_doubt(&key, token, reason).await }).await?;
    settled(doubted, &ClaimResponse::of("in-doubt"))
}

fn key_of(text: &Text<'_>) -> Result<Key, Problem> {
    Key::new(Scope::new("", ROUTE), &*text.0).map_err(|error| TOP_LEVEL.limit_exceeded("key", &error))
}

fn key_and_token(key: &Text<'_>, token: &Text<'_>) -> Result<(Key, Token), Problem> {
    let token = token.0.parse().map_err(|_| TOP_LEVEL.invalid("token", "must be 32 hexadecimal digits"))?;
    Ok((key_of(key)?, token))
}

fn settled(settled: ichido_ledger::Result<Settled>, applied: &ClaimResponse) -> ApiResult {
    Ok(match settled.map_err(ledger_problem)? {
        Settled::Applied => applied.into_response(StatusCode::OK),
        Settled::Stale(now) => Conflict::stale(now).into_response(),
    })
}

fn ledger_problem(error: Error) -> Problem {
    Refusal::from(error).into()
}
