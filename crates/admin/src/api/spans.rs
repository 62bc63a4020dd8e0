//! Spans of requests to the claim API. Without a collector, nothing here runs.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::Method;
use ichido_core::{Claim, Index, to_hex};
use ichido_http::{ActiveSpan, TraceContext, Tracer};
use ichido_serve::problem::ProblemCode;

use crate::state::EventCheck;

/// The requests of callers. Those of operators are not traced.
const TRACED: [&str; 6] = [
    "/v1/events/check",
    "/v1/claims",
    "/v1/claims/renew",
    "/v1/claims/complete",
    "/v1/claims/release",
    "/v1/claims/doubt",
];

/// Makes the request of a caller a span.
///
/// # Cancel safety
///
/// If the caller disconnects, there is no response, and no span.
pub(super) async fn trace(State(tracer): State<Tracer>, request: Request, next: Next) -> Response {
    let route = TRACED.into_iter().find(|path| *path == request.uri().path());
    let Some(route) = route.filter(|_| request.method() == Method::POST) else {
        return next.run(request).await;
    };
    let (mut parts, body) = request.into_parts();
    let caller = TraceContext::of(&parts.headers);
    let span = tracer.begin(&mut parts, caller);
    let response = next.run(Request::from_parts(parts, body)).await;
    if let Some(span) = span {
        if let Some(ProblemCode(code)) = response.extensions().get() {
            span.note("error.type", *code);
        }
        span.end(Method::POST.as_str(), Some(route), response.status(), Vec::new());
    }
    response
}

/// The span of a request, if it is traced. Keys appear as their hashes only.
pub(super) struct RequestSpan(Option<ActiveSpan>);

impl RequestSpan {
    pub(super) fn of<B>(request: &http::Request<B>) -> Self {
        Self(request.extensions().get().cloned())
    }

    pub(super) fn key(&self, index: Index) {
        if let Some(span) = &self.0 {
            span.note("ichido.key", to_hex(&index.as_bytes()[..8]));
        }
    }

    pub(super) fn claimed(&self, claim: &Claim, degraded: bool) {
        let Some(span) = &self.0 else { return };
        span.note("ichido.degraded", degraded);
        span.note("ichido.outcome", claim_outcome(claim));
        match claim {
            Claim::Granted(grant) => span.note("ichido.attempt", grant.attempt),
            Claim::InDoubt(doubt) => span.in_doubt(&doubt.reason.to_string()),
            Claim::Done(_) | Claim::Held { .. } | Claim::Mismatch | Claim::CallerChanged => {}
        }
    }

    pub(super) fn outcome(&self, outcome: &'static str) {
        if let Some(span) = &self.0 {
            span.note("ichido.outcome", outcome);
        }
    }

    pub(super) fn in_doubt(&self, reason: &str) {
        if let Some(span) = &self.0 {
            span.in_doubt(reason);
        }
    }

    /// The key and the outcome are those of a single event. Of several, the span has the numbers.
    pub(super) fn checked(&self, single: Option<Index>, checked: &[EventCheck]) {
        let Some(span) = &self.0 else { return };
        let number = |is_counted: fn(&EventCheck) -> bool| {
            u32::try_from(checked.iter().filter(|event| is_counted(event)).count()).unwrap_or(u32::MAX)
        };
        span.note("ichido.events", number(|_| true));
        span.note("ichido.duplicates", number(|event| !event.is_new));
        span.note("ichido.degraded", checked.iter().any(|event| event.degraded));
        if let (Some(index), [event]) = (single, checked) {
            self.key(index);
            self.outcome(if event.is_new { "new" } else { "duplicate" });
        }
    }
}

/// The name of a result, as in the history.
fn claim_outcome(claim: &Claim) -> &'static str {
    match claim {
        Claim::Granted(_) => "granted",
        Claim::Done(_) => "replayed",
        Claim::Held { .. } => "in-flight",
        Claim::InDoubt(_) => "in-doubt",
        Claim::Mismatch => "key-reused",
        Claim::CallerChanged => "caller-changed",
    }
}
