use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::store::{FileName, StoredBatch};
use crate::time::parse_iso;
use crate::{Batch, Record};

const HOUR_MS: u64 = 3_600_000;

fn at(text: &str) -> Timestamp {
    parse_iso(text).unwrap()
}

fn november() -> Period {
    Period { from: at("2026-11-01T00:00:00Z"), to: at("2026-12-01T00:00:00Z") }
}

/// A data directory with receipts.
struct World {
    dir: tempfile::TempDir,
    lines: String,
}

impl World {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), lines: String::new() }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Adds a receipt of 10 November. `latencies` are those of its requests, one second apart.
    fn receipt(&mut self, key: &str, ending: &str, latencies: &[u64], more: &Value) -> &mut Self {
        let start = at("2026-11-10T12:00:00Z");
        let attempts: Vec<_> = (0u64..)
            .zip(latencies)
            .map(|(number, latency)| {
                json!({"at": iso(start + 1_000 * number), "status": 200, "latencyMs": latency})
            })
            .collect();
        let mut line = json!({
            "batchIdempotencyKey": key, "digest": "sha256:0", "ending": ending, "at": "2026-11-10T12:00:09Z",
            "attempts": attempts, "records": ["r"],
        });
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.lines.push_str(&format!("{line}\n"));
        self
    }

    fn measure(&self) -> Measured {
        let dir = self.path().join("receipts");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("receipts_20261110_7-1.jsonl"), &self.lines).unwrap();
        measure(&Layout::new(self.path()), november(), at("2026-12-15T00:00:00Z"))
    }

    fn criterion(&self, name: Name) -> Criterion {
        self.measure().criteria.into_iter().find(|criterion| criterion.name == name).unwrap()
    }
}

fn fresh() -> Value {
    json!({"origin": "fresh", "firstAttempt": "2026-11-10T12:00:00Z"})
}

fn from_spool(age_hours: u64) -> Value {
    let first = Timestamp(at("2026-11-10T12:00:09Z").0 - age_hours * HOUR_MS);
    json!({"origin": "spool", "firstAttempt": iso(first)})
}

fn is_near(value: Option<f64>, expected: f64) -> bool {
    value.is_some_and(|value| (value - expected).abs() < 1e-9)
}

#[test]
fn nothing_sent_is_no_data_and_not_a_failure() {
    let measured = World::new().measure();
    assert_eq!(measured.criteria.len(), 6);
    assert!(measured.criteria.iter().all(|criterion| criterion.verdict == Verdict::NoData), "{measured:?}");
    assert!(!measured.is_missed());
}

#[test]
fn send_success_counts_passes_with_requests_and_duplicates_as_delivered() {
    let mut world = World::new();
    for number in 0..998 {
        world.receipt(&format!("k{number}"), "delivered", &[10], &fresh());
    }
    world.receipt("twice", "delivered", &[10], &json!({"origin": "fresh", "duplicate": "answer"}));
    // The lane was closed: nothing was sent.
    world.receipt("kept", "spooled", &[], &fresh());
    assert_eq!(world.criterion(Name::SendSuccess).verdict, Verdict::Met);
    world.receipt("bad", "spooled", &[10], &fresh());
    let criterion = world.criterion(Name::SendSuccess);
    assert!(is_near(criterion.value, 0.999) && criterion.verdict == Verdict::Met, "{criterion:?}");
    world.receipt("worse", "failed", &[10], &fresh());
    let criterion = world.criterion(Name::SendSuccess);
    assert_eq!(criterion.verdict, Verdict::Missed, "{criterion:?}");
    assert_eq!(criterion.counts["passes"], 1001);
    assert_eq!(criterion.counts["duplicates"], 1);
    let named: Vec<_> = criterion.batches.iter().map(|batch| (&*batch.batch, &*batch.what)).collect();
    assert_eq!(named, [("bad", "spooled"), ("worse", "failed")]);
}

#[test]
fn retry_success_is_the_share_of_retries_that_deliver() {
    let mut world = World::new();
    for key in ["a", "b", "c", "d"] {
        world.receipt(key, "delivered", &[10, 10], &fresh());
    }
    assert!(is_near(world.criterion(Name::RetrySuccess).value, 1.0));
    world.receipt("e", "spooled", &[10, 10, 10, 10], &fresh());
    let criterion = world.criterion(Name::RetrySuccess);
    assert!(is_near(criterion.value, 4.0 / 7.0), "{criterion:?}");
    assert_eq!((criterion.verdict, &*criterion.batches[0].batch), (Verdict::Missed, "e"));
}

#[test]
fn resend_success_counts_resends_only_and_reports_old_lines() {
    let mut world = World::new();
    world.receipt("fresh", "spooled", &[10], &fresh());
    world.receipt("old", "spooled", &[10], &json!({}));
    let criterion = world.criterion(Name::ResendSuccess);
    assert_eq!((criterion.verdict, criterion.counts["unknown"]), (Verdict::NoData, 1));
    let notes = world.measure().notes;
    assert!(notes.iter().any(|note| note.contains("earlier version")), "{notes:?}");
    for number in 0..19 {
        world.receipt(&format!("k{number}"), "delivered", &[10], &from_spool(1));
    }
    world.receipt("again", "spooled", &[10], &from_spool(1));
    assert!(is_near(world.criterion(Name::ResendSuccess).value, 0.95));
    assert_eq!(world.criterion(Name::ResendSuccess).verdict, Verdict::Met);
    world.receipt("never", "failed", &[10], &from_spool(1));
    assert_eq!(world.criterion(Name::ResendSuccess).verdict, Verdict::Missed);
}

#[test]
fn latency_runs_from_the_first_request_to_the_response() {
    let mut world = World::new();
    for number in 0..95 {
        world.receipt(&format!("k{number}"), "delivered", &[4_999], &fresh());
    }
    for number in 0..5 {
        // Three retries, a second apart, and a last response that took two seconds.
        world.receipt(&format!("slow{number}"), "delivered", &[1, 1, 1, 2_000], &fresh());
    }
    let criterion = world.criterion(Name::SendLatencyP95);
    assert!(is_near(criterion.value, 4.999) && criterion.verdict == Verdict::Met, "{criterion:?}");
    world.receipt("slower", "delivered", &[1, 1, 1, 2_000], &fresh());
    let criterion = world.criterion(Name::SendLatencyP95);
    assert!(is_near(criterion.value, 5.0) && criterion.verdict == Verdict::Missed, "{criterion:?}");
    assert_eq!(criterion.counts["late"], 6);
}

#[test]
fn spool_age_counts_late_failed_and_waiting_batches() {
    let mut world = World::new();
    for number in 0..19 {
        world.receipt(&format!("k{number}"), "delivered", &[10], &from_spool(23));
    }
    world.receipt("late", "delivered", &[10], &from_spool(25));
    let criterion = world.criterion(Name::SpoolAgeP95);
    assert!(is_near(criterion.value, 23.0 * 3_600.0) && criterion.verdict == Verdict::Met, "{criterion:?}");
    world.receipt("dead", "failed", &[10], &from_spool(1));
    let criterion = world.criterion(Name::SpoolAgeP95);
    assert_eq!((criterion.verdict, criterion.counts["undelivered"]), (Verdict::Missed, 1));
    assert_eq!(criterion.counts["within_24_h"], 19);
    // An operator resends it, and it arrives within the day.
    let more =
        json!({"origin": "spool", "firstAttempt": "2026-11-10T11:00:09Z", "at": "2026-11-10T13:00:00Z"});
    world.receipt("dead", "delivered", &[10], &more);
    assert_eq!(world.criterion(Name::SpoolAgeP95).counts["undelivered"], 0);
}

#[test]
fn accepted_batch_counts_as_delivered_when_it_was_accepted() {
    let mut world = World::new();
    world.receipt("dead", "failed", &[10], &from_spool(1));
    let accepted = json!({"firstAttempt": "2026-11-10T11:00:09Z", "at": "2026-11-10T14:00:00Z"});
    world.receipt("dead", "accepted", &[], &accepted);
    let criterion = world.criterion(Name::SpoolAgeP95);
    assert_eq!((criterion.verdict, criterion.counts["undelivered"]), (Verdict::Met, 0), "{criterion:?}");
}

#[test]
fn batch_in_the_spool_counts_in_the_period_in_which_it_became_too_old() {
    let world = World::new();
    let spool = Layout::new(world.path()).dir(BatchDir::Spool);
    fs::create_dir_all(&spool).unwrap();
    let record = Record::parse(r#"{"source_event_id":"e"}"#).unwrap();
    for first in ["2026-10-29T00:00:00Z", "2026-11-29T00:00:00Z", "2026-11-30T12:00:00Z"] {
        let stored = StoredBatch::fresh(Batch::new(vec![record.clone()]), at(first));
        let name = FileName::new(at(first), stored.batch.key(), false).text("spool");
        fs::write(spool.join(name), stored.encode(false)).unwrap();
    }
    let criterion = world.criterion(Name::SpoolAgeP95);
    assert_eq!((criterion.counts["undelivered"], criterion.verdict), (1, Verdict::Missed), "{criterion:?}");
    assert!(is_near(criterion.value, 48.0 * 3_600.0), "{criterion:?}");
}

#[test]
fn failed_share_includes_files_without_a_receipt_once() {
    let mut world = World::new();
    for number in 0..199 {
        world.receipt(&format!("k{number}"), "delivered", &[10], &fresh());
    }
    world.receipt("abcdefabcdef00", "failed", &[10], &fresh());
    let failed = Layout::new(world.path()).dir(BatchDir::Failed);
    fs::create_dir_all(&failed).unwrap();
    fs::write(failed.join("failed_20261110T120009Z_abcdefabcdef.json"), "{}").unwrap();
    let criterion = world.criterion(Name::FailedShare);
    assert!(is_near(criterion.value, 1.0 / 200.0) && criterion.verdict == Verdict::Met, "{criterion:?}");
    fs::write(failed.join("failed_20261111T120009Z_123456123456.json"), "{}").unwrap();
    let criterion = world.criterion(Name::FailedShare);
    assert!(is_near(criterion.value, 2.0 / 200.0) && criterion.verdict == Verdict::Missed, "{criterion:?}");
    assert_eq!(criterion.counts["without_receipt"], 1);
}

#[test]
fn split_batch_counts_by_its_parts_and_by_what_was_accepted() {
    let mut world = World::new();
    world.receipt("whole", "split", &[10], &fresh());
    assert_eq!(world.criterion(Name::SendSuccess).verdict, Verdict::NoData);
    world.receipt("some", "split", &[10], &json!({"origin": "fresh", "accepted": ["r"]}));
    assert_eq!(world.criterion(Name::SendSuccess).counts["delivered"], 1);
}

#[test]
fn other_periods_torn_lines_and_missing_days_are_not_counted_but_reported() {
    let mut world = World::new();
    world.receipt("k", "delivered", &[10], &fresh());
    world.receipt("later", "delivered", &[10], &json!({"at": "2026-12-01T00:00:00Z"}));
    world.lines.push_str(r#"{"batchIdempotencyKey":"torn","dig"#);
    let measured = world.measure();
    assert_eq!(measured.criteria[0].counts["passes"], 1);
    let notes = measured.notes.join("\n");
    assert!(notes.contains("1 receipts were cut off") && notes.contains("2026-11-10"), "{notes}");
}

#[test]
fn named_batches_are_bounded_and_the_others_counted() {
    let mut world = World::new();
    for number in 0..BATCHES_MAX + 5 {
        world.receipt(&format!("k{number}"), "failed", &[10], &fresh());
    }
    let criterion = world.criterion(Name::SendSuccess);
    assert_eq!((criterion.batches.len(), criterion.more_batches), (BATCHES_MAX, 5));
}
