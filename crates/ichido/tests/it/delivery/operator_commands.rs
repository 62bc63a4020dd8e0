//! The commands list, show, resend and fsck, and signals.

use std::time::{Duration, Instant};

use ichido_testkit::process::Process;
use ichido_testkit::receiver::Reply;
use ichido_testkit::wait::eventually;
use serde_json::{Value, json};

use super::Fixture;

#[test]
fn spooled_batches_are_listed_and_shown() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|_| Reply::Status(503, String::new()));
    fixture.send(3, &[("BATCH_SIZE", "2"), ("MAX_RETRIES", "0")]).exits_with(3);
    let listing: Value =
        serde_json::from_str(&fixture.run(&["spool", "list", "--json"], &[]).stdout).unwrap();
    assert_eq!(listing["total"], 2);
    let first = &listing["batches"][0];
    assert_eq!(
        (&first["retry_count"], &first["last_error"]),
        (&json!(0), &json!("HTTP 503 Service Unavailable"))
    );
    let key = first["batch_idempotency_key"].as_str().unwrap();
    let shown: Value = serde_json::from_str(&fixture.run(&["spool", "show", &key[..8]], &[]).stdout).unwrap();
    assert_eq!(shown["batch_idempotency_key"], key);
    assert_eq!(shown["records"].as_array().unwrap().len() as u64, first["records"].as_u64().unwrap());
    let table = fixture.run(&["spool", "list", "--limit", "1", "--error", "503"], &[]);
    assert!(table.stdout.contains(&key[..12]) && table.stdout.contains("1 of 2"), "{}", table.stdout);
    fixture.run(&["spool", "fsck"], &[]).exits_with(0);
    std::fs::write(fixture.path().join("data/spool/stray.txt"), "x").unwrap();
    let fsck = fixture.run(&["spool", "fsck"], &[]);
    fsck.exits_with(1);
    assert!(fsck.stdout.contains("stray.txt"), "{}", fsck.stdout);
}

/// File names contain the time in seconds and then the key, so they do not sort by first attempt.
#[test]
fn batches_of_the_same_second_are_listed_by_first_attempt() {
    let fixture = Fixture::new();
    let dir = fixture.path().join("data/spool");
    std::fs::create_dir_all(&dir).unwrap();
    let keys = ["c", "a", "b"].map(|letter| letter.repeat(64));
    for (number, key) in keys.iter().enumerate() {
        let file = json!({
            "batchIdempotencyKey": key, "records": [{"source_event_id": format!("e{number}")}],
            "firstAttempt": format!("2025-01-18T12:05:30.{number}00Z"), "retryCount": 0, "lastError": "HTTP 503",
        });
        let name = format!("spool_20250118T120530Z_{}.json", &key[..12]);
        std::fs::write(dir.join(name), file.to_string()).unwrap();
    }
    let listing: Value =
        serde_json::from_str(&fixture.run(&["spool", "list", "--json"], &[]).stdout).unwrap();
    let listed = listing["batches"].as_array().unwrap().iter().map(|batch| &batch["batch_idempotency_key"]);
    assert_eq!(listed.collect::<Vec<_>>(), keys.each_ref());
}

#[test]
fn batch_can_be_resent_by_key() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|_| Reply::Status(503, String::new()));
    fixture.send(2, &[("BATCH_SIZE", "1"), ("MAX_RETRIES", "0")]).exits_with(3);
    fixture.receiver.on_batch(|_| Reply::Accept);
    let key = fixture.files("spool")[0].1["batchIdempotencyKey"].as_str().unwrap().to_owned();
    fixture.run(&["spool", "resend", &key], &[]).exits_with(3);
    assert_eq!((fixture.receiver.record_count(), fixture.files("spool").len()), (1, 1));
    fixture.run(&["spool", "resend", "0000nothing"], &[]).exits_with(2);
}

#[test]
fn failed_batch_keeps_its_history_when_resent() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|_| Reply::Status(422, "no date".to_owned()));
    fixture.send(1, &[]).exits_with(4);
    let key = fixture.files("failed")[0].1["batchIdempotencyKey"].as_str().unwrap().to_owned();
    fixture.receiver.on_batch(|_| Reply::Status(503, String::new()));
    fixture.run(&["failed", "resend", &key[..12]], &[("MAX_RETRIES", "0")]).exits_with(3);
    let attempts = fixture.files("spool")[0].1["attempts"].to_string();
    assert!(
        attempts.contains("no date") && attempts.contains("taken out of failed") && attempts.contains("503"),
        "{attempts}"
    );
    fixture.receiver.on_batch(|_| Reply::Accept);
    fixture.run(&["spool", "resend"], &[]).exits_with(0);
    fixture.receiver.assert_each_record_once(1);
}

#[test]
fn failed_resend_without_keys_resends_everything() {
    let fixture = Fixture::new();
    for all in [&["failed", "resend"][..], &["failed", "resend", "--all"]] {
        fixture.receiver.on_batch(|_| Reply::Status(422, "no date".to_owned()));
        for id in 0..2 {
            let file = fixture.input(id..=id);
            fixture.run(&["send", file.to_str().unwrap()], &[]).exits_with(4);
        }
        assert_eq!(fixture.files("failed").len(), 2);
        fixture.receiver.on_batch(|_| Reply::Accept);
        fixture.run(all, &[]).exits_with(0);
        assert!(fixture.files("failed").is_empty(), "{all:?}");
    }
}

#[test]
fn missing_data_directory_is_not_an_empty_spool() {
    let fixture = Fixture::new();
    for command in [&["spool", "list"][..], &["spool", "show", "a"], &["spool", "fsck"], &["failed", "list"]]
    {
        let run = fixture.run(command, &[("DATA_DIR", "nowhere")]);
        run.exits_with(2);
        assert!(
            run.stderr.contains("delivery.data_dir: nowhere does not exist (environment variable DATA_DIR)"),
            "{command:?}: {}",
            run.stderr
        );
        let run = fixture.run(&[command, &["--data-dir", "nowhere"]].concat(), &[]);
        run.exits_with(2);
        assert!(
            run.stderr.contains("delivery.data_dir: nowhere does not exist (--data-dir)"),
            "{command:?}: {}",
            run.stderr
        );
    }
    assert!(!fixture.path().join("nowhere").exists(), "read-only commands create nothing");
    std::fs::create_dir(fixture.path().join("empty")).unwrap();
    for command in [&["spool", "list"][..], &["spool", "fsck"], &["failed", "list"]] {
        fixture.run(command, &[("DATA_DIR", "empty")]).exits_with(0);
    }
    fixture.send(1, &[("DATA_DIR", "nowhere")]).exits_with(0);
    fixture.run(&["spool", "list"], &[("DATA_DIR", "nowhere")]).exits_with(0);
}

#[test]
fn signal_during_backoff_spools_the_batch_without_counting_a_retry() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|_| Reply::Status(503, String::new()));
    let file = fixture.input(0..1);
    let mut process =
        Process::start(fixture.command(&["send", file.to_str().unwrap()]).env("RETRY_BACKOFF_MS", "60000"))
            .unwrap();
    eventually("the first request", || (fixture.receiver.batch_count() > 0).then_some(()));
    process.wait_for_stderr("nextBackoff");
    let signaled = Instant::now();
    process.signal("TERM");
    process.exit_code();
    assert!(signaled.elapsed() < Duration::from_secs(10));
    let files = fixture.files("spool");
    assert_eq!((files.len(), &files[0].1["retryCount"]), (1, &json!(0)));
    fixture.receiver.on_batch(|_| Reply::Accept);
    fixture.run(&["spool", "resend"], &[]).exits_with(0);
    fixture.receiver.assert_each_record_once(1);
}

#[test]
fn second_signal_exits_at_once_and_loses_nothing() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|_| Reply::NeverRespond);
    let file = fixture.input(0..1);
    let mut process = Process::start(&mut fixture.command(&["send", file.to_str().unwrap()])).unwrap();
    eventually("the request", || (fixture.receiver.batch_count() > 0).then_some(()));
    process.signal("TERM");
    process.wait_for_stderr("a second signal exits at once");
    process.signal("TERM");
    process.exit_code();
    fixture.receiver.on_batch(|_| Reply::Accept);
    fixture.run(&["spool", "resend"], &[]).exits_with(0);
    fixture.receiver.assert_each_record_once(1);
}

#[test]
fn commands_do_not_block_while_a_daemon_runs() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|_| Reply::Status(503, String::new()));
    fixture.send(3, &[("BATCH_SIZE", "1"), ("MAX_RETRIES", "0")]).exits_with(3);
    // The first batch that the daemon sends never gets a response, so the daemon keeps holding it.
    let stuck = std::sync::Arc::new(std::sync::Mutex::new(None::<String>));
    let name = stuck.clone();
    fixture.receiver.on_batch(move |request| {
        let mut name = name.lock().unwrap();
        match name.get_or_insert_with(|| request.ids[0].clone()) == &request.ids[0] {
            true => Reply::NeverRespond,
            false => Reply::Accept,
        }
    });
    let mut command = fixture.command(&["run", "--admin", "off"]);
    let mut daemon = Process::start(command.env("SEND_CONCURRENCY", "1")).unwrap();
    eventually("the request of the daemon", || stuck.lock().unwrap().is_some().then_some(()));
    let started = Instant::now();
    let listing: Value =
        serde_json::from_str(&fixture.run(&["spool", "list", "--json"], &[]).stdout).unwrap();
    assert_eq!(listing["total"], 2);
    let key = listing["batches"][0]["batch_idempotency_key"].as_str().unwrap();
    fixture.run(&["spool", "show", key], &[]).exits_with(0);
    fixture.run(&["spool", "fsck"], &[]).exits_with(0);
    fixture.run(&["spool", "resend", key], &[]).exits_with(3);
    let file = fixture.input(3..4);
    fixture.run(&["send", file.to_str().unwrap()], &[]).exits_with(0);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    assert_eq!(fixture.receiver.record_count(), 3);
    daemon.signal("TERM");
    assert_eq!(daemon.exit_code(), 0);
    fixture.receiver.on_batch(|_| Reply::Accept);
    fixture.run(&["spool", "resend"], &[]).exits_with(0);
    fixture.receiver.assert_each_record_once(4);
}

#[test]
fn json_output_fields_are_stable() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|_| Reply::Status(503, String::new()));
    let sent = fixture.send(1, &[("MAX_RETRIES", "0")]).metrics();
    let fields = |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(
        fields(&sent).join(" "),
        "failed_moved lost records_delivered retries retry_success send_duplicate send_failed send_success send_total \
         spool_resend_attempts spool_resend_success spool_saved spool_size"
    );
    let listing: Value =
        serde_json::from_str(&fixture.run(&["spool", "list", "--json"], &[]).stdout).unwrap();
    assert_eq!(fields(&listing).join(" "), "batches total");
    assert_eq!(
        fields(&listing["batches"][0]).join(" "),
        "batch_idempotency_key file first_attempt last_error not_before records retry_count"
    );
    let key = listing["batches"][0]["batch_idempotency_key"].as_str().unwrap();
    let shown: Value = serde_json::from_str(&fixture.run(&["spool", "show", key], &[]).stdout).unwrap();
    assert_eq!(
        fields(&shown).join(" "),
        "attempts batch_idempotency_key file first_attempt last_error not_before records retry_count"
    );
    let checked: Value =
        serde_json::from_str(&fixture.run(&["spool", "fsck", "--json"], &[]).stdout).unwrap();
    assert_eq!(checked, json!({"sound": 1, "findings": []}));
}
