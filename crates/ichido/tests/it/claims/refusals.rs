//! Refused requests name the invalid field and store nothing.

use std::io::{Read, Write};

use serde_json::{Value, json};

use super::{CHECK, check_one};
use crate::serving::Serving;
use ichido_testkit::http_client::connect;

fn serving() -> (tempfile::TempDir, Serving) {
    let dir = tempfile::tempdir().unwrap();
    let claims = Serving::claims(dir.path(), "file:ledger", None);
    (dir, claims)
}

/// Asserts that each body is refused with 400, and that the problem names the field and contains the expected text.
fn assert_refused(claims: &Serving, path: &str, cases: &[(&str, &str, &str)]) {
    for (body, field, expected) in cases {
        let response = claims.post(path, body);
        assert_eq!((response.status, response.problem().as_str()), (400, "invalid"), "{body}: {response:?}");
        let problem = response.json();
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(expected), "{body}: {detail}");
        match *field {
            "" => assert_eq!(problem["field"], Value::Null, "{body}: {problem}"),
            field => {
                assert_eq!(problem["field"], field, "{body}: {problem}");
                assert!(detail.starts_with(field), "{body}: {detail}");
            }
        }
    }
    assert_nothing_stored(claims);
}

fn assert_nothing_stored(claims: &Serving) {
    let stats = claims.get("/v1/ledger/stats").json();
    assert_eq!(stats, json!({"running": 0, "in_doubt": 0, "done": 0, "marks": 0}));
}

#[test]
fn invalid_events_are_refused_with_the_field() {
    let (_dir, claims) = serving();
    let long_key = format!(r#"{{"events":[{{"key":"ok"}},{{"key":"{}"}}]}}"#, "k".repeat(1025));
    let long_nonce = format!(r#"{{"events":[{{"key":"ok","nonce":"{}"}}]}}"#, "n".repeat(256));
    let metadata = format!(r#"{{"events":[{{"key":"ok","metadata":{{"note":"{}"}}}}]}}"#, "x".repeat(8_200));
    assert_refused(
        &claims,
        CHECK,
        &[
            ("", "", "not valid JSON"),
            ("{", "", "not valid JSON"),
            ("nonsense", "", "not valid JSON"),
            (r#"{"events":[{"key":"ok"}]} and more"#, "", "not valid JSON"),
            (r#"{"events":[{"key":"\ud800"}]}"#, "", "not valid JSON"),
            ("[]", "", "The body: invalid type: sequence, expected an object"),
            ("null", "", "null"),
            ("{}", "events", "is missing"),
            (r#"{"events":{}}"#, "events", "expected an array of events"),
            (r#"[[{"key":"ok"}],null]"#, "", "expected an object"),
            (r#"{"events":["E"]}"#, "events[0]", "expected an object"),
            (r#"{"events":[["ok",null,null]]}"#, "events[0]", "expected an object"),
            (r#"{"events":[{"key":"ok"},{}]}"#, "events[1].key", "is missing"),
            (
                r#"{"events":[{"key":"ok"},{"key":"ok"},{"key":"ok"},{"key":""}]}"#,
                "events[3].key",
                "events[3].key is empty",
            ),
            (r#"{"events":[{"key":"ok"},{"key":5}]}"#, "events[1].key", "integer `5`, expected a string"),
            (r#"{"events":[{"key":null}]}"#, "events[0].key", "null"),
            (&long_key, "events[1].key", "is 1025 bytes; at most 1024 are allowed"),
            (r#"{"events":[{"key":"ok","nonce":""}]}"#, "events[0].nonce", "is empty"),
            (&long_nonce, "events[0].nonce", "is 256 bytes; at most 255 are allowed"),
            (&metadata, "events[0].metadata", "bytes; at most 8192 are allowed"),
            (r#"{"events":[{"key":"ok","metadata":[]}]}"#, "events[0].metadata", "object of strings"),
            (
                r#"{"events":[{"key":"ok","metadata":{"size":5}}]}"#,
                "events[0].metadata.size",
                "expected a string",
            ),
            (
                r#"{"events":[{"key":"ok","metadata":{"ttl":"5"}}]}"#,
                "events[0].metadata",
                "\"ttl\" is reserved",
            ),
            (r#"{"events":[{"key":"ok","metadata":{"":"5"}}]}"#, "events[0].metadata", "name is empty"),
            (r#"{"events":[{"key":"ok","kye":"E"}]}"#, "events[0].kye", "unknown field"),
            (r#"{"events":[{"key":"ok","key":"ok"}]}"#, "events[0].key", "is given twice"),
            (r#"{"events":[{"key":"ok"}],"ttl":5}"#, "ttl", "unknown field"),
            (r#"{"events":[{"key":"ok"}],"ttl_seconds":-1}"#, "ttl_seconds", "whole number of at least 1"),
            (r#"{"events":[{"key":"ok"}],"ttl_seconds":0}"#, "ttl_seconds", "between 1 and 316224000"),
            (
                r#"{"events":[{"key":"ok"}],"ttl_seconds":316224001}"#,
                "ttl_seconds",
                "between 1 and 316224000",
            ),
            (r#"{"events":[{"key":"ok"}],"ttl_seconds":1.5}"#, "ttl_seconds", "whole number"),
            (r#"{"events":[{"key":"ok"}],"ttl_seconds":"6h"}"#, "ttl_seconds", "whole number"),
            (
                r#"{"events":[{"key":"ok"}],"ttl_seconds":99999999999999999999999}"#,
                "ttl_seconds",
                "whole number",
            ),
        ],
    );
    assert!(check_one(&claims, "ok").0, "valid events of a refused request must not be marked");
}

#[test]
fn more_than_ten_thousand_events_are_refused() {
    let (_dir, claims) = serving();
    let events: Vec<_> = (0..10_001).map(|number| json!({"key": format!("E{number}")})).collect();
    let body = json!({ "events": events }).to_string();
    assert_refused(
        &claims,
        CHECK,
        &[(&body, "events", "events has 10001 entries; at most 10000 are allowed")],
    );
}

#[test]
fn oversized_or_non_json_body_is_refused() {
    let (_dir, claims) = serving();
    let large = format!(r#"{{"events":[{{"key":"ok"}}],"x":"{}"}}"#, "x".repeat(32 << 20));
    let response = claims.post(CHECK, &large);
    assert_eq!((response.status, response.problem().as_str()), (413, "body-too-large"));
    assert!(response.text().contains("33554432 bytes"), "{}", response.text());
    for kind in
        [&[][..], &[("content-type", "text/plain")], &[("content-type", "application/x-www-form-urlencoded")]]
    {
        let response = claims.call("POST", CHECK, kind, r#"{"events":[{"key":"ok"}]}"#);
        assert_eq!((response.status, response.problem().as_str()), (415, "invalid"), "{kind:?}");
    }
    let response = claims.get(CHECK);
    assert_eq!((response.status, response.problem().as_str()), (405, "no-such-method"));
    assert_nothing_stored(&claims);
}

/// The truncated body is a complete JSON document, and still marks nothing.
#[test]
fn incomplete_upload_marks_nothing() {
    let (_dir, claims) = serving();
    let mut caller = connect(claims.address).unwrap();
    let body = r#"{"events":[{"key":"ok"}]}"#;
    let head = format!(
        "POST {CHECK} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        claims.address,
        body.len() + 1
    );
    caller.write_all(head.as_bytes()).unwrap();
    caller.shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    let _ = caller.read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains("200 OK"), "{rest:?}");
    assert_nothing_stored(&claims);
}

#[test]
fn invalid_claims_are_refused_with_the_field() {
    let (_dir, claims) = serving();
    let long = format!(r#"{{"key":"{}"}}"#, "k".repeat(1025));
    let fingerprint = format!(r#"{{"key":"K","fingerprint":"{}"}}"#, "f".repeat(1025));
    assert_refused(
        &claims,
        "/v1/claims",
        &[
            ("{", "", "not valid JSON"),
            (r#"["K",null,null,null,null,null]"#, "", "expected an object"),
            ("{}", "key", "is missing"),
            (r#"{"key":""}"#, "key", "key is empty"),
            (&long, "key", "is 1025 bytes"),
            (r#"{"key":"K","fingerprint":""}"#, "fingerprint", "is empty"),
            (&fingerprint, "fingerprint", "is 1025 bytes"),
            (r#"{"key":"K","lease_ms":0}"#, "lease_ms", "between 1 and 3600000"),
            (r#"{"key":"K","lease_ms":3600001}"#, "lease_ms", "between 1 and 3600000"),
            (r#"{"key":"K","lease_ms":-5}"#, "lease_ms", "whole number"),
            (r#"{"key":"K","retention_seconds":0}"#, "retention_seconds", "between 1 and 316224000"),
            (r#"{"key":"K","metadata":{"event_key":"x"}}"#, "metadata", "reserved"),
            (r#"{"key":"K","nonce":""}"#, "nonce", "is empty"),
            (r#"{"key":"K","tenant":"t"}"#, "tenant", "unknown field"),
        ],
    );
    let token = "0".repeat(32);
    let reason = format!(r#"{{"key":"K","token":"{token}","reason":"{}"}}"#, "r".repeat(1025));
    let outcome = format!(r#"{{"key":"K","token":"{token}","outcome":"{}"}}"#, "x".repeat(16 << 20));
    for (verb, body, field, expected) in [
        ("renew", r#"{"key":"K"}"#, "token", "is missing"),
        ("renew", r#"{"key":"K","token":"s3cret"}"#, "token", "must be 32 hexadecimal digits"),
        ("release", r#"{"key":"K","token":"s3cret","force":true}"#, "force", "unknown field"),
        ("complete", &format!(r#"{{"key":"K","token":"{token}"}}"#), "outcome", "is missing"),
        ("complete", &outcome, "outcome", "at most 16777216 are allowed"),
        ("doubt", &format!(r#"{{"key":"K","token":"{token}"}}"#), "reason", "is missing"),
        ("doubt", &format!(r#"{{"key":"K","token":"{token}","reason":""}}"#), "reason", "is empty"),
        ("doubt", &reason, "reason", "is 1025 bytes"),
    ] {
        assert_refused(&claims, &format!("/v1/claims/{verb}"), &[(body, field, expected)]);
    }
    assert!(!claims.stderr().contains("s3cret"));
    let stale = claims.post("/v1/claims/renew", &format!(r#"{{"key":"K","token":"{token}"}}"#));
    assert_eq!(
        (stale.status, stale.problem().as_str(), &stale.json()["state"]),
        (409, "stale-token", &json!("absent"))
    );
}

#[test]
fn requests_without_the_admin_token_mark_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Serving::claims(dir.path(), "memory:", Some("s3cret"));
    for path in [CHECK, "/v1/claims", "/v1/claims/complete"] {
        let response = claims.post(path, r#"{"events":[{"key":"E"}]}"#);
        assert_eq!((response.status, response.problem().as_str()), (401, "token-refused"), "{path}");
    }
    let fields = [("content-type", "application/json"), ("authorization", "Bearer s3cret")];
    let response = claims.call("POST", CHECK, &fields, r#"{"events":[{"key":"E"}]}"#);
    assert_eq!(response.json()["results"][0]["is_new"], true);
}

#[test]
fn full_ledger_is_reported_and_marks_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Serving::claims(dir.path(), "memory:?bound=2", None);
    assert!(check_one(&claims, "1").0 && check_one(&claims, "2").0);
    let response = claims.post(CHECK, r#"{"events":[{"key":"3"}]}"#);
    assert_eq!((response.status, response.problem().as_str()), (503, "ledger-unavailable"), "{response:?}");
    assert_eq!(response.header("retry-after"), Some("1"), "{response:?}");
    assert!(response.text().contains("full"), "{}", response.text());
    assert!(!check_one(&claims, "1").0);
}
