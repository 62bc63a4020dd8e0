//! The exporter against a collector that is built from the messages of the specification.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU16, Ordering};

use http::{HeaderMap, Request};
use ichido_core::{ManualClock, Timestamp};
use ichido_http::{SpanKind, TraceContext};
use ichido_testkit::http_server::{HttpServer, Reply};
use metrics_exporter_prometheus::PrometheusBuilder;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric, number_data_point};
use prost::Message;

use super::*;

const LONG: Duration = Duration::from_secs(60);

/// A collector that responds with a status, and keeps what it accepts.
struct Collector {
    server: HttpServer,
    status: Arc<AtomicU16>,
    received: Arc<Mutex<Received>>,
}

#[derive(Default)]
struct Received {
    traces: Vec<ExportTraceServiceRequest>,
    metrics: Vec<ExportMetricsServiceRequest>,
    requests: usize,
}

impl Collector {
    fn start() -> Self {
        let (status, received) = (Arc::new(AtomicU16::new(200)), Arc::<Mutex<Received>>::default());
        let shared = (status.clone(), received.clone());
        let server = HttpServer::start(move |request| {
            let reply = respond(request, shared.0.load(Ordering::SeqCst), &mut shared.1.lock().unwrap());
            async { reply }
        });
        Self { server: server.unwrap(), status, received }
    }

    fn span_names(&self) -> Vec<String> {
        let received = self.received.lock().unwrap();
        let spans =
            received.traces.iter().flat_map(|request| &request.resource_spans[0].scope_spans[0].spans);
        spans.map(|span| span.name.clone()).collect()
    }

    fn requests(&self) -> usize {
        self.received.lock().unwrap().requests
    }
}

fn respond(request: Request<bytes::Bytes>, status: u16, received: &mut Received) -> Reply {
    received.requests += 1;
    assert_eq!(request.headers()["content-type"], "application/x-protobuf");
    assert_eq!(request.headers()["api-key"], "hunter2");
    if status != 200 {
        return Reply::status(status, "");
    }
    let path = request.uri().path().to_owned();
    let body = request.into_body();
    match path.as_str() {
        "/base/v1/traces" => received.traces.push(ExportTraceServiceRequest::decode(body).unwrap()),
        "/base/v1/metrics" => received.metrics.push(ExportMetricsServiceRequest::decode(body).unwrap()),
        other => panic!("{other}"),
    }
    Reply::status(200, "")
}

/// An exporter to this collector, and the metrics that it reads.
fn exporter(address: std::net::SocketAddr) -> (Exporter, metrics_exporter_prometheus::PrometheusRecorder) {
    let recorder = PrometheusBuilder::new().set_buckets(&[0.1, 1.0]).unwrap().build_recorder();
    let otlp = Otlp {
        endpoint: format!("http://{address}/base/").parse().unwrap(),
        headers: HeaderMap::from_iter([("api-key".parse().unwrap(), "hunter2".parse().unwrap())]),
        timeout: LONG,
        metrics_interval: LONG,
    };
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)));
    let service = Service { name: "orders".to_owned(), host: "host".to_owned() };
    let exporter = ::metrics::with_local_recorder(&recorder, || {
        Exporter::new(otlp, service, &recorder.handle(), &clock).unwrap()
    });
    (exporter, recorder)
}

fn span(number: usize) -> Span {
    Span {
        context: TraceContext { trace_id: [1; 16], span_id: [2; 8], is_sampled: true },
        parent: None,
        state: String::new(),
        kind: SpanKind::Server,
        name: number.to_string(),
        start_ns: 1,
        end_ns: 2,
        attributes: Vec::new(),
        events: Vec::new(),
        failure: None,
    }
}

fn lost(recorder: &metrics_exporter_prometheus::PrometheusRecorder, signal: &str) -> f64 {
    let page = recorder.handle().render();
    let mut samples = ichido_serve::metrics::exposition::samples(&page);
    let found = samples.find(|sample| {
        sample.name == "ichido_telemetry_lost_total" && sample.label("signal") == Some(signal)
    });
    found.unwrap().value
}

#[tokio::test]
async fn spans_wait_for_a_collector_that_is_down_and_arrive_in_order() {
    let collector = Collector::start();
    let (exporter, recorder) = exporter(collector.server.address());
    collector.status.store(503, Ordering::SeqCst);
    (0..BATCH_MAX + 1).for_each(|number| exporter.ended(span(number)));
    exporter.send_spans().await;
    collector.server.go_down().unwrap();
    exporter.send_spans().await;
    collector.server.come_back().unwrap();
    assert!(collector.span_names().is_empty());
    collector.status.store(200, Ordering::SeqCst);
    exporter.send_spans().await;
    let expected: Vec<_> = (0..BATCH_MAX + 1).map(|number| number.to_string()).collect();
    assert_eq!(collector.span_names(), expected);
    assert_eq!(lost(&recorder, "traces"), 0.0);
}

#[tokio::test]
async fn a_full_queue_costs_spans_which_are_counted() {
    let collector = Collector::start();
    let (exporter, recorder) = exporter(collector.server.address());
    collector.status.store(503, Ordering::SeqCst);
    (0..QUEUE_MAX + 7).for_each(|number| exporter.ended(span(number)));
    exporter.send_spans().await;
    assert_eq!((exporter.waiting().len(), lost(&recorder, "traces")), (QUEUE_MAX, 7.0));
    // A collector that does not want them gets them once.
    collector.status.store(400, Ordering::SeqCst);
    exporter.send_spans().await;
    assert_eq!(lost(&recorder, "traces"), 7.0 + BATCH_MAX as f64);
}

/// Requests that end while a batch is being sent must not lose their place to it, nor the batch its own for free.
#[tokio::test]
async fn spans_that_cannot_go_back_are_counted() {
    let collector = Collector::start();
    let (exporter, recorder) = exporter(collector.server.address());
    (0..QUEUE_MAX).for_each(|number| exporter.ended(span(number)));
    let batch = Batch::take(&exporter);
    (0..3).for_each(|number| exporter.ended(span(number)));
    drop(batch);
    assert_eq!((exporter.waiting().len(), lost(&recorder, "traces")), (QUEUE_MAX, 3.0));
}

#[tokio::test]
async fn spans_that_the_collector_rejects_are_counted() {
    let response = ExportTraceServiceResponse {
        partial_success: Some(ExportTracePartialSuccess { rejected_spans: 2, ..Default::default() }),
    };
    let body = response.encode_to_vec();
    let server = HttpServer::start(move |_| {
        let body = body.clone();
        async { Reply::status(200, body) }
    });
    let server = server.unwrap();
    let (exporter, recorder) = exporter(server.address());
    (0..3).for_each(|number| exporter.ended(span(number)));
    exporter.send_spans().await;
    assert_eq!(lost(&recorder, "traces"), 2.0);
}

/// The last export has a limit, whatever the collector does.
#[tokio::test]
async fn a_flush_gives_up_on_a_collector_that_never_responds() {
    let server = HttpServer::start(|_| async { Reply::NeverRespond }).unwrap();
    let (exporter, _recorder) = exporter(server.address());
    exporter.ended(span(1));
    exporter.flush(Duration::from_millis(50)).await;
    assert_eq!(exporter.waiting().len(), 1, "it waits for another chance");
}

#[tokio::test]
async fn an_outage_is_not_tried_more_often_because_requests_come() {
    let collector = Collector::start();
    let (exporter, _recorder) = exporter(collector.server.address());
    collector.status.store(503, Ordering::SeqCst);
    exporter.ended(span(1));
    exporter.send_full_batch().await;
    exporter.send_full_batch().await;
    assert_eq!(collector.requests(), 1);
    // The next turn finds that the outage is over.
    collector.status.store(200, Ordering::SeqCst);
    exporter.send_spans().await;
    exporter.ended(span(2));
    exporter.send_full_batch().await;
    assert_eq!(collector.span_names(), ["1", "2"]);
}

fn labels(attributes: &[KeyValue]) -> BTreeMap<&str, &str> {
    attributes
        .iter()
        .map(|one| {
            let Some(Value::StringValue(text)) = &one.value.as_ref().unwrap().value else {
                panic!("{one:?}")
            };
            (one.key.as_str(), text.as_str())
        })
        .collect()
}

#[tokio::test]
async fn metrics_arrive_with_the_names_and_values_of_the_page() {
    let collector = Collector::start();
    let (exporter, recorder) = exporter(collector.server.address());
    ::metrics::with_local_recorder(&recorder, || {
        ::metrics::describe_counter!("a_total", "Means a.");
        ::metrics::counter!("a_total", "route" => "POST /a\"\\", "outcome" => "first").increment(3);
        ::metrics::gauge!("b").set(-1.5);
        for seconds in [0.05, 0.5, 0.5, 7.0] {
            ::metrics::histogram!("c_seconds", "verb" => "mark").record(seconds);
        }
    });
    exporter.send_metrics().await;
    let received = collector.received.lock().unwrap();
    let [request] = &received.metrics[..] else { panic!("one request") };
    let resource = &request.resource_metrics[0];
    let about = labels(&resource.resource.as_ref().unwrap().attributes);
    assert_eq!((about["service.name"], about["host.name"]), ("orders", "host"));
    let metrics: BTreeMap<&str, &Metric> =
        resource.scope_metrics[0].metrics.iter().map(|metric| (metric.name.as_str(), metric)).collect();
    let Some(metric::Data::Sum(a)) = &metrics["a_total"].data else { panic!("a sum") };
    assert_eq!(metrics["a_total"].description, "Means a.");
    assert!(a.is_monotonic && a.aggregation_temporality == 2);
    assert_eq!(a.data_points[0].value, Some(number_data_point::Value::AsDouble(3.0)));
    assert_eq!(a.data_points[0].time_unix_nano, 1_790_000_000_000_000_000);
    assert_eq!(
        labels(&a.data_points[0].attributes),
        BTreeMap::from([("route", "POST /a\"\\"), ("outcome", "first")])
    );
    let Some(metric::Data::Gauge(b)) = &metrics["b"].data else { panic!("a gauge") };
    assert_eq!(b.data_points[0].value, Some(number_data_point::Value::AsDouble(-1.5)));
    let Some(metric::Data::Histogram(c)) = &metrics["c_seconds"].data else { panic!("a histogram") };
    let c = &c.data_points[0];
    assert_eq!((&c.explicit_bounds[..], &c.bucket_counts[..]), (&[0.1, 1.0][..], &[1, 2, 1][..]));
    assert_eq!((c.count, c.sum, metrics["c_seconds"].unit.as_str()), (4, Some(8.05), "s"));
    assert_eq!(labels(&c.attributes), BTreeMap::from([("verb", "mark")]));
}
