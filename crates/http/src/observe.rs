//! Observed routes: everything passes; what would have happened is counted and logged.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use ichido_core::{Claim, Outcome};
use ichido_ledger::BoxError;
use tower_service::Service;

use crate::body::AnswerBody;
use crate::failure::IntoFailure;
use crate::meters::End;
use crate::request::RequestBody;
use crate::verdict::{Verdict, verdict};
use crate::work::{Job, Reply};

pub(crate) async fn observe<S, B, A>(mut job: Job, mut inner: S, reply: Reply<A, S::Error>)
where
    S: Service<Request<RequestBody<B>>, Response = Response<A>>,
    S::Error: IntoFailure,
    A: Body<Data = Bytes> + Unpin + Send + 'static,
    A::Error: Into<BoxError> + Send,
{
    let ledger = job.ledger().clone();
    let (end, grant) = match ledger.claim(&job.ready.claim).await {
        Ok(claimed) => match claimed.claim {
            Claim::Granted(grant) => (End::First, Some(grant)),
            Claim::Done(_) => (End::Replayed, None),
            Claim::Held { .. } => (End::Conflict, None),
            Claim::InDoubt(_) => (End::InDoubt, None),
            Claim::Mismatch => (End::Mismatch, None),
        },
        Err(error) => {
            tracing::warn!(%error, "an observed request could not be claimed");
            (End::Unavailable, None)
        }
    };
    job.trace.attempt = grant.map_or(0, |grant| grant.attempt);
    let renewal = grant.map(|grant| ledger.keep(&job.ready.claim.key, &grant));
    let Job { shared, trace, ready } = job;
    let server_errors = shared.rules.routes[trace.route].server_errors;
    let request = Request::from_parts(ready.parts, RequestBody::collected(ready.body));
    let answer = inner.call(request).await;
    let (status, verdict) = match &answer {
        Ok(response) => (response.status(), verdict(response.status(), server_errors)),
        Err(_) => (StatusCode::BAD_GATEWAY, Verdict::Doubt),
    };
    trace.end(&shared.meters, &shared.rules, end, status, None);
    let _ = reply.send(answer.map(|response| response.map(AnswerBody::passed)));
    if let Some(grant) = grant {
        let settled = match verdict {
            Verdict::Store => {
                let outcome = Outcome::Tombstone("the route was only observed".to_owned());
                ledger.complete(&ready.claim.key, grant.token, outcome).await
            }
            Verdict::Release => ledger.release(&ready.claim.key, grant.token).await,
            Verdict::Doubt => ledger.doubt(&ready.claim.key, grant.token, "observed without an answer").await,
        };
        if let Err(error) = settled {
            tracing::warn!(%error, "the end of an observed request was not recorded");
        }
    }
    drop(renewal);
}
