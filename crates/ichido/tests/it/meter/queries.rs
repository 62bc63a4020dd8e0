//! Queries for usage, records and receipts; health and metrics.

use ichido_testkit::http_client::get;
use serde_json::json;

use super::{Meter, record};

fn meter_with_records(dir: &std::path::Path) -> Meter {
    let meter = Meter::start(dir);
    let records: Vec<_> = (0..56).map(record).collect();
    assert_eq!(meter.post(&json!({"batchIdempotencyKey": "all", "records": records})).status, 201);
    meter
}

#[test]
fn usage_is_grouped_by_day_model_app_and_user() {
    let dir = tempfile::tempdir().unwrap();
    let meter = meter_with_records(dir.path());
    let days = meter.get("/v1/usage?from=2025-11-02&to=2025-11-03").json();
    assert_eq!(
        days,
        json!({"from": "2025-11-02", "to": "2025-11-03", "group_by": ["day"], "rows": [
            {"usage_date": "2025-11-02", "aggregation_method": "daily_sum", "currency": "USD", "records": 2, "request_count": 2,
             "input_tokens": 20, "output_tokens": 10, "total_tokens": 30, "cost_actual": "0.0000002"},
            {"usage_date": "2025-11-03", "aggregation_method": "daily_sum", "currency": "USD", "records": 2, "request_count": 2,
             "input_tokens": 20, "output_tokens": 10, "total_tokens": 30, "cost_actual": "0.0000002"},
        ]})
    );
    let rows =
        |by: &str| meter.get(&format!("/v1/usage?group_by={by}")).json()["rows"].as_array().unwrap().clone();
    assert_eq!(
        (rows("model").len(), rows("app").len(), rows("user").len(), rows("day,model").len()),
        (3, 2, 5, 56)
    );
    assert_eq!(
        (&rows("app")[0]["app_id"], &rows("app")[0]["app_name"]),
        (&json!("app-0"), &json!("Support"))
    );
    assert_eq!(
        (&rows("user")[0]["user_id"], &rows("user")[0]["user_type"]),
        (&json!("u0"), &json!("end_user"))
    );
    let csv = meter.get("/v1/usage?group_by=model&format=csv");
    assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8"));
    let text = csv.text();
    assert_eq!(text.lines().count(), 4);
    assert!(
        text.lines()
            .nth(1)
            .unwrap()
            .starts_with("anthropic,claude-0,daily_sum,USD,19,19,190,95,285,0.0000019"),
        "{text}"
    );
}

#[test]
fn records_are_paginated_and_receipts_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let meter = meter_with_records(dir.path());
    let (mut after, mut count) = (String::new(), 0);
    loop {
        let page = meter.get(&format!("/v1/records?limit=10&after={after}")).json();
        count += page["records"].as_array().unwrap().len();
        let Some(next) = page["next"].as_str() else { break };
        after = next.to_owned();
    }
    assert_eq!(count, 56);
    meter.post(&json!({"batchIdempotencyKey": "all", "records": [record(0)]}));
    let receipt = meter.get("/v1/receipts?batch=all").json();
    assert_eq!((&receipt["batchIdempotencyKey"], &receipt["times"]), (&json!("all"), &json!(2)));
    assert_eq!(
        (&receipt["first"]["answer"]["status"], &receipt["first"]["answer"]["inserted"]),
        (&json!(201), &json!(56))
    );
    assert_eq!(
        (&receipt["last"]["answer"]["status"], &receipt["last"]["answer"]["duplicates"]),
        (&json!(409), &json!(1))
    );
    assert_eq!(meter.get("/v1/receipts?batch=never").status, 404);
}

#[test]
fn health_and_metrics_are_on_the_admin_port() {
    let dir = tempfile::tempdir().unwrap();
    let meter = meter_with_records(dir.path());
    meter.post(&json!({"records": [record(0), {"usage_date": "x"}]}));
    assert_eq!(get(meter.admin, "/healthz").status, 200);
    let ready = get(meter.admin, "/readyz");
    assert_eq!((ready.status, &ready.json()["checks"][0]["name"]), (200, &json!("meter")));
    let metrics = get(meter.admin, "/metrics").text();
    for line in [
        "ichido_meter_records_total{result=\"inserted\"} 56",
        "ichido_meter_records_total{result=\"duplicate\"} 1",
        "ichido_meter_records_total{result=\"invalid\"} 1",
        "ichido_meter_batches_total{status=\"201\"} 1",
        "ichido_meter_batches_total{status=\"207\"} 1",
        "ichido_meter_request_seconds_count 2",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    assert_eq!(get(meter.admin, "/v1/claims").status, 404, "a meter has no ledger");
}
