//! `ichido events …` and the operators' part of the event API, on the embedded ledger, on servers, and through the process that
//! holds the ledger.

use ichido_core::{MarkKey, Metadata, mark};
use ichido_ledger::{Settings, open};
use ichido_testkit::ledger_server::unique;
use ichido_testkit::required_env;
use ichido_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::serving::Serving;
use crate::{json, ok, refused, run, stderr};

/// Marks two events under a prefix, and one that is not.
async fn fill(url: &str, prefix: &str) {
    let ledger = open(url, Settings::default()).await.unwrap();
    let metadata = [("file_id", "F1"), ("lambda_instance_id", "bot-1")];
    let metadata = metadata.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let metadata = Metadata::new(metadata).unwrap();
    let keys = [format!("{prefix}1"), format!("{prefix}2 \u{202e}キー"), format!("other-{}", unique())];
    let requests = keys.map(|key| {
        let request = ledger.mark_request(MarkKey::new(key).unwrap());
        mark::Request { metadata: metadata.clone(), ..request }
    });
    ledger.mark(&requests).await.unwrap();
    ledger.close().await.unwrap();
}

/// Runs the commands on a ledger that was [filled](fill).
fn operate(url: &str, prefix: &str) {
    let dir = tempfile::tempdir().unwrap();
    let with = |args: &[&str]| -> Vec<String> {
        let all = [&["events"], args, &["--ledger", url]].concat();
        all.into_iter().map(ToOwned::to_owned).collect()
    };
    let ok = |args: &[&str]| ok(dir.path(), &with(args).iter().map(String::as_str).collect::<Vec<_>>());
    let json = |args: &[&str]| json(dir.path(), &with(args).iter().map(String::as_str).collect::<Vec<_>>());
    let refused = |args: &[&str], code| {
        refused(dir.path(), &with(args).iter().map(String::as_str).collect::<Vec<_>>(), code)
    };
    let key = format!("{prefix}1");

    let listed = json(&["list", "--prefix", prefix, "--json"]);
    assert_eq!(listed["events"].as_array().unwrap().len(), 2, "{listed}");
    assert!(!listed.to_string().contains("nonce"), "{listed}");
    let table = ok(&["list", "--prefix", prefix]);
    assert!(table.contains("bot-1") && table.contains("2 events"), "{table}");
    assert!(table.contains("\\u{202e}") && !table.contains('\u{202e}'), "{table}");
    let first = ok(&["list", "--prefix", prefix, "--limit", "1"]);
    assert!(first.contains("--cursor"), "{first}");

    let shown = json(&["show", &key, "--json"]);
    assert_eq!((&shown["key"], &shown["metadata"]["file_id"]), (&json!(key), &json!("F1")));
    assert!(shown["first_seen"].as_u64() < shown["expires_at"].as_u64(), "{shown}");
    assert!(ok(&["show", &key]).contains("bot-1"));
    assert!(refused(&["show", "none"], 1).contains("no event has the key \"none\""));

    let unconfirmed = refused(&["forget", &key], 2);
    for text in ["processed again", "every instance", "--yes"] {
        assert!(unconfirmed.contains(text), "{unconfirmed}");
    }
    assert!(refused(&["forget", "none"], 1).contains("no event has the key"));
    assert!(ok(&["forget", &key, "--yes", "--reason", "lost"]).contains("forgotten"));
    for args in [&["show", &key][..], &["forget", &key, "--yes"]] {
        assert!(refused(args, 1).contains("no event has the key"));
    }
    assert_eq!(json(&["list", "--prefix", prefix, "--json"])["events"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_work_on_the_embedded_ledger_and_through_its_holder() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file:{}", dir.path().join("ledger").display());
    fill(&url, "a-").await;
    fill(&url, "b-").await;
    operate(&url, "a-");
    let claims = Serving::claims(dir.path(), &url, None);
    operate(&url, "b-");
    claims.says("forget event");
    drop(claims);
    let absent = dir.path().join("absent");
    let line = refused(dir.path(), &["events", "list", "--ledger", &format!("file:{}", absent.display())], 2);
    assert!(line.contains("there is no ledger") && !absent.exists(), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_work_on_servers() {
    for name in ["ICHIDO_TEST_POSTGRES_URL", "ICHIDO_TEST_REDIS_URL"] {
        let (url, prefix) = (required_env(name), format!("events-{}-", unique()));
        fill(&url, &prefix).await;
        operate(&url, &prefix);
    }
}

#[test]
fn completed_claim_is_forgotten_only_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    for reason in [&[][..], &["--reason", ""]] {
        let output = run(dir.path(), &[&["ledger", "forget", "k", "--yes"], reason].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("--reason <TEXT>"), "{}", stderr(&output));
    }
}

/// The API forgets an event and a completed claim, and the audit log says who did so, and why.
#[test]
fn forgetting_through_the_api_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let serving = Serving::claims_with(
        dir.path(),
        "file:data/ledger",
        &[("ICHIDO_ADMIN_TOKENS", "alice=t0ken-alice-t0ken,bob:read=t0ken-bob-t0ken")],
    );
    let call = |token: &str, method: &str, path: &str, body: Value| {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let body = if method == "GET" { String::new() } else { body.to_string() };
        serving.call(method, path, &headers, &body)
    };
    let alice = |method: &str, path: &str, body: Value| call("t0ken-alice-t0ken", method, path, body);
    let check = || {
        let checked = alice("POST", "/v1/events/check", json!({ "events": [{ "key": "Ev1" }] })).json();
        checked["results"][0]["is_new"].as_bool().unwrap()
    };
    assert!(check() && !check());
    let listed = alice("GET", "/v1/events?prefix=Ev", Value::Null).json();
    assert_eq!(listed["events"][0]["key"], "Ev1", "{listed}");
    assert_eq!(alice("GET", "/v1/events/one?key=none", Value::Null).status, 404);
    let forget = json!({ "key": "Ev1", "reason": "the file was lost" });
    assert_eq!(call("t0ken-bob-t0ken", "POST", "/v1/events/forget", forget.clone()).status, 403);
    assert_eq!(alice("POST", "/v1/events/forget", json!({ "key": "Ev1", "reason": "" })).status, 422);
    let forgotten = alice("POST", "/v1/events/forget", forget);
    assert_eq!((forgotten.status, &forgotten.json()["key"]), (200, &json!("Ev1")), "{}", forgotten.text());
    assert_eq!(alice("POST", "/v1/events/forget", json!({ "key": "Ev1" })).status, 404);
    assert!(check(), "it is new again");

    let granted = alice("POST", "/v1/claims", json!({ "key": "order" })).json();
    let forget = json!({ "key": "order", "reason": "it answered 200 and did nothing" });
    let open = alice("POST", "/v1/claims/forget", forget.clone());
    assert!(open.status == 409 && open.text().contains("resolve it"), "{}", open.text());
    let done = json!({ "key": "order", "token": granted["token"], "outcome": 1 });
    assert_eq!(alice("POST", "/v1/claims/complete", done).status, 200);
    assert_eq!(alice("POST", "/v1/claims", json!({ "key": "order" })).status, 200);
    let forgotten = alice("POST", "/v1/claims/forget", forget);
    assert_eq!(forgotten.json()["state"], "forgotten", "{}", forgotten.text());
    assert_eq!(alice("POST", "/v1/claims", json!({ "key": "order" })).status, 201, "it runs again");
    drop(serving);

    let entries = json(dir.path(), &["audit", "list", "--json", "--action", "forget"])["entries"].clone();
    let line = |entry: &Value| {
        let names = ["who", "step", "action", "before", "after", "result", "reason"];
        names.map(|name| entry[name].as_str().unwrap_or("-").to_owned()).join(" | ")
    };
    let lines: Vec<_> = entries.as_array().unwrap().iter().map(line).collect();
    let expected = [
        "alice | intent | forget event | marked | - | - | the file was lost",
        "alice | result | forget event | marked | forgotten | applied | the file was lost",
        "alice | event | forget event | - | - | no-such-event | -",
        "alice | intent | forget | running | - | - | it answered 200 and did nothing",
        "alice | result | forget | running | running | claim-not-completed | it answered 200 and did nothing",
        "alice | intent | forget | done | - | - | it answered 200 and did nothing",
        "alice | result | forget | done | forgotten | applied | it answered 200 and did nothing",
    ];
    assert_eq!(lines, expected);
    assert!(ok(dir.path(), &["audit", "list"]).contains("the file was lost"));
}

/// Repeats, and what an operator did, are found in the history that the process left behind.
#[test]
fn history_tells_what_happened_to_a_key() {
    let dir = tempfile::tempdir().unwrap();
    let nothing = refused(dir.path(), &["events", "history"], 2);
    assert!(nothing.contains("nothing was recorded") && nothing.contains("data/history"), "{nothing}");
    let serving = Serving::claims(dir.path(), "file:ledger", None);
    let event = |key: &str| json!({ "key": key, "metadata": { "channel_id": "=C1" } });
    for _ in 0..3 {
        let body = json!({ "events": [event("Ev1")] }).to_string();
        assert_eq!(serving.post("/v1/events/check", &body).status, 200);
    }
    let granted = serving.post("/v1/claims", &json!({ "key": "order" }).to_string()).json();
    let doubt = json!({ "key": "order", "token": granted["token"], "reason": "the shop timed out" });
    assert_eq!(serving.post("/v1/claims/doubt", &doubt.to_string()).status, 200);
    let resolve = ["ledger", "resolve", "order", "--as", "absent", "--ledger", "file:ledger"];
    ok(dir.path(), &resolve);
    eventually("the last decision is written", || {
        let found = run(dir.path(), &["events", "timeline", "order", "--json"]);
        let found: Value = serde_json::from_slice(&found.stdout).ok()?;
        (found["timeline"].as_array()?.len() == 3).then_some(())
    });
    let shown = serving.get("/v1/events/one?key=Ev1").json();
    assert_eq!(shown["repeats"], json!({ "count": 2, "is_complete": true }), "{shown}");
    assert!(ok(dir.path(), &["events", "show", "Ev1", "--ledger", "file:ledger"]).contains("repeats"));
    let api = |query: &str| serving.get(&format!("/v1/history/timeline?{query}"));
    let found = api("find=order").json()["timeline"].clone();
    // The same through the admin port, from anywhere.
    let (elsewhere, address) = (tempfile::tempdir().unwrap(), serving.address.to_string());
    let remote = json(elsewhere.path(), &["events", "timeline", "order", "--admin", &address, "--json"]);
    assert_eq!(remote["timeline"], found);
    let line = crate::refused(elsewhere.path(), &["events", "timeline", "none", "--admin", &address], 1);
    assert!(line.contains("nothing was recorded about"), "{line}");
    let resolved = found[2]["detail"].as_str().unwrap();
    assert!(resolved.starts_with("by ") && resolved.len() > 3, "{found}");
    let hash = found[0]["hash"].as_str().unwrap();
    for query in [format!("find={hash}"), format!("find={hash}&by=hash"), "find=order&by=key".to_owned()] {
        assert_eq!(api(&query).json()["timeline"], found, "{query}");
    }
    for query in ["find=none", "find=order&by=hash", "find=order&by=request_id"] {
        assert_eq!(api(query).json()["timeline"], json!([]), "{query}");
    }
    for (query, problem) in [("", "find"), ("find=a&by=colour", "colour"), ("find=a&key=b", "key")] {
        let refused = api(query);
        assert!(refused.status == 400 && refused.text().contains(problem), "{query}: {}", refused.text());
    }
    drop(serving);

    let timeline = |key: &str| {
        let found = json(dir.path(), &["events", "timeline", key, "--json"])["timeline"].clone();
        let results =
            found.as_array().unwrap().iter().map(|entry| entry["result"].as_str().unwrap().to_owned());
        (results.collect::<Vec<_>>(), found)
    };
    let (results, entries) = timeline("Ev1");
    assert_eq!(results, ["new", "duplicate", "duplicate"]);
    let hash = entries[0]["hash"].as_str().unwrap().to_owned();
    assert_eq!(timeline(&hash).0, results, "by the hash");
    let (results, entries) = timeline("order");
    assert_eq!(results, ["granted", "declared-in-doubt", "resolved-as-absent"]);
    assert_eq!(entries[1]["detail"], "the shop timed out");
    assert!(ok(dir.path(), &["events", "timeline", "Ev1"]).contains("2 repeats"));
    assert!(refused(dir.path(), &["events", "timeline", "none"], 1).contains("nothing was recorded about"));

    let counts = ok(dir.path(), &["events", "history", "--by", "source", "--csv"]);
    assert!(counts.contains("'=C1,duplicate,2,0,"), "{counts}");
    assert!(ok(dir.path(), &["events", "history"]).contains("6 decisions in 7 days"));
    std::fs::write(dir.path().join("ichido.toml"), "[history]\ndir = \"off\"\n").unwrap();
    assert!(refused(dir.path(), &["events", "history"], 2).contains("--dir"));
    let serving = Serving::claims(dir.path(), "file:ledger", None);
    assert_eq!(serving.get("/v1/events/one?key=Ev1").json()["repeats"], Value::Null, "nobody knows");
    let off = serving.get("/v1/history/timeline?find=Ev1");
    assert!(off.status == 503 && off.text().contains("history.dir"), "{}", off.text());
    assert!(!serving.get("/").text().contains("/history"), "the console has no history");
}

/// Two instances have directories of their own. One of them reads both.
#[test]
fn histories_of_several_instances_are_merged() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let settings = format!("[history]\nmerge = [{:?}]\n", two.path().join("data/history"));
    std::fs::write(one.path().join("ichido.toml"), settings).unwrap();
    let ledger = format!("file:{}", two.path().join("ledger").display());
    let body = json!({ "events": [{ "key": "Ev1" }] }).to_string();
    for dir in [&two, &one] {
        let mut serving = Serving::claims(dir.path(), &ledger, None);
        assert_eq!(serving.post("/v1/events/check", &body).status, 200);
        eventually("the decision is written", || {
            let found = serving.get("/v1/history/timeline?find=Ev1").json()["timeline"].clone();
            (!found.as_array()?.is_empty()).then_some(())
        });
        serving.signal();
        assert_eq!(serving.exit_code(), 0);
    }
    let show =
        |dir: &tempfile::TempDir| json(dir.path(), &["events", "show", "Ev1", "--json", "--ledger", &ledger]);
    assert_eq!(show(&one)["repeats"], json!({ "count": 1, "is_complete": true }));
    assert_eq!(show(&two)["repeats"], json!({ "count": 0, "is_complete": true }));
    let alone = ["events", "show", "Ev1", "--ledger", &ledger];
    let other = tempfile::tempdir().unwrap();
    assert!(ok(other.path(), &alone).contains("unknown"), "nothing was recorded there");
}
