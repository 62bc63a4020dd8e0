//! What is printed, and whoever reads it.

use std::process::{Command, Output, Stdio};

use crate::ledger::store;
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

/// A full disk is no reader that went: it is said.
#[test]
fn a_full_disk_under_the_output_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = command(dir.path(), &["id", "odds", "--per-group", "1000"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let line = stderr(&output);
    assert!(line.starts_with("ichido: writing to standard output: ") && line.lines().count() == 1, "{line}");
}

#[test]
fn a_log_that_is_no_terminal_has_no_colours() {
    let dir = tempfile::tempdir().unwrap();
    ok(dir.path(), &["ledger", "init"]);
    let output = command(dir.path(), &["ledger", "stats"]).env("LOG_LEVEL", "trace").output().unwrap();
    let log = stderr(&output);
    assert!(!log.is_empty() && !log.contains('\u{1b}'), "{log}");
}
