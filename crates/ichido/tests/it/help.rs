//! The help texts, as a snapshot: every change shows up in review.

use crate::ok;

#[test]
fn help_of_every_command() {
    let dir = tempfile::tempdir().unwrap();
    let commands: &[&[&str]] = &[
        &["--help"],
        &["gateway", "--help"],
        &["claims", "--help"],
        &["send", "--help"],
        &["run", "--help"],
        &["spool", "--help"],
        &["spool", "resend", "--help"],
        &["failed", "--help"],
        &["failed", "resend", "--help"],
        &["failed", "accept", "--help"],
        &["ledger", "--help"],
        &["ledger", "resolve", "--help"],
        &["ledger", "forget", "--help"],
        &["ledger", "backup", "--help"],
        &["ledger", "restore", "--help"],
        &["events", "--help"],
        &["events", "list", "--help"],
        &["events", "show", "--help"],
        &["events", "forget", "--help"],
        &["events", "anomalies", "--help"],
        &["trace", "--help"],
        &["report", "--help"],
        &["report", "slo", "--help"],
        &["audit", "--help"],
        &["audit", "list", "--help"],
        &["audit", "verify", "--help"],
        &["meter", "--help"],
        &["id", "--help"],
        &["id", "event", "--help"],
        &["id", "batch", "--help"],
        &["id", "odds", "--help"],
        &["check", "--help"],
        &["health", "--help"],
        &["demo", "--help"],
        &["export", "--help"],
        &["export", "dify", "--help"],
        &["export", "jsonl", "--help"],
        &["reconcile", "--help"],
        &["completions", "--help"],
        &["man", "--help"],
    ];
    let text: String = commands
        .iter()
        .map(|args| format!("$ ichido {}\n{}\n", args.join(" "), ok(dir.path(), args)))
        .collect();
    insta::assert_snapshot!(text);
}

#[test]
fn version_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(ok(dir.path(), &["--version"]).trim(), format!("ichido {}", env!("CARGO_PKG_VERSION")));
}
