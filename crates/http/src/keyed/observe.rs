//! Observed routes: everything passes; what would have happened is counted and logged.

use http::{Request, StatusCode};
use ichido_core::{Claim, ClaimRequest, Grant, Outcome};
use ichido_ledger::Ledger;

use super::prepare::Ready;
use super::reply::Reply;
use super::request::Job;
use crate::metrics::End;
use crate::request_body::RequestBody;
use crate::response_body::AnswerBody;
use crate::trait_aliases::{Carried, Inner};
use crate::verdict::{Verdict, verdict};

/// The ledger is asked beside the service, which does not wait for it.
pub(crate) async fn observe<S, B, A>(job: Job, mut inner: S, reply: Reply<A, S::Error>)
where
    S: Inner<B, A>,
    A: Carried,
{
    let ledger = job.ledger().clone();
    let Job { shared, mut trace, ready, .. } = job;
    let Ready { parts, body, claim, slot: _slot } = *ready;
    let request = Request::from_parts(parts, RequestBody::collected(body));
    let route = &shared.rules.routes[trace.route];
    let claiming = async {
        let (end, grant) = ask(&ledger, &claim).await;
        (end, grant, grant.map(|grant| ledger.start_renewal(&claim.key, &grant)))
    };
    let answering = async {
        let answer = inner.call(request).await;
        let (status, verdict) = match &answer {
            Ok(response) => (response.status(), verdict(response.status(), response.headers(), route)),
            Err(_) => (StatusCode::BAD_GATEWAY, Verdict::Doubt),
        };
        let _ = reply.send(answer.map(|response| response.map(AnswerBody::passed)));
        (status, verdict)
    };
    let ((end, grant, renewal), (status, verdict)) = tokio::join!(claiming, answering);
    trace.attempt = grant.map_or(0, |grant| grant.attempt);
    trace.end(&shared.meters, &shared.rules, end, status, None);
    if let Some(grant) = grant {
        let settled = match verdict {
            Verdict::Store => {
                let outcome = Outcome::Tombstone("the route was only observed".to_owned());
                ledger.complete(&claim.key, grant.token, outcome).await
            }
            Verdict::Release => ledger.release(&claim.key, grant.token).await,
            Verdict::Doubt => {
                ledger.declare_in_doubt(&claim.key, grant.token, "observed without an answer").await
            }
        };
        if let Err(error) = settled {
            tracing::warn!(%error, "the end of an observed request was not recorded");
        }
    }
    drop(renewal);
}

/// What would have become of the request.
async fn ask(ledger: &Ledger, claim: &ClaimRequest) -> (End, Option<Grant>) {
    match ledger.claim(claim).await {
        Ok(claimed) => match claimed.claim {
            Claim::Granted(grant) => (End::First, Some(grant)),
            Claim::Done(_) => (End::Replayed, None),
            Claim::Held { .. } => (End::Conflict, None),
            Claim::InDoubt(_) => (End::InDoubt, None),
            Claim::Mismatch => (End::Mismatch, None),
            Claim::CallerChanged => (End::CallerChanged, None),
        },
        Err(error) => {
            tracing::warn!(%error, "an observed request could not be claimed");
            (End::Unavailable, None)
        }
    }
}
