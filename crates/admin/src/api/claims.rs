//! Two-phase claims: granted, renewed and settled at the request of their callers.

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{Request, StatusCode};
use ichido_core::{self as core, Claim, ClaimRequest, Holder, Key, Limits, Outcome, Scope, Token};
use ichido_ledger::{Claimed, Error, Ledger};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::ROUTE;
use super::fields::{FieldPath, StringMap, Text, WholeNumber, lease_ms, seconds_as_ms};
use super::problems::{AccessProblems, BodyProblems, LedgerProblems};
use super::request_body::{RequestBody, invalid_field, read_body};
use super::responses::{self, ClaimResponse};
use super::schemas::{Conflict, Done, Granted, Settled, metadata};
use super::spans::RequestSpan;
use crate::operator::Refusal;
use crate::state::AppState;
use ichido_serve::Problem;

type ApiResult = Result<Response, Problem>;

const TOP_LEVEL: FieldPath = FieldPath(None);

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Claim)]
struct ClaimBody<'a> {
    /// 1 to 1,024 bytes of UTF-8.
    #[serde(borrow)]
    #[schema(value_type = String, min_length = 1, max_length = 1024)]
    key: Text<'a>,
    /// Stands for the request. The same key with another fingerprint is key-reused.
    #[serde(borrow)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 1024)]
    fingerprint: Option<Text<'a>>,
    /// How long the grant is valid without renewal.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 3_600_000, default = 30_000)]
    lease_ms: Option<WholeNumber>,
    /// How long the outcome is kept after completion.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 316_224_000, default = 86_400)]
    retention_seconds: Option<WholeNumber>,
    #[schema(schema_with = metadata, required = false)]
    metadata: Option<StringMap>,
    /// Identifies this request, 1 to 255 bytes. Use a new nonce for each request and the same one for its retries: after
    /// a lost response, the retry gets the same result. Without a nonce, the retry counts as a duplicate. A claim whose
    /// holder declared it in doubt stays in doubt, also for its own nonce.
    #[serde(borrow)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 255)]
    nonce: Option<Text<'a>>,
}

/// Claims a key.
///
/// If the claim is granted, run the effect, then complete the claim with the token. Renew it before its lease ends:
/// nobody else does. A claim whose lease lapses becomes in doubt; it is never granted anew.
#[utoipa::path(
    post, path = "/v1/claims", operation_id = "claim", tag = "claims",
    request_body = ClaimBody<'_>,
    responses(
        (status = 200, description = "Already done, with this outcome.", body = Done),
        (status = 201, description = "Granted: run the effect, then complete the claim with this token.", body = Granted),
        (
            status = 409, description = "in-flight: another caller runs it; or in-doubt: nobody knows whether it happened.",
            body = Conflict, content_type = "application/problem+json",
            headers(("Retry-After" = u64, description = "For in-flight: seconds until the next try. At most 5, however long \
                the lease is: the effect may finish long before.")),
        ),
        (
            status = 422, description = "key-reused: the key was used with another fingerprint.",
            body = Conflict, content_type = "application/problem+json",
        ),
        AccessProblems, LedgerProblems, BodyProblems,
    ),
)]
pub(super) async fn claim(State(app): State<AppState>, request: Request<Body>) -> ApiResult {
    let span = RequestSpan::of(&request);
    let raw = read_body(&app.admin.api, request).await?;
    let request = request_of(&app.admin.api.ledger, raw.parse()?)?;
    span.key(request.key.index());
    let ledger = app.admin.api.ledger.clone();
    let claimed = app.run_to_completion(async move { ledger.claim(&request).await }).await?;
    let Claimed { claim, degraded } = claimed.map_err(ledger_problem)?;
    span.claimed(&claim, degraded);
    Ok(match claim {
        Claim::Granted(grant) => ClaimResponse::granted(&grant, degraded).response(StatusCode::CREATED),
        Claim::Done(outcome) => ClaimResponse::done(outcome, degraded).response(StatusCode::OK),
        Claim::Held { retry_after_ms } => {
            responses::Conflict::in_flight(retry_after_ms, degraded).into_response()
        }
        Claim::InDoubt(doubt) => responses::Conflict::in_doubt(&doubt, degraded).into_response(),
        // Claims of the API have no caller, so `CallerChanged` cannot happen.
        Claim::Mismatch | Claim::CallerChanged => responses::Conflict::key_reused(degraded).into_response(),
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

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Renew)]
struct RenewBody<'a> {
    /// 1 to 1,024 bytes of UTF-8.
    #[serde(borrow)]
    #[schema(value_type = String, min_length = 1, max_length = 1024)]
    key: Text<'a>,
    /// From the response that granted the claim.
    #[serde(borrow)]
    #[schema(value_type = String, pattern = "^[0-9a-fA-F]{32}$")]
    token: Text<'a>,
    /// How long the grant is valid without renewal.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 3_600_000, default = 30_000)]
    lease_ms: Option<WholeNumber>,
}

/// Renews the lease of a claim.
#[utoipa::path(
    post, path = "/v1/claims/renew", operation_id = "renewClaim", tag = "claims",
    request_body = RenewBody<'_>,
    responses(
        (status = 200, description = "Applied.", body = Settled),
        (
            status = 409, description = "The token is not current. The problem reports the current state.",
            body = Conflict, content_type = "application/problem+json",
        ),
        AccessProblems, LedgerProblems, BodyProblems,
    ),
)]
pub(super) async fn renew(State(app): State<AppState>, request: Request<Body>) -> ApiResult {
    let span = RequestSpan::of(&request);
    let raw = read_body(&app.admin.api, request).await?;
    let body: RenewBody<'_> = raw.parse()?;
    let (key, token) = key_and_token(&body.key, &body.token)?;
    span.key(key.index());
    let ledger = app.admin.api.ledger.clone();
    let lease_ms = lease_ms(body.lease_ms, ledger.settings().lease_ms)?;
    let renewed = app.run_to_completion(async move { ledger.renew(&key, token, lease_ms).await }).await?;
    settled(renewed, &ClaimResponse::renewed(lease_ms), &span, "renewed")
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Complete)]
struct CompleteBody<'a> {
    /// 1 to 1,024 bytes of UTF-8.
    #[serde(borrow)]
    #[schema(value_type = String, min_length = 1, max_length = 1024)]
    key: Text<'a>,
    /// From the response that granted the claim.
    #[serde(borrow)]
    #[schema(value_type = String, pattern = "^[0-9a-fA-F]{32}$")]
    token: Text<'a>,
    /// Up to 16 MiB, stored exactly as written.
    #[serde(borrow)]
    #[schema(value_type = Value)]
    outcome: &'a RawValue,
}

/// Completes a claim with its outcome.
///
/// If it is called again, the first outcome stays.
#[utoipa::path(
    post, path = "/v1/claims/complete", operation_id = "completeClaim", tag = "claims",
    request_body = CompleteBody<'_>,
    responses(
        (status = 200, description = "Applied.", body = Settled),
        (
            status = 409, description = "The token is not current. The problem reports the current state.",
            body = Conflict, content_type = "application/problem+json",
        ),
        AccessProblems, LedgerProblems, BodyProblems,
    ),
)]
pub(super) async fn complete(State(app): State<AppState>, request: Request<Body>) -> ApiResult {
    let span = RequestSpan::of(&request);
    let raw = read_body(&app.admin.api, request).await?;
    let body: CompleteBody<'_> = raw.parse()?;
    let (key, token) = key_and_token(&body.key, &body.token)?;
    span.key(key.index());
    let outcome = outcome_of(&raw, body.outcome)?;
    let ledger = app.admin.api.ledger.clone();
    let completed = app.run_to_completion(async move { ledger.complete(&key, token, outcome).await }).await?;
    settled(completed, &ClaimResponse::of("done"), &span, "completed")
}

/// The outcome exactly as written. It is not copied if it is most of the body.
fn outcome_of(body: &RequestBody, outcome: &RawValue) -> Result<Outcome, Problem> {
    let (size, max) = (outcome.get().len(), Limits::STANDARD.outcome_bytes);
    if size > max {
        return Err(invalid_field("outcome", &format!("is {size} bytes; at most {max} are allowed")));
    }
    let bytes = match size > body.bytes.len() / 2 {
        true => body.bytes.slice_ref(outcome.get().as_bytes()),
        false => Bytes::copy_from_slice(outcome.get().as_bytes()),
    };
    Ok(Outcome::Kept(bytes))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Release)]
struct ReleaseBody<'a> {
    /// 1 to 1,024 bytes of UTF-8.
    #[serde(borrow)]
    #[schema(value_type = String, min_length = 1, max_length = 1024)]
    key: Text<'a>,
    /// From the response that granted the claim.
    #[serde(borrow)]
    #[schema(value_type = String, pattern = "^[0-9a-fA-F]{32}$")]
    token: Text<'a>,
}

/// Releases a claim whose effect provably did not happen. The key is free again.
#[utoipa::path(
    post, path = "/v1/claims/release", operation_id = "releaseClaim", tag = "claims",
    request_body = ReleaseBody<'_>,
    responses(
        (status = 200, description = "Applied.", body = Settled),
        (
            status = 409, description = "The token is not current. The problem reports the current state.",
            body = Conflict, content_type = "application/problem+json",
        ),
        AccessProblems, LedgerProblems, BodyProblems,
    ),
)]
pub(super) async fn release(State(app): State<AppState>, request: Request<Body>) -> ApiResult {
    let span = RequestSpan::of(&request);
    let raw = read_body(&app.admin.api, request).await?;
    let body: ReleaseBody<'_> = raw.parse()?;
    let (key, token) = key_and_token(&body.key, &body.token)?;
    span.key(key.index());
    let ledger = app.admin.api.ledger.clone();
    let released = app.run_to_completion(async move { ledger.release(&key, token).await }).await?;
    settled(released, &ClaimResponse::of("released"), &span, "released")
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Doubt)]
struct DoubtBody<'a> {
    /// 1 to 1,024 bytes of UTF-8.
    #[serde(borrow)]
    #[schema(value_type = String, min_length = 1, max_length = 1024)]
    key: Text<'a>,
    /// From the response that granted the claim.
    #[serde(borrow)]
    #[schema(value_type = String, pattern = "^[0-9a-fA-F]{32}$")]
    token: Text<'a>,
    /// For operators, 1 to 1,024 bytes.
    #[serde(borrow)]
    #[schema(value_type = String, min_length = 1, max_length = 1024)]
    reason: Text<'a>,
}

/// Declares a claim in doubt: the effect may have happened.
#[utoipa::path(
    post, path = "/v1/claims/doubt", operation_id = "doubtClaim", tag = "claims",
    request_body = DoubtBody<'_>,
    responses(
        (status = 200, description = "Applied.", body = Settled),
        (
            status = 409, description = "The token is not current. The problem reports the current state.",
            body = Conflict, content_type = "application/problem+json",
        ),
        AccessProblems, LedgerProblems, BodyProblems,
    ),
)]
pub(super) async fn doubt(State(app): State<AppState>, request: Request<Body>) -> ApiResult {
    let span = RequestSpan::of(&request);
    let raw = read_body(&app.admin.api, request).await?;
    let body: DoubtBody<'_> = raw.parse()?;
    let (key, token) = key_and_token(&body.key, &body.token)?;
    span.key(key.index());
    TOP_LEVEL.check_length("reason", &body.reason.0, Limits::STANDARD.reason_bytes)?;
    let (ledger, reason) = (app.admin.api.ledger.clone(), body.reason.0.clone().into_owned());
    let doubted =
        app.run_to_completion(async move { ledger.declare_in_doubt(&key, token, reason).await }).await?;
    if let Ok(core::Settled::Applied) = doubted {
        span.in_doubt(&body.reason.0);
    }
    settled(doubted, &ClaimResponse::of("in-doubt"), &span, "declared-in-doubt")
}

fn key_of(text: &Text<'_>) -> Result<Key, Problem> {
    Key::new(Scope::new("", ROUTE), &*text.0).map_err(|error| TOP_LEVEL.limit_exceeded("key", &error))
}

fn key_and_token(key: &Text<'_>, token: &Text<'_>) -> Result<(Key, Token), Problem> {
    let token = token.0.parse().map_err(|_| TOP_LEVEL.invalid("token", "must be 32 hexadecimal digits"))?;
    Ok((key_of(key)?, token))
}

/// `outcome` is what a span says if the call was applied.
fn settled(
    settled: ichido_ledger::Result<core::Settled>,
    applied: &ClaimResponse,
    span: &RequestSpan,
    outcome: &'static str,
) -> ApiResult {
    Ok(match settled.map_err(ledger_problem)? {
        core::Settled::Applied => {
            span.outcome(outcome);
            applied.response(StatusCode::OK)
        }
        core::Settled::Stale(now) => {
            span.outcome("stale");
            responses::Conflict::stale(now).into_response()
        }
    })
}

fn ledger_problem(error: Error) -> Problem {
    Refusal::from(error).into()
}
