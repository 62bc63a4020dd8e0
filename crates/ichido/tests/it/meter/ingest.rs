//! `POST /v1/usage`: counting, duplicates, and the responses to invalid requests and records.

use ichido_testkit::http_client::{Response, raw};
use serde_json::{Value, json};

use super::{Meter, TOKEN, record, record_of_one_day};

fn batch(ids: std::ops::Range<usize>) -> Value {
    json!({"batchIdempotencyKey": format!("b{}-{}", ids.start, ids.end), "records": ids.map(record).collect::<Vec<_>>()})
}

#[track_caller]
fn problem(response: &Response) -> (u16, String) {
    (response.status, response.problem())
}

#[test]
fn duplicate_batch_is_409_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for db in ["sqlite:data/meter.db".to_owned(), super::postgres()] {
        let meter = Meter::start_with(dir.path(), &["--db", &db], &[]);
        let first = meter.post(&batch(0..3));
        assert_eq!(first.status, 201, "{first:?}");
        let ids = ["dify-2025-11-01-e0", "dify-2025-11-02-e1", "dify-2025-11-03-e2"];
        let results = |status: &str| ids.map(|id| json!({"source_event_id": id, "status": status}));
        let counts = |inserted, duplicates, status| {
            json!({"batchIdempotencyKey": "b0-3", "inserted": inserted, "updated": 0, "duplicates": duplicates,
                   "conflicts": 0, "stale": 0, "invalid": 0, "total": 3, "results": results(status)})
        };
        assert_eq!(first.json(), counts(3, 0, "inserted"));
        let before = meter.get("/v1/records").json();
        let second = meter.post(&batch(0..3));
        assert_eq!((second.status, second.json()), (409, counts(0, 3, "duplicate")));
        assert_eq!(meter.get("/v1/records").json(), before);
        assert_eq!(meter.totals(), (3, 3, "0.0000003".to_owned()));
    }
}

#[test]
fn upsert_profile_returns_200_and_ignores_stale_batches() {
    let dir = tempfile::tempdir().unwrap();
    let meter = Meter::start_with(dir.path(), &[], &[("METER_PROFILE", "upsert_by_event_id")]);
    let export = |at: &str, cost: &str| {
        let mut record = record(1);
        record["cost_actual"] = json!(cost);
        json!({"tenant_id": "default", "export_metadata": {"export_timestamp": at}, "records": [record]})
    };
    let first_status =
        |response: &Response| response.json()["results"][0]["status"].as_str().unwrap().to_owned();
    let first = meter.post(&export("2025-11-02T00:00:00Z", "1"));
    assert_eq!((first.status, first_status(&first)), (200, "inserted".to_owned()));
    let newer = meter.post(&export("2025-11-04T00:00:00Z", "3"));
    assert_eq!((newer.status, &newer.json()["updated"], &newer.json()["total"]), (200, &json!(1), &json!(1)));
    let stale = meter.post(&export("2025-11-03T00:00:00+09:00", "2"));
    assert_eq!((stale.status, first_status(&stale)), (200, "stale".to_owned()));
    assert_eq!(meter.totals().2, "3");
}

#[test]
fn token_gives_access_to_its_own_tenant_only() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = format!("a={TOKEN},b=tok-b-hunter4");
    let meter = Meter::start_with(dir.path(), &[], &[("METER_TOKENS", &tokens)]);
    assert_eq!(meter.post(&batch(0..2)).status, 201);
    let as_b = |method, path, body: &Value| {
        let headers = [("Content-Type", "application/json"), ("Authorization", "Bearer tok-b-hunter4")];
        meter.call(method, path, &headers, body.to_string().as_bytes())
    };
    assert_eq!(as_b("GET", "/v1/usage", &json!(0)).json()["rows"], json!([]));
    assert_eq!(problem(&as_b("GET", "/v1/receipts?batch=b0-2", &json!(0))), (404, "no-receipt".to_owned()));
    assert_eq!(as_b("POST", "/v1/usage", &batch(0..2)).status, 201, "event ids are separate for each tenant");
    let envelope = |tenant: &str| {
        let export = json!({"export_timestamp": "2025-11-02T00:00:00Z"});
        json!({"tenant_id": tenant, "export_metadata": export, "records": [record(7)]})
    };
    assert_eq!(meter.post(&envelope("a")).status, 201);
    let other = meter.post(&envelope("b"));
    assert_eq!(
        (problem(&other), &other.json()["field"]),
        ((403, "other-tenant".to_owned()), &json!("tenant_id"))
    );
    for wrong in ["Bearer x", "Bearer", "Basic eDp5", ""] {
        for (method, path) in
            [("POST", "/v1/usage"), ("GET", "/v1/usage"), ("GET", "/v1/records"), ("GET", "/v1/receipts")]
        {
            let response = meter.call(method, path, &[("Authorization", wrong)], b"");
            assert_eq!(problem(&response), (401, "token-refused".to_owned()), "{wrong:?}");
            assert_eq!(response.header("www-authenticate"), Some("Bearer"));
        }
    }
    assert!(!meter.process.stderr().contains("hunter"));
}

#[test]
fn invalid_request_names_the_field_and_counts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let meter = Meter::start(dir.path());
    for (body, field) in [
        (json!([]), "."),
        (json!({"records": 5}), "records"),
        (json!({"records": []}), "records"),
        (json!({"records": [record(1)], "tenant_id": "default"}), "export_metadata"),
    ] {
        let response = meter.post(&body);
        assert_eq!(
            (problem(&response), &response.json()["field"]),
            ((400, "invalid".to_owned()), &json!(field))
        );
    }
    let cut = meter.call("POST", "/v1/usage", &[("Content-Type", "application/json")], b"{\"records\":[{}");
    assert_eq!(problem(&cut).0, 400);
    for headers in [
        &[("Content-Type", "text/plain")][..],
        &[],
        &[("Content-Type", "application/json"), ("Content-Encoding", "br")],
    ] {
        let response = meter.call("POST", "/v1/usage", headers, batch(0..1).to_string().as_bytes());
        assert_eq!(problem(&response), (415, "unknown-form".to_owned()));
    }
    for (path, field) in [
        ("/v1/usage?from=yesterday", "from"),
        ("/v1/usage?from=2025-11-02&to=2025-11-01", "to"),
        ("/v1/usage?group_by=hour", "group_by"),
        ("/v1/usage?format=xml", "format"),
        ("/v1/usage?fromm=2025-11-02", "query"),
        ("/v1/records?limit=0", "limit"),
        ("/v1/receipts", "batch"),
    ] {
        let response = meter.get(path);
        assert_eq!((problem(&response).0, &response.json()["field"]), (400, &json!(field)), "{path}");
    }
    assert_eq!(problem(&meter.get("/v2")), (404, "no-such-page".to_owned()));
    assert_eq!(problem(&meter.call("DELETE", "/v1/usage", &[], b"")), (405, "no-such-method".to_owned()));
    assert_eq!(meter.totals(), (0, 0, "0".to_owned()));
}

#[test]
fn invalid_records_are_reported_and_the_others_counted() {
    let dir = tempfile::tempdir().unwrap();
    let meter = Meter::start(dir.path());
    let mut bad = record(2);
    bad["total_tokens"] = json!(16);
    let mixed = meter.post(&json!({"batchIdempotencyKey": "m", "records": [record(1), bad, record(3)]}));
    assert_eq!((mixed.status, &mixed.json()["invalid"]), (207, &json!(1)));
    let result = &mixed.json()["results"][1];
    assert_eq!(
        (&result["source_event_id"], &result["status"]),
        (&json!("dify-2025-11-03-e2"), &json!("invalid"))
    );
    assert_eq!(result["reason"], "total_tokens: must be input_tokens + output_tokens");
    // Not 409: some senders would conclude that every record has been counted.
    let again = meter.post(&json!({"records": [record(1), bad]}));
    assert_eq!((again.status, &again.json()["duplicates"]), (207, &json!(1)));
    let none = meter.post(&json!({"batchIdempotencyKey": "n", "records": [bad, {}]}));
    assert_eq!(problem(&none), (422, "no-valid-record".to_owned()));
    assert_eq!(none.json()["field"], "records[0].total_tokens");
    assert_eq!(meter.totals().0, 2);
}

/// The profile expects one record per model and day. Of 500 records for one day, only the first is counted.
#[test]
fn mostly_invalid_batch_is_207() {
    let dir = tempfile::tempdir().unwrap();
    let meter = Meter::start_with(dir.path(), &[], &[("METER_PROFILE", "upsert_by_model_day")]);
    let response = meter.post(&json!({"records": (0..500).map(record_of_one_day).collect::<Vec<_>>()}));
    let body = response.json();
    assert_eq!((response.status, &body["inserted"], &body["invalid"]), (207, &json!(1), &json!(499)));
    assert_eq!(
        body["detail"],
        "499 of 500 records are invalid and were not counted; results gives the reason for each"
    );
    let invalid = body["results"].as_array().unwrap().iter().filter(|result| result["status"] == "invalid");
    assert_eq!(invalid.count(), 499);
    assert_eq!(meter.totals().0, 1);
}

#[test]
fn gzip_body_is_read_up_to_the_size_limit() {
    let dir = tempfile::tempdir().unwrap();
    let meter = Meter::start_with(dir.path(), &[], &[("METER_BODY_MAX_BYTES", "1000000")]);
    let headers = [("Content-Type", "application/json"), ("Content-Encoding", "gzip")];
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, bytes).unwrap();
        encoder.finish().unwrap()
    };
    assert_eq!(
        meter.call("POST", "/v1/usage", &headers, &gzip(batch(0..100).to_string().as_bytes())).status,
        201
    );
    let bomb = gzip(&vec![b' '; 50_000_000]);
    assert!(bomb.len() < 1_000_000);
    assert_eq!(
        problem(&meter.call("POST", "/v1/usage", &headers, &bomb)),
        (413, "body-too-large".to_owned())
    );
    let plain = vec![b' '; 1_000_001];
    assert_eq!(problem(&meter.call("POST", "/v1/usage", &headers[..1], &plain)).0, 413);
    assert_eq!(problem(&meter.call("POST", "/v1/usage", &headers, b"not gzip")).0, 400);
    assert_eq!(meter.totals().0, 100);
}

#[test]
fn cross_origin_browser_request_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let meter = Meter::start(dir.path());
    let foreign = b"GET /v1/usage HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert_eq!(raw(meter.address, foreign).unwrap().status, 421);
    let origin = meter.call("GET", "/v1/usage", &[("Origin", "https://evil.example")], b"");
    assert_eq!(problem(&origin), (403, "foreign-origin".to_owned()));
}
