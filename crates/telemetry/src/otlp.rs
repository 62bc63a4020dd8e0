//! Exports spans and metrics to an OpenTelemetry collector: OTLP over HTTP, as protobuf.
//!
//! The messages are those of the specification; the exporter is our own. The official one brings its own threads, clocks
//! and retries, cannot count what it loses, and cannot take the values of histograms that already exist.

mod client;
mod metrics;
mod spans;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::metrics::{Counter, counter};
use ichido_core::Clock;
use ichido_http::{Span, SpanSink};
use ichido_serve::metrics::{Handle, render};
use ichido_settings::Invalid;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use self::client::{Client, ExportError, Signal};
use crate::settings::{Otlp, Service};

/// Spans that wait to be sent. Further ones are lost, and counted.
const QUEUE_MAX: usize = 4096;
/// Spans of one request to the collector.
const BATCH_MAX: usize = 512;
/// How long spans wait before they are sent together. After a failure, this is the pause.
const INTERVAL: Duration = Duration::from_secs(1);

/// Sends spans and metrics to a collector.
#[derive(Debug)]
pub(crate) struct Exporter {
    waiting: Mutex<VecDeque<Span>>,
    wake: Notify,
    sending: tokio::sync::Mutex<Sending>,
    client: Client,
    resource: Resource,
    metrics: Handle,
    metrics_interval: Duration,
    clock: Arc<dyn Clock>,
    /// When counting began.
    start_ns: u64,
    lost: Lost,
}

#[derive(Debug, Default)]
struct Sending {
    /// Whether the last export failed. An outage is logged once.
    has_failed: bool,
}

struct Lost {
    spans: Counter,
    metrics: Counter,
}

impl std::fmt::Debug for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lost")
    }
}

impl SpanSink for Exporter {
    fn ended(&self, span: Span) {
        let mut waiting = self.waiting();
        if waiting.len() >= QUEUE_MAX {
            drop(waiting);
            self.lost.spans.increment(1);
            return;
        }
        waiting.push_back(span);
        if waiting.len() == BATCH_MAX {
            self.wake.notify_one();
        }
    }
}

impl Exporter {
    pub(crate) fn new(
        otlp: Otlp,
        service: Service,
        metrics: &Handle,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, Invalid> {
        let lost = |signal: &'static str| counter!("ichido_telemetry_lost_total", "signal" => signal);
        Ok(Self {
            waiting: Mutex::default(),
            wake: Notify::new(),
            sending: tokio::sync::Mutex::default(),
            metrics_interval: otlp.metrics_interval,
            client: Client::new(otlp)?,
            resource: resource(&service),
            metrics: metrics.clone(),
            start_ns: unix_ns(&**clock),
            clock: clock.clone(),
            lost: Lost { spans: lost("traces"), metrics: lost("metrics") },
        })
    }

    /// Exports until `stop`.
    pub(crate) async fn run(&self, stop: CancellationToken) {
        let interval = |time: Duration| {
            let mut turns = tokio::time::interval_at(Instant::now() + time, time);
            turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
            turns
        };
        let (mut spans, mut metrics) = (interval(INTERVAL), interval(self.metrics_interval));
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = metrics.tick() => self.send_metrics().await,
                _ = spans.tick() => self.send_spans().await,
                () = self.wake.notified() => self.send_full_batch().await,
            }
        }
    }

    /// Exports what there is, within `limit`. What is left is lost, unless this is called again.
    pub(crate) async fn flush(&self, limit: Duration) {
        let sending = async {
            self.send_spans().await;
            self.send_metrics().await;
        };
        if tokio::time::timeout(limit, sending).await.is_err() {
            tracing::warn!(
                spans = self.waiting().len(),
                "the collector did not take the last telemetry in time"
            );
        }
    }

    /// Sends spans early, because there are many. A collector that is down is tried again after the pause, not whenever the
    /// queue grows.
    async fn send_full_batch(&self) {
        if !self.sending.lock().await.has_failed {
            self.send_spans().await;
        }
    }

    /// Sends all spans that wait, or stops at the first failure.
    async fn send_spans(&self) {
        let mut sending = self.sending.lock().await;
        loop {
            let batch = Batch::take(self);
            if batch.spans.is_empty() {
                return;
            }
            let request = spans::request(&self.resource, &batch.spans);
            let count = batch.spans.len() as u64;
            match self.client.send(Signal::Traces, &request).await {
                Ok(rejected) => {
                    batch.forget();
                    self.lost.spans.increment(rejected.min(count));
                    sending.succeeded();
                }
                // They go back into the queue.
                Err(error) if error.is_temporary() => return sending.failed(&self.client, &error),
                Err(error) => {
                    batch.forget();
                    self.lost.spans.increment(count);
                    return sending.failed(&self.client, &error);
                }
            }
        }
    }

    /// Sends the metrics as they are now. If that fails, the next export has the same counters and more.
    async fn send_metrics(&self) {
        let mut sending = self.sending.lock().await;
        let page = render(&self.metrics);
        let request = metrics::request(&self.resource, &page, self.start_ns, unix_ns(&*self.clock));
        match self.client.send(Signal::Metrics, &request).await {
            Ok(rejected) => {
                self.lost.metrics.increment(u64::from(rejected > 0));
                sending.succeeded();
            }
            Err(error) => {
                self.lost.metrics.increment(1);
                sending.failed(&self.client, &error);
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Span>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sending {
    fn succeeded(&mut self) {
        if std::mem::take(&mut self.has_failed) {
            tracing::info!("telemetry is exported again");
        }
    }

    fn failed(&mut self, client: &Client, error: &ExportError) {
        if !std::mem::replace(&mut self.has_failed, true) {
            tracing::warn!(endpoint = %client.endpoint(), %error, "cannot export telemetry");
        }
    }
}

/// Spans that are being sent. If it is dropped, they go back to where they were, as far as there is room.
struct Batch<'a> {
    exporter: &'a Exporter,
    spans: Vec<Span>,
}

impl<'a> Batch<'a> {
    fn take(exporter: &'a Exporter) -> Self {
        let mut waiting = exporter.waiting();
        let count = waiting.len().min(BATCH_MAX);
        Self { exporter, spans: waiting.drain(..count).collect() }
    }

    fn forget(mut self) {
        self.spans.clear();
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let mut waiting = self.exporter.waiting();
        while let Some(span) = self.spans.pop() {
            if waiting.len() >= QUEUE_MAX {
                self.exporter.lost.spans.increment(1 + self.spans.len() as u64);
                return;
            }
            waiting.push_front(span);
        }
    }
}

fn resource(service: &Service) -> Resource {
    let pid = std::process::id();
    let attributes = [
        ("service.name", service.name.clone()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id", format!("{}-{pid}", service.host)),
        ("host.name", service.host.clone()),
    ];
    let attributes = attributes.into_iter().map(|(name, text)| attribute(name, Value::StringValue(text)));
    Resource { attributes: attributes.collect(), ..Resource::default() }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "ichido".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

fn attribute(name: &str, value: Value) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn unix_ns(clock: &dyn Clock) -> u64 {
    clock.now().0.saturating_mul(1_000_000)
}

#[cfg(test)]
mod tests;
