//! Observe mode: every request passes through, and what enforcement would have done is counted and logged.

use http::{Request, StatusCode};
use ichido_core::{Claim, ClaimRequest, Grant, Outcome};
use ichido_ledger::Ledger;

use super::prepare::Claimable;
use super::reply::ReplySender;
use super::request::KeyedRequest;
use crate::content::{self, Finding, Modes};
use crate::metrics::Disposition;
use crate::request_body::RequestBody;
use crate::response_body::ResponseBody;
use crate::trait_aliases::{HttpBody, InnerService};
use crate::verdict::{Verdict, verdict};

/// Why an observed request is in doubt.
const INCONCLUSIVE: &str = "observed without a conclusive response";

/// Calls the service and claims the request concurrently; the service does not wait for the ledger.
pub(super) async fn observe<S, B, A>(request: KeyedRequest, mut inner: S, sender: ReplySender<A, S::Error>)
where
    S: InnerService<B, A>,
    A: HttpBody,
{
    let ledger = request.ledger().clone();
    let KeyedRequest { shared, mut trace, claimable, .. } = request;
    let Claimable { parts, body, claim, content, slot: _slot } = *claimable;
    let request = Request::from_parts(parts, RequestBody::buffered(body));
    let route = &shared.rules.routes[trace.route];
    let texts = shared.similar[trace.route].as_ref();
    let claiming = async {
        let (disposition, grant) = try_claim(&ledger, &claim).await;
        let renewal = grant.map(|grant| ledger.start_renewal(&claim.key, &grant));
        let finding = match grant {
            Some(_) => content::examine(&ledger, texts, &claim, content, Modes::OBSERVE).await,
            None => Ok(Finding::default()),
        };
        let finding = finding.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot check the content of an observed request");
            Finding::default()
        });
        (disposition, grant, renewal, finding)
    };
    let calling = async {
        let response = inner.call(request).await;
        let (status, verdict) = match &response {
            Ok(response) => (response.status(), verdict(response.status(), response.headers(), route)),
            Err(_) => (StatusCode::BAD_GATEWAY, Verdict::InDoubt),
        };
        let _ = sender.send(response.map(|response| response.map(ResponseBody::passed)));
        (status, verdict)
    };
    let ((disposition, grant, renewal, finding), (status, verdict)) = tokio::join!(claiming, calling);
    trace.reports = finding.reports;
    if let (Verdict::Store, Some(remembered)) = (verdict, &finding.remembered) {
        remembered.confirm();
    }
    trace.attempt = grant.map_or(0, |grant| grant.attempt);
    if let (Verdict::InDoubt, Some(_), Some(span)) = (verdict, grant, &trace.span) {
        span.in_doubt(INCONCLUSIVE);
    }
    trace.finish(&shared.metrics, &shared.rules, disposition, status, None);
    if let Some(grant) = grant {
        let settled = match verdict {
            Verdict::Store => {
                let outcome = Outcome::Tombstone("the route was in observe mode".to_owned());
                ledger.complete(&claim.key, grant.token, outcome).await
            }
            Verdict::Release => ledger.release(&claim.key, grant.token).await,
            Verdict::InDoubt => ledger.declare_in_doubt(&claim.key, grant.token, INCONCLUSIVE).await,
        };
        if let Err(error) = settled {
            tracing::warn!(%error, "cannot settle the claim of an observed request");
        }
    }
    drop(renewal);
}

/// Claims an observed request, and tells what enforcement would have done.
async fn try_claim(ledger: &Ledger, claim: &ClaimRequest) -> (Disposition, Option<Grant>) {
    match ledger.claim(claim).await {
        Ok(claimed) => match claimed.claim {
            Claim::Granted(grant) => (Disposition::First, Some(grant)),
            Claim::Done(_) => (Disposition::Replayed, None),
            Claim::Held { .. } => (Disposition::Conflict, None),
            Claim::InDoubt(_) => (Disposition::InDoubt, None),
            Claim::Mismatch => (Disposition::Mismatch, None),
            Claim::CallerChanged => (Disposition::CallerChanged, None),
        },
        Err(error) => {
            tracing::warn!(%error, "cannot claim observed request");
            (Disposition::Unavailable, None)
        }
    }
}
