//! Metrics and log lines of event checks.
//!
//! Consumers know the log line by its fields: `Deduplication check` with `eventKey`, `result`, `dynamodbLatency`
//! (`ledgerLatency` on other ledgers) in milliseconds, and `fallbackMode`. A key may be a secret of the caller, so it
//! is logged as its index unless the settings say otherwise. A request with many events is one line.

use std::fmt;
use std::time::Duration;

use ichido_core::MarkKey;
use ichido_ledger::ContentMode;
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

    /// Counts content that was seen in other events.
    pub(crate) fn same_content(&self, mode: ContentMode, hits: usize) {
        let mode = match mode {
            ContentMode::Observe => "observe",
            ContentMode::Enforce => "enforce",
        };
        counter!("ichido_events_same_content_total", "mode" => mode).increment(hits as u64);
    }

    pub(crate) fn record(&self, keys: &[MarkKey], checked: &[EventCheck], took: Duration) {
        let new = checked.iter().filter(|event| event.is_new).count();
        let degraded = checked.iter().filter(|event| event.degraded).count();
        self.new.increment(new as u64);
        self.duplicate.increment((checked.len() - new) as u64);
        self.degraded.increment(degraded as u64);
        self.seconds.record(took);
        if !tracing::enabled!(tracing::Level::INFO) {
            return;
        }
        let latency = Latency::new(took, self.is_dynamodb);
        if checked.len() > LINES_MAX {
            let duplicate = checked.len() - new;
            latency.summary(checked.len(), new, duplicate, degraded > 0);
            return;
        }
        for (key, event) in keys.iter().zip(checked) {
            match self.log_keys {
                LogKeys::Hashed => latency.line(&key.index(), event),
                LogKeys::Verbatim => latency.line(&key.text(), event),
            }
        }
    }
}

/// How an event was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventCheck {
    pub(crate) is_new: bool,
    pub(crate) degraded: bool,
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

    fn line(&self, key: &dyn fmt::Display, event: &EventCheck) {
        tracing::info!(
            eventKey = %key,
            result = if event.is_new { "new" } else { "duplicate" },
            dynamodbLatency = self.dynamodb,
            ledgerLatency = self.other,
            fallbackMode = event.degraded,
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
