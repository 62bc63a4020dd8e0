//! Bad input: one clear line, exit code 2, nothing written, no secret echoed.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ichido_testkit::free_port;

use crate::{ichido, refused, stderr};

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn unknown_ledger_url_is_reported_by_its_scheme_only() {
    let dir = tempfile::tempdir().unwrap();
    let line = refused(dir.path(), &["ledger", "stats", "--ledger", "mysql://root:hunter2@db/x"], 2);
    assert!(line.contains("unknown scheme \"mysql\"") && line.contains("file:DIR"), "{line}");
    assert!(!line.contains("hunter2"), "{line}");
    let line = refused(dir.path(), &["ledger", "stats", "--ledger", "hunter2"], 2);
    assert!(!line.contains("hunter2"), "{line}");
    assert!(is_empty(dir.path()));
}

#[test]
fn unknown_log_level_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let check = |level: &str| {
        let output =
            ichido(dir.path()).args(["check", "--ledger", "memory:"]).env("LOG_LEVEL", level).output();
        let output = output.unwrap();
        (output.status.code(), stderr(&output))
    };
    for invalid in ["loud", "warn,loud", "ichido=loud"] {
        let (code, line) = check(invalid);
        assert_eq!(code, Some(2), "{invalid}: {line}");
        assert!(line.contains("LOG_LEVEL must be error, warn, info, debug or trace"), "{invalid}: {line}");
    }
    for valid in ["", "warn", "DEBUG", "warn,ichido=debug"] {
        assert_eq!(check(valid).0, Some(0), "{valid}");
    }
}

#[test]
fn unreachable_server_is_reported_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    for url in [
        format!("postgres://user:hunter2@127.0.0.1:{port}/db"),
        format!("redis://:hunter2@127.0.0.1:{port}"),
        format!("dynamodb://t?region=us-east-1&endpoint=http://127.0.0.1:{port}"),
    ] {
        let output = ichido(dir.path())
            .args(["ledger", "list", "--ledger", &url])
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "hunter2")
            .output()
            .unwrap();
        let line = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{url}: {line}");
        assert_eq!(line.trim_end().lines().count(), 1, "{line}");
        assert!(!line.contains("hunter2"), "{line}");
    }
}

#[test]
fn reading_commands_do_not_create_a_missing_ledger() {
    let dir = tempfile::tempdir().unwrap();
    for args in [vec!["ledger", "list"], vec!["ledger", "show", "k"], vec!["ledger", "sweep"]] {
        let line = refused(dir.path(), &args, 2);
        assert!(line.contains("there is no ledger at data/ledger"), "{line}");
    }
    assert!(is_empty(dir.path()));
}

#[test]
fn directory_without_permission_is_named() {
    if is_root() {
        // Root may write anywhere, but not below a file.
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "x").unwrap();
        let line = refused(dir.path(), &["ledger", "init", "--ledger", "file:file/ledger"], 2);
        assert!(line.contains("file/ledger"), "{line}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o500)).unwrap();
    let line = refused(dir.path(), &["ledger", "init", "--ledger", "file:ledger"], 2);
    assert!(line.contains("ledger"), "{line}");
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| std::os::unix::fs::MetadataExt::uid(&process) == 0)
}

#[test]
fn directory_with_other_files_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let other = dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("precious.txt"), "mine").unwrap();
    refused(dir.path(), &["ledger", "init", "--ledger", "file:other"], 2);
    let names: Vec<_> = std::fs::read_dir(&other).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["precious.txt"]);
}

#[test]
fn invalid_settings_file_is_named_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("ichido.toml"), "[ledger]\ntimeout_ms = \"soon\"\n").unwrap();
    let line = refused(dir.path(), &["check"], 2);
    assert_eq!(line.trim_end(), "ichido: ledger.timeout_ms: expected u64, found a string (ichido.toml:2)");
    let line = refused(dir.path(), &["check", "--config", "missing.toml"], 2);
    assert!(line.contains("missing.toml: no such file"), "{line}");
    let line = refused(dir.path(), &["check", "--config", "."], 2);
    assert!(line.contains("settings file .: is not a regular file"), "{line}");
}

#[test]
fn invalid_environment_variable_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let output = ichido(dir.path()).arg("check").env("ICHIDO_LEDGER_TIMEOUT_MS", "soon").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        stderr(&output),
        "ichido: ledger.timeout_ms: must be a whole number (environment variable ICHIDO_LEDGER_TIMEOUT_MS)\n"
    );
    let gateway = ["gateway", "--ledger", "memory:", "--upstream", "http://127.0.0.1:1"];
    let output = ichido(dir.path()).args(gateway).env("ICHIDO_ADMIN_LISTEN", "foo").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let expected = "ichido: admin.listen: expected an address and a port, such as 127.0.0.1:8080";
    assert_eq!(stderr(&output), format!("{expected} (environment variable ICHIDO_ADMIN_LISTEN)\n"));
    let line = refused(dir.path(), &[&gateway[..], &["--admin", "foo"]].concat(), 2);
    assert_eq!(line, format!("{expected} (--admin)\n"));
}

#[test]
fn oversized_key_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    crate::ok(dir.path(), &["ledger", "init"]);
    let key = "k".repeat(1025);
    let line = refused(dir.path(), &["ledger", "show", &key, "--tenant", "t", "--route", "r"], 2);
    assert!(line.contains("key is 1025 bytes; at most 1024"), "{line}");
}
