//! Two-phase claims: granted, renewed by their callers, and completed, released or declared in doubt.

use std::time::Duration;

use serde_json::{Value, json};

use super::{claim, granted, update_claim};
use crate::ok;
use crate::serving::Serving;
use ichido_testkit::http_client::Response;
use ichido_testkit::wait::eventually;

fn on_each_local_ledger(test: impl Fn(&Serving)) {
    for ledger in ["memory:", "file:ledger"] {
        let dir = tempfile::tempdir().unwrap();
        test(&Serving::claims(dir.path(), ledger, None));
    }
}

fn problem(response: &Response, status: u16, kind: &str) -> Value {
    assert_eq!((response.status, response.problem().as_str()), (status, kind), "{response:?}");
    response.json()
}

#[test]
fn claim_is_granted_once_and_its_outcome_is_kept_as_written() {
    on_each_local_ledger(|claims| {
        let first = claim(claims, json!({"key": "K", "metadata": {"by": "test"}}));
        let grant = first.json();
        let token = grant["token"].as_str().unwrap().to_owned();
        assert_eq!(first.status, 201, "{first:?}");
        assert_eq!(grant, json!({"state": "granted", "token": token, "attempt": 1, "lease_ms": 30000}));

        let held = claim(claims, json!({"key": "K"}));
        let body = problem(&held, 409, "in-flight");
        assert_eq!(body["state"], "running");
        let seconds: u64 = held.header("retry-after").unwrap().parse().unwrap();
        // `Retry-After` says when to retry; `retry_after_ms` is how long the lease is still valid.
        assert!((1..=5).contains(&seconds), "{held:?}");
        assert!((5_001..=30_000).contains(&body["retry_after_ms"].as_u64().unwrap()), "{body}");

        let outcome = r#"{"b": 12345678901234567890123, "a": [1.0, null, "\u30ad"]}"#;
        let body = format!(r#"{{"key":"K","token":"{token}","outcome":{outcome}}}"#);
        let done = claims.post("/v1/claims/complete", &body);
        assert_eq!((done.status, done.text().as_str()), (200, r#"{"state":"done"}"#));
        let replay = claim(claims, json!({"key": "K"}));
        assert_eq!(
            (replay.status, replay.text()),
            (200, format!(r#"{{"state":"done","outcome":{outcome}}}"#))
        );

        // The holder retries a completion whose response was lost: the first outcome stays.
        assert_eq!(
            update_claim(claims, "complete", json!({"key": "K", "token": token, "outcome": 2})).status,
            200
        );
        assert!(claim(claims, json!({"key": "K"})).text().contains(outcome));
        let late = problem(
            &update_claim(claims, "release", json!({"key": "K", "token": token})),
            409,
            "stale-token",
        );
        assert_eq!((&late["state"], &late["outcome"]["a"][0]), (&json!("done"), &json!(1.0)));
        let shown = claims.get("/v1/claims/one?key=K").json();
        assert_eq!(
            (&shown["tenant"], &shown["route"], &shown["holder"]),
            (&json!(""), &json!("/v1/claims"), &json!("remote"))
        );
        assert_eq!(shown["metadata"], json!({"by": "test"}));
    });
}

#[test]
fn different_fingerprint_is_key_reuse() {
    on_each_local_ledger(|claims| {
        let claim_key = |fingerprint: Value| claim(claims, json!({"key": "K", "fingerprint": fingerprint}));
        let token = claim_key("body-1".into()).json()["token"].clone();
        problem(&claim_key("body-2".into()), 422, "key-reused");
        problem(&claim_key(Value::Null), 422, "key-reused");
        problem(&claim_key("body-1".into()), 409, "in-flight");
        assert_eq!(
            update_claim(claims, "complete", json!({"key": "K", "token": token, "outcome": null})).status,
            200
        );
        let done = claim_key("body-1".into());
        assert_eq!((done.status, done.text().as_str()), (200, r#"{"state":"done","outcome":null}"#));
        problem(&claim_key("body-2".into()), 422, "key-reused");
    });
}

#[test]
fn retry_with_the_same_nonce_gets_the_same_token() {
    on_each_local_ledger(|claims| {
        let claim_key = |nonce: &str| claim(claims, json!({"key": "K", "nonce": nonce, "lease_ms": 600_000}));
        let first = claim_key("call-1").json();
        let again = claim_key("call-1");
        assert_eq!((again.status, &again.json()["token"]), (201, &first["token"]));
        problem(&claim_key("call-2"), 409, "in-flight");
    });
}

#[test]
fn released_key_is_free_and_its_old_token_is_stale() {
    on_each_local_ledger(|claims| {
        let old = granted(claims, json!({"key": "K"}));
        let released = update_claim(claims, "release", json!({"key": "K", "token": old}));
        assert_eq!((released.status, released.text().as_str()), (200, r#"{"state":"released"}"#));
        let gone = update_claim(claims, "renew", json!({"key": "K", "token": old}));
        assert_eq!(problem(&gone, 409, "stale-token")["state"], "absent");
        let new = granted(claims, json!({"key": "K"}));
        assert_ne!(old, new);
        for (verb, body) in [
            ("renew", json!({"key": "K", "token": old})),
            ("complete", json!({"key": "K", "token": old, "outcome": 1})),
            ("release", json!({"key": "K", "token": old})),
            ("doubt", json!({"key": "K", "token": old, "reason": "?"})),
        ] {
            assert_eq!(
                problem(&update_claim(claims, verb, body), 409, "stale-token")["state"],
                "running",
                "{verb}"
            );
        }
        // The former holder gets the outcome of the new one.
        assert_eq!(
            update_claim(claims, "complete", json!({"key": "K", "token": new, "outcome": {"id": 17}})).status,
            200
        );
        let zombie =
            update_claim(claims, "complete", json!({"key": "K", "token": old, "outcome": {"id": 18}}));
        let problem_body = problem(&zombie, 409, "stale-token");
        assert_eq!((&problem_body["state"], &problem_body["outcome"]), (&json!("done"), &json!({"id": 17})));
    });
}

#[test]
fn claim_stays_in_doubt_until_it_is_resolved() {
    on_each_local_ledger(|claims| {
        let token = granted(claims, json!({"key": "K"}));
        let doubted = update_claim(
            claims,
            "doubt",
            json!({"key": "K", "token": token, "reason": "the connection broke"}),
        );
        assert_eq!((doubted.status, doubted.text().as_str()), (200, r#"{"state":"in-doubt"}"#));
        let body = problem(&claim(claims, json!({"key": "K"})), 409, "in-doubt");
        assert_eq!(body["doubt_reason"], "the connection broke");
        assert!(body["doubt_since"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
        // The holder may still complete a claim in doubt.
        assert_eq!(
            update_claim(claims, "complete", json!({"key": "K", "token": token, "outcome": "x"})).status,
            200
        );
        assert_eq!(claim(claims, json!({"key": "K"})).json()["outcome"], "x");

        let token = granted(claims, json!({"key": "L"}));
        assert_eq!(
            update_claim(claims, "doubt", json!({"key": "L", "token": token, "reason": "?"})).status,
            200
        );
        assert_eq!(
            update_claim(claims, "resolve", json!({"key": "L", "as": "done", "outcome_text": "by hand"}))
                .status,
            200
        );
        assert_eq!(claim(claims, json!({"key": "L"})).json()["outcome"], "by hand");

        let token = granted(claims, json!({"key": "M"}));
        assert_eq!(
            update_claim(claims, "doubt", json!({"key": "M", "token": token, "reason": "?"})).status,
            200
        );
        assert_eq!(update_claim(claims, "resolve", json!({"key": "M", "as": "done"})).status, 200);
        let done = claim(claims, json!({"key": "M"})).json();
        assert_eq!(
            done,
            json!({"state": "done", "outcome": null, "outcome_not_kept": "resolved by an operator"})
        );
    });
}

/// Only the caller renews: the claim is in doubt as soon as its lease lapses, and the caller may still renew it.
#[test]
fn only_the_caller_renews_a_lease() {
    on_each_local_ledger(|claims| {
        let token = granted(claims, json!({"key": "K", "lease_ms": 200}));
        let listed = |state: &str| {
            let page = claims.get(&format!("/v1/claims?state={state}&prefix=K")).json();
            page["claims"].as_array().unwrap().len()
        };
        eventually("the end of the lease", || (listed("in-doubt") == 1).then_some(()));
        assert_eq!(
            problem(&claim(claims, json!({"key": "K"})), 409, "in-doubt")["doubt_reason"],
            "the lease lapsed"
        );
        let renewed = update_claim(claims, "renew", json!({"key": "K", "token": token, "lease_ms": 600_000}));
        assert_eq!(
            (renewed.status, renewed.text().as_str()),
            (200, r#"{"state":"running","lease_ms":600000}"#)
        );
        std::thread::sleep(Duration::from_millis(250));
        assert_eq!((listed("running"), listed("in-doubt")), (1, 0));
        problem(&claim(claims, json!({"key": "K"})), 409, "in-flight");
    });
}

#[test]
fn outcome_expires_after_its_retention() {
    on_each_local_ledger(|claims| {
        let token = granted(claims, json!({"key": "K", "retention_seconds": 1}));
        assert_eq!(
            update_claim(claims, "complete", json!({"key": "K", "token": token, "outcome": 1})).status,
            200
        );
        eventually("the end of its retention", || {
            (claim(claims, json!({"key": "K"})).status == 201).then_some(())
        });
    });
}

/// The instance that granted the claim crashes; the caller survives and finds its claim unchanged.
#[test]
fn claim_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut claims = Serving::claims(dir.path(), "file:ledger", None);
    let token = granted(&claims, json!({"key": "K", "lease_ms": 600_000}));
    claims.kill();
    let claims = Serving::claims(dir.path(), "file:ledger", None);
    problem(&claim(&claims, json!({"key": "K"})), 409, "in-flight");
    assert_eq!(update_claim(&claims, "renew", json!({"key": "K", "token": token})).status, 200);
    assert_eq!(
        update_claim(&claims, "complete", json!({"key": "K", "token": token, "outcome": "kept"})).status,
        200
    );
    drop(claims);
    let shown = ok(dir.path(), &["ledger", "show", "K", "--ledger", "file:ledger"]);
    assert!(shown.contains("kept") && shown.contains("/v1/claims"), "{shown}");
}

/// Outcomes may have up to 16 MiB, which is more than an operator may send.
#[test]
fn large_outcome_is_kept() {
    on_each_local_ledger(|claims| {
        let token = granted(claims, json!({"key": "K"}));
        let outcome = "x".repeat(3 << 20);
        assert_eq!(
            update_claim(claims, "complete", json!({"key": "K", "token": token, "outcome": outcome})).status,
            200
        );
        assert_eq!(claim(claims, json!({"key": "K"})).json()["outcome"], outcome);
    });
}
