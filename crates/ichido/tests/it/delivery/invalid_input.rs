//! Invalid input and settings: the error is clear, nothing is lost, and no secret is printed.

use ichido_testkit::receiver::Reply;
use serde_json::json;

use super::Fixture;

#[test]
fn invalid_settings_are_reported_in_one_line_before_anything_is_written() {
    let fixture = Fixture::new();
    for (name, value) in [
        ("EXTERNAL_API_ENDPOINT", ""),
        ("EXTERNAL_API_ENDPOINT", "http://hunter2.example/"),
        ("EXTERNAL_API_ENDPOINT", "https://user:hunter2@host.example/"),
        ("EXTERNAL_API_ENDPOINT", "http://127.0.0.1:1/hunter2"),
        ("EXTERNAL_API_TOKEN", ""),
        ("EXTERNAL_API_TOKEN", "hunter2 with spaces"),
        ("EXTERNAL_API_CA_FILE", "nowhere.pem"),
        ("MAX_RETRIES", "many"),
        ("MAX_SPOOL_RETRIES", "0"),
        ("EXTERNAL_API_TIMEOUT_MS", "-1"),
    ] {
        let run = fixture.run(&["send", "/dev/null"], &[(name, value)]);
        run.exits_with(2);
        assert_eq!(run.stderr.trim_end().lines().count(), 1, "{}", run.stderr);
        assert!(run.stderr.contains(name) && !run.stderr.contains("hunter2"), "{}", run.stderr);
        assert!(!fixture.path().join("data").exists());
    }
}

#[test]
fn unreadable_input_is_reported_before_anything_is_sent() {
    let fixture = Fixture::new();
    let good = fixture.input(0..1);
    for bad in ["missing.jsonl", "."] {
        let run = fixture.run(&["send", good.to_str().unwrap(), bad], &[]);
        run.exits_with(2);
        assert!(run.stderr.contains(bad), "{}", run.stderr);
    }
    assert!(fixture.receiver.batches().is_empty());
}

#[test]
fn invalid_line_goes_to_failed_with_its_number_and_the_rest_is_sent() {
    let fixture = Fixture::new();
    let path = fixture.input(0..1_000);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.insert(499, "{\"source_event_id\": \"torn");
    std::fs::write(&path, lines.join("\n")).unwrap();
    let run = fixture.run(&["send", "--json", path.to_str().unwrap()], &[]);
    run.exits_with(4);
    fixture.receiver.assert_each_record_once(1_000);
    let files = fixture.files("failed");
    let [(_, file)] = files.as_slice() else { panic!("{files:?}") };
    assert!(file["lastError"].as_str().unwrap().contains("line 500"), "{file}");
    assert_eq!(file["records"][0]["unreadable"], "{\"source_event_id\": \"torn");
}

#[test]
fn full_spool_quota_rejects_new_batches() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|_| Reply::Status(503, String::new()));
    let run = fixture.send(50, &[("BATCH_SIZE", "1"), ("MAX_RETRIES", "0"), ("SPOOL_MAX_BYTES", "3000")]);
    run.exits_with(1);
    assert!(run.stderr.contains("SPOOL_MAX_BYTES"), "{}", run.stderr);
    let waiting = fixture.files("spool").len();
    assert!((1..50).contains(&waiting), "{waiting}");
    fixture.receiver.on_batch(|_| Reply::Accept);
    fixture.send(50, &[("BATCH_SIZE", "1"), ("SPOOL_MAX_BYTES", "3000")]).exits_with(0);
    fixture.receiver.assert_each_record_once(50);
}

#[test]
fn read_only_commands_create_nothing() {
    let fixture = Fixture::new();
    for args in [["spool", "list"], ["failed", "list"], ["spool", "fsck"]] {
        fixture.run(&args, &[]).exits_with(0);
    }
    let run = fixture.run(&["spool", "list", "--json"], &[]);
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&run.stdout).unwrap(),
        json!({"total": 0, "batches": []})
    );
    fixture.run(&["spool", "show", "abc"], &[]).exits_with(2);
    assert!(!fixture.path().join("data").exists());
}
