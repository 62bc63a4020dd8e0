//! Metrics, and the one log line of each request: at info level for a keyed request, at debug level for one that passes
//! without a claim, and at warn level for one that is refused before the routes are consulted.

use std::time::Duration;

use http::request::Parts;
use http::{Method, StatusCode};
use ichido_core::{Index, to_hex};
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tokio::time::Instant;

use crate::content::Report;
use crate::event_retry::EventRetry;
use crate::options::Mode;
use crate::problem::Problem;
use crate::rules::Rules;

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

pub(crate) struct Metrics {
    /// The routes as they appear in the log.
    names: Vec<String>,
    routes: Vec<[Counter; DISPOSITIONS.len()]>,
    /// Requests that belong to no route.
    unmatched: Counter,
    safe: Counter,
    refused: Counter,
    seconds: Histogram,
    inflight: Gauge,
    pub(crate) unrecorded: Counter,
}

impl Metrics {
    pub(crate) fn new(rules: &Rules) -> Self {
        let counters = rules.routes.iter().map(|route| {
            let text = route.matches.to_string();
            let name = match route.mode {
                Mode::Enforce => "ichido_requests_total",
                Mode::Observe => "ichido_observed_requests_total",
            };
            DISPOSITIONS.map(|(_, outcome)| counter!(name, "route" => text.clone(), "outcome" => outcome))
        });
        let unrouted = |outcome: &'static str| counter!("ichido_requests_total", "outcome" => outcome);
        Self {
            unmatched: unrouted("unmatched"),
            safe: unrouted("safe"),
            refused: unrouted("refused"),
            names: rules.routes.iter().map(|route| route.matches.to_string()).collect(),
            routes: counters.collect(),
            seconds: histogram!("ichido_request_seconds"),
            inflight: gauge!("ichido_inflight"),
            unrecorded: counter!("ichido_unrecorded_total"),
        }
    }

    /// Counts a keyed request as running until the returned guard is dropped.
    pub(crate) fn begin(&self) -> RunningGuard {
        self.inflight.increment(1);
        RunningGuard(self.inflight.clone())
    }

    /// Counts a request that passes without a claim. The result writes its log line, if the level is enabled.
    pub(crate) fn pass(&self, reason: PassReason, request: &Parts) -> Option<PassedRequest> {
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
        tracing::enabled!(target: "ichido::request", tracing::Level::DEBUG).then(|| PassedRequest {
            started: Instant::now(),
            method: request.method.clone(),
            path: request.uri.path().to_owned(),
            route: route.map(|route| self.names[route].clone()),
            outcome,
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

/// The log line of a request that passes without a claim.
#[derive(Debug)]
pub struct PassedRequest {
    started: Instant,
    method: Method,
    path: String,
    route: Option<String>,
    outcome: &'static str,
}

impl PassedRequest {
    pub(crate) fn finish(self, status: Option<StatusCode>) {
        tracing::debug!(
            target: "ichido::request",
            method = self.method.as_str(),
            path = self.path,
            route = self.route,
            outcome = self.outcome,
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
        metrics.seconds.record(elapsed);
        let route = &rules.routes[self.route];
        if let Some(retry) = self.retry {
            let (route, outcome) = (route.matches.to_string(), disposition.as_str());
            counter!("ichido_event_retries_total", "route" => route, "reason" => retry.reason, "outcome" => outcome)
                .increment(1);
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
            same_content_as = self.reports.iter().find_map(Report::same_content),
            similar_to = self.reports.iter().find_map(Report::similar),
            detail,
            "keyed request"
        );
    }
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
}
