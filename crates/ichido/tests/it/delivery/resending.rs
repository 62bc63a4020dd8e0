//! Resending from the spool: passes, order, due times, and the move to failed.

use std::time::Duration;

use ichido_testkit::receiver::Reply;
use serde_json::json;

use super::{Fixture, TOKEN};

fn fail_every_request(fixture: &Fixture) {
    fixture.receiver.on_batch(|_| Reply::Status(503, String::new()));
}

const NO_RETRIES: (&str, &str) = ("MAX_RETRIES", "0");

/// Writes a spool file with only the required fields.
fn write_minimal_spool_file(fixture: &Fixture, key: &str, id: usize) {
    let dir = fixture.path().join("data/spool");
    std::fs::create_dir_all(&dir).unwrap();
    let file = json!({
        "batchIdempotencyKey": key, "records": [{"source_event_id": format!("e{id}")}],
        "firstAttempt": "2099-01-18T12:05:30Z", "retryCount": 0, "lastError": "HTTP 503 Service Unavailable",
    });
    std::fs::write(dir.join(format!("spool_20990118T120530Z_{}.json", &key[..12])), file.to_string())
        .unwrap();
}

#[test]
fn batch_moves_to_failed_after_its_last_pass() {
    let fixture = Fixture::new();
    fail_every_request(&fixture);
    fixture.send(2, &[NO_RETRIES]).exits_with(3);
    for pass in 1..3 {
        let run = fixture.run(&["spool", "resend"], &[NO_RETRIES, ("MAX_SPOOL_RETRIES", "3")]);
        run.exits_with(3);
        assert_eq!(fixture.files("spool")[0].1["retryCount"], pass);
        assert_eq!(run.log("kept in the spool")[0]["spoolRetry"], pass);
    }
    let run = fixture.run(&["spool", "resend", "--json"], &[NO_RETRIES, ("MAX_SPOOL_RETRIES", "3")]);
    run.exits_with(4);
    assert!(fixture.files("spool").is_empty());
    let files = fixture.files("failed");
    let [(path, file)] = files.as_slice() else { panic!("{files:?}") };
    assert!(path.file_name().unwrap().to_str().unwrap().starts_with("failed_"));
    assert_eq!(
        (&file["retryCount"], &file["lastError"]),
        (&json!(3), &json!("HTTP 503 Service Unavailable"))
    );
    assert_eq!(file["attempts"].as_array().unwrap().len(), 4, "every pass is recorded");
    let moved = &run.log("moved to failed")[0];
    assert_eq!((&moved["movedToFailed"], &moved["spoolRetry"]), (&json!(true), &json!(3)));
    assert_eq!(run.log("not delivered")[0]["spoolRetry"], 3, "the last pass is counted too");
    assert_eq!(run.metrics()["failed_moved"], 1);
}

#[test]
fn spooled_batches_are_resent_first_and_oldest_first() {
    let fixture = Fixture::new();
    fail_every_request(&fixture);
    for id in 0..3 {
        let file = fixture.input(id..=id);
        fixture.run(&["send", file.to_str().unwrap()], &[NO_RETRIES]).exits_with(3);
        // File names sort by time in seconds, so each batch needs a second of its own.
        assert_eq!(fixture.files("spool").len(), id + 1);
        std::thread::sleep(Duration::from_millis(1_050));
    }
    fixture.receiver.on_batch(|_| Reply::Accept);
    let requests_before = fixture.receiver.batch_count();
    let file = fixture.input(3..4);
    // With several requests under way, the receiver may see them in another order.
    fixture.run(&["send", file.to_str().unwrap()], &[("SEND_CONCURRENCY", "1")]).exits_with(0);
    let order: Vec<String> =
        fixture.receiver.batches()[requests_before..].iter().map(|request| request.ids[0].clone()).collect();
    assert_eq!(order, ["e0", "e1", "e2", "e3"]);
}

#[test]
fn retry_after_is_honored_across_restarts() {
    let fixture = Fixture::new();
    fixture.receiver.reply_in_order([Reply::StatusWithHeader(429, "retry-after", "1".to_owned())]);
    fixture.send(1, &[]).exits_with(0);
    let requests = fixture.receiver.batches();
    assert!(requests[1].at - requests[0].at >= Duration::from_secs(1));

    fixture.receiver.reply_in_order([Reply::StatusWithHeader(503, "retry-after", "86400".to_owned())]);
    let file = fixture.input(1..2);
    fixture.run(&["send", file.to_str().unwrap()], &[]).exits_with(3);
    assert!(fixture.files("spool")[0].1["notBefore"].is_string());
    fixture.run(&["spool", "resend"], &[]).exits_with(3);
    assert_eq!(fixture.receiver.batch_count(), 3, "no request before the batch is due");
    fixture.run(&["spool", "resend", "--force"], &[]).exits_with(0);
    fixture.receiver.assert_each_record_once(2);
}

#[test]
fn outage_does_not_cost_every_batch_an_attempt() {
    let fixture = Fixture::new();
    fail_every_request(&fixture);
    fixture.send(30, &[("BATCH_SIZE", "1"), NO_RETRIES]).exits_with(3);
    // After three failed batches in a row nothing more is sent. Up to three others were under way then.
    let tried = fixture.receiver.batch_count();
    assert!((3..=6).contains(&tried), "{tried}");
    assert_eq!(fixture.files("spool").len(), 30);
    fixture.run(&["spool", "resend"], &[NO_RETRIES]).exits_with(3);
    let charged = fixture.files("spool").iter().filter(|(_, file)| file["retryCount"] != 0).count();
    assert!((3..=6).contains(&charged), "{charged}");
    fixture.receiver.on_batch(|_| Reply::Accept);
    fixture.run(&["spool", "resend"], &[]).exits_with(0);
    fixture.receiver.assert_each_record_once(30);
}

#[test]
fn rejected_token_holds_the_lane_until_it_changes() {
    let fixture = Fixture::new();
    (0..500).for_each(|id| write_minimal_spool_file(&fixture, &format!("{id:012x}"), id));
    fixture.receiver.on_batch(|request| match request.headers["authorization"] == "Bearer new-token" {
        true => Reply::Accept,
        false => Reply::Status(401, "who are you?".to_owned()),
    });
    let token = fixture.path().join("token");
    std::fs::write(&token, TOKEN).unwrap();
    let with_file = |args: &[&str]| {
        let mut command = fixture.command(args);
        command.env_remove("EXTERNAL_API_TOKEN").env("EXTERNAL_API_TOKEN_FILE", &token);
        super::Run::of(command.output().unwrap())
    };
    let file = fixture.input(500..502);
    let run = with_file(&["send", file.to_str().unwrap()]);
    run.exits_with(3);
    assert!(
        run.stderr.contains("the lane is held until an operator acts: HTTP 401 Unauthorized: who are you?"),
        "{}",
        run.stderr
    );
    let tried = fixture.receiver.batch_count();
    assert!((1..=4).contains(&tried), "only those that are under way are tried: {tried}");
    assert_eq!(fixture.files("spool").len(), 501, "the rest of the input is spooled");
    assert!(
        fixture.files("spool").iter().all(|(_, file)| file["retryCount"] == 0),
        "no batch is charged a retry"
    );
    std::fs::write(&token, "new-token").unwrap();
    with_file(&["spool", "resend"]).exits_with(0);
    assert_eq!(fixture.receiver.batch_count(), 501 + tried, "each batch is sent once");
    fixture.receiver.assert_each_record_once(502);
}

#[test]
fn minimal_spool_file_is_sent_under_its_own_key() {
    let fixture = Fixture::new();
    write_minimal_spool_file(&fixture, "a3f2e1b9c4d5e6f7", 1);
    fixture.run(&["spool", "resend"], &[]).exits_with(0);
    assert_eq!(fixture.receiver.batches()[0].key, "a3f2e1b9c4d5e6f7");
    assert!(fixture.files("spool").is_empty());
}

#[test]
fn corrupt_files_go_to_failed_and_the_others_are_sent() {
    let fixture = Fixture::new();
    fail_every_request(&fixture);
    fixture.send(1, &[NO_RETRIES]).exits_with(3);
    let dir = fixture.path().join("data/spool");
    let good = std::fs::read(&fixture.files("spool")[0].0).unwrap();
    std::fs::write(dir.join("spool_20250101T000000Z_aaaaaaaaaaaa.json"), "").unwrap();
    std::fs::write(dir.join("spool_20250101T000001Z_bbbbbbbbbbbb.json"), &good[..good.len() / 2]).unwrap();
    std::fs::write(dir.join("spool_20250101T000002Z_cccccccccccc.json"), b"{\"records\":\xff}").unwrap();
    let flipped = String::from_utf8(good).unwrap().replace("e0", "e9");
    std::fs::write(dir.join("spool_20250101T000003Z_dddddddddddd.json"), flipped).unwrap();
    let huge = std::fs::File::create(dir.join("spool_20250101T000004Z_eeeeeeeeeeee.json")).unwrap();
    huge.set_len(2 << 30).unwrap();
    std::fs::write(dir.join("README"), "not yours").unwrap();
    fixture.receiver.on_batch(|_| Reply::Accept);
    let run = fixture.run(&["spool", "resend", "--json"], &[]);
    run.exits_with(4);
    assert_eq!(run.metrics()["failed_moved"], 5);
    assert!(
        run.log("moved to failed")
            .iter()
            .all(|line| line["lastError"].as_str().unwrap().starts_with("corrupt: "))
    );
    fixture.receiver.assert_each_record_once(1);
    assert!(dir.join("README").exists());
}

#[test]
fn expired_batch_goes_to_failed_and_is_not_deleted() {
    let fixture = Fixture::new();
    let dir = fixture.path().join("data/spool");
    std::fs::create_dir_all(&dir).unwrap();
    let old = json!({"records": [{"source_event_id": "e1"}], "firstAttempt": "2020-01-01T00:00:00Z", "retryCount": 1});
    std::fs::write(dir.join("spool_20200101T000000Z_a3f2e1b9c4d5.json"), old.to_string()).unwrap();
    fail_every_request(&fixture);
    fixture.run(&["spool", "resend"], &[NO_RETRIES]).exits_with(4);
    let files = fixture.files("failed");
    assert!(files[0].1["lastError"].as_str().unwrap().contains("SPOOL_RETENTION_DAYS"), "{files:?}");
    fixture.receiver.on_batch(|_| Reply::Accept);
    fixture.run(&["failed", "resend", "--all"], &[]).exits_with(0);
    fixture.receiver.assert_each_record_once(1);
}

#[test]
fn nothing_is_resent_outside_the_window_unless_forced() {
    let fixture = Fixture::new();
    fail_every_request(&fixture);
    fixture.send(1, &[NO_RETRIES]).exits_with(3);
    fixture.receiver.on_batch(|_| Reply::Accept);
    // A window of one hour that starts twelve hours from now.
    let hour = (jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).hour() + 12) % 24;
    let window = format!("{hour:02}:00-{hour:02}:59 UTC");
    let requests_before = fixture.receiver.batch_count();
    let file = fixture.input(1..2);
    fixture.run(&["send", file.to_str().unwrap()], &[("RESEND_WINDOW", &window)]).exits_with(3);
    assert_eq!(fixture.receiver.batch_count(), requests_before + 1, "new batches are sent at any time");
    fixture.run(&["spool", "resend", "--force"], &[("RESEND_WINDOW", &window)]).exits_with(0);
    fixture.receiver.assert_each_record_once(2);
}

#[test]
fn failed_batch_held_lane_and_recovery_are_reported() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|_| Reply::Status(422, "no date".to_owned()));
    let run = fixture.send(1, &[]);
    run.exits_with(4);
    let path = fixture.files("failed")[0].0.clone();
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(run.stderr.matches(name).count() >= 2, "not in both the log and the notice: {}", run.stderr);
    assert!(fixture.path().join("data/notices").is_dir());
    fixture.receiver.on_batch(|_| Reply::Status(403, String::new()));
    let file = fixture.input(1..2);
    let held = |run: &super::Run| run.stderr.to_lowercase().contains("held");
    assert!(held(fixture.run(&["send", file.to_str().unwrap()], &[]).exits_with(3)));
    fixture.receiver.on_batch(|_| Reply::Accept);
    let run = fixture.run(&["spool", "resend"], &[]);
    run.exits_with(0);
    assert!(run.stderr.contains("recovered at"), "{}", run.stderr);
}
