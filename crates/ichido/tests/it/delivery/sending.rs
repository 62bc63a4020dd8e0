//! The seed's patterns 1 to 3, and how requests look.

use std::time::Duration;

use serde_json::json;

use super::Stage;
use super::receiver::{Reply, TOKEN};

#[test]
fn records_arrive_in_batches_with_the_headers_of_the_seed() {
    let stage = Stage::new();
    let run = stage.send(250, &[]);
    run.ends_with(0);
    stage.receiver.has_each_once(250);
    let seen = stage.receiver.seen();
    assert_eq!(seen.iter().map(|seen| seen.ids.len()).collect::<Vec<_>>(), [100, 100, 50]);
    for seen in &seen {
        assert_eq!(seen.headers["content-type"], "application/json");
        assert_eq!(seen.headers["authorization"], format!("Bearer {TOKEN}"));
        assert!(
            seen.headers["user-agent"].to_str().unwrap().starts_with("dify-usage-exporter/1.0.0 ichido/")
        );
        assert_eq!(seen.headers["idempotency-key"], format!("\"{}\"", seen.key));
        assert_eq!(seen.key.len(), 64);
    }
    let metrics = run.metrics();
    assert_eq!((&metrics["sendTotal"], &metrics["sendSuccess"]), (&json!(3), &json!(3)));
    assert_eq!(metrics["recordsDelivered"], 250);
    assert_eq!(run.log("delivered").len(), 3);
    assert!(run.log("delivered")[0]["response"].as_str().unwrap().contains("inserted"));
    assert_eq!(run.log("progress").len(), 2);
    assert!(stage.files("spool").is_empty() && stage.files("failed").is_empty());
}

#[test]
fn a_network_error_is_retried_and_nothing_is_spooled() {
    let stage = Stage::new();
    stage.receiver.plays([Reply::HangUp]);
    let run = stage.send(1, &[]);
    run.ends_with(0);
    let errors = run.log("not delivered");
    assert_eq!((&errors[0]["retryCount"], &errors[0]["errorKind"]), (&json!(0), &json!("network")));
    assert_eq!(errors[0]["nextBackoff"], 0.02);
    assert_eq!(run.log("delivered")[0]["retryCount"], 1);
    assert_eq!((&run.metrics()["retries"], &run.metrics()["retrySuccess"]), (&json!(1), &json!(1)));
    let seen = stage.receiver.seen();
    assert_eq!(seen[0].bytes, seen[1].bytes, "the same bytes on every repetition");
    assert!(stage.files("spool").is_empty());
}

#[test]
fn after_four_requests_a_batch_waits_in_the_spool_and_the_next_run_delivers_it() {
    let stage = Stage::new();
    let fail = |status| Reply::Say(status, String::new());
    stage.receiver.plays([fail(500), fail(502), fail(503), Reply::Stall]);
    let run = stage.send(2, &[("EXTERNAL_API_TIMEOUT_MS", "400"), ("RETRY_BACKOFF_MS", "50")]);
    run.ends_with(3);
    let seen = stage.receiver.seen();
    assert_eq!(seen.len(), 4);
    for (pair, pause) in seen.windows(2).zip([50, 100, 200]) {
        assert!(pair[1].at - pair[0].at >= Duration::from_millis(pause), "{pause}");
    }
    let files = stage.files("spool");
    let [(path, file)] = files.as_slice() else { panic!("{files:?}") };
    assert_eq!((&file["retryCount"], &file["records"].as_array().unwrap().len()), (&json!(0), &2));
    assert!(file["lastError"].as_str().unwrap().contains("timeout"), "{file}");
    let name = path.file_name().unwrap().to_str().unwrap();
    let stamp = file["firstAttempt"].as_str().unwrap().replace(['-', ':'], "");
    assert_eq!(name, format!("spool_{}Z_{}.json", &stamp[..15], &seen[0].key[..12]));
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions()) & 0o777,
        0o600
    );
    let last = run.log("not delivered").pop().unwrap();
    assert_eq!((&last["retryCount"], &last["maxRetriesReached"]), (&json!(3), &json!(true)));
    assert_eq!(run.log("kept in the spool")[0]["spoolSaved"], true);
    assert_eq!((&run.metrics()["sendFailed"], &run.metrics()["spoolSaved"]), (&json!(1), &json!(1)));

    let next = stage.run(&["send", "--json", "/dev/null"], &[]);
    next.ends_with(0);
    assert_eq!(next.metrics()["spoolResendSuccess"], 1);
    assert!(stage.files("spool").is_empty());
    stage.receiver.has_each_once(2);
}

#[test]
fn the_same_data_twice_is_a_duplicate_and_a_success() {
    let stage = Stage::new();
    stage.send(3, &[]).ends_with(0);
    let again = stage.send(3, &[]);
    again.ends_with(0);
    assert_eq!(again.log("duplicate data detected")[0]["duplicate"], true);
    let metrics = again.metrics();
    assert_eq!((&metrics["sendSuccess"], &metrics["sendDuplicate"]), (&json!(1), &json!(1)));
    assert!(stage.files("spool").is_empty());
    stage.receiver.has_each_once(3);
}

#[test]
fn a_batch_that_arrived_before_the_connection_broke_is_counted_once() {
    let stage = Stage::new();
    stage.receiver.plays([Reply::TakeAndHangUp]);
    stage.send(5, &[]).ends_with(0);
    assert_eq!(stage.receiver.seen().len(), 2);
    stage.receiver.has_each_once(5);
}

#[test]
fn an_answer_without_end_is_read_to_a_bound() {
    let stage = Stage::new();
    stage.receiver.plays([Reply::TakeAndTalk]);
    let begun = std::time::Instant::now();
    stage.send(1, &[("EXTERNAL_API_TIMEOUT_MS", "20000")]).ends_with(0);
    assert!(begun.elapsed() < Duration::from_secs(15));
    assert_eq!(stage.receiver.seen().len(), 1);
}

#[test]
fn bodies_and_spool_files_are_packed_by_setting() {
    let stage = Stage::new();
    stage.receiver.does(|_| Reply::Say(503, String::new()));
    let packed = [("EXTERNAL_API_GZIP", "on"), ("SPOOL_GZIP", "on"), ("MAX_RETRIES", "0")];
    stage.send(5, &packed).ends_with(3);
    let seen = stage.receiver.seen();
    assert_eq!(seen[0].headers["content-encoding"], "gzip");
    assert_eq!(&seen[0].bytes[..2], [0x1f, 0x8b]);
    let files = stage.files("spool");
    assert!(files[0].0.to_str().unwrap().ends_with(".json.gz"));
    stage.receiver.does(|_| Reply::Take);
    stage.run(&["spool", "resend"], &[]).ends_with(0);
    stage.receiver.has_each_once(5);
}

#[test]
fn a_rate_limit_is_kept() {
    let stage = Stage::new();
    let begun = std::time::Instant::now();
    stage.send(5, &[("BATCH_SIZE", "1"), ("SEND_RATE_PER_SECOND", "10")]).ends_with(0);
    assert!(begun.elapsed() >= Duration::from_millis(390), "{:?}", begun.elapsed());
    stage.receiver.has_each_once(5);
}

#[test]
fn a_receiver_that_limits_requests_gets_all_batches_in_one_run() {
    const BATCHES: usize = 60;
    const MOST_PER_SECOND: usize = 20;
    let stage = Stage::new();
    let (begun, mut taken) = (std::time::Instant::now(), (0, 0));
    stage.receiver.does(move |seen| {
        let second = seen.at.duration_since(begun).as_secs();
        if taken.0 != second {
            taken = (second, 0);
        }
        taken.1 += 1;
        match taken.1 > MOST_PER_SECOND {
            true => Reply::SayWith(429, "retry-after", "1".to_owned()),
            false => Reply::Take,
        }
    });
    let run = stage.send(BATCHES, &[("BATCH_SIZE", "1")]);
    run.ends_with(0);
    stage.receiver.has_each_once(BATCHES);
    let limited = run.log("rate limited by the receiver").len();
    assert_eq!(stage.receiver.seen().len(), BATCHES + limited);
    assert!(limited * 10 <= BATCHES + limited, "{limited} requests were refused");
}

#[test]
fn standard_input_arrays_and_envelopes_are_read() {
    let stage = Stage::new();
    let write = |name: &str, text: &str| {
        std::fs::write(stage.path().join(name), text).unwrap();
    };
    write("array.json", r#"[{"source_event_id":"a"}, {"source_event_id":"b"}]"#);
    write("envelope.json", r#"{"records":[{"source_event_id":"c"}]}"#);
    stage.run(&["send", "array.json", "envelope.json"], &[]).ends_with(0);
    let mut piped = stage.command(&["send", "-"]);
    piped
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .stdout(std::process::Stdio::null());
    let mut child = piped.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"{\"source_event_id\":\"d\"}\n").unwrap();
    assert!(child.wait().unwrap().success());
    stage.receiver.has_each_once(4);
}

#[test]
fn a_dry_run_sends_nothing_and_writes_nothing() {
    let stage = Stage::new();
    let file = stage.input(0..250);
    let run = stage.run(&["send", "--dry-run", "--json", file.to_str().unwrap()], &[]);
    run.ends_with(0);
    let seen: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(seen, json!({"records": 250, "batches": 3, "broken": 0}));
    assert!(stage.receiver.seen().is_empty() && !stage.path().join("data").exists());
}

/// Runs a command at a terminal of its own, and copies what it shows.
const AT_A_TERMINAL: &str =
    "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";

#[test]
fn at_a_terminal_a_bar_shows_how_far_it_is() {
    let stage = Stage::new();
    stage.receiver.does(|_| Reply::TakeSlowly(Duration::from_millis(10)));
    let file = stage.input(0..300);
    let send = stage.command(&["send", file.to_str().unwrap()]);
    let mut command = std::process::Command::new("python3");
    command.args(["-c", AT_A_TERMINAL]).arg(send.get_program()).args(send.get_args());
    for (name, value) in send.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(stage.path()).env("BATCH_SIZE", "5").env("TERM", "xterm").env_remove("LOG_LEVEL");
    let run = super::Run::of(command.stdin(std::process::Stdio::null()).output().unwrap());
    run.ends_with(0);
    stage.receiver.has_each_once(300);
    let shown: Vec<u32> = run
        .stdout
        .split(" records")
        .filter_map(|before| before.rsplit([' ', '\u{1b}']).next()?.parse().ok())
        .collect();
    assert!(shown.iter().any(|count| (5..300).contains(count)), "{}", run.stdout);
    assert!(run.stdout.contains('%') && run.stdout.contains('█'), "{}", run.stdout);
    assert!(run.stdout.contains("60 batches delivered"), "{}", run.stdout);
    // Elsewhere there is none.
    let plain = stage.send(300, &[]);
    assert!(!plain.stderr.contains('█') && !plain.stderr.contains('\r'), "{}", plain.stderr);
    assert_eq!(plain.log("progress").len(), 3);
}
