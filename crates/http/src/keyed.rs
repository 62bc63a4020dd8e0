//! Handles requests on a matching route: prepares the claim, then replays, refuses, observes or runs the request.
//!
//! Once a claim may have been granted, the request is finished even if the client disconnects.

mod claim;
mod content_check;
mod detached;
mod execution;
mod granted;
mod observe;
mod prepare;
mod reply;
mod request;
mod streaming;

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response, StatusCode};
use tokio::sync::oneshot;

use self::claim::claim;
use self::detached::Detached;
pub(crate) use self::prepare::passes_without_key;
use self::prepare::{Prepared, prepare};
use self::reply::{cached_outcome, finish, replay};
use self::request::KeyedRequest;
use crate::concurrency::ConnectionLimit;
use crate::content_encoding;
use crate::metrics::{Disposition, PassReason, Trace};
use crate::options::Mode;
use crate::problem::{Kind, Problem};
use crate::response_body::ResponseBody;
use crate::shared::Shared;
use crate::trait_aliases::{HttpBody, InnerService};

/// Responds to a request of a route.
pub(crate) async fn handle<S, B, A>(
    shared: Arc<Shared>,
    connection: Option<ConnectionLimit>,
    mut inner: S,
    mut trace: Trace,
    parts: Parts,
    body: B,
) -> Result<Response<ResponseBody<A>>, S::Error>
where
    S: InnerService<B, A>,
    B: HttpBody,
    A: HttpBody,
{
    let route = &shared.rules.routes[trace.route];
    let claimable = match prepare(&shared, route, connection.as_ref(), parts, body).await {
        Prepared::Claim(claimable) => claimable,
        Prepared::Pass(request) => {
            let (parts, body) = *request;
            // An event without an id is unusual, so it is logged like a keyed request. API callers may omit the key.
            let is_event = route.preset.is_some();
            let passed = match is_event {
                true => None,
                false => shared.metrics.pass(PassReason::Unkeyed(trace.route), &parts, trace.span.clone()),
            };
            let response = Box::pin(inner.call(Request::from_parts(parts, body))).await;
            let status = response.as_ref().ok().map(Response::status);
            if is_event {
                let status = status.unwrap_or(StatusCode::BAD_GATEWAY);
                trace.finish(&shared.metrics, &shared.rules, Disposition::Unkeyed, status, None);
            } else if let Some(passed) = passed {
                passed.finish(status);
            }
            return Ok(response?.map(ResponseBody::passed));
        }
        Prepared::Refuse(refused) => {
            let (problem, parts, body) = *refused;
            let is_overloaded = problem.kind == Kind::Overloaded;
            let disposition = if is_overloaded { Disposition::Overloaded } else { Disposition::Refused };
            let (status, code) = (problem.status(), problem.kind.code());
            trace.finish(&shared.metrics, &shared.rules, disposition, status, Some(code));
            return match (route.mode, body) {
                (Mode::Observe, Some(body)) => {
                    let response = Box::pin(inner.call(Request::from_parts(parts, body))).await;
                    Ok(response?.map(ResponseBody::passed))
                }
                _ => Ok(problem.into_response(&shared.rules.policy_path)),
            };
        }
    };
    trace.index = Some(claimable.claim.key.index());
    let is_observed = route.mode == Mode::Observe;
    let accepts_gzip = content_encoding::accepts_gzip(&claimable.parts.headers);
    let request = KeyedRequest { shared: shared.clone(), trace, claimable, accepts_gzip };
    if let Some(outcome) = cached_outcome(&request) {
        request.log_event_check(false, Duration::ZERO);
        return Ok(finish(&request, replay(&request, outcome)));
    }
    if let Err(problem) = &request.claimable.slot {
        let problem = problem.clone();
        return Ok(finish(&request, (Disposition::Overloaded, Err(problem))));
    }
    let (reply, response) = oneshot::channel();
    let work = Box::pin(shared.tasks.track_future(async move {
        // Both this guard and the slot inside the request are released even if the service panics.
        let _in_flight = request.shared.metrics.begin();
        if is_observed {
            Box::pin(observe::observe(request, inner, reply)).await;
        } else {
            claim(request, inner, reply).await;
        }
    }));
    Detached::new(work).until(response).await.unwrap_or_else(|_| {
        let problem = Problem::new(Kind::HandlerFailed, "the request handler stopped without a response");
        Ok(problem.into_response(&shared.rules.policy_path))
    })
}
