//! What is counted, and the one log line of each keyed request.

use std::time::Duration;

use tokio::time::Instant;

use http::{Method, StatusCode};
use ichido_core::{Index, hex_of};
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::events::Retry;
use crate::rules::Rules;
use crate::words::Mode;

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

pub(crate) struct Meters {
    /// The routes as they are written in the log.
    names: Vec<String>,
    routes: Vec<[Counter; ENDS.len()]>,
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
        Self {
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
            key = self.index.map(|index| hex_of(&index.as_bytes()[..8])),
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
