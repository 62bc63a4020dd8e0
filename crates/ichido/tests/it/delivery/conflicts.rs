//! How the sender interprets a 409: it loses no record, and none is counted twice.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ichido_testkit::receiver::{ReceivedBatch, Reply};
use serde_json::Value;

use super::Fixture;

const BARE_CONFLICT: fn() -> Reply = || Reply::Status(409, String::new());
const API_METER: [(&str, &str); 2] =
    [("EXTERNAL_API_ENVELOPE", "api_meter"), ("EXTERNAL_API_TENANT_ID", "acme")];

/// A receiver that detects duplicates by record: if it knows one record, it rejects the whole batch with a bare 409.
#[derive(Clone)]
struct RecordStore(Arc<Mutex<BTreeMap<String, u32>>>);

impl RecordStore {
    fn containing(known: &str) -> Self {
        Self(Arc::new(Mutex::new(BTreeMap::from([(known.to_owned(), 1)]))))
    }

    fn script(&self) -> impl FnMut(&ReceivedBatch) -> Reply + Send + 'static {
        let counts = self.0.clone();
        move |request| {
            let mut counts = counts.lock().unwrap();
            if request.ids.iter().any(|id| counts.contains_key(id)) {
                return BARE_CONFLICT();
            }
            request.ids.iter().for_each(|id| *counts.entry(id.clone()).or_default() += 1);
            Reply::Status(201, String::new())
        }
    }

    #[track_caller]
    fn assert_each_record_once(&self, records: usize) {
        let counts = self.0.lock().unwrap();
        assert_eq!(counts.len(), records, "{counts:?}");
        assert!(counts.values().all(|count| *count == 1), "{counts:?}");
    }
}

impl Fixture {
    /// Every receipt, as JSON.
    fn receipts(&self) -> Vec<Value> {
        let files = std::fs::read_dir(self.path().join("data/receipts")).unwrap().flatten();
        let text: String = files.map(|file| std::fs::read_to_string(file.path()).unwrap()).collect();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn receipt_endings(&self) -> Vec<String> {
        self.receipts().iter().map(|receipt| receipt["ending"].as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn known_record_does_not_hide_the_others() {
    let fixture = Fixture::new();
    let store = RecordStore::containing("e2");
    fixture.receiver.on_batch(store.script());
    let run = fixture.send(64, &API_METER);
    run.exits_with(0);
    store.assert_each_record_once(64);
    let evidence = run.log("duplicate data detected");
    assert_eq!(evidence.len(), 1, "{evidence:?}");
    assert_eq!(evidence[0]["evidence"], "single-record");
    // The known record is found by bisection, like an invalid one.
    assert!(fixture.receiver.batch_count() <= 2 * 6 + 1, "{}", fixture.receiver.batch_count());
}

#[test]
fn ambiguous_conflict_is_kept_for_an_operator() {
    let fixture = Fixture::new();
    let store = RecordStore::containing("e2");
    fixture.receiver.on_batch(store.script());
    let run = fixture.send(8, &[]);
    run.exits_with(4);
    let files = fixture.files("failed");
    let [(_, file)] = files.as_slice() else { panic!("{files:?}") };
    assert_eq!(file["records"].as_array().unwrap().len(), 8, "no record is lost");
    let key = &file["batchIdempotencyKey"].as_str().unwrap()[..12];
    for text in [
        "ambiguous conflict",
        "EXTERNAL_API_CONFLICT",
        &format!("ichido failed accept {key}"),
        &format!("ichido failed resend --by-record {key}"),
    ] {
        assert!(file["lastError"].as_str().unwrap().contains(text), "{text}: {file}");
        assert!(run.stderr.contains(text), "{text} is not in the notice: {}", run.stderr);
    }
    fixture.run(&["failed", "resend", "--by-record"], &[]).exits_with(2);
    fixture.run(&["failed", "resend", key], &[]).exits_with(4);
    fixture.run(&["failed", "resend", "--by-record", key], &[]).exits_with(0);
    store.assert_each_record_once(8);
    assert!(fixture.files("failed").is_empty() && fixture.files("spool").is_empty());
    assert!(fixture.receipt_endings().contains(&"split".to_owned()), "{:?}", fixture.receipt_endings());
}

#[test]
fn accepted_batch_is_not_resent() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|_| BARE_CONFLICT());
    fixture.send(3, &[]).exits_with(4);
    let key = fixture.files("failed")[0].1["batchIdempotencyKey"].as_str().unwrap().to_owned();
    fixture.run(&["failed", "accept", "0000nothing"], &[]).exits_with(2);
    let accepted = fixture.run(&["failed", "accept", &key[..12]], &[]);
    accepted.exits_with(0);
    assert!(accepted.stdout.contains(&key) && accepted.stdout.contains("3 records"), "{}", accepted.stdout);
    assert!(fixture.files("failed").is_empty() && fixture.files("spool").is_empty());
    let receipts = fixture.receipts();
    let receipt = receipts.iter().find(|receipt| receipt["ending"] == "accepted").unwrap();
    assert_eq!(receipt["records"], serde_json::json!(["e0", "e1", "e2"]));
    // If the same input is sent again, the receipt proves that it is a duplicate.
    let again = fixture.send(3, &[]);
    again.exits_with(0);
    assert_eq!(again.log("duplicate data detected")[0]["evidence"], "receipt");
}

#[test]
fn conflict_while_the_first_request_runs_is_not_delivery() {
    for body in ["", r#"{"error":"still processing"}"#] {
        let fixture = Fixture::new();
        let busy = || Reply::Status(409, body.to_owned());
        // The first request times out without effect. Only the request after the conflicts is accepted.
        fixture.receiver.reply_in_order([Reply::NeverRespond, busy(), busy()]);
        fixture.send(5, &[("EXTERNAL_API_TIMEOUT_MS", "500")]).exits_with(0);
        fixture.receiver.assert_each_record_once(5);
        assert_eq!(fixture.receiver.batch_count(), 4);
    }
}

#[test]
fn bare_409_soon_after_a_timeout_is_not_a_duplicate() {
    let fixture = Fixture::new();
    fixture.receiver.reply_in_order([Reply::NeverRespond, BARE_CONFLICT(), BARE_CONFLICT(), BARE_CONFLICT()]);
    fixture.send(5, &[("EXTERNAL_API_TIMEOUT_MS", "500")]).exits_with(3);
    let (_, file) = &fixture.files("spool")[0];
    assert!(file["timedOut"].is_string() && file["notBefore"].is_string(), "{file}");
    fixture.run(&["spool", "resend"], &[]).exits_with(3);
    assert_eq!(fixture.receiver.batch_count(), 4, "the batch is not due yet");
    fixture.run(&["spool", "resend", "--force"], &[]).exits_with(0);
    fixture.receiver.assert_each_record_once(5);
    let receipts = fixture.receipts();
    let attempts =
        receipts.iter().find(|receipt| receipt["ending"] == "spooled").unwrap()["attempts"].clone();
    assert_eq!(
        (&attempts[0]["error"], &attempts[1]["status"]),
        (&"timeout".into(), &409.into()),
        "{attempts}"
    );
}

#[test]
fn bare_409_after_a_lost_response_is_a_duplicate() {
    let fixture = Fixture::new();
    fixture.receiver.reply_in_order([Reply::AcceptAndDisconnect, BARE_CONFLICT()]);
    let run = fixture.send(5, &[]);
    run.exits_with(0);
    assert_eq!(run.log("duplicate data detected")[0]["evidence"], "answer-lost");
    fixture.receiver.assert_each_record_once(5);
}

#[test]
fn batch_conflict_mode_treats_every_409_as_success() {
    let fixture = Fixture::new();
    let in_flight = r#"{"type":"/.well-known/idempotency/in-flight"}"#;
    fixture.receiver.on_batch(move |_| Reply::Status(409, in_flight.to_owned()));
    fixture.send(5, &[("EXTERNAL_API_CONFLICT", "batch")]).exits_with(0);
    assert!(fixture.files("failed").is_empty() && fixture.files("spool").is_empty());
}
