//! The `ichido` command from end to end, as a user runs it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::wildcard_enum_match_arm,
    reason = "anything unexpected fails the test"
)]
#![allow(clippy::disallowed_methods, reason = "tests of processes wait in real time")]

mod admin;
mod bad_input;
mod check;
mod claims;
mod config;
mod console;
mod delivery;
mod demo;
mod events;
mod export;
mod gateway;
mod help;
mod holder;
mod id;
mod ledger;
mod meter;
mod output;
mod packaging;
#[path = "../../../ledger/tests/support/pgbouncer.rs"]
mod pgbouncer;
mod readme;
mod serving;
mod support;

use std::path::Path;
use std::process::Output;

use assert_cmd::Command;

/// The command in an empty directory, without settings from the environment.
fn ichido(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ichido"));
    command.current_dir(dir);
    without_settings(|name| {
        command.env_remove(name);
    });
    command
}

/// Calls `remove` with the name of every environment variable that is a setting.
fn without_settings(mut remove: impl FnMut(&str)) {
    ["LOG_LEVEL", "SLACK_SIGNING_SECRET", "GITHUB_WEBHOOK_SECRET", "STRIPE_WEBHOOK_SECRET"]
        .into_iter()
        .for_each(&mut remove);
    for name in [
        "ENDPOINT",
        "TOKEN",
        "TOKEN_FILE",
        "TIMEOUT_MS",
        "CONFLICT",
        "ENVELOPE",
        "TENANT_ID",
        "GZIP",
        "CA_FILE",
    ] {
        remove(&format!("EXTERNAL_API_{name}"));
    }
    ["EXTERNAL_API_ALLOW_HTTP_LOOPBACK", "EXTERNAL_API_USER_AGENT", "MAX_RETRIES", "MAX_SPOOL_RETRIES"]
        .into_iter()
        .for_each(&mut remove);
    [
        "RETRY_BACKOFF_MS",
        "RETRY_JITTER",
        "RETRY_AFTER_MAX",
        "BATCH_SIZE",
        "DATA_DIR",
        "SEND_RATE_PER_SECOND",
        "RESEND_CRON",
        "RESEND_WINDOW",
    ]
    .into_iter()
    .for_each(&mut remove);
    [
        "SPOOL_GZIP",
        "SPOOL_MAX_BYTES",
        "SPOOL_RETENTION_DAYS",
        "RECEIPT_RETENTION_DAYS",
        "SLACK_WEBHOOK_URL",
        "SMTP_URL",
    ]
    .into_iter()
    .for_each(&mut remove);
    ["NOTIFY_EMAIL_TO", "NOTIFY_EMAIL_FROM"].into_iter().for_each(&mut remove);
    for name in ["LISTEN", "DB", "PROFILE", "TOKENS", "TOKENS_FILE", "BODY_MAX_BYTES"] {
        remove(&format!("METER_{name}"));
    }
    for name in
        ["DATABASE_URL", "DATABASE_PASSWORD", "CONSOLE_URL", "ADMIN_KEY", "EMAIL", "PASSWORD", "CA_FILE"]
    {
        remove(&format!("DIFY_{name}"));
        remove(&format!("DIFY_{name}_FILE"));
    }
    for name in [
        "CONFIG",
        "LEDGER_URL",
        "LEDGER_TIMEOUT_MS",
        "LEDGER_FALLBACK",
        "LEDGER_FALLBACK_SECONDS",
        "ADMIN_TOKEN",
        "ADMIN_LISTEN",
        "ADMIN_READ_TOKEN",
        "CONSOLE_BODIES",
        "CLAIMS_LOG_KEYS",
    ] {
        remove(&format!("ICHIDO_{name}"));
    }
}

fn run(dir: &Path, args: &[&str]) -> Output {
    ichido(dir).args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
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
