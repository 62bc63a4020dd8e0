//! Traces and metrics, as a collector of OpenTelemetry and CloudWatch get them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use ichido_testkit::http_client::{Response, get, send};
use ichido_testkit::http_server::{HttpServer, Reply};
use ichido_testkit::orders::Orders;
use ichido_testkit::wait::eventually;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric, number_data_point};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use serde_json::{Value, json};

use crate::serving::Serving;
use crate::support::Gateway;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// A collector that keeps what it gets.
struct Collector {
    server: HttpServer,
    spans: Arc<Mutex<Vec<Span>>>,
    metrics: Arc<Mutex<Vec<Metric>>>,
}

impl Collector {
    fn start() -> Self {
        let (spans, metrics) = (Arc::<Mutex<Vec<Span>>>::default(), Arc::<Mutex<Vec<Metric>>>::default());
        let kept = (spans.clone(), metrics.clone());
        let server = HttpServer::start(move |request| {
            let path = request.uri().path().to_owned();
            let body = request.into_body();
            match path.as_str() {
                "/v1/traces" => {
                    let traces = ExportTraceServiceRequest::decode(body).unwrap();
                    let scopes = traces.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
                    kept.0.lock().unwrap().extend(scopes.flat_map(|scope| scope.spans));
                }
                "/v1/metrics" => {
                    let metrics = ExportMetricsServiceRequest::decode(body).unwrap();
                    let mut resources = metrics.resource_metrics.into_iter();
                    let resource = resources.next().unwrap();
                    assert_eq!(text(&resource.resource.unwrap().attributes, "service.name"), "shop");
                    // The last ones replace those before.
                    *kept.1.lock().unwrap() =
                        resource.scope_metrics.into_iter().flat_map(|scope| scope.metrics).collect();
                }
                other => panic!("{other}"),
            }
            async { Reply::status(200, "") }
        });
        Self { server: server.unwrap(), spans, metrics }
    }

    /// Waits for the spans of a request to a path: the one of the gateway, and the one of its call of the service.
    fn spans_of(&self, path: &str) -> (Span, Span) {
        let of = |kind: SpanKind| {
            let spans = self.spans.lock().unwrap();
            let is_it = |span: &&Span| span.kind == kind as i32 && text(&span.attributes, "url.path") == path;
            spans.iter().find(is_it).cloned()
        };
        eventually(&format!("the spans of {path}"), || of(SpanKind::Server).zip(of(SpanKind::Client)))
    }
}

fn text(attributes: &[KeyValue], name: &str) -> String {
    let value = attributes.iter().find(|one| one.key == name).and_then(|one| one.value.clone());
    match value.and_then(|value| value.value) {
        Some(Any::StringValue(text)) => text,
        other => format!("{other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A gateway in front of the orders API, with these environment variables.
fn start(settings: &str, variables: &[(&str, &str)]) -> (tempfile::TempDir, Orders, Gateway) {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let gateway = Gateway::start_with(dir.path(), orders.address, "file:ledger", settings, |command| {
        command.envs(variables.iter().copied());
    });
    (dir, orders, gateway)
}

fn start_traced(collector: &Collector) -> (tempfile::TempDir, Orders, Gateway) {
    let endpoint = format!("http://{}", collector.server.address());
    start("", &[("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_SERVICE_NAME", "shop")])
}

fn order(to: SocketAddr, path: &str, key: &str, more: &[(&str, &str)]) -> Response {
    send(to, "POST", path, &[&[("Idempotency-Key", key)], more].concat(), b"{}")
}

#[test]
fn a_trace_goes_from_the_caller_through_the_gateway_to_the_service() {
    let collector = Collector::start();
    let (dir, _orders, mut gateway) = start_traced(&collector);
    let traceparent = format!("00-{TRACE}-{CALLER}-01");
    let trace =
        [("traceparent", traceparent.as_str()), ("tracestate", "vendor=1"), ("X-Request-Id", "req-7")];
    assert_eq!(order(gateway.address, "/orders", "k", &trace).status, 201);
    let (server, client) = collector.spans_of("/orders");
    assert_eq!((hex(&server.trace_id), hex(&server.parent_span_id)), (TRACE.into(), CALLER.into()));
    assert_eq!((hex(&client.trace_id), &client.parent_span_id), (TRACE.into(), &server.span_id));
    assert_eq!((server.trace_state.as_str(), server.name.as_str()), ("vendor=1", "POST /**"));
    assert_eq!(text(&server.attributes, "ichido.outcome"), "first");
    assert!(server.status.is_none() && server.events.is_empty(), "{server:?}");
    assert!(server.start_time_unix_nano <= client.start_time_unix_nano);
    assert!(client.end_time_unix_nano <= server.end_time_unix_nano);
    // Log line and claim tell which request it was.
    let line = eventually("the log line", || {
        let said = gateway.process.stderr();
        let line = said.lines().find(|line| line.contains("keyed request"))?;
        Some(serde_json::from_str::<Value>(line).unwrap())
    });
    assert_eq!((line["trace_id"].as_str(), line["request_id"].as_str()), (Some(TRACE), Some("req-7")));
    let shown = crate::ok(dir.path(), &["ledger", "show", "k", "--ledger", "file:ledger", "--json"]);
    assert!(shown.contains(TRACE) && shown.contains("req-7"), "{shown}");
    // The service gets the span of the call as its parent, and the caller's state.
    let seen = send(gateway.address, "GET", "/echo/continued", &trace, b"").json();
    let (_, call) = collector.spans_of("/echo/continued");
    assert_eq!(header(&seen, "traceparent"), Some(format!("00-{TRACE}-{}-01", hex(&call.span_id))));
    assert_eq!(header(&seen, "tracestate").as_deref(), Some("vendor=1"));
    // An invalid one is ignored: a new trace begins.
    let invalid = [("traceparent", "00-0-0-01"), ("tracestate", "vendor=1")];
    let seen = send(gateway.address, "GET", "/echo/invalid", &invalid, b"").json();
    let (server, call) = collector.spans_of("/echo/invalid");
    let expected = format!("00-{}-{}-01", hex(&server.trace_id), hex(&call.span_id));
    assert_eq!((header(&seen, "traceparent"), header(&seen, "tracestate")), (Some(expected), None));
    assert!(server.parent_span_id.is_empty());
    // One that its caller does not sample passes as it came.
    let unsampled = format!("00-{TRACE}-{CALLER}-00");
    let seen =
        send(gateway.address, "GET", "/echo/unsampled", &[("traceparent", unsampled.as_str())], b"").json();
    assert_eq!(header(&seen, "traceparent"), Some(unsampled));
    gateway.process.signal("TERM");
    assert_eq!(gateway.process.exit_code(), 0);
    let spans = collector.spans.lock().unwrap();
    assert!(!spans.iter().any(|span| text(&span.attributes, "url.path") == "/echo/unsampled"));
}

fn header(seen: &Value, name: &str) -> Option<String> {
    let mut headers = seen["headers"].as_object().unwrap().iter();
    let (_, value) = headers.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
    value.as_str().map(ToOwned::to_owned)
}

#[test]
fn requests_to_the_claim_api_are_spans_with_the_hash_of_their_key() {
    let collector = Collector::start();
    let dir = tempfile::tempdir().unwrap();
    let endpoint = format!("http://{}", collector.server.address());
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_SERVICE_NAME", "shop")];
    let serving = Serving::claims_with(dir.path(), "memory:", &variables);
    let traceparent = format!("00-{TRACE}-{CALLER}-01");
    let post = |path: &str, body: Value| {
        let headers = [("content-type", "application/json"), ("traceparent", traceparent.as_str())];
        serving.call("POST", path, &headers, &body.to_string()).json()
    };
    post("/v1/events/check", json!({ "events": [{ "key": "secret-1" }] }));
    post("/v1/events/check", json!({ "events": [{ "key": "secret-1" }] }));
    post("/v1/events/check", json!({ "events": [{ "key": "secret-1" }, { "key": "secret-2" }] }));
    post("/v1/events/check", json!({ "events": 1 }));
    let token = post("/v1/claims", json!({ "key": "secret-3" }))["token"].clone();
    let settle = |verb: &str, more: (&str, Value)| {
        let mut body = json!({ "key": "secret-3", "token": token });
        body[more.0] = more.1;
        post(&format!("/v1/claims/{verb}"), body);
    };
    settle("renew", ("lease_ms", json!(5_000)));
    settle("doubt", ("reason", json!("the worker was killed")));
    settle("release", ("token", json!("0".repeat(32))));
    post("/v1/claims", json!({ "key": "secret-3" }));
    serving.get("/v1/claims");

    let with = |path: &str, name: &str, value: &str| {
        eventually(&format!("a span of {path} with {name} {value}"), || {
            let spans = collector.spans.lock().unwrap();
            let is_it = |span: &&Span| {
                text(&span.attributes, "http.route") == path && text(&span.attributes, name) == value
            };
            spans.iter().find(is_it).cloned()
        })
    };
    let new = with("/v1/events/check", "ichido.outcome", "new");
    assert_eq!((hex(&new.trace_id), hex(&new.parent_span_id)), (TRACE.into(), CALLER.into()));
    assert_eq!((new.name.as_str(), new.kind), ("POST /v1/events/check", SpanKind::Server as i32));
    let duplicate = with("/v1/events/check", "ichido.outcome", "duplicate");
    let key = |span: &Span| text(&span.attributes, "ichido.key");
    assert_eq!((key(&new).len(), key(&new)), (16, key(&duplicate)));
    let both = with("/v1/events/check", "ichido.events", "Some(IntValue(2))");
    assert_eq!(text(&both.attributes, "ichido.duplicates"), "Some(IntValue(1))");
    with("/v1/events/check", "error.type", "invalid");
    let granted = with("/v1/claims", "ichido.outcome", "granted");
    for (path, outcome) in [
        ("/v1/claims/renew", "renewed"),
        ("/v1/claims/doubt", "declared-in-doubt"),
        ("/v1/claims/release", "stale"),
        ("/v1/claims", "in-doubt"),
    ] {
        let span = with(path, "ichido.outcome", outcome);
        assert_eq!(key(&span), key(&granted), "{path}");
        let doubts: Vec<_> =
            span.events.iter().map(|event| text(&event.attributes, "ichido.reason")).collect();
        let expected: &[&str] = if outcome.contains("doubt") { &["the worker was killed"] } else { &[] };
        assert_eq!(doubts, expected, "{path}");
    }
    let spans = collector.spans.lock().unwrap();
    assert_eq!(spans.len(), 9, "requests of operators are not traced");
    assert!(!format!("{spans:?}").contains("secret-"), "keys stay here");
}

#[test]
fn doubt_is_an_event_and_a_failure_of_the_call() {
    let collector = Collector::start();
    let (_dir, _orders, gateway) = start_traced(&collector);
    assert_eq!(order(gateway.address, "/orders", "k", &[("X-Trouble", "cut")]).status, 502);
    let (server, client) = collector.spans_of("/orders");
    assert_eq!((server.events.len(), server.events[0].name.as_str()), (1, "in doubt"));
    assert!(text(&server.events[0].attributes, "ichido.reason").starts_with("the response was lost"));
    assert_eq!(text(&server.attributes, "error.type"), "answer-lost");
    assert_eq!((server.status.unwrap().code, client.status.as_ref().unwrap().code), (2, 2));
    assert!(!client.status.unwrap().message.is_empty());
}

#[test]
fn metrics_arrive_as_the_admin_port_shows_them() {
    let collector = Collector::start();
    let (_dir, _orders, mut gateway) = start_traced(&collector);
    for key in ["a", "b", "a"] {
        assert_eq!(order(gateway.address, "/orders", key, &[]).status, 201);
    }
    let page = get(gateway.admin, "/metrics").text();
    // What is left is exported when the process stops.
    gateway.process.signal("TERM");
    assert_eq!(gateway.process.exit_code(), 0);
    let metrics = collector.metrics.lock().unwrap();
    let metrics: BTreeMap<&str, &Metric> =
        metrics.iter().map(|metric| (metric.name.as_str(), metric)).collect();
    let shown: BTreeSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let missing: Vec<_> = shown.iter().filter(|name| !metrics.contains_key(*name)).collect();
    assert!(missing.is_empty() && !shown.is_empty(), "{missing:?}");
    let Some(metric::Data::Sum(requests)) = &metrics["ichido_requests_total"].data else { panic!("a sum") };
    for (outcome, count) in [("first", 2.0), ("replayed", 1.0)] {
        let line = format!("ichido_requests_total{{route=\"POST,PATCH /**\",outcome=\"{outcome}\"}} {count}");
        assert!(page.contains(&line), "{page}");
        let point = requests.data_points.iter().find(|point| text(&point.attributes, "outcome") == outcome);
        assert_eq!(point.unwrap().value, Some(number_data_point::Value::AsDouble(count)));
    }
    let Some(metric::Data::Histogram(seconds)) = &metrics["ichido_request_seconds"].data else {
        panic!("a histogram")
    };
    assert_eq!((seconds.data_points[0].count, seconds.data_points[0].bucket_counts.len()), (3, 18));
}

/// Requests are answered as ever, the log says it once, and the process stops in time.
#[test]
fn a_dead_collector_costs_nothing_but_spans() {
    let collector = Collector::start();
    let (_dir, _orders, mut gateway) = start_traced(&collector);
    collector.server.go_down().unwrap();
    for number in 0..3 {
        assert_eq!(order(gateway.address, "/orders", &number.to_string(), &[]).status, 201);
        gateway.process.wait_for_stderr("cannot export telemetry");
    }
    gateway.process.signal("TERM");
    assert_eq!(gateway.process.exit_code(), 0);
    let said = gateway.process.stderr();
    assert_eq!(said.matches("cannot export telemetry").count(), 1, "{said}");
}

/// Callers choose paths, tenants and keys. None of them becomes a label.
#[test]
fn callers_cannot_create_series() {
    let routes: String =
        (0..150).map(|number| format!("[[gateway.routes]]\nmatch = \"POST /r{number}\"\n")).collect();
    let (_dir, _orders, gateway) = start(&routes, &[]);
    let series = || {
        let page = get(gateway.admin, "/metrics").text();
        let series = page.lines().filter(|line| !line.starts_with('#') && line.contains('{'));
        series.filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned())).collect::<BTreeSet<_>>()
    };
    let send_some = |from: usize| {
        for number in from..from + 30 {
            let token = format!("Bearer {number}");
            let more = [("Authorization", token.as_str()), ("X-Slack-Retry-Reason", token.as_str())];
            order(gateway.address, &format!("/unknown/{number}"), &number.to_string(), &more);
            order(gateway.address, &format!("/r{}?x={number}", number % 150), &number.to_string(), &more);
            send(gateway.address, "GET", &format!("/echo/{number}"), &more, b"");
        }
    };
    send_some(120);
    let before = series();
    send_some(1_000);
    let created: Vec<_> = series().difference(&before).cloned().collect();
    assert!(created.is_empty(), "{created:?}");
    let labels: BTreeSet<_> =
        before.iter().filter_map(|series| series.split_once("route=\"")?.1.split('"').next()).collect();
    assert_eq!((labels.len(), labels.contains("(other)")), (101, true), "{labels:?}");
}

#[test]
fn cloudwatch_gets_rates_and_latencies() {
    let variables = [("ICHIDO_EMF", "true"), ("ICHIDO_EMF_SECONDS", "1"), ("OTEL_SERVICE_NAME", "shop")];
    let (_dir, _orders, mut gateway) = start("", &variables);
    for key in ["a", "b", "a", "c"] {
        assert_eq!(order(gateway.address, "/orders", key, &[]).status, 201);
    }
    gateway.process.signal("TERM");
    assert_eq!(gateway.process.exit_code(), 0);
    let written = gateway.process.read_stdout().unwrap();
    let lines: Vec<Value> = written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(
        lines.iter().all(|line| line["Service"] == "shop" && line["_aws"]["Timestamp"].is_u64()),
        "{written}"
    );
    let sum = |dimension: &str, value: &str, name: &str| -> u64 {
        let of = lines.iter().filter(|line| line[dimension] == value);
        of.filter_map(|line| line[name].as_u64()).sum()
    };
    let route = |name: &str| sum("Route", "POST,PATCH /**", name);
    assert_eq!((route("Requests"), route("Duplicates")), (4, 1), "{written}");
    assert!(sum("Ledger", "file", "LedgerCalls") >= 6, "{written}");
    assert_eq!(sum("Ledger", "file", "LedgerErrors"), 0);
    assert!(lines.iter().any(|line| line["Latency"].is_array()), "{written}");
}

#[test]
fn a_bad_setting_stops_the_start_with_one_line() {
    let dir = tempfile::tempdir().unwrap();
    for (variables, expected) in [
        (&[("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317")][..], "telemetry.otlp_endpoint"),
        (
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h:1"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
            "telemetry.otlp_protocol",
        ),
        (&[("ICHIDO_EMF", "maybe")], "ICHIDO_EMF"),
    ] {
        let mut command = crate::ichido(dir.path());
        command.args(["gateway", "--upstream", "http://127.0.0.1:1"]).envs(variables.iter().copied());
        let output = command.output().unwrap();
        let said = crate::stderr(&output);
        assert!(output.status.code() == Some(2) && said.contains(expected), "{said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    }
}
