//! The spool: passes, order, due times, and the seed's pattern 4.

use std::time::Duration;

use serde_json::json;

use super::Stage;
use super::receiver::{Reply, TOKEN};

fn down(stage: &Stage) {
    stage.receiver.does(|_| Reply::Say(503, String::new()));
}

const QUICK: (&str, &str) = ("MAX_RETRIES", "0");

/// A file in the seed's plain form.
fn plain(stage: &Stage, key: &str, id: usize) {
    let dir = stage.path().join("data/spool");
    std::fs::create_dir_all(&dir).unwrap();
    let file = json!({
        "batchIdempotencyKey": key, "records": [{"source_event_id": format!("e{id}")}],
        "firstAttempt": "2099-01-18T12:05:30Z", "retryCount": 0, "lastError": "HTTP 503 Service Unavailable",
    });
    std::fs::write(dir.join(format!("spool_20990118T120530Z_{}.json", &key[..12])), file.to_string())
        .unwrap();
}

#[test]
fn a_batch_that_fails_its_last_pass_moves_to_failed() {
    let stage = Stage::new();
    down(&stage);
    stage.send(2, &[QUICK]).ends_with(3);
    for pass in 1..3 {
        let run = stage.run(&["spool", "resend"], &[QUICK, ("MAX_SPOOL_RETRIES", "3")]);
        run.ends_with(3);
        assert_eq!(stage.files("spool")[0].1["retryCount"], pass);
        assert_eq!(run.log("kept in the spool")[0]["spoolRetry"], pass);
    }
    let run = stage.run(&["spool", "resend", "--json"], &[QUICK, ("MAX_SPOOL_RETRIES", "3")]);
    run.ends_with(4);
    assert!(stage.files("spool").is_empty());
    let files = stage.files("failed");
    let [(path, file)] = files.as_slice() else { panic!("{files:?}") };
    assert!(path.file_name().unwrap().to_str().unwrap().starts_with("failed_"));
    assert_eq!(
        (&file["retryCount"], &file["lastError"]),
        (&json!(3), &json!("HTTP 503 Service Unavailable"))
    );
    assert_eq!(file["attempts"].as_array().unwrap().len(), 4, "every pass is remembered");
    let moved = &run.log("moved to failed")[0];
    assert_eq!((&moved["movedToFailed"], &moved["spoolRetry"]), (&json!(true), &json!(3)));
    assert_eq!(run.log("not delivered")[0]["spoolRetry"], 3, "in the last pass as in the others");
    assert_eq!(run.metrics()["failedMoved"], 1);
}

#[test]
fn what_waits_is_sent_first_and_the_oldest_before_the_others() {
    let stage = Stage::new();
    down(&stage);
    for id in 0..3 {
        let file = stage.input(id..=id);
        stage.run(&["send", file.to_str().unwrap()], &[QUICK]).ends_with(3);
        // File names have the second in them.
        let named = stage.files("spool").len();
        assert_eq!(named, id + 1);
        std::thread::sleep(Duration::from_millis(1_050));
    }
    stage.receiver.does(|_| Reply::Take);
    let before = stage.receiver.seen().len();
    let file = stage.input(3..4);
    stage.run(&["send", file.to_str().unwrap()], &[]).ends_with(0);
    let order: Vec<String> = stage.receiver.seen()[before..].iter().map(|seen| seen.ids[0].clone()).collect();
    assert_eq!(order, ["e0", "e1", "e2", "e3"]);
}

#[test]
fn retry_after_is_obeyed_and_a_long_one_survives_the_process() {
    let stage = Stage::new();
    stage.receiver.plays([Reply::SayWith(429, "retry-after", "1".to_owned())]);
    stage.send(1, &[]).ends_with(0);
    let seen = stage.receiver.seen();
    assert!(seen[1].at - seen[0].at >= Duration::from_secs(1));

    stage.receiver.plays([Reply::SayWith(503, "retry-after", "86400".to_owned())]);
    let file = stage.input(1..2);
    stage.run(&["send", file.to_str().unwrap()], &[]).ends_with(3);
    assert!(stage.files("spool")[0].1["notBefore"].is_string());
    stage.run(&["spool", "resend"], &[]).ends_with(3);
    assert_eq!(stage.receiver.seen().len(), 3, "it is not asked again before its time");
    stage.run(&["spool", "resend", "--force"], &[]).ends_with(0);
    stage.receiver.has_each_once(2);
}

#[test]
fn a_poisoned_batch_holds_nobody_up() {
    let stage = Stage::new();
    stage.receiver.does(|seen| match seen.ids.contains(&"e0".to_owned()) {
        true => Reply::Say(500, String::new()),
        false => Reply::Take,
    });
    stage.send(5, &[("BATCH_SIZE", "1")]).ends_with(3);
    assert_eq!(stage.receiver.counts().len(), 4);
    assert_eq!(stage.files("spool").len(), 1);
}

#[test]
fn an_outage_does_not_cost_each_batch_an_attempt() {
    let stage = Stage::new();
    down(&stage);
    stage.send(30, &[("BATCH_SIZE", "1"), QUICK]).ends_with(3);
    assert_eq!(stage.receiver.seen().len(), 3, "three batches in a row, then nothing more is asked");
    assert_eq!(stage.files("spool").len(), 30);
    stage.run(&["spool", "resend"], &[QUICK]).ends_with(3);
    let charged = stage.files("spool").iter().filter(|(_, file)| file["retryCount"] != 0).count();
    assert_eq!(charged, 3);
    stage.receiver.does(|_| Reply::Take);
    stage.run(&["spool", "resend"], &[]).ends_with(0);
    stage.receiver.has_each_once(30);
}

#[test]
fn a_refused_token_holds_the_lane_after_one_request_until_there_is_another() {
    let stage = Stage::new();
    (0..500).for_each(|id| plain(&stage, &format!("{id:012x}"), id));
    stage.receiver.does(|seen| match seen.headers["authorization"] == "Bearer new-token" {
        true => Reply::Take,
        false => Reply::Say(401, "who are you?".to_owned()),
    });
    let token = stage.path().join("token");
    std::fs::write(&token, TOKEN).unwrap();
    let with_file = |args: &[&str]| {
        let mut command = stage.command(args);
        command.env_remove("EXTERNAL_API_TOKEN").env("EXTERNAL_API_TOKEN_FILE", &token);
        super::Run::of(command.output().unwrap())
    };
    let file = stage.input(500..502);
    let run = with_file(&["send", file.to_str().unwrap()]);
    run.ends_with(3);
    assert!(
        run.stderr.contains("the lane is held until an operator acts: HTTP 401 Unauthorized: who are you?"),
        "{}",
        run.stderr
    );
    assert_eq!(stage.receiver.seen().len(), 1, "one probe");
    assert_eq!(stage.files("spool").len(), 501, "the rest of the input waits");
    assert!(stage.files("spool").iter().all(|(_, file)| file["retryCount"] == 0), "nobody is charged");
    std::fs::write(&token, "new-token").unwrap();
    with_file(&["spool", "resend"]).ends_with(0);
    assert_eq!(stage.receiver.seen().len(), 502, "no other probe is needed");
    stage.receiver.has_each_once(502);
}

#[test]
fn a_file_in_the_seeds_plain_form_is_sent_under_its_own_key() {
    let stage = Stage::new();
    plain(&stage, "a3f2e1b9c4d5e6f7", 1);
    stage.run(&["spool", "resend"], &[]).ends_with(0);
    assert_eq!(stage.receiver.seen()[0].key, "a3f2e1b9c4d5e6f7");
    assert!(stage.files("spool").is_empty());
}

#[test]
fn damaged_files_go_to_failed_and_the_others_are_sent() {
    let stage = Stage::new();
    down(&stage);
    stage.send(1, &[QUICK]).ends_with(3);
    let dir = stage.path().join("data/spool");
    let good = std::fs::read(&stage.files("spool")[0].0).unwrap();
    std::fs::write(dir.join("spool_20250101T000000Z_aaaaaaaaaaaa.json"), "").unwrap();
    std::fs::write(dir.join("spool_20250101T000001Z_bbbbbbbbbbbb.json"), &good[..good.len() / 2]).unwrap();
    std::fs::write(dir.join("spool_20250101T000002Z_cccccccccccc.json"), b"{\"records\":\xff}").unwrap();
    let flipped = String::from_utf8(good).unwrap().replace("e0", "e9");
    std::fs::write(dir.join("spool_20250101T000003Z_dddddddddddd.json"), flipped).unwrap();
    let huge = std::fs::File::create(dir.join("spool_20250101T000004Z_eeeeeeeeeeee.json")).unwrap();
    huge.set_len(2 << 30).unwrap();
    std::fs::write(dir.join("README"), "not yours").unwrap();
    stage.receiver.does(|_| Reply::Take);
    let run = stage.run(&["spool", "resend", "--json"], &[]);
    run.ends_with(4);
    assert_eq!(run.metrics()["failedMoved"], 5);
    assert!(
        run.log("moved to failed")
            .iter()
            .all(|line| line["lastError"].as_str().unwrap().starts_with("corrupt: "))
    );
    stage.receiver.has_each_once(1);
    assert!(dir.join("README").exists());
}

#[test]
fn what_waits_too_long_goes_to_failed_and_is_not_deleted() {
    let stage = Stage::new();
    let dir = stage.path().join("data/spool");
    std::fs::create_dir_all(&dir).unwrap();
    let old = json!({"records": [{"source_event_id": "e1"}], "firstAttempt": "2020-01-01T00:00:00Z", "retryCount": 1});
    std::fs::write(dir.join("spool_20200101T000000Z_a3f2e1b9c4d5.json"), old.to_string()).unwrap();
    down(&stage);
    stage.run(&["spool", "resend"], &[QUICK]).ends_with(4);
    let files = stage.files("failed");
    assert!(files[0].1["lastError"].as_str().unwrap().contains("SPOOL_RETENTION_DAYS"), "{files:?}");
    stage.receiver.does(|_| Reply::Take);
    stage.run(&["failed", "resend", "--all"], &[]).ends_with(0);
    stage.receiver.has_each_once(1);
}

#[test]
fn outside_the_window_nothing_is_sent_again_unless_it_is_forced() {
    let stage = Stage::new();
    down(&stage);
    stage.send(1, &[QUICK]).ends_with(3);
    stage.receiver.does(|_| Reply::Take);
    // A window of one hour that begins in twelve.
    let hour = (jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).hour() + 12) % 24;
    let window = format!("{hour:02}:00-{hour:02}:59 UTC");
    let before = stage.receiver.seen().len();
    let file = stage.input(1..2);
    stage.run(&["send", file.to_str().unwrap()], &[("RESEND_WINDOW", &window)]).ends_with(3);
    assert_eq!(stage.receiver.seen().len(), before + 1, "what is new goes at any hour");
    stage.run(&["spool", "resend", "--force"], &[("RESEND_WINDOW", &window)]).ends_with(0);
    stage.receiver.has_each_once(2);
}

#[test]
fn a_move_to_failed_is_told_and_so_is_a_held_lane_and_its_end() {
    let stage = Stage::new();
    stage.receiver.does(|_| Reply::Say(422, "no date".to_owned()));
    let run = stage.send(1, &[]);
    run.ends_with(4);
    let path = stage.files("failed")[0].0.clone();
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(run.stderr.matches(name).count() >= 2, "in the log and in the notice: {}", run.stderr);
    assert!(stage.path().join("data/notices").is_dir());
    stage.receiver.does(|_| Reply::Say(403, String::new()));
    let file = stage.input(1..2);
    let held = |run: &super::Run| run.stderr.to_lowercase().contains("held");
    assert!(held(stage.run(&["send", file.to_str().unwrap()], &[]).ends_with(3)));
    stage.receiver.does(|_| Reply::Take);
    let run = stage.run(&["spool", "resend"], &[]);
    run.ends_with(0);
    assert!(run.stderr.contains("recovered at"), "{}", run.stderr);
}
