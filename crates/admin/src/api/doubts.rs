//! Claims in doubt: which there are, what the services behind them say, and how several are resolved at once.

use std::time::Duration;

use axum::extract::{Json, State};
use http::StatusCode;

use super::operators::{ApiResult, ValidJson, ValidQuery, check_limit, check_reason, invalid};
use super::problems::{AccessProblems, BodyProblems, ClaimProblems, LedgerProblems};
use super::schemas::{self, TriageParameters};
use crate::audit_log::Actor;
use crate::operator::doubt_wire::{AskBody, ResolveAllBody, ResolvedAll, TriageQuery};
use crate::operator::{AskedClaim, ClaimSelector, Operator, PAGE_MAX, Triage, TriageFilter};
use crate::state::AppState;

/// The longest time in a filter. Claims expire long before.
const OLDER_THAN_SECONDS_MAX: u64 = 1_000_000_000;

/// Shows claims in doubt, oldest first, and counts them by route and reason.
#[utoipa::path(
    get, path = "/v1/claims/triage", operation_id = "triageClaims", tag = "operators", params(TriageParameters),
    responses(
        (status = 200, description = "The claims that match.", body = schemas::Triage),
        AccessProblems, LedgerProblems,
    ),
)]
pub(super) async fn triage(
    State(app): State<AppState>,
    ValidQuery(query): ValidQuery<TriageQuery>,
) -> ApiResult<Triage> {
    let TriageQuery { route, reason, tenant, older_than_seconds, limit } = query;
    check_limit(limit)?;
    if older_than_seconds.is_some_and(|seconds| seconds > OLDER_THAN_SECONDS_MAX) {
        let detail = format!("older_than_seconds must be at most {OLDER_THAN_SECONDS_MAX}.");
        return Err(invalid(StatusCode::BAD_REQUEST, detail));
    }
    let older_than = older_than_seconds.map(Duration::from_secs);
    let filter = TriageFilter { route, reason, tenant, older_than };
    Ok(Json(app.operator().triage(&filter, limit).await?))
}

/// Asks the service behind a claim whether its effect happened. Changes nothing unless confirmed is given.
#[utoipa::path(
    post, path = "/v1/claims/ask", operation_id = "askService", tag = "operators",
    request_body = AskBody,
    responses(
        (status = 200, description = "What the service said.", body = schemas::AskedClaim),
        AccessProblems, LedgerProblems, BodyProblems, ClaimProblems,
    ),
)]
pub(super) async fn ask(
    State(app): State<AppState>,
    actor: Actor,
    ValidJson(body): ValidJson<AskBody>,
) -> ApiResult<AskedClaim> {
    let AskBody { key, tenant, route, confirmed } = body;
    Ok(Json(app.ask(actor, ClaimSelector { key, tenant, route }, confirmed).await?))
}

/// Resolves several claims in doubt, each only if it is still in the version that was seen.
#[utoipa::path(
    post, path = "/v1/claims/resolve-all", operation_id = "resolveClaims", tag = "operators",
    request_body = ResolveAllBody,
    responses(
        (status = 200, description = "What became of each claim.", body = ResolvedAll),
        AccessProblems, LedgerProblems, BodyProblems, ClaimProblems,
    ),
)]
pub(super) async fn resolve_all(
    State(app): State<AppState>,
    actor: Actor,
    ValidJson(body): ValidJson<ResolveAllBody>,
) -> ApiResult<ResolvedAll> {
    let ResolveAllBody { kind, claims, reason } = body;
    if claims.len() > PAGE_MAX {
        let detail = format!("claims must have at most {PAGE_MAX} elements.");
        return Err(invalid(StatusCode::UNPROCESSABLE_ENTITY, detail));
    }
    reason.as_deref().map_or(Ok(()), check_reason)?;
    let claims = app.resolve_all(actor, claims, kind.into(), reason).await?;
    Ok(Json(ResolvedAll { claims }))
}
