//! Event checks: an event is new once.

use serde_json::{Value, json};

use super::{CHECK, check, check_one, claim};
use crate::serving::Serving;
use crate::support::Gateway;
use ichido_testkit::http_client::{get, send};
use ichido_testkit::orders::Orders;
use ichido_testkit::wait::eventually;

/// Runs a test on the ledgers that need no server.
fn on_each_local_ledger(test: impl Fn(&Serving)) {
    for ledger in ["memory:", "file:ledger"] {
        let dir = tempfile::tempdir().unwrap();
        test(&Serving::claims(dir.path(), ledger, None));
    }
}

#[test]
fn event_is_new_once_and_duplicates_report_the_first() {
    on_each_local_ledger(|claims| {
        let first =
            claims.post(CHECK, r#"{"events":[{"key":"E1","metadata":{"file_id":"F1","user_id":"U\n1"}}]}"#);
        assert_eq!(
            (first.status, first.text().as_str()),
            (200, r#"{"results":[{"key":"E1","is_new":true,"degraded":false}]}"#)
        );
        assert!(first.header("content-type").unwrap().starts_with("application/json"), "{first:?}");
        let mut again = check(claims, json!([{"key": "E1", "metadata": {"file_id": "other"}}])).remove(0);
        let seen = again["first_seen"].take();
        let seen: jiff::Timestamp = seen.as_str().unwrap().parse().unwrap();
        let age = jiff::Timestamp::now().duration_since(seen).as_secs();
        assert!((0..60).contains(&age), "{seen}");
        assert_eq!(
            again,
            json!({"key": "E1", "is_new": false, "reason": "Already processed by another instance", "first_seen": null,
                "metadata": {"file_id": "F1", "user_id": "U\n1"}, "degraded": false})
        );
        assert_eq!(check(claims, json!([])), Vec::<Value>::new());
    });
}

#[test]
fn duplicate_within_a_batch_is_detected_and_results_are_in_order() {
    on_each_local_ledger(|claims| {
        let keys = ["b", "a", "b", "キー", "a\"\u{1}", "b"];
        let results =
            check(claims, keys.iter().map(|key| json!({"key": key, "metadata": {"n": *key}})).collect());
        let fields = |field: &str| results.iter().map(|result| result[field].clone()).collect::<Vec<_>>();
        assert_eq!(fields("key"), keys.map(Value::from));
        assert_eq!(fields("is_new"), [true, true, false, true, true, false].map(Value::from));
        assert_eq!(results[2]["metadata"], json!({"n": "b"}));
    });
}

#[test]
fn the_same_content_under_two_keys_is_reported_or_refused() {
    on_each_local_ledger(|claims| {
        let post = |body: Value| claims.post(CHECK, &body.to_string());
        let event = |key: &str| json!({"key": key, "content": {"file": "F1", "user": key}});
        assert_eq!(check(claims, json!([event("E1")]))[0]["is_new"], true);
        let observed = check(claims, json!([event("E2")])).remove(0);
        assert_eq!(
            (&observed["is_new"], &observed["content_hits"][0]["event"]),
            (&json!(true), &json!("E1"))
        );
        assert_eq!(observed["content_hits"][0]["name"], "file");
        let enforced = post(json!({"events": [event("E3"), event("E1")], "content_mode": "enforce"})).json();
        let results = &enforced["results"];
        assert_eq!((&results[0]["is_new"], &results[1]["is_new"]), (&json!(false), &json!(false)));
        assert_eq!(results[0]["reason"], "Same content as another event");
        assert_eq!(results[1]["reason"], "Already processed by another instance");
        assert_eq!(check(claims, json!([{"key": "E3"}]))[0]["is_new"], true, "its key was not marked");
        for (body, field) in [
            (json!({"events": [{"key": "k", "content": {"file": ""}}]}), "events[0].content"),
            (json!({"events": [{"key": "k", "content": {"": "F1"}}]}), "events[0].content"),
            (json!({"events": [{"key": "k", "content": {"file": 1}}]}), "events[0].content"),
            (json!({"events": [], "content_mode": "block"}), "content_mode"),
        ] {
            let refused = post(body);
            let named = refused.json()["field"].as_str().unwrap_or_default().to_owned();
            assert!(refused.status == 400 && named.starts_with(field), "{refused:?}");
        }
    });
}

#[test]
fn similar_texts_are_found_if_the_settings_say_so() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("ichido.toml"),
        "[claims]\nsimilar = { fields = [\"/text\"], threshold = 0.8, window = \"10m\", mode = \"enforce\" }\n",
    )
    .unwrap();
    let claims = Serving::claims(dir.path(), "memory:", None);
    let event =
        |key: &str, text: &str| check(&claims, json!([{"key": key, "content": {"text": text}}])).remove(0);
    let text = "請求書の支払いが完了しました。ご利用いただきありがとうございます。";
    assert_eq!(event("E1", text), json!({"key": "E1", "is_new": true, "degraded": false}));
    let near = event("E2", &format!("{text}!"));
    assert_eq!((&near["is_new"], &near["reason"]), (&json!(false), &json!("Similar to another event")));
    assert_eq!(near["similar_to"]["event"], "E1");
    assert!(near["similar_to"]["score"].as_f64().unwrap() > 0.8, "{near}");
    assert_eq!(event("E3", "サーバーの再起動を予定しています。ご注意ください。")["is_new"], true);
}

/// Without a nonce, a caller that retries after a lost response would be told that its own event is a duplicate.
#[test]
fn retry_with_the_same_nonce_is_new_again() {
    on_each_local_ledger(|claims| {
        let is_new = |nonce: Value| check(claims, json!([{"key": "E", "nonce": nonce}]))[0]["is_new"].clone();
        assert_eq!(is_new("call-1".into()), true);
        assert_eq!(is_new("call-1".into()), true, "the first response may have been lost");
        assert_eq!(is_new("call-2".into()), false);
        assert_eq!(is_new(Value::Null), false);
        assert_eq!(is_new("call-1".into()), true);
    });
}

#[test]
fn ten_thousand_events_with_metadata_fit_in_one_request() {
    on_each_local_ledger(|claims| {
        let events: Vec<_> = (0..10_000)
            .map(|number| json!({"key": format!("E{number}"), "metadata": {"note": "x".repeat(1_000)}}))
            .collect();
        let count = |wanted: bool| {
            let results = check(claims, events.clone().into());
            results.iter().filter(|result| result["is_new"] == wanted).count()
        };
        assert_eq!(count(true), 10_000);
        assert_eq!(count(false), 10_000);
        assert_eq!(claims.get("/v1/ledger/stats").json()["marks"], 10_000);
    });
}

#[test]
fn event_expires_after_its_ttl() {
    on_each_local_ledger(|claims| {
        let is_new = || {
            let response = claims.post(CHECK, r#"{"events":[{"key":"short"}],"ttl_seconds":1}"#);
            response.json()["results"][0]["is_new"].as_bool().unwrap()
        };
        assert!(is_new() && !is_new());
        eventually("the end of its TTL", || is_new().then_some(()));
        assert!(check_one(claims, "long").0 && !check_one(claims, "long").0);
    });
}

#[test]
fn events_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut claims = Serving::claims(dir.path(), "file:ledger", None);
    assert!(check_one(&claims, "E").0);
    claims.kill();
    let mut claims = Serving::claims(dir.path(), "file:ledger", None);
    assert!(!check_one(&claims, "E").0);
    claims.signal();
    assert_eq!(claims.exit_code(), 0, "{}", claims.stderr());
}

#[test]
fn events_and_claims_have_separate_keys() {
    on_each_local_ledger(|claims| {
        assert!(check_one(claims, "same").0);
        assert_eq!(claim(claims, json!({"key": "same"})).status, 201);
        assert_eq!(check_one(claims, "other"), (true, false));
    });
}

#[test]
fn one_of_many_concurrent_callers_is_first() {
    on_each_local_ledger(|claims| {
        let keys: Vec<Value> = (0..50).map(|number| json!({"key": format!("E{number}")})).collect();
        let new: usize = std::thread::scope(|scope| {
            let callers: Vec<_> =
                (0..8).map(|_| scope.spawn(|| check(claims, keys.clone().into()))).collect();
            let results = callers.into_iter().flat_map(|caller| caller.join().unwrap());
            results.filter(|result| result["is_new"] == true).count()
        });
        assert_eq!(new, 50);
    });
}

/// Every admin port serves the API, not only that of `ichido claims`.
#[test]
fn gateway_serves_the_claim_api_on_its_admin_port() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let gateway = Gateway::start(dir.path(), orders.address, "file:ledger", "");
    let is_new = || {
        let json = [("Content-Type", "application/json")];
        send(gateway.admin, "POST", CHECK, &json, br#"{"events":[{"key":"E"}]}"#).json()["results"][0]["is_new"].clone()
    };
    assert_eq!((is_new(), is_new()), (true.into(), false.into()));
    assert_eq!(get(gateway.admin, "/openapi.json").json()["openapi"], "3.1.0");
}
