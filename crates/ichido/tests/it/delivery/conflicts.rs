//! What a 409 means: no record is lost to it, and none is counted twice.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::Stage;
use super::receiver::{Reply, Seen};

const BARE: fn() -> Reply = || Reply::Say(409, String::new());
const API_METER: [(&str, &str); 2] =
    [("EXTERNAL_API_ENVELOPE", "api_meter"), ("EXTERNAL_API_TENANT_ID", "acme")];

/// A receiver that knows records: with one that it has, the whole batch is refused by a bare 409.
#[derive(Clone)]
struct Records(Arc<Mutex<BTreeMap<String, u32>>>);

impl Records {
    fn with(known: &str) -> Self {
        Self(Arc::new(Mutex::new(BTreeMap::from([(known.to_owned(), 1)]))))
    }

    fn takes(&self) -> impl FnMut(&Seen) -> Reply + Send + 'static {
        let counts = self.0.clone();
        move |seen| {
            let mut counts = counts.lock().unwrap();
            if seen.ids.iter().any(|id| counts.contains_key(id)) {
                return BARE();
            }
            seen.ids.iter().for_each(|id| *counts.entry(id.clone()).or_default() += 1);
            Reply::Say(201, String::new())
        }
    }

    #[track_caller]
    fn has_each_once(&self, records: usize) {
        let counts = self.0.lock().unwrap();
        assert_eq!(counts.len(), records, "{counts:?}");
        assert!(counts.values().all(|count| *count == 1), "{counts:?}");
    }
}

impl Stage {
    /// Every receipt, as JSON.
    fn receipts(&self) -> Vec<Value> {
        let files = std::fs::read_dir(self.path().join("data/receipts")).unwrap().flatten();
        let text: String = files.map(|file| std::fs::read_to_string(file.path()).unwrap()).collect();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn endings(&self) -> Vec<String> {
        self.receipts().iter().map(|receipt| receipt["ending"].as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn one_known_record_does_not_hide_the_others() {
    let stage = Stage::new();
    let records = Records::with("e2");
    stage.receiver.does(records.takes());
    let run = stage.send(64, &API_METER);
    run.ends_with(0);
    records.has_each_once(64);
    let evidence = run.log("duplicate data detected");
    assert_eq!(evidence.len(), 1, "{evidence:?}");
    assert_eq!(evidence[0]["evidence"], "single-record");
    // One known record is found like a bad one.
    assert!(stage.receiver.seen().len() <= 2 * 6 + 1, "{}", stage.receiver.seen().len());
}

#[test]
fn an_ambiguous_conflict_is_kept_for_a_person_who_can_narrow_it_down() {
    let stage = Stage::new();
    let records = Records::with("e2");
    stage.receiver.does(records.takes());
    let run = stage.send(8, &[]);
    run.ends_with(4);
    let files = stage.files("failed");
    let [(_, file)] = files.as_slice() else { panic!("{files:?}") };
    assert_eq!(file["records"].as_array().unwrap().len(), 8, "no record is lost");
    let key = &file["batchIdempotencyKey"].as_str().unwrap()[..12];
    for words in [
        "ambiguous conflict",
        "EXTERNAL_API_CONFLICT",
        &format!("ichido failed accept {key}"),
        &format!("ichido failed resend --by-record {key}"),
    ] {
        assert!(file["lastError"].as_str().unwrap().contains(words), "{words}: {file}");
        assert!(run.stderr.contains(words), "the notice says {words}: {}", run.stderr);
    }
    stage.run(&["failed", "resend", "--by-record"], &[]).ends_with(2);
    stage.run(&["failed", "resend", key], &[]).ends_with(4);
    stage.run(&["failed", "resend", "--by-record", key], &[]).ends_with(0);
    records.has_each_once(8);
    assert!(stage.files("failed").is_empty() && stage.files("spool").is_empty());
    assert!(stage.endings().contains(&"split".to_owned()), "{:?}", stage.endings());
}

#[test]
fn a_batch_that_an_operator_accepts_is_not_sent_again() {
    let stage = Stage::new();
    stage.receiver.does(|_| BARE());
    stage.send(3, &[]).ends_with(4);
    let key = stage.files("failed")[0].1["batchIdempotencyKey"].as_str().unwrap().to_owned();
    stage.run(&["failed", "accept", "0000nothing"], &[]).ends_with(2);
    let accepted = stage.run(&["failed", "accept", &key[..12]], &[]);
    accepted.ends_with(0);
    assert!(accepted.stdout.contains(&key) && accepted.stdout.contains("3 records"), "{}", accepted.stdout);
    assert!(stage.files("failed").is_empty() && stage.files("spool").is_empty());
    let receipts = stage.receipts();
    let receipt = receipts.iter().find(|receipt| receipt["ending"] == "accepted").unwrap();
    assert_eq!(receipt["records"], serde_json::json!(["e0", "e1", "e2"]));
    // The receipt decides when the same input comes once more.
    let again = stage.send(3, &[]);
    again.ends_with(0);
    assert_eq!(again.log("duplicate data detected")[0]["evidence"], "receipt");
}

#[test]
fn a_409_while_the_first_request_is_processed_does_not_count_as_delivered() {
    for body in ["", r#"{"error":"still processing"}"#] {
        let stage = Stage::new();
        let busy = || Reply::Say(409, body.to_owned());
        // The first request is slow, and fails in the end: only then the receiver takes the batch.
        stage.receiver.plays([Reply::Stall, busy(), busy()]);
        stage.send(5, &[("EXTERNAL_API_TIMEOUT_MS", "500")]).ends_with(0);
        stage.receiver.has_each_once(5);
        assert_eq!(stage.receiver.requests(), 4);
    }
}

#[test]
fn after_a_timeout_a_bare_409_is_not_believed_for_minutes() {
    let stage = Stage::new();
    stage.receiver.plays([Reply::Stall, BARE(), BARE(), BARE()]);
    stage.send(5, &[("EXTERNAL_API_TIMEOUT_MS", "500")]).ends_with(3);
    let (_, file) = &stage.files("spool")[0];
    assert!(file["timedOut"].is_string() && file["notBefore"].is_string(), "{file}");
    stage.run(&["spool", "resend"], &[]).ends_with(3);
    assert_eq!(stage.receiver.requests(), 4, "it is not due yet");
    stage.run(&["spool", "resend", "--force"], &[]).ends_with(0);
    stage.receiver.has_each_once(5);
    let receipts = stage.receipts();
    let attempts =
        receipts.iter().find(|receipt| receipt["ending"] == "spooled").unwrap()["attempts"].clone();
    assert_eq!(
        (&attempts[0]["error"], &attempts[1]["status"]),
        (&"timeout".into(), &409.into()),
        "{attempts}"
    );
}

#[test]
fn after_a_lost_answer_a_bare_409_is_a_duplicate() {
    let stage = Stage::new();
    stage.receiver.plays([Reply::TakeAndHangUp, BARE()]);
    let run = stage.send(5, &[]);
    run.ends_with(0);
    assert_eq!(run.log("duplicate data detected")[0]["evidence"], "answer-lost");
    stage.receiver.has_each_once(5);
}

#[test]
fn with_batch_every_409_is_a_success() {
    let stage = Stage::new();
    let in_flight = r#"{"type":"/.well-known/idempotency/in-flight"}"#;
    stage.receiver.does(move |_| Reply::Say(409, in_flight.to_owned()));
    stage.send(5, &[("EXTERNAL_API_CONFLICT", "batch")]).ends_with(0);
    assert!(stage.files("failed").is_empty() && stage.files("spool").is_empty());
}
