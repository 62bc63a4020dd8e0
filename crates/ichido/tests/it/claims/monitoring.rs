//! Metrics and log lines of event checks.

use serde_json::{Value, json};

use super::{CHECK, check, check_one, metric};
use crate::serving::Serving;
use ichido_testkit::wait::eventually;

/// Waits until the log has at least `count` lines about checks, and returns them.
fn check_log_lines(claims: &Serving, count: usize) -> Vec<Value> {
    eventually("log lines about checks", || {
        let log = claims.stderr();
        let lines: Vec<Value> = log
            .lines()
            .filter(|line| line.contains("Deduplication check"))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        (lines.len() >= count).then_some(lines)
    })
}

#[test]
fn new_and_duplicate_events_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Serving::claims(dir.path(), "file:ledger", None);
    let names = ["ichido_events_checked_total", "ichido_events_degraded_total", "ichido_ledger_degraded"];
    let text = claims.get("/metrics").text();
    for name in names {
        assert!(text.contains(name), "{name} must be exported before the first check: {text}");
    }
    check(&claims, json!([{"key": "a"}, {"key": "b"}, {"key": "a"}]));
    check_one(&claims, "b");
    assert_eq!(claims.post(CHECK, r#"{"events":[{"key":""}]}"#).status, 400);
    assert_eq!(metric(&claims, "ichido_events_checked_total", "result=\"new\""), 2.0);
    assert_eq!(metric(&claims, "ichido_events_checked_total", "result=\"duplicate\""), 2.0);
    assert_eq!(metric(&claims, "ichido_events_check_seconds_count", ""), 2.0);
    assert_eq!(metric(&claims, "ichido_events_check_seconds_bucket", "le=\"+Inf\""), 2.0);
    assert_eq!(metric(&claims, "ichido_ledger_seconds_count", "verb=\"mark\""), 2.0);
    assert_eq!(metric(&claims, "ichido_ledger_errors_total", ""), 0.0);
    assert_eq!(metric(&claims, "ichido_ledger_degraded", ""), 0.0);
}

#[test]
fn each_check_is_logged_without_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Serving::claims(dir.path(), "memory:", None);
    check_one(&claims, "secret-event");
    check_one(&claims, "secret-event");
    let lines = check_log_lines(&claims, 2);
    assert_eq!(lines.len(), 2);
    for (line, result) in lines.iter().zip(["new", "duplicate"]) {
        assert_eq!(
            (&line["level"], &line["message"], &line["result"], &line["fallbackMode"]),
            (&json!("INFO"), &json!("Deduplication check"), &json!(result), &json!(false)),
            "{line}"
        );
        assert!(line["ledgerLatency"].as_f64().is_some_and(|ms| (0.0..10_000.0).contains(&ms)), "{line}");
        assert_eq!(line["dynamodbLatency"], Value::Null);
        let key = line["eventKey"].as_str().unwrap();
        assert!(key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{line}");
    }
    assert_eq!(lines[0]["eventKey"], lines[1]["eventKey"]);
    assert!(!claims.stderr().contains("secret-event"));
}

#[test]
fn keys_are_logged_verbatim_if_configured() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Serving::claims_with(dir.path(), "memory:", &[("ICHIDO_CLAIMS_LOG_KEYS", "verbatim")]);
    check_one(&claims, "F1_\"17\"");
    assert_eq!(check_log_lines(&claims, 1)[0]["eventKey"], "F1_\"17\"");
}

#[test]
fn large_batch_is_one_log_line() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Serving::claims(dir.path(), "memory:", None);
    let batch =
        |from: usize, to: usize| (from..to).map(|number| json!({"key": format!("E{number}")})).collect();
    check(&claims, batch(0, 10));
    check(&claims, batch(0, 17));
    check(&claims, batch(0, 16));
    let lines = check_log_lines(&claims, 10 + 1 + 16);
    assert_eq!(lines.len(), 10 + 1 + 16);
    let summary = &lines[10];
    assert_eq!(
        (&summary["events"], &summary["new"], &summary["duplicate"], &summary["fallbackMode"]),
        (&json!(17), &json!(7), &json!(10), &json!(false)),
        "{summary}"
    );
    assert!(summary["ledgerLatency"].is_number() && summary["eventKey"].is_null(), "{summary}");
}

#[test]
fn checks_are_not_logged_above_info() {
    let dir = tempfile::tempdir().unwrap();
    let mut claims = Serving::claims_with(dir.path(), "memory:", &[("LOG_LEVEL", "warn")]);
    check_one(&claims, "E");
    claims.signal();
    assert_eq!(claims.exit_code(), 0);
    assert!(!claims.stderr().contains("Deduplication check"));
}
