//! Requests of operators: inspect, resolve, release and forget claims; maintain and describe the ledger.

use std::path::PathBuf;

use axum::extract::{FromRequest, FromRequestParts, Json, Query, State};
use axum::http;
use http::{Request, StatusCode};
use ichido_ledger::{Backup, Capabilities, Kind, Page, Stats, Swept, Verified};
use serde::de::DeserializeOwned;

use super::problems::{
    AccessProblems, BodyProblems, ClaimProblems, DirectoryProblems, FileProblems, LedgerProblems,
};
use super::schemas::{self, ClaimParameters, ListParameters, Resolve};
use crate::audit_log::Actor;
use crate::json_object::Object;
use crate::limits::BODY_TIMEOUT;
use crate::operator::wire::{BackupBody, ClaimReasonBody, ListQuery, ReleaseBody, ResolveBody};
use crate::operator::{
    ClaimSelector, ClaimView, Operator, PAGE_MAX, REASON_CHARS_MAX, Refusal, ResolvedClaim, is_reason,
};
use crate::state::AppState;
use ichido_serve::Problem;

pub(super) type ApiResult<T> = Result<Json<T>, Problem>;

/// Lists claims of all scopes, page by page.
#[utoipa::path(
    get, path = "/v1/claims", operation_id = "listClaims", tag = "operators", params(ListParameters),
    responses(
        (status = 200, description = "A page. It may be shorter than requested and still have a cursor.", body = schemas::Page),
        AccessProblems, LedgerProblems,
    ),
)]
pub(super) async fn list(
    State(app): State<AppState>,
    ValidQuery(query): ValidQuery<ListQuery>,
) -> ApiResult<Page> {
    let ListQuery { state, prefix, limit, cursor } = query;
    check_limit(limit)?;
    let query = ichido_ledger::Query { state, prefix, limit, cursor };
    let page = app.operator().list(&query).await;
    page.map(Json).map_err(|refusal| list_problem(refusal, query.cursor.is_some()))
}

/// Shows everything about a claim except its token.
#[utoipa::path(
    get, path = "/v1/claims/one", operation_id = "showClaim", tag = "operators", params(ClaimParameters),
    responses(
        (status = 200, description = "The claim.", body = schemas::ClaimView),
        AccessProblems, LedgerProblems, ClaimProblems,
    ),
)]
pub(super) async fn one(
    State(app): State<AppState>,
    ValidQuery(selector): ValidQuery<ClaimSelector>,
) -> ApiResult<ClaimView> {
    Ok(Json(app.operator().show(&selector).await?))
}

/// Resolves a claim in doubt.
#[utoipa::path(
    post, path = "/v1/claims/resolve", operation_id = "resolveClaim", tag = "operators",
    request_body = Resolve,
    responses(
        (status = 200, description = "Resolved.", body = ResolvedClaim),
        AccessProblems, LedgerProblems, BodyProblems, ClaimProblems,
    ),
)]
pub(super) async fn resolve(
    State(app): State<AppState>,
    actor: Actor,
    ValidJson(body): ValidJson<ResolveBody>,
) -> ApiResult<ResolvedClaim> {
    let (selector, resolve_as) =
        body.into_parts().map_err(|why| invalid(StatusCode::UNPROCESSABLE_ENTITY, format!("{why}.")))?;
    Ok(Json(app.resolve(actor, selector, resolve_as).await?))
}

/// Releases a key whose effect did not happen.
#[utoipa::path(
    post, path = "/v1/claims/release-by-operator", operation_id = "releaseByOperator", tag = "operators",
    request_body = ReleaseBody,
    responses(
        (status = 200, description = "The key is free.", body = ResolvedClaim),
        AccessProblems, LedgerProblems, BodyProblems, ClaimProblems,
    ),
)]
pub(super) async fn release(
    State(app): State<AppState>,
    actor: Actor,
    ValidJson(body): ValidJson<ReleaseBody>,
) -> ApiResult<ResolvedClaim> {
    let (selector, force) = body.into_parts();
    Ok(Json(app.release(actor, selector, force).await?))
}

/// Forgets a completed claim whose effect did not happen. The next request with its key runs the effect.
#[utoipa::path(
    post, path = "/v1/claims/forget", operation_id = "forgetClaim", tag = "operators",
    request_body = ClaimReasonBody,
    responses(
        (status = 200, description = "The key is free.", body = ResolvedClaim),
        AccessProblems, LedgerProblems, BodyProblems, ClaimProblems,
    ),
)]
pub(super) async fn forget(
    State(app): State<AppState>,
    actor: Actor,
    ValidJson(body): ValidJson<ClaimReasonBody>,
) -> ApiResult<ResolvedClaim> {
    let (selector, reason) = body.into_parts();
    check_reason(&reason)?;
    Ok(Json(app.forget(actor, selector, reason).await?))
}

/// Erases what callers wrote in a completed claim: the text of its key, its metadata and its outcome. A request with its key
/// still does not run again; it learns that the response was not kept.
#[utoipa::path(
    post, path = "/v1/claims/erase", operation_id = "eraseClaim", tag = "operators",
    request_body = ClaimReasonBody,
    responses(
        (status = 200, description = "The claim as it was. Only the hash of its key is left.", body = ResolvedClaim),
        AccessProblems, LedgerProblems, BodyProblems, ClaimProblems,
    ),
)]
pub(super) async fn erase(
    State(app): State<AppState>,
    actor: Actor,
    ValidJson(body): ValidJson<ClaimReasonBody>,
) -> ApiResult<ResolvedClaim> {
    let (selector, reason) = body.into_parts();
    check_reason(&reason)?;
    Ok(Json(app.erase(actor, selector, reason).await?))
}

/// Removes expired records, one step at a time.
#[utoipa::path(
    post, path = "/v1/ledger/sweep", operation_id = "sweep", tag = "operators",
    responses(
        (status = 200, description = "What was removed.", body = schemas::Swept),
        AccessProblems, LedgerProblems,
    ),
)]
pub(super) async fn sweep(State(app): State<AppState>, actor: Actor) -> ApiResult<Swept> {
    Ok(Json(app.sweep(actor).await?))
}

/// Reads and checks everything that a file: ledger stores. Responds when that is done, however long it takes.
#[utoipa::path(
    post, path = "/v1/ledger/verify", operation_id = "verify", tag = "operators",
    responses(
        (status = 200, description = "What was read, and what is damaged.", body = schemas::Verified),
        AccessProblems, LedgerProblems, FileProblems,
    ),
)]
pub(super) async fn verify(State(app): State<AppState>) -> ApiResult<Verified> {
    Ok(Json(app.operator().verify().await?))
}

/// Copies a file: ledger to a new directory while it is in use. Responds when that is done, however long it takes.
#[utoipa::path(
    post, path = "/v1/ledger/backup", operation_id = "backup", tag = "operators",
    request_body = BackupBody,
    responses(
        (status = 200, description = "The backup is complete, and was checked.", body = schemas::Backup),
        AccessProblems, LedgerProblems, BodyProblems, FileProblems, DirectoryProblems,
    ),
)]
pub(super) async fn backup(
    State(app): State<AppState>,
    actor: Actor,
    ValidJson(BackupBody { directory }): ValidJson<BackupBody>,
) -> ApiResult<Backup> {
    let directory = PathBuf::from(directory);
    if !directory.is_absolute() {
        let detail = "directory must be an absolute path.".to_owned();
        return Err(invalid(StatusCode::UNPROCESSABLE_ENTITY, detail));
    }
    Ok(Json(app.backup(actor, directory).await?))
}

/// Reclaims all space of a file: ledger that expired and replaced records take. Responds when that is done, however long it
/// takes.
#[utoipa::path(
    post, path = "/v1/ledger/compact", operation_id = "compact", tag = "operators",
    responses(
        (status = 200, description = "What was removed.", body = schemas::Swept),
        AccessProblems, LedgerProblems, FileProblems,
    ),
)]
pub(super) async fn compact(State(app): State<AppState>, actor: Actor) -> ApiResult<Swept> {
    Ok(Json(app.compact(actor).await?))
}

/// Counts what is stored.
#[utoipa::path(
    get, path = "/v1/ledger/stats", operation_id = "stats", tag = "operators",
    responses(
        (status = 200, description = "The counts.", body = schemas::Stats),
        AccessProblems, LedgerProblems,
    ),
)]
pub(super) async fn stats(State(app): State<AppState>) -> ApiResult<Stats> {
    Ok(Json(app.operator().stats().await?))
}

/// Describes what the ledger guarantees.
#[utoipa::path(
    get, path = "/v1/ledger/capabilities", operation_id = "capabilities", tag = "operators",
    responses(
        (status = 200, description = "The guarantees.", body = schemas::Capabilities),
        AccessProblems,
    ),
)]
pub(super) async fn capabilities(State(app): State<AppState>) -> Json<Capabilities> {
    Json(app.admin.ledger.capabilities())
}

/// Checks a reason for the audit log.
pub(super) fn check_reason(reason: &str) -> Result<(), Problem> {
    match is_reason(reason) {
        true => Ok(()),
        false => {
            let detail = format!("reason must have 1 to {REASON_CHARS_MAX} characters.");
            Err(invalid(StatusCode::UNPROCESSABLE_ENTITY, detail))
        }
    }
}

/// Checks the size of a page.
pub(super) fn check_limit(limit: usize) -> Result<(), Problem> {
    match (1..=PAGE_MAX).contains(&limit) {
        true => Ok(()),
        false => Err(invalid(StatusCode::BAD_REQUEST, format!("limit must be between 1 and {PAGE_MAX}."))),
    }
}

/// The problem of a list that was refused.
pub(super) fn list_problem(refusal: Refusal, has_cursor: bool) -> Problem {
    // Only a cursor can make a list invalid.
    match matches!(&refusal, Refusal::Ledger(error) if matches!(error.kind(), Kind::Settings(_)))
        && has_cursor
    {
        true => invalid(StatusCode::BAD_REQUEST, "cursor does not come from this ledger.".to_owned()),
        false => refusal.into(),
    }
}

pub(super) fn invalid(status: StatusCode, detail: String) -> Problem {
    Problem::new(status, "invalid", "The request is invalid").detail(detail)
}

/// A valid query string.
pub(super) struct ValidQuery<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for ValidQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut http::request::Parts, state: &S) -> Result<Self, Problem> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(query)) => Ok(Self(query)),
            Err(rejection) => Err(invalid(rejection.status(), rejection.body_text())),
        }
    }
}

/// A valid JSON body. A foreign page cannot send this content type without a preflight request, which we refuse.
pub(super) struct ValidJson<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for ValidJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request<axum::body::Body>, state: &S) -> Result<Self, Problem> {
        match tokio::time::timeout(BODY_TIMEOUT, Json::from_request(request, state)).await {
            Ok(Ok(Json(Object(body)))) => Ok(Self(body)),
            Ok(Err(rejection)) => Err(invalid(rejection.status(), rejection.body_text())),
            Err(_) => Err(Problem::body_timeout()),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, Bytes};
    use axum::response::IntoResponse;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn unfinished_body_times_out() {
        let begun = futures_util::stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"{"))]);
        let never = futures_util::StreamExt::chain(begun, futures_util::stream::pending());
        let request =
            Request::post("/v1/claims/release-by-operator").header("content-type", "application/json");
        let sent =
            ValidJson::<ReleaseBody>::from_request(request.body(Body::from_stream(never)).unwrap(), &());
        assert_eq!(sent.await.err().unwrap().into_response().status(), StatusCode::REQUEST_TIMEOUT);
    }
}
