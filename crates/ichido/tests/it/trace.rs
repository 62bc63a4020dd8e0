//! `ichido trace` and `ichido report slo`: one record, and one month.

use ichido_testkit::http_client::get;
use ichido_testkit::receiver::Reply;
use ichido_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::delivery::{Fixture, Run};
use crate::meter::{Meter, record, send, write_jsonl};
use crate::serving::Serving;
use crate::{ichido, stderr, stdout};

fn parsed(run: &Run) -> Value {
    serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {}", run.stdout))
}

/// Place and event of each entry.
fn events(trace: &Value) -> Vec<String> {
    let timeline = trace["timeline"].as_array().unwrap().iter();
    timeline
        .map(|event| format!("{} {}", event["place"].as_str().unwrap(), event["event"].as_str().unwrap()))
        .collect()
}

/// The places in a list.
fn places(trace: &Value, list: &str) -> Vec<String> {
    let list = trace[list].as_array().unwrap().iter();
    list.map(|place| place["place"].as_str().unwrap().to_owned()).collect()
}

fn this_month() -> String {
    jiff::Timestamp::now().strftime("%Y-%m").to_string()
}

fn criterion<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["criteria"].as_array().unwrap().iter().find(|criterion| criterion["name"] == name).unwrap()
}

#[test]
fn record_is_followed_from_the_first_request_to_its_delivery() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|_| Reply::Status(503, String::new()));
    fixture.send(3, &[("BATCH_SIZE", "2"), ("MAX_RETRIES", "1")]).exits_with(3);
    let waiting = fixture.run(&["trace", "e1", "--json"], &[]);
    waiting.exits_with(0);
    let before = ["receipts batched", "receipts request", "receipts request", "receipts spooled"];
    let found = events(&parsed(&waiting));
    assert_eq!(found[..4], before, "{found:?}");
    assert_eq!(found[4..], ["spool waiting-in-spool"]);
    fixture.receiver.on_batch(|_| Reply::Accept);
    fixture.run(&["spool", "resend"], &[]).exits_with(0);
    let trace = parsed(&fixture.run(&["trace", "e1", "--json"], &[]));
    let mut expected: Vec<_> = before.to_vec();
    expected.extend(["receipts request", "receipts delivered", "audit resend all"]);
    let mut found = events(&trace);
    // The intent was recorded before the request, and the result after it.
    found.sort();
    expected.sort_unstable();
    assert_eq!(found, expected);
    let last =
        trace["timeline"].as_array().unwrap().iter().rfind(|event| event["event"] == "request").unwrap();
    assert_eq!((&last["details"]["status"], &last["details"]["origin"]), (&json!(201), &json!("spool")));
    let key = last["key"].as_str().unwrap();
    for id in [key, &key[..12]] {
        assert_eq!(events(&parsed(&fixture.run(&["trace", id, "--json"], &[]))), events(&trace), "{id}");
    }
    let text = fixture.run(&["trace", "e1"], &[]);
    text.exits_with(0);
    for part in ["delivered", &key[..12], "looked into:", "no meter is configured", "there is no ledger"] {
        assert!(text.stdout.contains(part), "{part}: {}", text.stdout);
    }
}

#[test]
fn unknown_id_is_exit_code_1_and_says_where_it_looked() {
    let fixture = Fixture::new();
    fixture.send(1, &[]).exits_with(0);
    let run = fixture.run(&["trace", "nobody", "--json"], &[]);
    run.exits_with(1);
    let trace = parsed(&run);
    assert_eq!(trace["found"], false);
    assert!(run.stderr.contains("looked into: export, receipts, in-flight, spool, failed"), "{}", run.stderr);
    let not_looked = places(&trace, "not_looked_into");
    for place in ["receipts", "meter", "ledger"] {
        assert!(not_looked.iter().any(|not| not == place), "{place}: {trace:#}");
    }
    fixture.run(&["trace", ""], &[]).exits_with(2);
    let missing = fixture.run(&["trace", "e0", "--data-dir", "nowhere", "--json"], &[]);
    missing.exits_with(1);
    assert!(missing.stdout.contains("nowhere does not exist (--data-dir)"), "{}", missing.stdout);
}

#[test]
fn rejected_record_is_told_from_its_neighbours() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|batch| {
        let is_bad = batch.ids.iter().any(|id| id == "e1");
        if is_bad { Reply::Status(422, "no date".to_owned()) } else { Reply::Accept }
    });
    fixture.send(4, &[]).exits_with(4);
    let last = |id: &str| {
        let trace = parsed(&fixture.run(&["trace", id, "--json"], &[]));
        let mut events = events(&trace);
        events.retain(|event| event.starts_with("receipts"));
        (
            events.first().cloned(),
            events.last().cloned(),
            events.iter().filter(|event| event.contains("split")).count(),
        )
    };
    let (first, good, splits) = last("e0");
    assert_eq!(
        (first.as_deref(), good.as_deref(), splits),
        (Some("receipts batched"), Some("receipts delivered"), 2)
    );
    let (_, bad, splits) = last("e1");
    assert_eq!((bad.as_deref(), splits), (Some("receipts failed"), 2));
}

#[test]
fn record_is_followed_into_the_meter() {
    let dir = tempfile::tempdir().unwrap();
    let meter = Meter::start(dir.path());
    let file = write_jsonl(dir.path(), (0..5).map(record));
    send(dir.path(), &meter, &file, &[]).exits_with(0);
    let id = record(3)["metadata"]["source_event_id"].as_str().unwrap().to_owned();
    let run = ichido(dir.path()).args(["trace", &id, "--json"]).output().unwrap();
    assert!(run.status.success(), "{}", stderr(&run));
    let trace: Value = serde_json::from_str(&stdout(&run)).unwrap();
    let mut found = events(&trace);
    found.sort();
    let expected =
        ["meter counted", "meter received", "receipts batched", "receipts delivered", "receipts request"];
    assert_eq!(found, expected, "{trace:#}");
    // The console of a process that only meters looks into the meter, and says that it has nothing else.
    let page = get(meter.admin, &format!("/trace?id={id}")).text();
    assert!(page.contains("counted") && page.contains("this process does not deliver"), "{page}");
}

#[test]
fn claim_is_followed_through_the_process_that_holds_the_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Serving::claims(dir.path(), "file:ledger", None);
    let body = r#"{"key":"order-17","lease_ms":60000}"#;
    let granted = claims.post("/v1/claims", body).json();
    let token = granted["token"].as_str().unwrap_or_else(|| panic!("{granted}"));
    let doubt = json!({"key": "order-17", "token": token, "reason": "the worker crashed"});
    assert_eq!(claims.post("/v1/claims/doubt", &doubt.to_string()).status, 200);
    let run = ichido(dir.path())
        .args(["ledger", "resolve", "order-17", "--as", "done", "--ledger", "file:ledger"])
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", stderr(&run));
    let here: &[&str] = &["trace", "order-17", "--json", "--ledger", "file:ledger"];
    let address = claims.address.to_string();
    let there: &[&str] = &["trace", "order-17", "--json", "--admin", &address];
    for arguments in [here, there] {
        // The history is written in the background.
        let trace = eventually("the decisions in the history", || {
            let run = ichido(dir.path()).args(arguments).output().unwrap();
            assert!(run.status.success(), "{}", stderr(&run));
            let trace: Value = serde_json::from_str(&stdout(&run)).unwrap();
            let is_recorded = |found: &String| found == "history declared-in-doubt";
            events(&trace).iter().any(is_recorded).then_some(trace)
        });
        let found = events(&trace);
        for event in ["ledger claimed", "ledger done", "audit resolve as done"] {
            assert!(found.iter().any(|found| found == event), "{event}: {found:?}");
        }
        let audited = trace["timeline"].as_array().unwrap().iter().find(|event| event["place"] == "audit");
        let hash = audited.unwrap()["key"].as_str().unwrap()[..16].to_owned();
        let by_hash = claims.get(&format!("/v1/trace?id={hash}")).json();
        assert!(events(&by_hash).iter().any(|event| event == "audit resolve as done"), "{by_hash:#}");
    }
    let unknown = ichido(dir.path()).args(["trace", "order-18", "--admin", &address]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(1), "{}", stderr(&unknown));
}

#[test]
fn month_is_measured_from_receipts_of_several_runs() {
    let fixture = Fixture::new();
    let month = this_month();
    let report = |code: i32| {
        let run = fixture.run(&["report", "slo", "--month", &month, "--json"], &[]);
        run.exits_with(code);
        parsed(&run)
    };
    let empty = report(0);
    assert_eq!(empty["criteria"].as_array().unwrap().len(), 6);
    assert!(empty["criteria"].as_array().unwrap().iter().all(|one| one["verdict"] == "no-data"), "{empty:#}");
    // One batch is delivered by a retry.
    fixture.receiver.reply_in_order([Reply::Status(503, String::new())]);
    fixture.send(1, &[]).exits_with(0);
    let good = report(0);
    let send = criterion(&good, "send_success");
    assert_eq!(
        (&send["verdict"], &send["value"], &send["target"]),
        (&json!("met"), &json!(1.0), &json!(0.999))
    );
    assert_eq!(criterion(&good, "retry_success")["counts"], json!({"retries": 1, "delivered": 1}));
    assert_eq!(criterion(&good, "send_latency_p95")["verdict"], "met");
    // Another run spools a batch, an operator resends it twice, and it arrives.
    fixture.receiver.on_batch(|_| Reply::Status(503, String::new()));
    fixture.send(2, &[("MAX_RETRIES", "0")]).exits_with(3);
    fixture.run(&["spool", "resend"], &[("MAX_RETRIES", "0")]).exits_with(3);
    fixture.receiver.on_batch(|_| Reply::Accept);
    fixture.run(&["spool", "resend", "--force"], &[]).exits_with(0);
    let bad = report(1);
    let send = criterion(&bad, "send_success");
    assert_eq!((&send["value"], &send["verdict"]), (&json!(0.5), &json!("missed")), "{bad:#}");
    assert_eq!(send["batches"].as_array().unwrap().len(), 2);
    assert_eq!(criterion(&bad, "resend_success")["value"], 0.5);
    assert_eq!(criterion(&bad, "spool_age_p95")["verdict"], "met");
    assert_eq!(criterion(&bad, "failed_share")["verdict"], "met");
    assert_eq!(bad["manual_interventions"]["count"], 2);
    let text = fixture.run(&["report", "slo", "--month", &month], &[]);
    text.exits_with(1);
    for part in [
        "deliveries that succeed",
        "50.00 %",
        "≥ 99.90 %",
        "batches that count against it",
        "manual interventions",
    ] {
        assert!(text.stdout.contains(part), "{part}: {}", text.stdout);
    }
    assert!(text.stderr.contains("2 criteria were missed"), "{}", text.stderr);
}

#[test]
fn rejected_records_and_invalid_input_count_as_moved_to_failed() {
    let fixture = Fixture::new();
    let file = fixture.path().join("mixed.jsonl");
    std::fs::write(&file, "{\"source_event_id\":\"a\"}\nno record\n").unwrap();
    fixture.run(&["send", file.to_str().unwrap()], &[]).exits_with(4);
    let run = fixture.run(&["report", "slo", "--month", &this_month(), "--json"], &[]);
    run.exits_with(1);
    let report = parsed(&run);
    let failed = criterion(&report, "failed_share");
    assert_eq!(failed["counts"], json!({"moved": 1, "passes": 1, "without_receipt": 0}), "{report:#}");
    assert_eq!(criterion(&report, "send_success")["verdict"], "met");
}

#[test]
fn period_of_a_report_is_checked() {
    let fixture = Fixture::new();
    for (arguments, why) in [
        (&["--month", "2026-13"][..], "--month: \"2026-13\" is not a month in the form YYYY-MM"),
        (&["--from", "2026-11-31", "--to", "2026-12-01"], "--from: \"2026-11-31\" is not a day"),
        (&["--from", "2026-11-02", "--to", "2026-11-01"], "--to must not be before --from"),
        (&[], "--month"),
        (&["--from", "2026-11-02"], "--to"),
    ] {
        let run = fixture.run(&[&["report", "slo"], arguments].concat(), &[]);
        run.exits_with(2);
        assert!(run.stderr.contains(why), "{arguments:?}: {}", run.stderr);
    }
}
