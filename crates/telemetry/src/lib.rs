//! Traces and metrics for OpenTelemetry and CloudWatch.
//!
//! Exporting never delays or fails a request. Spans go through a bounded queue; what does not reach the collector is
//! counted, and a collector that cannot be reached is logged once. Metrics are read from the registry that `/metrics`
//! shows, so that nothing is counted twice.

mod emf;
mod otlp;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use ichido_core::Clock;
use ichido_http::SpanSink;
use ichido_serve::metrics::{Handle, UPKEEP_INTERVAL};
use ichido_settings::Invalid;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use self::emf::{EmfWriter, Stdout};
use self::otlp::Exporter;
pub use self::settings::{Emf, Otlp, RawTelemetry, Service, Settings};

/// How long the last export may take when the process stops.
pub const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Exports until it is closed.
#[derive(Debug, Default)]
pub struct Telemetry {
    exporter: Option<Arc<Exporter>>,
    emf: Option<Arc<EmfWriter>>,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Telemetry {
    /// Prepares the exporters. Nothing is exported until [`Telemetry::flush`] is called, or regularly after
    /// [`Telemetry::run`].
    pub fn new(settings: Settings, metrics: &Handle, clock: &Arc<dyn Clock>) -> Result<Self, Invalid> {
        let service = settings.service;
        let exporter = settings.otlp.map(|otlp| Exporter::new(otlp, service.clone(), metrics, clock));
        let emf = settings.emf.map(|emf| EmfWriter::new(emf, service.name, metrics, clock, Stdout::start()));
        Ok(Self { exporter: exporter.transpose()?.map(Arc::new), emf: emf.map(Arc::new), ..Self::default() })
    }

    /// Takes the spans of requests. `None` if requests are not traced.
    pub fn spans(&self) -> Option<Arc<dyn SpanSink>> {
        self.exporter.clone().map(|exporter| exporter as Arc<dyn SpanSink>)
    }

    /// Exports from now on. `metrics`: keeps histograms small, because no admin port does.
    pub fn run(&mut self, metrics: Option<Handle>) {
        let stop = self.stop.clone();
        if let Some(exporter) = self.exporter.clone() {
            let stop = stop.clone();
            self.tasks.push(tokio::spawn(async move { exporter.run(stop).await }));
        }
        if let Some(emf) = self.emf.clone() {
            let stop = stop.clone();
            self.tasks.push(tokio::spawn(async move {
                every(emf.interval, &stop, || emf.write()).await;
            }));
        }
        if let Some(metrics) = metrics {
            self.tasks.push(tokio::spawn(async move {
                every(UPKEEP_INTERVAL, &stop, || metrics.run_upkeep()).await;
            }));
        }
    }

    /// Exports what there is, within [`FLUSH_TIMEOUT`].
    pub async fn flush(&self) {
        if let Some(emf) = &self.emf {
            emf.write();
        }
        if let Some(exporter) = &self.exporter {
            exporter.flush(FLUSH_TIMEOUT).await;
        }
    }

    /// Exports the rest, within [`FLUSH_TIMEOUT`], and stops.
    pub async fn close(&self) {
        self.stop.cancel();
        for task in &self.tasks {
            // An export that is under way may wait for a dead collector.
            task.abort();
        }
        self.flush().await;
        if let Some(emf) = self.emf.clone() {
            tokio::task::spawn_blocking(move || emf.close(FLUSH_TIMEOUT)).await.unwrap_or_default();
        }
    }
}

/// Does something at regular intervals, from the end of the first one, until `stop`.
async fn every(interval: Duration, stop: &CancellationToken, mut work: impl FnMut()) {
    let mut turns = tokio::time::interval_at(tokio::time::Instant::now() + interval, interval);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(turns.tick()).await.is_some() {
        work();
    }
}
