//! What is counted, for Prometheus.
//!
//! The recorder must be there before the first ledger is opened: handles look their counters up once.

use std::time::Duration;

use axum::response::Response;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::{Failure, listener};

/// How often histograms are folded, so that they do not grow while nobody asks. Until then each value takes 16 bytes:
/// four for each keyed request, megabytes within seconds, which would go through the processor's caches.
pub const UPKEEP: Duration = Duration::from_millis(500);

/// From a look into memory to a call that waits for its deadline.
const SECONDS: [f64; 17] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    60.0,
];

/// From a batch that went at once to one that waited out its retention.
const AGES: [f64; 10] = [1.0, 5.0, 10.0, 60.0, 600.0, 3_600.0, 21_600.0, 86_400.0, 259_200.0, 604_800.0];

/// Counts from now on. Once per process, before anything that counts.
pub fn install() -> Result<PrometheusHandle, Failure> {
    let fail = |error: metrics_exporter_prometheus::BuildError| {
        Failure::internal(format!("starting the metrics: {error}"))
    };
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)
        .and_then(|builder| {
            builder.set_buckets_for_metric(Matcher::Full("ichido_delivery_age_seconds".to_owned()), &AGES)
        })
        .map_err(fail)?;
    builder.install_recorder().map_err(fail)
}

/// Counts answers of the claim API that are errors.
pub async fn count_error(response: Response) -> Response {
    listener::count_error("api", response.status());
    response
}
