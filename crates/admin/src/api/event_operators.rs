//! Requests of operators about events: list, show, forget and erase marks.

use axum::extract::{Json, State};
use ichido_ledger::{MarkPage, MarkQuery, MarkSummary};

use super::event_schemas::{EventPage, EventParameters, ListParameters, MarkedEvent};
use super::operators::{ApiResult, ValidJson, ValidQuery, check_limit, check_reason, list_problem};
use super::problems::{AccessProblems, BodyProblems, EventProblems, LedgerProblems};
use crate::audit_log::Actor;
use crate::operator::wire::{EraseEventBody, EventListQuery, EventSelector, ForgetEventBody};
use crate::operator::{ErasedEvent, EventView, Operator};
use crate::state::AppState;

/// Lists the events that are marked, page by page.
#[utoipa::path(
    get, path = "/v1/events", operation_id = "listEvents", tag = "operators", params(ListParameters),
    responses(
        (status = 200, description = "A page. It may be shorter than requested and still have a cursor.", body = EventPage),
        AccessProblems, LedgerProblems,
    ),
)]
pub(super) async fn list(
    State(app): State<AppState>,
    ValidQuery(query): ValidQuery<EventListQuery>,
) -> ApiResult<MarkPage> {
    let EventListQuery { prefix, limit, cursor } = query;
    check_limit(limit)?;
    let query = MarkQuery { prefix, limit, cursor };
    let page = app.operator().list_events(&query).await;
    page.map(Json).map_err(|refusal| list_problem(refusal, query.cursor.is_some()))
}

/// Shows an event that is marked, and how often it was repeated.
#[utoipa::path(
    get, path = "/v1/events/one", operation_id = "showEvent", tag = "operators", params(EventParameters),
    responses(
        (status = 200, description = "The event.", body = MarkedEvent),
        AccessProblems, LedgerProblems, EventProblems,
    ),
)]
pub(super) async fn one(
    State(app): State<AppState>,
    ValidQuery(selector): ValidQuery<EventSelector>,
) -> ApiResult<EventView> {
    Ok(Json(app.operator().show_event(&selector.key).await?))
}

/// Forgets an event: if it is delivered again, it is new again, for every instance that uses the ledger.
#[utoipa::path(
    post, path = "/v1/events/forget", operation_id = "forgetEvent", tag = "operators",
    request_body = ForgetEventBody,
    responses(
        (status = 200, description = "The event as it was. It is not marked any more.", body = MarkedEvent),
        AccessProblems, LedgerProblems, BodyProblems, EventProblems,
    ),
)]
pub(super) async fn forget(
    State(app): State<AppState>,
    actor: Actor,
    ValidJson(ForgetEventBody { key, reason }): ValidJson<ForgetEventBody>,
) -> ApiResult<MarkSummary> {
    reason.as_deref().map_or(Ok(()), check_reason)?;
    Ok(Json(app.forget_event(actor, key, reason).await?))
}

/// Erases what callers wrote in the mark of an event: the text of its key and its metadata. The event stays marked.
#[utoipa::path(
    post, path = "/v1/events/erase", operation_id = "eraseEvent", tag = "operators",
    request_body = EraseEventBody,
    responses(
        (status = 200, description = "What is left of the mark.", body = ErasedEvent),
        AccessProblems, LedgerProblems, BodyProblems, EventProblems,
    ),
)]
pub(super) async fn erase(
    State(app): State<AppState>,
    actor: Actor,
    ValidJson(EraseEventBody { key, reason }): ValidJson<EraseEventBody>,
) -> ApiResult<ErasedEvent> {
    check_reason(&reason)?;
    Ok(Json(app.erase_event(actor, key, reason).await?))
}
