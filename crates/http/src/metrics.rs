//! Metrics, and the one log line of each request: at info level for a keyed request, at debug level for one that passes
//! without a claim, and at warn level for one that is refused before the routes are consulted.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use ichido_core::{Index, to_hex};
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tokio::time::Instant;

use crate::content::Report;
use crate::event_retry::EventRetry;
use crate::options::Mode;
use crate::problem::Problem;
use crate::rules::Rules;
use crate::spans::ActiveSpan;
use crate::trace_context::TraceContext;

/// Different `route` labels of one process, over all reloads. Further routes are counted together.
const ROUTE_LABELS_MAX: usize = 100;
/// The label of the routes beyond [`ROUTE_LABELS_MAX`].
const OTHER_ROUTES: &str = "(other)";

/// How a keyed request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    First,
    Replayed,
    Conflict,
    Mismatch,
    CallerChanged,
    InDoubt,
    NotKept,
    Released,
    Degraded,
    Unprotected,
    Refused,
    Unavailable,
    Overloaded,
    Superseded,
    Unkeyed,
    SameContent,
    Similar,
}

const DISPOSITIONS: [(Disposition, &str); 17] = [
    (Disposition::First, "first"),
    (Disposition::Replayed, "replayed"),
    (Disposition::Conflict, "conflict"),
    (Disposition::Mismatch, "mismatch"),
    (Disposition::CallerChanged, "caller-changed"),
    (Disposition::InDoubt, "in-doubt"),
    (Disposition::NotKept, "not-kept"),
    (Disposition::Released, "released"),
    (Disposition::Degraded, "degraded"),
    (Disposition::Unprotected, "unprotected"),
    (Disposition::Refused, "refused"),
    (Disposition::Unavailable, "unavailable"),
    (Disposition::Overloaded, "overloaded"),
    (Disposition::Superseded, "superseded"),
    (Disposition::Unkeyed, "unkeyed"),
    (Disposition::SameContent, "same-content"),
    (Disposition::Similar, "similar"),
];

impl Disposition {
    pub(crate) fn as_str(self) -> &'static str {
        DISPOSITIONS[self as usize].1
    }
}

/// Why a request passes without a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassReason {
    /// The route with this index requires no key, and the request has none.
    Unkeyed(usize),
    /// No route matches.
    Unmatched,
    /// The method is safe: there is no effect to protect.
    Safe,
}

/// The `route` labels that are in use. Each one costs a set of series for as long as the process lives.
#[derive(Clone, Debug, Default)]
struct RouteLabels(Arc<Mutex<BTreeSet<String>>>);

impl RouteLabels {
    fn admit(&self, name: &str) -> String {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(name) || (known.len() < ROUTE_LABELS_MAX && known.insert(name.to_owned())) {
            name.to_owned()
        } else {
            OTHER_ROUTES.to_owned()
        }
    }
}

pub(crate) struct Metrics {
    /// The routes as they appear in the log.
    names: Vec<String>,
    /// The routes as they appear in metrics.
    labels: Vec<String>,
    route_labels: RouteLabels,
    routes: Vec<[Counter; DISPOSITIONS.len()]>,
    /// Requests that belong to no route.
    unmatched: Counter,
    safe: Counter,
    refused: Counter,
    seconds: Vec<Histogram>,
    inflight: Gauge,
    pub(crate) unrecorded: Counter,
}

impl Metrics {
    pub(crate) fn new(rules: &Rules) -> Self {
        Self::build(rules, RouteLabels::default())
    }

    /// The metrics of other rules in the same process.
    pub(crate) fn with_rules(&self, rules: &Rules) -> Self {
        Self::build(rules, self.route_labels.clone())
    }

    fn build(rules: &Rules, route_labels: RouteLabels) -> Self {
        let names: Vec<_> = rules.routes.iter().map(|route| route.matches.to_string()).collect();
        let labels: Vec<_> = names.iter().map(|name| route_labels.admit(name)).collect();
        let counters = rules.routes.iter().zip(&labels).map(|(route, label)| {
            let name = match route.mode {
                Mode::Enforce => "ichido_requests_total",
                Mode::Observe => "ichido_observed_requests_total",
            };
            DISPOSITIONS.map(|(_, outcome)| counter!(name, "route" => label.clone(), "outcome" => outcome))
        });
        let unrouted = |outcome: &'static str| counter!("ichido_requests_total", "outcome" => outcome);
        Self {
            unmatched: unrouted("unmatched"),
            safe: unrouted("safe"),
            refused: unrouted("refused"),
            routes: counters.collect(),
            seconds: labels
                .iter()
                .map(|label| histogram!("ichido_request_seconds", "route" => label.clone()))
                .collect(),
            inflight: gauge!("ichido_inflight"),
            unrecorded: counter!("ichido_unrecorded_total"),
            names,
            labels,
            route_labels,
        }
    }

    /// Counts a keyed request as running until the returned guard is dropped.
    pub(crate) fn begin(&self) -> RunningGuard {
        self.inflight.increment(1);
        RunningGuard(self.inflight.clone())
    }

    /// Counts a request that passes without a claim. The result writes its log line, if the level is enabled, and ends its
    /// span.
    pub(crate) fn pass(
        &self,
        reason: PassReason,
        request: &Parts,
        span: Option<ActiveSpan>,
    ) -> Option<PassedRequest> {
        let (counter, outcome, route) = match reason {
            PassReason::Unkeyed(route) => (
                &self.routes[route][Disposition::Unkeyed as usize],
                Disposition::Unkeyed.as_str(),
                Some(route),
            ),
            PassReason::Unmatched => (&self.unmatched, "unmatched", None),
            PassReason::Safe => (&self.safe, "safe", None),
        };
        counter.increment(1);
        let is_logged = tracing::enabled!(target: "ichido::request", tracing::Level::DEBUG);
        (is_logged || span.is_some()).then(|| PassedRequest {
            started: Instant::now(),
            method: request.method.clone(),
            path: request.uri.path().to_owned(),
            route: route.map(|route| self.names[route].clone()),
            outcome,
            span,
        })
    }

    /// Counts and logs a request that is refused before the routes are consulted.
    pub(crate) fn refuse(&self, method: &Method, problem: &Problem) {
        self.refused.increment(1);
        tracing::warn!(
            target: "ichido::request",
            method = method.as_str(),
            outcome = "refused",
            status = problem.status().as_u16(),
            detail = problem.kind.code(),
            reason = problem.detail(),
            "request refused"
        );
    }
}

/// The log line of a request that passes without a claim, and its span.
#[derive(Debug)]
pub struct PassedRequest {
    started: Instant,
    method: Method,
    path: String,
    route: Option<String>,
    outcome: &'static str,
    span: Option<ActiveSpan>,
}

impl PassedRequest {
    pub(crate) fn finish(self, status: Option<StatusCode>) {
        if let Some(span) = &self.span {
            let status = status.unwrap_or(StatusCode::BAD_GATEWAY);
            let about = vec![("ichido.outcome", self.outcome.into())];
            span.end(self.method.as_str(), self.route.as_deref().map(path_of), status, about);
        }
        tracing::debug!(
            target: "ichido::request",
            method = self.method.as_str(),
            path = self.path,
            route = self.route,
            outcome = self.outcome,
            trace_id = self.span.map(|span| span.context().trace_id_text()),
            status = status.map(|status| status.as_u16()),
            ms = self.started.elapsed().as_micros() as f64 / 1000.0,
            "unprotected request"
        );
    }
}

/// Counts a keyed request as running until it is dropped.
pub(crate) struct RunningGuard(Gauge);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

/// What the log line of a keyed request will say.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    pub(crate) started: Instant,
    pub(crate) route: usize,
    pub(crate) method: Method,
    pub(crate) index: Option<Index>,
    pub(crate) attempt: u32,
    pub(crate) degraded: bool,
    pub(crate) retry: Option<EventRetry>,
    /// The trace that the request belongs to, whether it is traced here or not.
    pub(crate) context: Option<TraceContext>,
    pub(crate) request_id: Option<HeaderValue>,
    pub(crate) span: Option<ActiveSpan>,
    /// What the content of the event says, if another event has it.
    pub(crate) reports: Vec<Report>,
}

impl Trace {
    /// Counts the request and writes its log line.
    pub(crate) fn finish(
        &self,
        metrics: &Metrics,
        rules: &Rules,
        disposition: Disposition,
        status: StatusCode,
        detail: Option<&str>,
    ) {
        metrics.routes[self.route][disposition as usize].increment(1);
        let elapsed: Duration = self.started.elapsed();
        metrics.seconds[self.route].record(elapsed);
        let route = &rules.routes[self.route];
        if let Some(retry) = self.retry {
            let (route, outcome) = (metrics.labels[self.route].clone(), disposition.as_str());
            counter!("ichido_event_retries_total", "route" => route, "reason" => retry.reason, "outcome" => outcome)
                .increment(1);
        }
        if let Some(span) = &self.span {
            self.end_span(span, &metrics.names[self.route], disposition, status, detail);
        }
        tracing::info!(
            target: "ichido::request",
            key = self.index.map(|index| to_hex(&index.as_bytes()[..8])),
            method = self.method.as_str(),
            route = metrics.names[self.route].as_str(),
            mode = route.mode.as_str(),
            outcome = disposition.as_str(),
            status = status.as_u16(),
            attempt = self.attempt,
            degraded = self.degraded,
            ms = elapsed.as_micros() as f64 / 1000.0,
            retry_num = self.retry.map(|retry| retry.number),
            retry_reason = self.retry.map(|retry| retry.reason),
            trace_id = self.context.map(|context| context.trace_id_text()),
            request_id = self.request_id.as_ref().and_then(|id| id.to_str().ok()),
            same_content_as = self.reports.iter().find_map(Report::same_content),
            similar_to = self.reports.iter().find_map(Report::similar),
            detail,
            "keyed request"
        );
    }

    fn end_span(
        &self,
        span: &ActiveSpan,
        route: &str,
        disposition: Disposition,
        status: StatusCode,
        detail: Option<&str>,
    ) {
        let mut about =
            vec![("ichido.outcome", disposition.as_str().into()), ("ichido.degraded", self.degraded.into())];
        about.extend(self.index.map(|index| ("ichido.key", to_hex(&index.as_bytes()[..8]).into())));
        about.extend((self.attempt > 0).then(|| ("ichido.attempt", self.attempt.into())));
        about.extend(detail.map(|detail| ("error.type", detail.to_owned().into())));
        span.end(self.method.as_str(), Some(path_of(route)), status, about);
    }
}

/// The path of a route, without its methods.
fn path_of(route: &str) -> &str {
    route.split_once(' ').map_or(route, |(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_disposition_is_at_its_index() {
        for (index, (disposition, _)) in DISPOSITIONS.iter().enumerate() {
            assert_eq!(*disposition as usize, index);
        }
    }
    /// However often an operator reloads other routes, the number of series stays bounded.
    #[test]
    fn routes_beyond_the_limit_share_one_label() {
        let labels = RouteLabels::default();
        for number in 0..ROUTE_LABELS_MAX {
            assert_eq!(labels.admit(&format!("POST /{number}")), format!("POST /{number}"));
        }
        assert_eq!(labels.admit("POST /more"), OTHER_ROUTES);
        assert_eq!(labels.admit("POST /5"), "POST /5");
    }
}
