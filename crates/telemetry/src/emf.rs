//! Metrics for CloudWatch, in the Embedded Metric Format: JSON lines on standard output, which Lambda and the CloudWatch agent
//! collect.
//!
//! A line tells what happened since the last one. If standard output is not read, nothing is written, and the next line
//! tells of the whole time: nothing is lost, and no request waits.

mod latency;
mod stdout;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ichido_core::{Clock, Timestamp};
use ichido_serve::metrics::exposition::{Sample, samples};
use ichido_serve::metrics::{Handle, render};
use serde_json::{Value, json};

use self::latency::{Buckets, values_ms};
pub(crate) use self::stdout::Stdout;
use crate::settings::Emf;

/// The route of events that the claim API checks.
const CLAIM_API: &str = "events/check";
/// The calls of the ledger that decide about a key. Their time is the latency of a check.
const DECIDING: [&str; 2] = ["claim", "mark"];

/// Writes metrics to standard output.
#[derive(Debug)]
pub(crate) struct EmfWriter {
    pub(crate) interval: Duration,
    namespace: String,
    service: String,
    metrics: Handle,
    clock: Arc<dyn Clock>,
    told: Mutex<Totals>,
    stdout: Stdout,
}

impl EmfWriter {
    pub(crate) fn new(
        emf: Emf,
        service: String,
        metrics: &Handle,
        clock: &Arc<dyn Clock>,
        stdout: Stdout,
    ) -> Self {
        Self {
            interval: emf.interval,
            namespace: emf.namespace,
            service,
            metrics: metrics.clone(),
            clock: clock.clone(),
            told: Mutex::default(),
            stdout,
        }
    }

    /// Writes what happened since the last time, if anything did.
    pub(crate) fn write(&self) {
        let now = Totals::read(&render(&self.metrics));
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = now.since(&told).lines(&self.namespace, &self.service, self.clock.now());
        if lines.is_empty() || self.stdout.try_write(lines) {
            *told = now;
        }
    }

    /// Waits until everything is written, but not for longer than `limit`.
    pub(crate) fn close(&self, limit: Duration) {
        self.stdout.flush(limit);
    }
}

/// What the metrics are made of, since the process started or since the last line.
#[derive(Clone, Debug, Default, PartialEq)]
struct Totals {
    routes: BTreeMap<String, Requests>,
    ledgers: BTreeMap<String, Calls>,
}

/// Keyed requests and events.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Requests {
    all: u64,
    duplicates: u64,
}

/// Calls of a ledger.
#[derive(Clone, Debug, Default, PartialEq)]
struct Calls {
    all: u64,
    errors: u64,
    /// The time of those that decide about a key.
    seconds: Buckets,
}

impl Totals {
    fn read(page: &str) -> Self {
        let mut totals = Self::default();
        for sample in samples(page) {
            match sample.name {
                "ichido_requests_total" => {
                    if let (Some(route), Some(is_duplicate)) =
                        (label(&sample, "route"), is_duplicate(&sample))
                    {
                        totals.count(route, is_duplicate, &sample);
                    }
                }
                "ichido_events_checked_total" => {
                    let is_duplicate = sample.label("result") == Some("duplicate");
                    totals.count(CLAIM_API.to_owned(), is_duplicate, &sample);
                }
                "ichido_ledger_seconds_count" => totals.ledger(&sample).all += whole(sample.value),
                "ichido_ledger_errors_total" => totals.ledger(&sample).errors += whole(sample.value),
                "ichido_ledger_seconds_bucket" => {
                    let decides = sample.label("verb").is_some_and(|verb| DECIDING.contains(&verb));
                    let bound = sample.label("le").and_then(|bound| bound.parse().ok());
                    if let (true, Some(bound)) = (decides, bound) {
                        totals.ledger(&sample).seconds.add(bound, whole(sample.value));
                    }
                }
                _ => {}
            }
        }
        totals
    }

    fn count(&mut self, route: String, is_duplicate: bool, sample: &Sample<'_>) {
        let requests = self.routes.entry(route).or_default();
        requests.all += whole(sample.value);
        requests.duplicates += if is_duplicate { whole(sample.value) } else { 0 };
    }

    fn ledger(&mut self, sample: &Sample<'_>) -> &mut Calls {
        self.ledgers.entry(label(sample, "backend").unwrap_or_default()).or_default()
    }

    fn since(&self, earlier: &Self) -> Self {
        let routes = self.routes.iter().map(|(route, now)| {
            let then = earlier.routes.get(route).copied().unwrap_or_default();
            let requests = Requests {
                all: now.all.saturating_sub(then.all),
                duplicates: now.duplicates.saturating_sub(then.duplicates),
            };
            (route.clone(), requests)
        });
        let ledgers = self.ledgers.iter().map(|(ledger, now)| {
            let then = earlier.ledgers.get(ledger).cloned().unwrap_or_default();
            let calls = Calls {
                all: now.all.saturating_sub(then.all),
                errors: now.errors.saturating_sub(then.errors),
                seconds: now.seconds.since(&then.seconds),
            };
            (ledger.clone(), calls)
        });
        Self {
            routes: routes.filter(|(_, requests)| requests.all > 0).collect(),
            ledgers: ledgers.filter(|(_, calls)| calls.all > 0).collect(),
        }
    }

    /// The lines: one for the service, one for each route, one for each ledger that was in use.
    fn lines(&self, namespace: &str, service: &str, at: Timestamp) -> Vec<u8> {
        let line = |dimension: Option<(&str, &str)>, metrics: &[Metric]| {
            let text = line(namespace, service, at, dimension, metrics).to_string();
            [text.as_bytes(), b"\n"].concat()
        };
        let mut lines = Vec::new();
        let sum = self.routes.values().fold(Requests::default(), |sum, route| Requests {
            all: sum.all + route.all,
            duplicates: sum.duplicates + route.duplicates,
        });
        if sum.all > 0 {
            lines.extend(line(None, &sum.metrics()));
        }
        for (route, requests) in &self.routes {
            lines.extend(line(Some(("Route", route)), &requests.metrics()));
        }
        for (ledger, calls) in &self.ledgers {
            lines.extend(line(Some(("Ledger", ledger)), &calls.metrics()));
        }
        lines
    }
}

/// Name, unit and value.
type Metric = (&'static str, &'static str, Value);

impl Requests {
    fn metrics(&self) -> Vec<Metric> {
        vec![
            ("Requests", "Count", self.all.into()),
            ("Duplicates", "Count", self.duplicates.into()),
            ("DuplicateRate", "Percent", percent(self.duplicates, self.all)),
        ]
    }
}

impl Calls {
    fn metrics(&self) -> Vec<Metric> {
        let mut metrics = vec![
            ("LedgerCalls", "Count", self.all.into()),
            ("LedgerErrors", "Count", self.errors.into()),
            ("LedgerErrorRate", "Percent", percent(self.errors, self.all)),
        ];
        let latency = values_ms(&self.seconds);
        if !latency.is_empty() {
            metrics.push(("Latency", "Milliseconds", latency.into()));
        }
        metrics
    }
}

fn line(
    namespace: &str,
    service: &str,
    at: Timestamp,
    dimension: Option<(&str, &str)>,
    metrics: &[Metric],
) -> Value {
    let names: Vec<_> = ["Service"].into_iter().chain(dimension.map(|(name, _)| name)).collect();
    let definitions: Vec<_> =
        metrics.iter().map(|(name, unit, _)| json!({ "Name": name, "Unit": unit })).collect();
    let directive = json!({ "Namespace": namespace, "Dimensions": [names], "Metrics": definitions });
    let mut line =
        json!({ "_aws": { "Timestamp": at.0, "CloudWatchMetrics": [directive] }, "Service": service });
    if let Some((name, value)) = dimension {
        line[name] = dimension_value(value).into();
    }
    for (name, _, value) in metrics {
        line[*name] = value.clone();
    }
    line
}

/// CloudWatch takes up to 1024 ASCII characters, but no control characters, and at least one that is not a space.
fn dimension_value(text: &str) -> String {
    let visible = |letter: char| if letter.is_ascii_graphic() || letter == ' ' { letter } else { '?' };
    let value: String = text.chars().take(1024).map(visible).collect();
    // A colon at the beginning is not allowed.
    match value.trim().is_empty() || value.starts_with(':') {
        true => format!("-{}", value.trim()),
        false => value,
    }
}

/// Whether the requests of a sample are duplicates. `None` if no key decided about them.
fn is_duplicate(sample: &Sample<'_>) -> Option<bool> {
    match sample.label("outcome")? {
        "replayed" | "conflict" | "not-kept" => Some(true),
        "first" | "degraded" | "released" => Some(false),
        // A request in doubt may be the first one or a repeat. The others were not checked, or refused.
        _ => None,
    }
}

fn label(sample: &Sample<'_>, name: &str) -> Option<String> {
    sample.labels().find(|(known, _)| *known == name).map(|(_, value)| value)
}

fn percent(part: u64, whole: u64) -> Value {
    #[allow(clippy::cast_precision_loss, reason = "a rate for display")]
    let percent = part as f64 * 100.0 / whole.max(1) as f64;
    json!((percent * 1000.0).round() / 1000.0)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counters are whole")]
fn whole(value: f64) -> u64 {
    value.max(0.0) as u64
}

#[cfg(test)]
mod tests;
