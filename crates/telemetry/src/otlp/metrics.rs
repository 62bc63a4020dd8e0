//! Metrics as messages of the protocol, read from the text that `/metrics` shows.

use std::collections::BTreeMap;

use ichido_serve::metrics::exposition::{Line, Sample, lines};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::summary_data_point::ValueAtQuantile;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, Summary, SummaryDataPoint, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::{attribute, scope};

/// The metrics of a page. They were counted from `start_ns` to `now_ns`.
pub(super) fn request(
    resource: &Resource,
    page: &str,
    start_ns: u64,
    now_ns: u64,
) -> ExportMetricsServiceRequest {
    let metrics = read(page).into_iter().map(|family| family.message(start_ns, now_ns)).collect();
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope()), metrics, ..ScopeMetrics::default() }];
    let resource = Some(resource.clone());
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }],
    }
}

/// A metric with all its samples.
struct Family<'a> {
    name: &'a str,
    help: &'a str,
    kind: &'a str,
    samples: Vec<Sample<'a>>,
}

fn read(page: &str) -> Vec<Family<'_>> {
    let (mut families, mut described) = (Vec::new(), ("", ""));
    for line in lines(page) {
        match line {
            Line::Help(name, help) => described = (name, help),
            Line::Type(name, kind) => {
                let help = if described.0 == name { described.1 } else { "" };
                families.push(Family { name, help, kind, samples: Vec::new() });
            }
            Line::Sample(sample) => {
                if let Some(family) = families.last_mut() {
                    family.samples.push(sample);
                }
            }
        }
    }
    families
}

type Labels = Vec<(String, String)>;

/// The parts of a histogram or a summary with the same labels.
#[derive(Default)]
struct Distribution {
    /// Bounds or quantiles, with their values.
    steps: Vec<(f64, f64)>,
    sum: f64,
    count: f64,
}

impl Family<'_> {
    fn message(&self, start_ns: u64, now_ns: u64) -> Metric {
        let cumulative = AggregationTemporality::Cumulative.into();
        let data = match self.kind {
            "counter" => metric::Data::Sum(Sum {
                data_points: self.numbers(start_ns, now_ns),
                aggregation_temporality: cumulative,
                is_monotonic: true,
            }),
            "histogram" => metric::Data::Histogram(Histogram {
                data_points: self.histograms(start_ns, now_ns),
                aggregation_temporality: cumulative,
            }),
            "summary" => metric::Data::Summary(Summary { data_points: self.summaries(start_ns, now_ns) }),
            _ => metric::Data::Gauge(Gauge { data_points: self.numbers(0, now_ns) }),
        };
        Metric {
            name: self.name.to_owned(),
            description: self.help.to_owned(),
            unit: unit(self.name).to_owned(),
            data: Some(data),
            ..Metric::default()
        }
    }

    fn numbers(&self, start_ns: u64, now_ns: u64) -> Vec<NumberDataPoint> {
        let point = |sample: &Sample<'_>| NumberDataPoint {
            attributes: attributes(sample.labels().map(|(name, value)| (name.to_owned(), value)).collect()),
            start_time_unix_nano: start_ns,
            time_unix_nano: now_ns,
            value: Some(number_data_point::Value::AsDouble(sample.value)),
            ..NumberDataPoint::default()
        };
        self.samples.iter().map(point).collect()
    }

    fn histograms(&self, start_ns: u64, now_ns: u64) -> Vec<HistogramDataPoint> {
        let point = |(labels, distribution): (Labels, Distribution)| {
            let (mut bounds, mut counts, mut below) = (Vec::new(), Vec::new(), 0);
            for (bound, cumulative) in distribution.steps {
                counts.push(whole(cumulative).saturating_sub(below));
                below = whole(cumulative);
                if bound.is_finite() {
                    bounds.push(bound);
                }
            }
            HistogramDataPoint {
                attributes: attributes(labels),
                start_time_unix_nano: start_ns,
                time_unix_nano: now_ns,
                count: whole(distribution.count),
                sum: Some(distribution.sum),
                bucket_counts: counts,
                explicit_bounds: bounds,
                ..HistogramDataPoint::default()
            }
        };
        self.distributions("le").into_iter().map(point).collect()
    }

    fn summaries(&self, start_ns: u64, now_ns: u64) -> Vec<SummaryDataPoint> {
        let point = |(labels, distribution): (Labels, Distribution)| SummaryDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano: start_ns,
            time_unix_nano: now_ns,
            count: whole(distribution.count),
            sum: distribution.sum,
            quantile_values: distribution
                .steps
                .into_iter()
                .map(|(quantile, value)| ValueAtQuantile { quantile, value })
                .collect(),
            flags: 0,
        };
        self.distributions("quantile").into_iter().map(point).collect()
    }

    fn distributions(&self, step: &str) -> BTreeMap<Labels, Distribution> {
        let mut found = BTreeMap::<_, Distribution>::new();
        for sample in &self.samples {
            let labels = sample.labels().filter(|(name, _)| *name != step);
            let labels = labels.map(|(name, value)| (name.to_owned(), value)).collect();
            let distribution = found.entry(labels).or_default();
            match (sample.name.strip_prefix(self.name), sample.label(step)) {
                (_, Some(at)) => distribution.steps.push((at.parse().unwrap_or(f64::INFINITY), sample.value)),
                (Some("_sum"), None) => distribution.sum = sample.value,
                (Some("_count"), None) => distribution.count = sample.value,
                (_, None) => {}
            }
        }
        found
    }
}

fn attributes(labels: Labels) -> Vec<KeyValue> {
    labels.into_iter().map(|(name, value)| attribute(&name, Value::StringValue(value))).collect()
}

/// The unit, which Prometheus has in the name.
fn unit(name: &str) -> &'static str {
    match name.strip_suffix("_total").unwrap_or(name) {
        name if name.ends_with("_seconds") => "s",
        name if name.ends_with("_bytes") => "By",
        _ => "",
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts are whole")]
fn whole(value: f64) -> u64 {
    value.max(0.0) as u64
}
