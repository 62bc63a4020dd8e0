//! Metrics for Prometheus.
//!
//! [`install`] must run before the first ledger is opened: ledger handles look up their counters only once.

pub mod exposition;
mod help;
mod process;

use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
pub use metrics_exporter_prometheus::PrometheusHandle as Handle;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

use crate::failure::Failure;

/// How often to fold histograms, so that they do not grow between two scrapes.
///
/// Until then each value takes 16 bytes, and each keyed request records four values. A busy process would collect
/// megabytes within seconds, and they would displace other data in the processor's caches.
pub const UPKEEP_INTERVAL: Duration = Duration::from_millis(500);

/// From an in-memory lookup to a call that waits for its deadline.
const LATENCY_BUCKETS: [f64; 17] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    60.0,
];

/// From a batch that was delivered at once to one that reached its retention limit.
const DELIVERY_AGE_BUCKETS: [f64; 10] =
    [1.0, 5.0, 10.0, 60.0, 600.0, 3_600.0, 21_600.0, 86_400.0, 259_200.0, 604_800.0];

/// Installs the recorder of the process. Call it once, before anything records a metric.
pub fn install() -> Result<Handle, Failure> {
    let fail = |error: metrics_exporter_prometheus::BuildError| {
        Failure::internal(format!("cannot start metrics: {error}"))
    };
    let age = Matcher::Full("ichido_delivery_age_seconds".to_owned());
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &LATENCY_BUCKETS)
        .and_then(|builder| builder.set_buckets_for_metric(age, &DELIVERY_AGE_BUCKETS))
        .map_err(fail)?;
    let handle = builder.install_recorder().map_err(fail)?;
    help::describe();
    ::metrics::gauge!("ichido_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1);
    Ok(handle)
}

/// All metrics in the text format of Prometheus.
pub fn render(handle: &Handle) -> String {
    process::collect();
    handle.render()
}

/// Counts a response with a 5xx status. `port` is `gateway` or `api`.
pub fn count_error(port: &'static str, status: StatusCode) {
    if status.is_server_error() {
        ::metrics::counter!("ichido_errors_total", "port" => port, "status" => status.as_str().to_owned())
            .increment(1);
    }
}

/// Counts a response of the claim API with a 5xx status.
pub async fn count_api_error(response: Response) -> Response {
    count_error("api", response.status());
    response
}
