//! The `ichido` command from end to end, as a user runs it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::wildcard_enum_match_arm,
    reason = "anything unexpected fails the test"
)]
#![allow(clippy::disallowed_methods, reason = "tests of processes wait in real time")]

mod admin;
mod anomalies;
mod audit;
mod bad_input;
mod check;
mod claims;
mod config;
mod console;
mod delivery;
mod demo;
mod erase;
mod event_commands;
mod events;
mod export;
mod gateway;
mod health;
mod help;
mod holder;
mod id;
mod lambda;
mod ledger;
mod ledger_files;
mod meter;
mod output;
mod packaging;
mod readme;
mod serving;
mod support;
mod telemetry;
mod terminal;
mod trace;
mod triage;

use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use ichido_testkit::process::plain_failures;

/// The command in an empty directory, without settings from the environment.
fn ichido(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ichido"));
    command.current_dir(dir);
    without_settings(|name| {
        command.env_remove(name);
    });
    command
}

/// Calls `remove` with the name of every environment variable that may be a setting: all but those that programs need in
/// order to run, that measure coverage, or that `cargo xtask test` sets.
fn without_settings(mut remove: impl FnMut(&str)) {
    for name in std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
        let is_kept = ["PATH", "HOME", "TMPDIR", "LLVM_PROFILE_FILE"].contains(&name.as_str())
            || ["ICHIDO_TEST_", "AWS_", "SSL_CERT_"].iter().any(|prefix| name.starts_with(prefix));
        if !is_kept {
            remove(&name);
        }
    }
}

fn run(dir: &Path, args: &[&str]) -> Output {
    ichido(dir).args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    plain_failures(&String::from_utf8(output.stderr.clone()).unwrap())
}

/// Runs a command that must succeed, and returns its standard output.
fn ok(dir: &Path, args: &[&str]) -> String {
    let output = run(dir, args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    stdout(&output)
}

/// Runs a command that must fail with this exit code, and returns its error message, which must be one line.
fn refused(dir: &Path, args: &[&str], code: i32) -> String {
    let output = run(dir, args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {} {}", stdout(&output), stderr(&output));
    let line = stderr(&output);
    assert_eq!(line.trim_end().lines().count(), 1, "not one line: {line}");
    line
}

fn json(dir: &Path, args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&ok(dir, args)).unwrap()
}
