//! Keyed requests: claimed, run once even if the caller goes, answered.

mod claim;
mod detached;
mod execution;
mod granted;
mod observe;
pub(crate) mod prepare;
mod reply;
mod request;
mod streaming;

use std::sync::Arc;

use http::request::Parts;
use http::{Request, Response, StatusCode};
use tokio::sync::oneshot;

use self::claim::claim;
use self::detached::{Work, answered};
use self::prepare::{Prepared, prepare};
use self::reply::{conclude, remembered, replay};
use self::request::Job;
use crate::concurrency::Connection;
use crate::content_encoding as coding;
use crate::metrics::{End, Pass, Trace};
use crate::options::Mode;
use crate::problem::{Kind, Problem};
use crate::response_body::AnswerBody;
use crate::shared::Shared;
use crate::trait_aliases::{Carried, Inner};

/// Answers a request of a route.
pub(crate) async fn keyed<S, B, A>(
    shared: Arc<Shared>,
    connection: Option<Connection>,
    mut inner: S,
    mut trace: Trace,
    parts: Parts,
    body: B,
) -> Result<Response<AnswerBody<A>>, S::Error>
where
    S: Inner<B, A>,
    B: Carried,
    A: Carried,
{
    let route = &shared.rules.routes[trace.route];
    let ready = match prepare(&shared, route, connection.as_ref(), parts, body).await {
        Prepared::Ready(ready) => ready,
        Prepared::Pass(request) => {
            let (parts, body) = *request;
            // An event without an id is unusual, and logged like a keyed request. A caller may choose to send no key.
            let is_event = route.preset.is_some();
            let passing =
                if is_event { None } else { shared.meters.pass(Pass::Unkeyed(trace.route), &parts) };
            let answer = Box::pin(inner.call(Request::from_parts(parts, body))).await;
            let status = answer.as_ref().ok().map(Response::status);
            if is_event {
                let status = status.unwrap_or(StatusCode::BAD_GATEWAY);
                trace.end(&shared.meters, &shared.rules, End::Unkeyed, status, None);
            } else if let Some(passing) = passing {
                passing.end(status);
            }
            return Ok(answer?.map(AnswerBody::passed));
        }
        Prepared::Refuse(refused) => {
            let (problem, parts, body) = *refused;
            let end = if problem.kind == Kind::Overloaded { End::Overloaded } else { End::Refused };
            trace.end(&shared.meters, &shared.rules, end, problem.status(), Some(problem.kind.word()));
            return match (route.mode, body) {
                (Mode::Observe, Some(body)) => {
                    let answer = Box::pin(inner.call(Request::from_parts(parts, body))).await;
                    Ok(answer?.map(AnswerBody::passed))
                }
                _ => Ok(problem.into_response(&shared.rules.policy_path)),
            };
        }
    };
    trace.index = Some(ready.claim.key.index());
    let observed = route.mode == Mode::Observe;
    let takes_gzip = coding::takes_gzip(&ready.parts.headers);
    let job = Job { shared: shared.clone(), trace, ready, takes_gzip };
    if let Some(outcome) = remembered(&job) {
        return Ok(conclude(&job, replay(&job, outcome)));
    }
    if let Err(problem) = &job.ready.slot {
        let problem = problem.clone();
        return Ok(conclude(&job, (End::Overloaded, Err(problem))));
    }
    let (reply, answer) = oneshot::channel();
    let work = Box::pin(shared.tasks.track_future(async move {
        // Given back even if the service panics, and so is the slot, which is part of the job.
        let _counted = job.shared.meters.begin();
        if observed {
            Box::pin(observe::observe(job, inner, reply)).await;
        } else {
            claim(job, inner, reply).await;
        }
    }));
    answered(Work { left: Some(work), runtime: None }, answer).await.unwrap_or_else(|_| {
        let problem = Problem::new(Kind::HandlerFailed, "the request was given up");
        Ok(problem.into_response(&shared.rules.policy_path))
    })
}
