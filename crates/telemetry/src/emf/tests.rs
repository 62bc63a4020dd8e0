//! Lines are checked against the rules of the specification of the Embedded Metric Format.

use std::io::Write;
use std::sync::mpsc;

use ichido_core::ManualClock;
use metrics_exporter_prometheus::PrometheusBuilder;

use super::*;

const UNITS: [&str; 3] = ["Count", "Percent", "Milliseconds"];

/// Checks a line, and returns it.
fn valid(text: &str) -> Value {
    assert!(text.len() <= 256 * 1024);
    let line: Value = serde_json::from_str(text).unwrap();
    let about = line["_aws"].as_object().unwrap();
    assert!(about["Timestamp"].as_u64().unwrap() > 1_000_000_000_000, "milliseconds");
    let directives = about["CloudWatchMetrics"].as_array().unwrap();
    assert!(about.len() == 2 && !directives.is_empty(), "{line}");
    for directive in directives {
        let directive = directive.as_object().unwrap();
        assert_eq!(directive.len(), 3, "{line}");
        assert!((1..=255).contains(&directive["Namespace"].as_str().unwrap().len()));
        let sets = directive["Dimensions"].as_array().unwrap();
        assert!(!sets.is_empty(), "{line}");
        for set in sets {
            let set = set.as_array().unwrap();
            assert!(set.len() <= 30, "{line}");
            for name in set {
                let value = line[name.as_str().unwrap()].as_str().unwrap();
                assert!(
                    (1..=1024).contains(&value.len()) && value.is_ascii() && !value.starts_with(':'),
                    "{line}"
                );
                assert!(!value.chars().any(|letter| letter.is_ascii_control()), "{line}");
            }
        }
        let definitions = directive["Metrics"].as_array().unwrap();
        assert!((1..=100).contains(&definitions.len()), "{line}");
        for definition in definitions {
            assert!(UNITS.contains(&definition["Unit"].as_str().unwrap()), "{line}");
            let value = &line[definition["Name"].as_str().unwrap()];
            let is_array = value.as_array().is_some_and(|values| {
                (1..=100).contains(&values.len()) && values.iter().all(Value::is_number)
            });
            assert!(value.is_number() || is_array, "{line}");
        }
    }
    line
}

fn lines(totals: &Totals) -> Vec<Value> {
    let text = String::from_utf8(totals.lines("ichido", "orders", Timestamp(1_790_000_000_000))).unwrap();
    text.lines().map(valid).collect()
}

const PAGE: &str = "# TYPE ichido_requests_total counter\n\
    ichido_requests_total{route=\"POST /slack\",outcome=\"first\"} 6\n\
    ichido_requests_total{route=\"POST /slack\",outcome=\"replayed\"} 1\n\
    ichido_requests_total{route=\"POST /slack\",outcome=\"conflict\"} 1\n\
    ichido_requests_total{route=\"POST /slack\",outcome=\"refused\"} 50\n\
    ichido_requests_total{route=\"POST /idle\",outcome=\"first\"} 0\n\
    ichido_requests_total{outcome=\"unmatched\"} 70\n\
    ichido_events_checked_total{result=\"new\"} 1\nichido_events_checked_total{result=\"duplicate\"} 1\n\
    ichido_ledger_seconds_bucket{backend=\"dynamodb\",verb=\"mark\",le=\"0.01\"} 4\n\
    ichido_ledger_seconds_bucket{backend=\"dynamodb\",verb=\"mark\",le=\"+Inf\"} 4\n\
    ichido_ledger_seconds_bucket{backend=\"dynamodb\",verb=\"settle\",le=\"0.01\"} 12\n\
    ichido_ledger_seconds_bucket{backend=\"dynamodb\",verb=\"settle\",le=\"+Inf\"} 12\n\
    ichido_ledger_seconds_count{backend=\"dynamodb\",verb=\"mark\"} 4\n\
    ichido_ledger_seconds_count{backend=\"dynamodb\",verb=\"settle\"} 12\n\
    ichido_ledger_errors_total{backend=\"dynamodb\",verb=\"mark\"} 2\n";

#[test]
fn a_service_its_routes_and_its_ledger_get_a_line_each() {
    let written = lines(&Totals::read(PAGE).since(&Totals::default()));
    let of = |name: &str| written.iter().map(|line| line[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("Service"), ["orders"; 4]);
    assert_eq!(of("Route"), [json!(null), json!("POST /slack"), json!("events/check"), json!(null)]);
    assert_eq!(of("Requests"), [json!(10), json!(8), json!(2), json!(null)]);
    assert_eq!(of("DuplicateRate"), [json!(30.0), json!(25.0), json!(50.0), json!(null)]);
    let ledger = &written[3];
    assert_eq!((&ledger["Ledger"], &ledger["LedgerCalls"]), (&json!("dynamodb"), &json!(16)));
    assert_eq!(
        (&ledger["LedgerErrorRate"], &ledger["Latency"]),
        (&json!(12.5), &json!([1.25, 3.75, 6.25, 8.75]))
    );
}

#[test]
fn a_line_tells_only_what_is_new() {
    let told = Totals::read(PAGE);
    assert!(lines(&told.since(&told)).is_empty());
    let later = PAGE.replace("outcome=\"replayed\"} 1", "outcome=\"replayed\"} 4");
    let written = lines(&Totals::read(&later).since(&told));
    assert_eq!(written.len(), 2, "the service and the route");
    assert_eq!((&written[1]["Requests"], &written[1]["DuplicateRate"]), (&json!(3), &json!(100.0)));
}

/// A route is text of an operator, and may contain anything.
#[test]
fn any_route_is_a_valid_dimension() {
    for route in ["", " ", ":x", "POST /注文", "a\\nb", &"x".repeat(2_000)] {
        let page = format!("ichido_requests_total{{route=\"{route}\",outcome=\"first\"}} 1\n");
        assert_eq!(lines(&Totals::read(&page)).len(), 2, "{route}");
    }
}

/// Lets each write wait until it is read.
struct Stalling(mpsc::SyncSender<String>);

impl Write for Stalling {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.send(String::from_utf8_lossy(bytes).into_owned()).map_err(std::io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_a_stalled_reader_misses_is_told_later() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let (sent, received) = mpsc::sync_channel(0);
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)));
    let emf = Emf { namespace: "ichido".to_owned(), interval: Duration::from_secs(60) };
    let stdout = Stdout::writing_to(Stalling(sent));
    let writer = EmfWriter::new(emf, "orders".to_owned(), &recorder.handle(), &clock, stdout);
    let events = 200;
    metrics::with_local_recorder(&recorder, || {
        let checked = metrics::counter!("ichido_events_checked_total", "result" => "new");
        for _ in 0..events {
            checked.increment(1);
            writer.write();
        }
    });
    let mut counted = 0;
    while counted < events {
        // What could not be handed over before is told by the next line.
        writer.write();
        let text = received.recv().unwrap();
        counted += valid(text.lines().next().unwrap())["Requests"].as_u64().unwrap();
    }
    assert_eq!(counted, events);
    drop(received);
    writer.close(Duration::from_secs(60));
}
