//! Output: closed pipes, full disks, untrusted text, colours.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

use ichido_core::{Key, Scope, Settled};
use ichido_ledger::{Settings, open};
use ichido_testkit::http_client::post;
use ichido_testkit::orders::Orders;
use ichido_testkit::process::address_after;
use ichido_testkit::wait::eventually;

use crate::ledger::{self, claim};
use crate::support::gateway_command;
use crate::terminal::{NEVER, at_terminal};
use crate::{ok, stderr, stdout, without_settings};

fn command(dir: &std::path::Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ichido"));
    without_settings(|name| {
        command.env_remove(name);
    });
    command.current_dir(dir).args(args).stdin(Stdio::null());
    command
}

/// A run whose standard output is a pipe without a reader.
fn run_without_reader(dir: &std::path::Path, args: &[&str]) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command(dir, args).stdout(writer).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_pipe_ends_a_command_silently() {
    let dir = tempfile::tempdir().unwrap();
    ledger::fill(&format!("file:{}", dir.path().join("data/ledger").display()), "").await;
    std::fs::write(dir.path().join("usage.jsonl"), "{\"a\":1}\n").unwrap();
    for args in [
        &["ledger", "list"][..],
        &["ledger", "list", "--json"],
        &["ledger", "show", "done"],
        &["ledger", "stats"],
        &["ledger", "sweep"],
        &["check"],
        &["id", "odds", "--per-group", "1000"],
        &["completions", "bash"],
        &["spool", "list"],
        &["demo", "--keys", "10"],
    ] {
        let output = run_without_reader(dir.path(), args);
        // The exit code that a shell reports for SIGPIPE.
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(141), ""), "{args:?}");
    }
    ok(dir.path(), &["ledger", "list"]);
}

/// Terminal escapes, and characters that reorder a line or are invisible.
const UNSAFE: &str = "pay\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}cba\u{2066}\u{200b}\u{feff}";
const ESCAPED: &str = "pay\\u{1b}[2J\\u{1b}]0;owned\\u{7}\\u{9b}31m\\u{202e}cba\\u{2066}\\u{200b}\\u{feff}";

fn is_safe(text: &str) -> bool {
    let is_unsafe = |c: char| UNSAFE.contains(c) && !c.is_ascii_graphic();
    !text.contains(is_unsafe)
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_cannot_write_escapes_to_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file:{}", dir.path().join("data/ledger").display());
    let ledger = open(&url, Settings::default()).await.unwrap();
    let key = Key::new(Scope::new(UNSAFE, UNSAFE), UNSAFE).unwrap();
    let token = claim(&ledger, key.clone(), 600_000).await;
    assert_eq!(ledger.declare_in_doubt(&key, token, UNSAFE).await.unwrap(), Settled::Applied);
    ledger.close().await.unwrap();
    // Wide enough for a row.
    let wide = |args: &[&str]| {
        let output = command(dir.path(), args).env("COLUMNS", "2000").output().unwrap();
        format!("{}{}", String::from_utf8(output.stdout.clone()).unwrap(), stderr(&output))
    };
    let listed = wide(&["ledger", "list"]);
    assert!(is_safe(&listed) && listed.contains("\\u{1b}[2J"), "{listed:?}");
    let shown = wide(&["ledger", "show", UNSAFE]);
    assert!(is_safe(&shown) && shown.contains(ESCAPED), "{shown:?}");
    for args in
        [&["ledger", "show", &format!("{UNSAFE}!")][..], &["ledger", "resolve", UNSAFE, "--as", "done"]]
    {
        let text = wide(args);
        assert!(is_safe(&text), "{text:?}");
    }
    let json: serde_json::Value = serde_json::from_str(&wide(&["ledger", "show", UNSAFE, "--json"])).unwrap();
    assert_eq!((&json["key"], &json["state"]), (&UNSAFE.into(), &"done".into()), "JSON is not escaped");
}

#[test]
fn batches_cannot_write_escapes_to_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("data/spool");
    std::fs::create_dir_all(&spool).unwrap();
    let batch = serde_json::json!({
        "batchIdempotencyKey": "00000000abcd1234", "firstAttempt": "2025-01-18T12:05:30Z", "retryCount": 1,
        "lastError": UNSAFE, "records": [{ "note": UNSAFE }],
    });
    std::fs::write(spool.join("spool_20250118T120530Z_00000000abcd.json"), batch.to_string()).unwrap();
    let run = |args: &[&str]| ok(dir.path(), args);
    let listed = run(&["spool", "list"]);
    assert!(is_safe(&listed) && listed.contains("00000000abcd"), "{listed:?}");
    let shown = run(&["spool", "show", "00000000abcd"]);
    assert!(is_safe(&shown), "{shown:?}");
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["records"][0]["note"], &shown["last_error"]), (&UNSAFE.into(), &UNSAFE.into()));
    assert!(run(&["spool", "list", "--json"]).contains('\u{202e}'), "JSON is not escaped");
}

/// Unlike a closed pipe, a full disk is an error.
#[test]
fn full_disk_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = command(dir.path(), &["id", "odds", "--per-group", "1000"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let line = stderr(&output);
    assert!(
        line.starts_with("ichido: cannot write to standard output: ") && line.lines().count() == 1,
        "{line}"
    );
}

#[test]
fn log_has_no_colours_unless_it_goes_to_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    ok(dir.path(), &["ledger", "init"]);
    let output = command(dir.path(), &["ledger", "stats"]).env("LOG_LEVEL", "trace").output().unwrap();
    let log = stderr(&output);
    assert!(!log.is_empty() && !log.contains('\u{1b}'), "{log}");
}

#[test]
fn verdicts_have_colours_at_a_terminal_unless_they_are_unwanted() {
    let dir = tempfile::tempdir().unwrap();
    let mut terminal = at_terminal(&command(dir.path(), &["check", "--ledger", "memory:"]), NEVER);
    let shown = stdout(&terminal.output().unwrap());
    assert!(shown.contains("\u{1b}[32mok"), "{shown}");
    let shown = stdout(&terminal.env("NO_COLOR", "1").output().unwrap());
    assert!(shown.contains("ok ") && !shown.contains('\u{1b}'), "{shown}");
}

#[test]
fn server_at_a_terminal_writes_text_and_stops_on_ctrl_c() {
    let dir = tempfile::tempdir().unwrap();
    let claims = command(dir.path(), &["claims", "--ledger", "memory:", "--listen", "127.0.0.1:0"]);
    let mut terminal = at_terminal(&claims, "listening on");
    let output = terminal.env("NO_COLOR", "1").output().unwrap();
    let shown = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    for part in [
        "ichido claims: listening on http://",
        "INFO stopping after the requests in progress",
        "INFO stopped",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
    assert!(!shown.contains('{'), "{shown}");
}

#[test]
fn log_of_a_server_is_json_from_start_to_end() {
    let lines = |output: &Output| -> Vec<serde_json::Value> {
        let text = String::from_utf8(output.stderr.clone()).unwrap();
        let parsed = text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")));
        parsed.collect()
    };
    let dir = tempfile::tempdir().unwrap();
    let claims = ["claims", "--ledger", "memory:", "--listen", "127.0.0.1:0"];
    let mut child =
        command(dir.path(), &claims).env("LOG_LEVEL", "warn").stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut text = String::new();
    while !text.contains("started") {
        assert!(log.read_line(&mut text).unwrap() > 0, "{text}");
    }
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    log.read_to_string(&mut text).unwrap();
    let status = child.wait().unwrap();
    let messages: Vec<_> = lines(&Output { status, stdout: Vec::new(), stderr: text.into_bytes() })
        .into_iter()
        .map(|line| line["message"].clone())
        .collect();
    assert_eq!(messages.last().unwrap(), "stopped");
    let refused = lines(&command(dir.path(), &["claims", "--ledger", "nowhere:"]).output().unwrap());
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!((&refused[0]["message"], &refused[0]["exit_code"]), (&"failed".into(), &2.into()));
    assert!(refused[0]["error"].as_str().unwrap().contains("unknown scheme"), "{refused:?}");
}

/// The reader of the log keeps its end of the pipe open, but reads nothing after the start line.
#[test]
fn stalled_log_reader_delays_neither_requests_nor_the_exit() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let mut command = gateway_command(dir.path(), orders.address, "file:ledger", "");
    command.env("LOG_LEVEL", "trace").stdin(Stdio::null()).stderr(Stdio::piped());
    let mut gateway = command.spawn().unwrap();
    let mut log = BufReader::new(gateway.stderr.take().unwrap());
    let address = loop {
        let mut line = String::new();
        assert!(log.read_line(&mut line).unwrap() > 0, "no start line");
        if line.contains("ichido gateway: ") {
            break address_after(&line, "listening on ");
        }
    };
    for number in 0..500 {
        assert_eq!(post(address, "/orders", &format!("\"{number}\""), "{}").status, 201);
    }
    assert!(Command::new("kill").arg(gateway.id().to_string()).status().unwrap().success());
    let status = eventually("the gateway's exit", || gateway.try_wait().unwrap());
    assert!(status.success(), "{status}");
    let mut rest = String::new();
    log.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("a second signal exits at once"), "the pipe was never full: {} bytes", rest.len());
}
