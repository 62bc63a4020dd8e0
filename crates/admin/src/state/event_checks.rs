//! Metrics and log lines of event checks.
//!
//! Consumers know the log line by its fields: `Deduplication check` with `eventKey`, `result`, `dynamodbLatency`
//! (`ledgerLatency` on other ledgers) in milliseconds, and `fallbackMode`. A key may be a secret of the caller, so it
//! is logged as its index unless the settings say otherwise. A request with many events is one line.

use std::fmt;
use std::time::Duration;

use ichido_core::mark::{self, Mark};
use ichido_ledger::Marked;
use metrics::{Counter, Histogram, counter, gauge, histogram};

use super::log_keys::LogKeys;

/// The most events of a request that are logged one by one. A larger request is one line.
const LINES_MAX: usize = 16;

pub(crate) struct EventChecks {
    log_keys: LogKeys,
    is_dynamodb: bool,
    new: Counter,
    duplicate: Counter,
    degraded: Counter,
    seconds: Histogram,
}

impl EventChecks {
    pub(crate) fn new(backend: &'static str, log_keys: LogKeys) -> Self {
        let events = |result: &'static str| counter!("ichido_events_checked_total", "result" => result);
        // Registers the gauge, so that a ledger without a fallback reports 0.
        gauge!("ichido_ledger_degraded").increment(0.0);
        Self {
            log_keys,
            is_dynamodb: backend == "dynamodb",
            new: events("new"),
            duplicate: events("duplicate"),
            degraded: counter!("ichido_events_degraded_total"),
            seconds: histogram!("ichido_events_check_seconds"),
        }
    }

    pub(crate) fn record(&self, requests: &[mark::Request], marked: &[Marked], took: Duration) {
        let new = marked.iter().filter(|marked| is_new(marked)).count();
        let degraded = marked.iter().filter(|marked| marked.degraded).count();
        self.new.increment(new as u64);
        self.duplicate.increment((marked.len() - new) as u64);
        self.degraded.increment(degraded as u64);
        self.seconds.record(took);
        if !tracing::enabled!(tracing::Level::INFO) {
            return;
        }
        let latency = Latency::new(took, self.is_dynamodb);
        if marked.len() > LINES_MAX {
            let duplicate = marked.len() - new;
            latency.summary(marked.len(), new, duplicate, degraded > 0);
            return;
        }
        for (request, marked) in requests.iter().zip(marked) {
            match self.log_keys {
                LogKeys::Hashed => latency.line(&request.key.index(), marked),
                LogKeys::Verbatim => latency.line(&request.key.text(), marked),
            }
        }
    }
}

fn is_new(marked: &Marked) -> bool {
    match marked.mark {
        Mark::New => true,
        Mark::Seen { .. } => false,
    }
}

/// The ledger's latency in milliseconds, under one of two field names.
struct Latency {
    dynamodb: Option<f64>,
    other: Option<f64>,
}

impl Latency {
    fn new(took: Duration, is_dynamodb: bool) -> Self {
        let ms = (took.as_secs_f64() * 1e6).round() / 1e3;
        match is_dynamodb {
            true => Self { dynamodb: Some(ms), other: None },
            false => Self { dynamodb: None, other: Some(ms) },
        }
    }

    fn line(&self, key: &dyn fmt::Display, marked: &Marked) {
        tracing::info!(
            eventKey = %key,
            result = if is_new(marked) { "new" } else { "duplicate" },
            dynamodbLatency = self.dynamodb,
            ledgerLatency = self.other,
            fallbackMode = marked.degraded,
            "Deduplication check"
        );
    }

    fn summary(&self, events: usize, new: usize, duplicate: usize, fallback: bool) {
        tracing::info!(
            events,
            new,
            duplicate,
            dynamodbLatency = self.dynamodb,
            ledgerLatency = self.other,
            fallbackMode = fallback,
            "Deduplication check"
        );
    }
}

impl fmt::Debug for EventChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventChecks")
    }
}
