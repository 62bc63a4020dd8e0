//! What is printed, and whoever reads it.

use std::process::{Command, Output, Stdio};

use ichido_core::{Key, Scope, Settled};
use ichido_ledger::{Settings, open};

use crate::ledger::{claim, store};
use crate::{ok, stderr, without_settings};

fn command(dir: &std::path::Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ichido"));
    without_settings(|name| {
        command.env_remove(name);
    });
    command.current_dir(dir).args(args).stdin(Stdio::null());
    command
}

/// A run that prints into a pipe whose reader has gone.
fn unread(dir: &std::path::Path, args: &[&str]) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command(dir, args).stdout(writer).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_goes_ends_a_command_without_a_word() {
    let dir = tempfile::tempdir().unwrap();
    store(&format!("file:{}", dir.path().join("data/ledger").display()), "").await;
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
        let output = unread(dir.path(), args);
        // As a shell calls the end by SIGPIPE.
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(141), ""), "{args:?}");
    }
    ok(dir.path(), &["ledger", "list"]);
}

/// Escapes for a terminal, and characters that turn a line around or hide in it.
const UNSEEN: &str = "pay\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}cba\u{2066}\u{200b}\u{feff}";
const SEEN: &str = "pay\\u{1b}[2J\\u{1b}]0;owned\\u{7}\\u{9b}31m\\u{202e}cba\\u{2066}\\u{200b}\\u{feff}";

fn is_plain(text: &str) -> bool {
    let unseen = |c: char| UNSEEN.contains(c) && !c.is_ascii_graphic();
    !text.contains(unseen)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_claim_writes_escapes_to_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file:{}", dir.path().join("data/ledger").display());
    let ledger = open(&url, Settings::default()).await.unwrap();
    let key = Key::new(Scope::new(UNSEEN, UNSEEN), UNSEEN).unwrap();
    let token = claim(&ledger, key.clone(), 600_000).await;
    assert_eq!(ledger.declare_in_doubt(&key, token, UNSEEN).await.unwrap(), Settled::Applied);
    ledger.close().await.unwrap();
    // A terminal that is wide enough for a row.
    let wide = |args: &[&str]| {
        let output = command(dir.path(), args).env("COLUMNS", "2000").output().unwrap();
        format!("{}{}", String::from_utf8(output.stdout.clone()).unwrap(), stderr(&output))
    };
    let listed = wide(&["ledger", "list"]);
    assert!(is_plain(&listed) && listed.contains("\\u{1b}[2J"), "{listed:?}");
    let shown = wide(&["ledger", "show", UNSEEN]);
    assert!(is_plain(&shown) && shown.contains(SEEN), "{shown:?}");
    for args in
        [&["ledger", "show", &format!("{UNSEEN}!")][..], &["ledger", "resolve", UNSEEN, "--as", "done"]]
    {
        let said = wide(args);
        assert!(is_plain(&said), "{said:?}");
    }
    let json: serde_json::Value = serde_json::from_str(&wide(&["ledger", "show", UNSEEN, "--json"])).unwrap();
    assert_eq!((&json["key"], &json["state"]), (&UNSEEN.into(), &"done".into()), "scripts get what is there");
}

#[test]
fn no_batch_writes_escapes_to_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("data/spool");
    std::fs::create_dir_all(&spool).unwrap();
    let batch = serde_json::json!({
        "batchIdempotencyKey": "00000000abcd1234", "firstAttempt": "2025-01-18T12:05:30Z", "retryCount": 1,
        "lastError": UNSEEN, "records": [{ "note": UNSEEN }],
    });
    std::fs::write(spool.join("spool_20250118T120530Z_00000000abcd.json"), batch.to_string()).unwrap();
    let said = |args: &[&str]| ok(dir.path(), args);
    let listed = said(&["spool", "list"]);
    assert!(is_plain(&listed) && listed.contains("00000000abcd"), "{listed:?}");
    let shown = said(&["spool", "show", "00000000abcd"]);
    assert!(is_plain(&shown), "{shown:?}");
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["records"][0]["note"], &shown["lastError"]), (&UNSEEN.into(), &UNSEEN.into()));
    assert!(said(&["spool", "list", "--json"]).contains('\u{202e}'), "scripts get what is there");
}

/// A full disk is no reader that went: it is said.
#[test]
fn a_full_disk_under_the_output_is_said() {
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
fn a_log_that_is_no_terminal_has_no_colours() {
    let dir = tempfile::tempdir().unwrap();
    ok(dir.path(), &["ledger", "init"]);
    let output = command(dir.path(), &["ledger", "stats"]).env("LOG_LEVEL", "trace").output().unwrap();
    let log = stderr(&output);
    assert!(!log.is_empty() && !log.contains('\u{1b}'), "{log}");
}
