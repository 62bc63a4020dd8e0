//! `ichido send`: requests, retries, spooling, duplicates and input formats.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use ichido_testkit::receiver::Reply;
use ichido_testkit::wait::eventually;
use serde_json::json;

use super::{Fixture, Run, TOKEN};
use crate::terminal::{NEVER, at_terminal};

#[test]
fn records_arrive_in_batches_with_the_documented_headers() {
    let fixture = Fixture::new();
    let run = fixture.send(250, &[]);
    run.exits_with(0);
    fixture.receiver.assert_each_record_once(250);
    let requests = fixture.receiver.batches();
    let mut sizes: Vec<usize> = requests.iter().map(|request| request.ids.len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [50, 100, 100]);
    for request in &requests {
        assert_eq!(request.headers["content-type"], "application/json");
        assert_eq!(request.headers["authorization"], format!("Bearer {TOKEN}"));
        assert!(
            request.headers["user-agent"].to_str().unwrap().starts_with("dify-usage-exporter/1.0.0 ichido/")
        );
        assert_eq!(request.headers["idempotency-key"], format!("\"{}\"", request.key));
        assert_eq!(request.key.len(), 64);
    }
    let metrics = run.metrics();
    assert_eq!((&metrics["send_total"], &metrics["send_success"]), (&json!(3), &json!(3)));
    assert_eq!(metrics["records_delivered"], 250);
    assert_eq!(run.log("delivered").len(), 3);
    assert!(run.log("delivered")[0]["response"].as_str().unwrap().contains("inserted"));
    assert_eq!(run.log("progress").len(), 2);
    assert!(fixture.files("spool").is_empty() && fixture.files("failed").is_empty());
}

#[test]
fn network_error_is_retried_without_spooling() {
    let fixture = Fixture::new();
    fixture.receiver.reply_in_order([Reply::Disconnect]);
    let run = fixture.send(1, &[]);
    run.exits_with(0);
    let errors = run.log("not delivered");
    assert_eq!((&errors[0]["retryCount"], &errors[0]["errorKind"]), (&json!(0), &json!("network")));
    assert_eq!(errors[0]["nextBackoff"], 0.02);
    assert_eq!(run.log("delivered")[0]["retryCount"], 1);
    assert_eq!((&run.metrics()["retries"], &run.metrics()["retry_success"]), (&json!(1), &json!(1)));
    let requests = fixture.receiver.batches();
    assert_eq!(requests[0].bytes, requests[1].bytes, "a retry sends the same bytes");
    assert!(fixture.files("spool").is_empty());
}

#[test]
fn batch_is_spooled_after_four_requests_and_delivered_by_the_next_run() {
    let fixture = Fixture::new();
    let fail = |status| Reply::Status(status, String::new());
    fixture.receiver.reply_in_order([fail(500), fail(502), fail(503), Reply::NeverRespond]);
    let run = fixture.send(2, &[("EXTERNAL_API_TIMEOUT_MS", "400"), ("RETRY_BACKOFF_MS", "50")]);
    run.exits_with(3);
    let requests = fixture.receiver.batches();
    assert_eq!(requests.len(), 4);
    for (pair, pause) in requests.windows(2).zip([50, 100, 200]) {
        assert!(pair[1].at - pair[0].at >= Duration::from_millis(pause), "{pause}");
    }
    let files = fixture.files("spool");
    let [(path, file)] = files.as_slice() else { panic!("{files:?}") };
    assert_eq!((&file["retryCount"], &file["records"].as_array().unwrap().len()), (&json!(0), &2));
    assert!(file["lastError"].as_str().unwrap().contains("timeout"), "{file}");
    let name = path.file_name().unwrap().to_str().unwrap();
    let stamp = file["firstAttempt"].as_str().unwrap().replace(['-', ':'], "");
    assert_eq!(name, format!("spool_{}Z_{}.json", &stamp[..15], &requests[0].key[..12]));
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions()) & 0o777,
        0o600
    );
    let last = run.log("not delivered").pop().unwrap();
    assert_eq!((&last["retryCount"], &last["maxRetriesReached"]), (&json!(3), &json!(true)));
    assert_eq!(run.log("kept in the spool")[0]["spoolSaved"], true);
    assert_eq!((&run.metrics()["send_failed"], &run.metrics()["spool_saved"]), (&json!(1), &json!(1)));

    let next = fixture.run(&["send", "--json", "/dev/null"], &[]);
    next.exits_with(0);
    assert_eq!(next.metrics()["spool_resend_success"], 1);
    assert!(fixture.files("spool").is_empty());
    fixture.receiver.assert_each_record_once(2);
}

#[test]
fn duplicate_batch_is_a_success() {
    let fixture = Fixture::new();
    fixture.send(3, &[]).exits_with(0);
    let again = fixture.send(3, &[]);
    again.exits_with(0);
    assert_eq!(again.log("duplicate data detected")[0]["duplicate"], true);
    let metrics = again.metrics();
    assert_eq!((&metrics["send_success"], &metrics["send_duplicate"]), (&json!(1), &json!(1)));
    assert!(fixture.files("spool").is_empty());
    fixture.receiver.assert_each_record_once(3);
}

#[test]
fn endless_response_is_read_up_to_a_limit() {
    let fixture = Fixture::new();
    fixture.receiver.reply_in_order([Reply::AcceptWithEndlessBody]);
    let started = std::time::Instant::now();
    fixture.send(1, &[("EXTERNAL_API_TIMEOUT_MS", "20000")]).exits_with(0);
    assert!(started.elapsed() < Duration::from_secs(15));
    assert_eq!(fixture.receiver.batch_count(), 1);
}

#[test]
fn gzip_settings_compress_bodies_and_spool_files() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|_| Reply::Status(503, String::new()));
    let gzip = [("EXTERNAL_API_GZIP", "on"), ("SPOOL_GZIP", "on"), ("MAX_RETRIES", "0")];
    fixture.send(5, &gzip).exits_with(3);
    let requests = fixture.receiver.batches();
    assert_eq!(requests[0].headers["content-encoding"], "gzip");
    assert_eq!(&requests[0].bytes[..2], [0x1f, 0x8b]);
    let files = fixture.files("spool");
    assert!(files[0].0.to_str().unwrap().ends_with(".json.gz"));
    fixture.receiver.on_batch(|_| Reply::Accept);
    fixture.run(&["spool", "resend"], &[]).exits_with(0);
    fixture.receiver.assert_each_record_once(5);
}

#[test]
fn send_rate_is_limited() {
    let fixture = Fixture::new();
    let started = std::time::Instant::now();
    fixture.send(5, &[("BATCH_SIZE", "1"), ("SEND_RATE_PER_SECOND", "10")]).exits_with(0);
    assert!(started.elapsed() >= Duration::from_millis(390), "{:?}", started.elapsed());
    fixture.receiver.assert_each_record_once(5);
}

#[test]
fn standard_input_arrays_and_envelopes_are_read() {
    let fixture = Fixture::new();
    let write = |name: &str, text: &str| {
        std::fs::write(fixture.path().join(name), text).unwrap();
    };
    write("array.json", r#"[{"source_event_id":"a"}, {"source_event_id":"b"}]"#);
    write("envelope.json", r#"{"records":[{"source_event_id":"c"}]}"#);
    fixture.run(&["send", "array.json", "envelope.json"], &[]).exits_with(0);
    let mut piped = fixture.command(&["send", "-"]);
    piped.stdin(Stdio::piped()).stderr(Stdio::null()).stdout(Stdio::null());
    let mut child = piped.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"{\"source_event_id\":\"d\"}\n").unwrap();
    assert!(child.wait().unwrap().success());
    fixture.receiver.assert_each_record_once(4);
}

/// A pipe may stay open for hours. What was read is sent meanwhile, and sent again if its response was lost.
#[test]
fn slow_input_does_not_hold_up_what_was_read() {
    let fixture = Fixture::new();
    fixture.receiver.reply_in_order([Reply::Disconnect]);
    let mut command = fixture.command(&["send", "-"]);
    command.env("BATCH_SIZE", "1").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(b"{\"source_event_id\":\"slow\"}\n").unwrap();
    eventually("the retry", || (fixture.receiver.batches().len() == 2).then_some(()));
    pipe.write_all(b"{\"source_event_id\":\"last\"}\n").unwrap();
    drop(pipe);
    Run::of(child.wait_with_output().unwrap()).exits_with(0);
    fixture.receiver.assert_each_record_once(2);
}

#[test]
fn interrupted_run_exits_with_130_and_keeps_what_it_read() {
    let fixture = Fixture::new();
    let mut command = fixture.command(&["send", "-"]);
    command.env("BATCH_SIZE", "1").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(b"{\"source_event_id\":\"first\"}\n").unwrap();
    eventually("the request", || (fixture.receiver.batches().len() == 1).then_some(()));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let run = Run::of(child.wait_with_output().unwrap());
    run.exits_with(130);
    assert!(run.stderr.contains("stopped before the end of the input"), "{}", run.stderr);
    fixture.receiver.assert_each_record_once(1);
}

#[test]
fn dry_run_sends_and_writes_nothing() {
    let fixture = Fixture::new();
    let file = fixture.input(0..250);
    let run = fixture.run(&["send", "--dry-run", "--json", file.to_str().unwrap()], &[]);
    run.exits_with(0);
    let summary: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(summary, json!({"records": 250, "batches": 3, "broken": 0}));
    assert!(fixture.receiver.batches().is_empty() && !fixture.path().join("data").exists());
}

#[test]
fn terminal_shows_a_progress_bar() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|_| Reply::AcceptAndDelay(Duration::from_millis(10)));
    let file = fixture.input(0..300);
    let send = fixture.command(&["send", file.to_str().unwrap()]);
    let mut terminal = at_terminal(&send, NEVER);
    let run = Run::of(terminal.env("BATCH_SIZE", "5").env_remove("LOG_LEVEL").output().unwrap());
    run.exits_with(0);
    fixture.receiver.assert_each_record_once(300);
    let shown: Vec<u32> = run
        .stdout
        .split(" records")
        .filter_map(|before| before.rsplit([' ', '\u{1b}']).next()?.parse().ok())
        .collect();
    assert!(shown.iter().any(|count| (5..300).contains(count)), "{}", run.stdout);
    for part in ["%", "█", "/s", " left"] {
        assert!(run.stdout.contains(part), "{}", run.stdout);
    }
    assert!(run.stdout.contains("60 batches delivered"), "{}", run.stdout);
    // Without a terminal there is no progress bar.
    let plain = fixture.send(300, &[]);
    assert!(!plain.stderr.contains('█') && !plain.stderr.contains('\r'), "{}", plain.stderr);
    assert_eq!(plain.log("progress").len(), 3);
}
