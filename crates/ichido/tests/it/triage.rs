//! Claims in doubt that are left to a person: listed oldest first, counted, and resolved together.

use std::path::Path;

use ichido_testkit::http_client::Response;
use serde_json::{Value, json};

use crate::serving::Serving;

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const PAGE: (&str, &str) = ("accept", "text/html");

/// Claims in doubt: three because of a timeout, the oldest first, and one because of a crash.
fn start(dir: &Path) -> Serving {
    let serving = Serving::claims(dir, "file:ledger", None);
    for (key, reason) in [
        ("a", "the upstream timed out"),
        ("b", "the upstream timed out"),
        ("c", "it crashed"),
        ("d", "the upstream timed out"),
    ] {
        doubt(&serving, key, reason);
    }
    serving
}

fn doubt(serving: &Serving, key: &str, reason: &str) {
    let granted = serving.post("/v1/claims", &json!({ "key": key }).to_string());
    assert_eq!(granted.status, 201, "{granted:?}");
    let body = json!({ "key": key, "token": granted.json()["token"], "reason": reason });
    assert_eq!(serving.post("/v1/claims/doubt", &body.to_string()).status, 200);
    // Claims are listed by the millisecond in which their doubt began.
    std::thread::sleep(std::time::Duration::from_millis(2));
}

fn ledger<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [&["ledger"][..], args, &["--ledger", "file:ledger"]].concat()
}

fn keys(triage: &Value) -> Vec<String> {
    let claims = triage["claims"].as_array().unwrap().iter();
    claims.map(|claim| claim["key"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn claims_in_doubt_are_counted_by_reason_and_listed_oldest_first() {
    let dir = tempfile::tempdir().unwrap();
    let serving = start(dir.path());
    let triage = crate::json(dir.path(), &ledger(&["triage", "--json"]));
    assert_eq!((triage["matched"].as_u64(), &triage["complete"]), (Some(4), &true.into()), "{triage}");
    assert_eq!(keys(&triage), ["a", "b", "c", "d"]);
    let counts: Vec<_> = triage["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| (&group["reason"], &group["count"]))
        .collect();
    assert_eq!(counts, [(&"the upstream timed out".into(), &3.into()), (&"it crashed".into(), &1.into())]);

    let filtered = |args: &[&str]| crate::json(dir.path(), &ledger(&[&["triage", "--json"], args].concat()));
    assert_eq!(keys(&filtered(&["--reason", "crash"])), ["c"]);
    assert_eq!(keys(&filtered(&["--route", "/v1/claims", "--limit", "2"])), ["a", "b"]);
    assert_eq!(filtered(&["--route", "POST /orders"])["matched"], 0);
    assert_eq!(filtered(&["--older-than", "1d"])["matched"], 0);
    assert_eq!(filtered(&["--tenant", "acme"])["matched"], 0);
    let text = crate::ok(dir.path(), &ledger(&["triage", "--reason", "nothing like this"]));
    assert!(text.contains("no claims in doubt match"), "{text}");
    let text = crate::ok(dir.path(), &ledger(&["triage", "--limit", "1"]));
    assert!(text.contains("the oldest 1 of 4 claims in doubt"), "{text}");
    drop(serving);
    // Without a process that holds the ledger, it is the same.
    assert_eq!(keys(&filtered(&["--reason", "timed out"])), ["a", "b", "d"]);
}

#[test]
fn claims_are_resolved_together_after_one_confirmation_and_audited_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let serving = start(dir.path());
    let bulk = |args: &[&'static str]| {
        ledger(&[&["resolve", "--as", "absent", "--reason", "timed out"], args].concat())
    };
    let refused = crate::run(dir.path(), &bulk(&[]));
    assert_eq!(refused.status.code(), Some(2));
    assert!(crate::stdout(&refused).contains("the upstream timed out"), "no preview: {refused:?}");
    assert!(crate::stderr(&refused).contains("--yes"), "{refused:?}");
    assert_eq!(serving.get("/v1/claims/triage").json()["matched"], 4, "nothing was done");

    let done = crate::ok(dir.path(), &bulk(&["--yes"]));
    assert!(done.contains("3 claims resolved"), "{done}");
    assert_eq!(keys(&serving.get("/v1/claims/triage").json()), ["c"]);
    assert_eq!(serving.post("/v1/claims", &json!({ "key": "a" }).to_string()).status, 201, "the key is free");

    let nothing = crate::ok(dir.path(), &bulk(&["--yes"]));
    assert!(nothing.contains("nothing was done"), "{nothing}");
    let usage = crate::refused(dir.path(), &ledger(&["resolve", "--as", "done"]), 2);
    assert!(usage.contains("name a key, or select claims"), "{usage}");
    let usage = crate::refused(dir.path(), &ledger(&["resolve", "c", "--as", "done", "--reason", "x"]), 2);
    assert!(usage.contains("without a key"), "{usage}");
    drop(serving);

    let listed = crate::ok(dir.path(), &["audit", "list", "--action", "resolve as absent", "--json"]);
    let reason = "resolved together with others (3 claims): reason \\\"timed out\\\"";
    assert_eq!(listed.matches(reason).count(), 6, "an intent and a result for each: {listed}");
}

#[test]
fn only_what_was_previewed_is_resolved() {
    let dir = tempfile::tempdir().unwrap();
    let serving = start(dir.path());
    let triage = serving.get("/v1/claims/triage?reason=timed").json();
    let seen = |claim: &Value| json!({ "key": claim["key"], "tenant": claim["tenant"], "route": claim["route"], "version": claim["version"] });
    let claims: Vec<Value> = triage["claims"].as_array().unwrap().iter().map(seen).collect();
    // Meanwhile, one of them is released, claimed again and in doubt again; and there is a new one.
    assert_eq!(serving.post("/v1/claims/resolve", r#"{"key":"b","as":"absent"}"#).status, 200);
    doubt(&serving, "b", "the upstream timed out");
    doubt(&serving, "e", "the upstream timed out");
    let body = json!({ "as": "done", "claims": claims, "reason": "checked" });
    let resolved = serving.post("/v1/claims/resolve-all", &body.to_string()).json();
    let results: Vec<_> =
        resolved["claims"].as_array().unwrap().iter().map(|claim| &claim["result"]).collect();
    assert_eq!(results, ["done", "claim-changed", "done"], "{resolved}");
    // Both became in doubt just now, perhaps within a millisecond.
    let mut left = keys(&serving.get("/v1/claims/triage?reason=timed").json());
    left.sort();
    assert_eq!(left, ["b", "e"]);
    for (body, why) in [
        (json!({ "as": "done", "claims": vec![claims[0].clone(); 1_001] }), "claims must have"),
        (json!({ "as": "gone", "claims": claims }), "gone"),
        (json!({ "as": "done", "claims": claims, "reason": "" }), "reason must have"),
    ] {
        let refused = serving.post("/v1/claims/resolve-all", &body.to_string());
        assert!(refused.status == 422 && refused.text().contains(why), "{refused:?}");
    }
    let refused = serving.post("/v1/claims/ask", r#"{"key":"b"}"#);
    assert_eq!((refused.status, refused.problem().as_str()), (409, "cannot-ask"));
}

fn field(page: &Response, name: &str) -> String {
    let page = page.text();
    let rest =
        page.split_once(&format!("name=\"{name}\" value=\"")).unwrap_or_else(|| panic!("{name}: {page}")).1;
    rest.split('"').next().unwrap().replace("&quot;", "\"").replace("&amp;", "&")
}

fn encode(fields: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

#[test]
fn console_resolves_the_claims_on_its_page() {
    let dir = tempfile::tempdir().unwrap();
    let serving = start(dir.path());
    let page = serving.call("GET", "/claims/triage?reason=timed", &[PAGE], "");
    assert!(page.text().contains("By route and reason") && page.text().contains("3 / 3"), "{}", page.text());
    let (csrf, claims) = (field(&page, "csrf"), field(&page, "claims"));
    let fields = [("csrf", csrf.as_str()), ("claims", &claims), ("as", "done"), ("reason", "by hand")];
    let confirm = serving.call("POST", "/claims/triage", &[FORM], &encode(&fields));
    assert!(confirm.text().contains("claims will be resolved"), "{}", confirm.text());
    assert_eq!(serving.get("/v1/claims/triage").json()["matched"], 4, "the confirmation changes nothing");
    doubt(&serving, "e", "the upstream timed out");
    let fields = [&fields[..], &[("confirmed", "yes")]].concat();
    let done = serving.call("POST", "/claims/triage", &[FORM], &encode(&fields));
    assert!(done.text().contains("claims were resolved"), "{}", done.text());
    assert_eq!(keys(&serving.get("/v1/claims/triage").json()), ["c", "e"]);
    let again = serving.call("POST", "/claims/triage", &[FORM], &encode(&fields));
    assert!(again.text().contains("were not resolved"), "{}", again.text());
    let empty = serving.call("GET", "/claims/triage?reason=none", &[PAGE, ("accept-language", "ja")], "");
    assert!(empty.text().contains("検索条件を変えてください"), "{}", empty.text());
}

/// The two ends are opposites: a suggestion would lead to the wrong one.
#[test]
fn mistyped_end_is_not_corrected_to_its_opposite() {
    let dir = tempfile::tempdir().unwrap();
    for mistyped in ["gone", "absnet", "dnoe"] {
        let output = crate::run(dir.path(), &["ledger", "resolve", "k", "--as", mistyped]);
        let line = crate::stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(line.contains("done") && line.contains("absent"), "{line}");
        assert!(!line.contains("similar") && !line.contains("did you mean"), "{line}");
    }
}
