//! `ichido erase`: nothing that a caller wrote is left in any file, except what the report says, and no retry runs again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ichido_core::SystemClock;
use ichido_delivery::notice::{Event, Notices};
use ichido_testkit::http_client::{get, send};
use ichido_testkit::http_server::{HttpServer, Reply};
use ichido_testkit::receiver::Reply as Received;
use ichido_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::delivery::{Fixture, Run};
use crate::meter::{Meter, record};
use crate::serving::Serving;
use crate::support::Gateway;
use crate::{json as json_of, ok, refused, run, stderr, stdout};

const USER: &str = "U0SATO";
const CHANNEL: &str = "C0INBOX";
const KEY: &str = "order-secret-17";
const FILE_SHARE: &str = include_str!("payloads/slack-file-share.json");
const SLACK: &str = "[[gateway.routes]]\npreset = \"slack-events\"\nmatch = \"POST /slack/events\"\n\
    [[gateway.routes]]\nmatch = \"POST /orders\"\n";

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

/// The files below a directory that contain a text.
fn files_with(dir: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else if std::fs::read(&path).is_ok_and(|bytes| contains(&bytes, text)) {
            found.push(path);
        }
    }
    found
}

/// What was found, erased and kept in a place.
fn counts(report: &Value, place: &str) -> (u64, u64, u64) {
    let place = report["places"].as_array().unwrap().iter().find(|one| one["place"] == place).unwrap();
    let number = |name: &str| place[name].as_u64().unwrap();
    (number("found"), number("erased"), number("kept"))
}

fn notes(report: &Value) -> String {
    let places = report["places"].as_array().unwrap().iter();
    places.flat_map(|place| place["notes"].as_array().unwrap()).map(|note| format!("{note}\n")).collect()
}

/// An API that repeats what it was sent, and counts its effects.
fn echo() -> (HttpServer, Arc<AtomicUsize>) {
    let effects = Arc::new(AtomicUsize::new(0));
    let counted = effects.clone();
    let server = HttpServer::start(move |request| {
        counted.fetch_add(1, Ordering::SeqCst);
        let body = String::from_utf8_lossy(request.body()).into_owned();
        async move { Reply::json(201, &json!({ "you_sent": body })) }
    });
    (server.unwrap(), effects)
}

fn usage_of_user(id: usize) -> Value {
    let mut usage = record(id);
    usage["metadata"]["source_user_id"] = USER.into();
    usage
}

/// Puts records of the user into the spool and into failed, a notice into the outbox, and usage into the meter.
fn fill_delivery(fixture: &Fixture, meter: &Meter) {
    let input = fixture.path().join("usage.jsonl");
    let send_records = |records: &[Value], variables: &[(&str, &str)]| -> Run {
        std::fs::write(&input, records.iter().map(|record| format!("{record}\n")).collect::<String>())
            .unwrap();
        fixture.run(&["send", input.to_str().unwrap()], variables)
    };
    fixture.receiver.on_batch(|_| Received::Status(422, format!("{USER} is unknown")));
    send_records(&[usage_of_user(3)], &[]).exits_with(4);
    fixture.receiver.on_batch(|_| Received::Status(503, String::new()));
    send_records(&[usage_of_user(1), record(2)], &[("MAX_RETRIES", "0")]).exits_with(3);
    let outbox = fixture.path().join("data/notices");
    let notices = Notices::open(&outbox, Vec::new(), Arc::new(SystemClock::default())).unwrap();
    notices.announce(Event::SpoolFull { reason: format!("{USER} sent too much") }).unwrap();
    let counted = meter.post(&json!({"records": [usage_of_user(4), record(5)]}));
    assert_eq!(counted.status, 201, "{}", counted.text());
    fixture.run(&["report", "usage", "--month", "2025-11"], &[]).exits_with(0);
}

#[test]
fn nothing_about_a_user_a_key_or_a_channel_is_left_and_no_retry_runs_again() {
    let fixture = Fixture::new();
    let (dir, data) = (fixture.path(), fixture.path().join("data"));
    let (api, effects) = echo();
    let meter = Meter::start(dir);
    let gateway = Gateway::start(dir, api.address(), "file:data/ledger", SLACK);
    let post = |path: &str, key: Option<&str>, body: &str| {
        let quoted = key.map(|key| format!("\"{key}\""));
        let mut headers = vec![("Content-Type", "application/json")];
        headers.extend(quoted.as_deref().map(|key| ("Idempotency-Key", key)));
        send(gateway.address, "POST", path, &headers, body.as_bytes())
    };
    let order = format!("{{\"card\":\"4242 secret of {USER}\"}}");
    assert_eq!(post("/orders", Some(KEY), &order).status, 201);
    assert_eq!(post("/slack/events", None, FILE_SHARE).status, 201);
    fill_delivery(&fixture, &meter);
    eventually("the decisions are written", || {
        let found = |find: &str| get(gateway.admin, &format!("/v1/history/timeline?find={find}")).json();
        let count = |find: &str| found(find)["timeline"].as_array().map_or(0, Vec::len);
        (count(KEY) == 2 && count("Ev07FILESHARE") == 2).then_some(())
    });
    let before = effects.load(Ordering::SeqCst);

    // A preview changes nothing.
    let preview = json_of(dir, &["erase", "--user", USER, "--dry-run", "--json"]);
    assert_eq!((&preview["applied"], &preview["found"]), (&json!(false), &json!(true)), "{preview:#}");
    assert!(files_with(&data, USER).len() >= 5, "{:?}", files_with(&data, USER));

    let erase = |arguments: &[&str]| {
        json_of(dir, &[&["erase", "--yes", "--json", "--reason", "request 118"], arguments].concat())
    };
    let report = erase(&["--user", USER]);
    for place in ["spool", "failed", "notices", "meter", "ledger"] {
        assert_eq!(counts(&report, place), (1, 1, 0), "{place}: {report:#}");
        assert_eq!(counts(&preview, place), (1, 1, 0), "{place}: {preview:#}");
    }
    assert!(notes(&report).contains("receipts name records by their ids"), "{report:#}");
    // The order of the user is found by its key only: nothing but its body names the user.
    let report = erase(&["--key", KEY]);
    assert_eq!(counts(&report, "ledger"), (1, 1, 0), "{report:#}");
    assert_eq!(report["remaining_files"], json!([]), "{report:#}");
    let report = erase(&["--channel", CHANNEL]);
    assert!(counts(&report, "history").1 > 0, "{report:#}");
    let id = record(2)["metadata"]["source_event_id"].as_str().unwrap().to_owned();
    let report = erase(&["--key", &id]);
    assert_eq!((counts(&report, "spool"), counts(&report, "receipts")), ((1, 1, 0), (1, 1, 0)), "{report:#}");

    for text in [KEY, CHANNEL, &id, "4242 secret"] {
        assert_eq!(files_with(&data, text), Vec::<PathBuf>::new(), "{text}");
    }
    let [statement] = &files_with(&data, USER)[..] else { panic!("{:?}", files_with(&data, USER)) };
    assert!(statement.starts_with(data.join("statements")), "{}", statement.display());
    let report = erase(&["--user", USER]);
    let remaining = report["remaining_files"].as_array().unwrap();
    assert_eq!(remaining.len(), 1, "{report:#}");
    assert!(
        remaining[0]["why"].as_str().unwrap().starts_with("a statement says what was billed"),
        "{report:#}"
    );

    // The claims still protect their effects.
    let retry = post("/orders", Some(KEY), &order);
    assert_eq!(
        (retry.status, retry.json()["type"].as_str().unwrap_or_default().contains("answer-not-kept")),
        (409, true)
    );
    assert_eq!(post("/orders", Some(KEY), "{\"another\":\"body\"}").status, 422);
    assert_eq!(post("/slack/events", None, FILE_SHARE).status, 200);
    assert_eq!(effects.load(Ordering::SeqCst), before, "no effect ran again");
    // The sums stay.
    let usage = ok(dir, &["report", "usage", "--month", "2025-11", "--preview", "--format", "csv"]);
    assert!(usage.contains(",erased,") && !usage.contains(USER), "{usage}");
    // The audit log says who erased something and why, but not what.
    let audit = ok(dir, &["audit", "list", "--action", "erase", "--json"]);
    assert!(audit.contains("request 118") && audit.contains("\"index\""), "{audit}");
    for text in [USER, KEY, CHANNEL] {
        assert!(!audit.contains(text), "{text}: {audit}");
    }
    ok(dir, &["audit", "verify"]);
}

#[test]
fn claims_that_are_not_completed_are_kept_until_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Serving::claims(dir.path(), "file:ledger", None);
    let claim = |key: &str| {
        let body = json!({"key": key, "lease_ms": 600_000, "metadata": {"user_id": USER}});
        claims.post("/v1/claims", &body.to_string()).json()["token"].as_str().unwrap().to_owned()
    };
    let (running, doubtful) = (claim("running-1"), claim("doubtful-1"));
    let settle = |verb: &str, body: Value| {
        assert_eq!(claims.post(&format!("/v1/claims/{verb}"), &body.to_string()).status, 200);
    };
    settle("doubt", json!({"key": "doubtful-1", "token": doubtful, "reason": "the worker crashed"}));
    let event = json!({"events": [{"key": "Ev-1", "metadata": {"user_id": USER}}]});
    assert_eq!(claims.post("/v1/events/check", &event.to_string()).status, 200);
    let erase = || {
        let arguments =
            ["erase", "--user", USER, "--yes", "--reason", "x", "--json", "--ledger", "file:ledger"];
        let output = run(dir.path(), &arguments);
        (output.status.code(), serde_json::from_str::<Value>(&stdout(&output)).unwrap(), stderr(&output))
    };
    let (code, report, _) = erase();
    assert_eq!((code, counts(&report, "ledger")), (Some(0), (3, 1, 2)), "{report:#}");
    assert!(
        notes(&report).contains("1 running: its holder") && notes(&report).contains("1 in doubt"),
        "{report:#}"
    );
    let again = claims.post("/v1/events/check", &event.to_string()).json();
    assert_eq!(again["results"][0]["is_new"], false, "the event stays marked: {again}");
    settle("complete", json!({"key": "running-1", "token": running, "outcome": {"for": USER}}));
    settle("complete", json!({"key": "doubtful-1", "token": doubtful, "outcome": {"for": USER}}));
    assert_eq!(counts(&erase().1, "ledger"), (2, 2, 0));
    assert_eq!(files_with(&dir.path().join("ledger"), USER), Vec::<PathBuf>::new());
    let shown = claims.get("/v1/claims").json().to_string();
    assert!(shown.contains("erased:") && !shown.contains("doubtful-1"), "{shown}");
    let (code, _, error) = erase();
    assert!(code == Some(1) && error.contains("nothing was found about this user"), "{code:?} {error}");
    // A caller cannot reach an erased claim by its hash.
    let listed = claims.get("/v1/claims").json();
    let body = json!({"key": listed["claims"][0]["key"], "lease_ms": 1_000});
    let reserved = claims.post("/v1/claims", &body.to_string());
    assert!((400..500).contains(&reserved.status), "{}", reserved.text());
}

#[test]
fn mistakes_are_refused_before_anything_is_searched() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, why) in [
        (&["--reason", "x"][..], "--key"),
        (&["--key", "a", "--user", "b", "--reason", "x"], "cannot be used with"),
        (&["--key", "order-17"], "--reason"),
        (&["--key", "", "--reason", "x"], "--key must have 1 to 1024 characters"),
        (&["--user", "alice", "--reason", "alice asked"], "--reason must not contain the user"),
    ] {
        let output = run(dir.path(), &[&["erase"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(why), "{arguments:?}: {}", stderr(&output));
    }
    let claims = Serving::claims(dir.path(), "file:ledger", None);
    let event = json!({"events": [{"key": "Ev-1"}]}).to_string();
    claims.post("/v1/events/check", &event);
    let output = run(dir.path(), &["erase", "--key", "Ev-1", "--reason", "x", "--ledger", "file:ledger"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stdout(&output).contains("would be erased"), "{}", stdout(&output));
    assert!(stderr(&output).contains("use --yes"), "{}", stderr(&output));
    assert!(claims.get("/v1/events").text().contains("Ev-1"), "nothing was done");
    let line = refused(dir.path(), &["erase", "--key", "nobody", "--dry-run", "--ledger", "memory:"], 1);
    assert!(line.contains("nothing was found about this key"), "{line}");
}
