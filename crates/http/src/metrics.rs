//! What is counted, and the one log line of each request: at info if it is keyed, at debug if it passes without a claim, at
//! warn if it is refused before any route is looked at.

use std::time::Duration;

use tokio::time::Instant;

use http::request::Parts;
use http::{Method, StatusCode};
use ichido_core::{Index, to_hex};
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::events::Retry;
use crate::options::Mode;
use crate::problem::Problem;
use crate::rules::Rules;

/// How a keyed request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
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
}

const ENDS: [(End, &str); 15] = [
    (End::First, "first"),
    (End::Replayed, "replayed"),
    (End::Conflict, "conflict"),
    (End::Mismatch, "mismatch"),
    (End::CallerChanged, "caller-changed"),
    (End::InDoubt, "in-doubt"),
    (End::NotKept, "not-kept"),
    (End::Released, "released"),
    (End::Degraded, "degraded"),
    (End::Unprotected, "unprotected"),
    (End::Refused, "refused"),
    (End::Unavailable, "unavailable"),
    (End::Overloaded, "overloaded"),
    (End::Superseded, "superseded"),
    (End::Unkeyed, "unkeyed"),
];

impl End {
    pub(crate) fn as_str(self) -> &'static str {
        ENDS[self as usize].1
    }
}

/// Why a request passes without a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// This route requires no key, and the request has none.
    Unkeyed(usize),
    /// No route matches.
    Unmatched,
    /// The method is safe, so there is no effect to protect.
    Safe,
}

pub(crate) struct Meters {
    /// The routes as they are written in the log.
    names: Vec<String>,
    routes: Vec<[Counter; ENDS.len()]>,
    /// Requests that belong to no route.
    unmatched: Counter,
    safe: Counter,
    refused: Counter,
    seconds: Histogram,
    inflight: Gauge,
    pub(crate) unrecorded: Counter,
}

impl Meters {
    pub(crate) fn new(rules: &Rules) -> Self {
        let counters = rules.routes.iter().map(|route| {
            let text = route.matches.to_string();
            let name = match route.mode {
                Mode::Enforce => "ichido_requests_total",
                Mode::Observe => "ichido_observed_requests_total",
            };
            ENDS.map(|(_, end)| counter!(name, "route" => text.clone(), "outcome" => end))
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

    /// Counts keyed work that is under way until the returned value is dropped.
    pub(crate) fn begin(&self) -> Counted {
        self.inflight.increment(1);
        Counted(self.inflight.clone())
    }
}

impl Meters {
    /// Counts a request that passes without a claim. The result writes its log line, if such lines are wanted.
    pub(crate) fn pass(&self, why: Pass, request: &Parts) -> Option<Passing> {
        let (counter, outcome, route) = match why {
            Pass::Unkeyed(route) => {
                (&self.routes[route][End::Unkeyed as usize], End::Unkeyed.as_str(), Some(route))
            }
            Pass::Unmatched => (&self.unmatched, "unmatched", None),
            Pass::Safe => (&self.safe, "safe", None),
        };
        counter.increment(1);
        tracing::enabled!(target: "ichido::request", tracing::Level::DEBUG).then(|| Passing {
            started: Instant::now(),
            method: request.method.clone(),
            path: request.uri.path().to_owned(),
            route: route.map(|route| self.names[route].clone()),
            outcome,
        })
    }

    /// Counts and logs a request that is refused before any route is looked at.
    pub(crate) fn refuse(&self, method: &Method, problem: &Problem) {
        self.refused.increment(1);
        tracing::warn!(
            target: "ichido::request",
            method = method.as_str(),
            outcome = "refused",
            status = problem.status().as_u16(),
            detail = problem.kind.word(),
            reason = problem.detail(),
            "request refused"
        );
    }
}

/// A request that passes without a claim, for its log line.
#[derive(Debug)]
pub struct Passing {
    started: Instant,
    method: Method,
    path: String,
    route: Option<String>,
    outcome: &'static str,
}

impl Passing {
    /// Writes the line.
    pub(crate) fn end(self, status: Option<StatusCode>) {
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

/// Keyed work that is under way.
pub(crate) struct Counted(Gauge);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meters")
    }
}

/// What is known of a keyed request while it is under way.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    pub(crate) started: Instant,
    pub(crate) route: usize,
    pub(crate) method: Method,
    pub(crate) index: Option<Index>,
    pub(crate) attempt: u32,
    pub(crate) degraded: bool,
    pub(crate) retry: Option<Retry>,
}

impl Trace {
    /// Counts the request and writes its line.
    pub(crate) fn end(
        &self,
        meters: &Meters,
        rules: &Rules,
        end: End,
        status: StatusCode,
        detail: Option<&str>,
    ) {
        meters.routes[self.route][end as usize].increment(1);
        let took: Duration = self.started.elapsed();
        meters.seconds.record(took);
        let route = &rules.routes[self.route];
        if let Some(retry) = self.retry {
            let (route, end) = (route.matches.to_string(), end.as_str());
            counter!("ichido_event_retries_total", "route" => route, "reason" => retry.reason, "outcome" => end)
                .increment(1);
        }
        tracing::info!(
            target: "ichido::request",
            key = self.index.map(|index| to_hex(&index.as_bytes()[..8])),
            method = self.method.as_str(),
            route = meters.names[self.route].as_str(),
            mode = route.mode.as_str(),
            outcome = end.as_str(),
            status = status.as_u16(),
            attempt = self.attempt,
            degraded = self.degraded,
            ms = took.as_micros() as f64 / 1000.0,
            retry_num = self.retry.map(|retry| retry.number),
            retry_reason = self.retry.map(|retry| retry.reason),
            detail,
            "keyed request"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_its_word() {
        for (at, (end, _)) in ENDS.iter().enumerate() {
            assert_eq!(*end as usize, at);
        }
    }
}
