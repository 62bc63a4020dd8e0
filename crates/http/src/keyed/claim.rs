//! Claims a keyed request and acts on the result.

use std::time::Duration;

use http::{HeaderName, Request, Response, StatusCode};
use ichido_core::{Claim, ClaimRequest, Settle};
use ichido_ledger::{Effect, Error, Kind as LedgerKind};
use tokio::time::Instant;

use super::granted::GrantedClaim;
use super::prepare::Claimable;
use super::reply::{
    ATTEMPT, ReplySender, TRUE, caller_changed, in_doubt, in_flight, journaled_reply, ledger_unavailable,
    mismatch, replay, send,
};
use super::request::KeyedRequest;
use crate::journal::{Entry, RequestIdentity};
use crate::metrics::Disposition;
use crate::options::Outage;
use crate::problem::{Kind, Problem};
use crate::request_body::RequestBody;
use crate::response_body::ResponseBody;
use crate::rules::InFlight;
use crate::trait_aliases::{HttpBody, InnerService};

const UNPROTECTED: HeaderName = HeaderName::from_static("idempotency-unprotected");

pub(super) async fn claim<S, B, A>(mut request: KeyedRequest, inner: S, sender: ReplySender<A, S::Error>)
where
    S: InnerService<B, A>,
    B: HttpBody,
    A: HttpBody,
{
    if let Some(reply) = journaled_reply(&request) {
        request.log_event_check(false, Duration::ZERO);
        return send(&request, sender, reply);
    }
    let (claim, asked) = (&request.claimable.claim, Instant::now());
    let claimed = match request.route().in_flight {
        InFlight::Conflict => request.ledger().claim(claim).await,
        InFlight::Wait(time) => Box::pin(request.ledger().claim_or_wait(claim, time)).await,
    };
    let claimed = match claimed {
        Ok(claimed) => claimed,
        Err(error) => return Box::pin(claim_failed(request, inner, sender, error)).await,
    };
    request.trace.degraded = claimed.degraded;
    request.log_event_check(matches!(claimed.claim, Claim::Granted(_)), asked.elapsed());
    let reply = match claimed.claim {
        Claim::Granted(grant) => {
            request.trace.attempt = grant.attempt;
            let granted = GrantedClaim { request, grant, remembered: None };
            if granted.request.claimable.content.is_empty() {
                return granted.run(inner, sender).await;
            }
            return Box::pin(granted.run_unless_known(inner, sender)).await;
        }
        Claim::Done(outcome) => replay(&request, outcome),
        // The first request may have completed into the journal while the ledger was asked.
        Claim::Held { .. } => journaled_reply(&request).unwrap_or_else(in_flight),
        Claim::InDoubt(_) => journaled_reply(&request).unwrap_or_else(|| {
            if let Some(span) = &request.trace.span {
                span.in_doubt("an earlier request with this key is in doubt");
            }
            in_doubt(request.route())
        }),
        Claim::Mismatch => mismatch(),
        Claim::CallerChanged => caller_changed(),
    };
    send(&request, sender, reply);
}

async fn claim_failed<S, B, A>(
    request: KeyedRequest,
    inner: S,
    sender: ReplySender<A, S::Error>,
    error: Error,
) where
    S: InnerService<B, A>,
    B: HttpBody,
    A: HttpBody,
{
    if let LedgerKind::Limit(limit) = error.kind() {
        let problem = Problem::new(Kind::KeyInvalid, limit.to_string());
        return send(&request, sender, (Disposition::Refused, Err(problem)));
    }
    // The first request may have completed into the journal while the ledger was asked.
    if let Some(reply) = journaled_reply(&request) {
        journal_release(&request, &error).await;
        return send(&request, sender, reply);
    }
    if request.route().outage == Outage::Open && error.is_outage() {
        tracing::warn!(%error, "ledger unavailable; running keyed request unprotected");
        return run_unprotected(request, inner, sender).await;
    }
    tracing::warn!(%error, "cannot claim keyed request");
    journal_release(&request, &error).await;
    send(&request, sender, ledger_unavailable());
    release(&request, &error).await;
}

/// Journals the release of a claim whose result was lost: it may have been granted, but nothing ran. The ledger receives
/// the release after the outage.
async fn journal_release(request: &KeyedRequest, error: &Error) {
    // In a long outage every request gets here. When the journal is full, the remaining claims are left to lapse.
    let may_be_granted = error.effect() == Effect::Unknown;
    let Some(journal) =
        request.shared.journal.as_ref().filter(|journal| may_be_granted && journal.has_room())
    else {
        return;
    };
    let claim = &request.claimable.claim;
    let entry = Entry { request: RequestIdentity::of(claim), token: claim.token, settle: Settle::Release };
    if let Err(error) = journal.append(request.ledger(), entry, None).await {
        tracing::warn!(%error, "cannot write completion journal");
    }
}

/// Releases such a claim directly if there is no journal. An embedded ledger decides a claim even if its caller has gone,
/// and handles calls in order. So the release is sent after the claim, once the caller has its response.
async fn release(request: &KeyedRequest, error: &Error) {
    if request.shared.journal.is_some() || error.effect() == Effect::None {
        return;
    }
    let ClaimRequest { key, token, .. } = &request.claimable.claim;
    if let Err(error) = request.ledger().release(key, *token).await {
        tracing::warn!(index = %key.index(), %error, "cannot release a claim that may have been granted; it may become in doubt");
    }
}

async fn run_unprotected<S, B, A>(request: KeyedRequest, mut inner: S, sender: ReplySender<A, S::Error>)
where
    S: InnerService<B, A>,
{
    let KeyedRequest { shared, trace, claimable, .. } = request;
    let Claimable { parts, body, .. } = *claimable;
    let mut request = Request::from_parts(parts, RequestBody::buffered(body));
    request.headers_mut().remove(ATTEMPT);
    let response = inner.call(request).await.map(|response| {
        let mut response = response.map(ResponseBody::passed);
        response.headers_mut().insert(UNPROTECTED, TRUE);
        response
    });
    let status = response.as_ref().map_or(StatusCode::BAD_GATEWAY, Response::status);
    trace.finish(&shared.metrics, &shared.rules, Disposition::Unprotected, status, None);
    let _ = sender.send(response);
}
