use std::os::unix::fs::PermissionsExt;

use super::*;

const NOW: Timestamp = Timestamp(1_737_201_930_000);

fn batch(ids: &[&str]) -> Batch {
    let record =
        |id: &&str| Record::parse(&serde_json::json!({ "source_event_id": id }).to_string()).unwrap();
    Batch::new(ids.iter().map(record).collect())
}

fn receipts(root: &Path, process: &str) -> Receipts {
    Receipts::new(Disk::default(), root, process.to_owned(), RETENTION)
}

fn write(receipts: &Receipts, batch: &Batch, disposition: Disposition, now: Timestamp) {
    receipts.write(&Entry::new(batch, disposition, now), now).unwrap();
}

fn files(root: &Path) -> Vec<String> {
    let mut names = disk::file_names(&root.join("receipts")).unwrap();
    names.sort();
    names
}

#[test]
fn receipt_records_what_happened_to_a_batch() {
    let dir = tempfile::tempdir().unwrap();
    let receipts = receipts(dir.path(), "7-1");
    let attempts = [
        Attempt { at: iso(NOW), status: None, error: Some("timeout"), latency_ms: 30_000 },
        Attempt { at: iso(NOW + 31_000), status: Some(409), error: None, latency_ms: 12 },
    ];
    let batch = batch(&["a", "b"]);
    let entry = Entry {
        proof: Some(Proof::Response),
        attempts: &attempts,
        origin: Some(Origin::Spool { retry_count: 1 }),
        part_of: Some("whole"),
        ..Entry::new(&batch, Disposition::Delivered, NOW)
    };
    receipts.write(&entry, NOW).unwrap();
    let path = dir.path().join("receipts/receipts_20250118_7-1.jsonl");
    let line: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let expected = serde_json::json!({
        "batchIdempotencyKey": batch.key(), "digest": batch.digest(), "ending": "delivered", "duplicate": "answer",
        "at": "2025-01-18T12:05:30Z", "latencyMs": 12, "records": ["a", "b"],
        "origin": "spool", "firstAttempt": "2025-01-18T12:05:30Z", "partOf": "whole",
        "attempts": [
            {"at": "2025-01-18T12:05:30Z", "error": "timeout", "latencyMs": 30_000},
            {"at": "2025-01-18T12:06:01Z", "status": 409, "latencyMs": 12},
        ],
    });
    assert_eq!(line, expected);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
}

#[test]
fn only_the_same_key_and_content_counts_as_delivered() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (receipts(dir.path(), "7-1"), receipts(dir.path(), "8-1"));
    let (known, open) = (batch(&["a"]), batch(&["b"]));
    assert!(!ours.has_delivered(&known).unwrap(), "there are none yet");
    write(&ours, &known, Disposition::Delivered, NOW);
    for disposition in [Disposition::Spooled, Disposition::Failed, Disposition::Split] {
        write(&ours, &open, disposition, NOW);
    }
    assert!(theirs.has_delivered(&known).unwrap());
    assert!(!theirs.has_delivered(&open).unwrap());
    let other = Record::parse(r#"{"source_event_id":"a","tokens":2}"#).unwrap();
    let same_key = Batch::new(vec![other]);
    assert_eq!(same_key.key(), known.key());
    assert!(!ours.has_delivered(&same_key).unwrap(), "the content differs");
    write(&theirs, &open, Disposition::Accepted, NOW);
    assert!(ours.has_delivered(&open).unwrap());
    assert!(ours.has_delivered_by("8-1", &open).unwrap() && !ours.has_delivered_by("7-1", &open).unwrap());
}

#[test]
fn torn_lines_and_foreign_files_are_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let receipts = receipts(dir.path(), "7-1");
    let (one, two) = (batch(&["a"]), batch(&["b"]));
    write(&receipts, &one, Disposition::Delivered, NOW);
    let path = dir.path().join("receipts/receipts_20250118_7-1.jsonl");
    let whole = fs::read_to_string(&path).unwrap();
    // The process crashed in the middle of a line.
    fs::write(&path, format!("{whole}{}", &whole.replace(one.key(), two.key())[..whole.len() / 2])).unwrap();
    fs::write(dir.path().join("receipts/notes.txt"), &whole).unwrap();
    assert!(receipts.has_delivered(&one).unwrap() && !receipts.has_delivered(&two).unwrap());
}

#[test]
fn each_day_has_a_file_and_expired_files_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let receipts = receipts(dir.path(), "7-1");
    let batch = batch(&["a"]);
    let day = |days: u64| NOW + days * DAY_MS;
    for days in [0, 1, 90] {
        write(&receipts, &batch, Disposition::Spooled, day(days));
    }
    assert_eq!(files(dir.path()).len(), 3, "the first is exactly 90 days old");
    write(&receipts, &batch, Disposition::Spooled, day(91));
    let expected =
        ["receipts_20250119_7-1.jsonl", "receipts_20250418_7-1.jsonl", "receipts_20250419_7-1.jsonl"];
    assert_eq!(files(dir.path()), expected);
}

/// Counts syncs.
#[derive(Debug, Default)]
struct Syncs(std::sync::atomic::AtomicU32);

impl disk::Faults for Syncs {
    fn before(&self, op: disk::Op, _: &Path) -> io::Result<()> {
        if op == disk::Op::Sync {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        Ok(())
    }
}

#[test]
fn syncs_are_grouped() {
    let dir = tempfile::tempdir().unwrap();
    let syncs = std::sync::Arc::new(Syncs::default());
    let disk = Disk::with_faults(syncs.clone());
    let receipts = Receipts::new(disk, dir.path(), "7-1".to_owned(), RETENTION);
    let count = || syncs.0.load(std::sync::atomic::Ordering::Relaxed);
    let batch = batch(&["a"]);
    for _ in 0..2 * SYNC_GROUP {
        write(&receipts, &batch, Disposition::Delivered, NOW);
    }
    assert_eq!(count(), 2);
    write(&receipts, &batch, Disposition::Delivered, NOW);
    write(&receipts, &batch, Disposition::Delivered, NOW + SYNC_GROUP_MS);
    assert_eq!(count(), 3, "a line is synced within a second");
    receipts.sync().unwrap();
    assert_eq!(count(), 3, "there is nothing left to sync");
}

mod reading {
    use super::*;
    use crate::receipt::read::{Receipt, ReceiptFiles};
    use serde::de::IgnoredAny;

    fn search(root: &Path, id: &str) -> Vec<(String, Disposition)> {
        let found = ReceiptFiles::list(root).unwrap().search(id);
        assert!(found.unreadable.is_empty() && !found.is_truncated, "{found:?}");
        let read = |receipt: &Receipt| (receipt.batch_idempotency_key.clone(), receipt.disposition);
        found.receipts.iter().map(read).collect()
    }

    #[test]
    fn receipts_are_found_by_record_batch_key_and_start_of_a_key() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (receipts(dir.path(), "7-1"), receipts(dir.path(), "8-1"));
        let (known, other) = (batch(&["a\"b", "c"]), batch(&["a"]));
        write(&two, &known, Disposition::Delivered, NOW + DAY_MS);
        write(&one, &known, Disposition::Spooled, NOW);
        write(&one, &other, Disposition::Failed, NOW);
        let key = known.key().to_owned();
        let expected = [(key.clone(), Disposition::Spooled), (key.clone(), Disposition::Delivered)];
        for id in ["a\"b", "c", &key, &key[..12]] {
            assert_eq!(search(dir.path(), id), expected, "{id}");
        }
        assert_eq!(search(dir.path(), "a"), [(other.key().to_owned(), Disposition::Failed)]);
        for unknown in ["b", "\"", "records", &key[1..], "delivered"] {
            assert_eq!(search(dir.path(), unknown), [], "{unknown}");
        }
    }

    #[test]
    fn part_is_found_by_the_key_of_the_whole() {
        let dir = tempfile::tempdir().unwrap();
        let receipts = receipts(dir.path(), "7-1");
        let (whole, part) = (batch(&["a", "b"]), batch(&["a"]));
        write(&receipts, &whole, Disposition::Split, NOW);
        let entry = Entry { part_of: Some(whole.key()), ..Entry::new(&part, Disposition::Delivered, NOW) };
        receipts.write(&entry, NOW + 1).unwrap();
        let keys: Vec<_> = search(dir.path(), whole.key()).into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, [whole.key(), part.key()]);
    }

    #[test]
    fn torn_lines_and_lines_of_earlier_versions_are_read_as_far_as_they_go() {
        let dir = tempfile::tempdir().unwrap();
        let receipts = receipts(dir.path(), "7-1");
        write(&receipts, &batch(&["a"]), Disposition::Delivered, NOW);
        let path = dir.path().join("receipts/receipts_20250118_7-1.jsonl");
        let whole = fs::read_to_string(&path).unwrap();
        let old = whole.replace(r#","firstAttempt":"2025-01-18T12:05:30Z""#, "");
        assert_ne!(old, whole);
        fs::write(&path, format!("{old}{}", &whole[..whole.len() - 4])).unwrap();
        let found = ReceiptFiles::list(dir.path()).unwrap().search("a").receipts;
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].first_attempt, found[0].origin), (None, None));
        let mut seen = 0;
        let files = ReceiptFiles::list(dir.path()).unwrap();
        let skipped = files.each::<IgnoredAny>(NOW, NOW + 1, |_| seen += 1);
        assert_eq!((seen, skipped.torn_lines), (1, 1));
    }

    #[test]
    fn file_that_cannot_be_read_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        write(&receipts(dir.path(), "7-1"), &batch(&["a"]), Disposition::Delivered, NOW);
        let path = dir.path().join("receipts/receipts_20250118_7-1.jsonl");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
        // root can read the file whatever its permissions.
        if fs::read(&path).is_err() {
            let found = ReceiptFiles::list(dir.path()).unwrap().search("a");
            assert!(found.unreadable[0].contains("receipts_20250118"), "{found:?}");
        }
    }
}
