//! `ichido ledger verify`, `backup`, `restore` and `compact`: on a stopped ledger, and through the process that holds it.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ichido_testkit::http_client::post;
use ichido_testkit::orders::Orders;
use ichido_testkit::wait::eventually;
use serde_json::Value;

use crate::serving::Serving;
use crate::support::Gateway;
use crate::{json, ledger, ok, refused, run, stderr, stdout};

/// A directory with a stopped ledger that has a claim in each state.
async fn stopped() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    ledger::fill(&format!("file:{}", dir.path().join("data/ledger").display()), "").await;
    dir
}

/// Changes a byte in the middle of the newest segment, and returns its path.
fn damage(dir: &Path) -> PathBuf {
    let logs = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let newest =
        logs.filter(|path| path.extension().is_some_and(|extension| extension == "log")).max().unwrap();
    let bytes = std::fs::read(&newest).unwrap();
    let middle = bytes.iter().rposition(|byte| *byte != 0).unwrap() / 2;
    let file = std::fs::OpenOptions::new().write(true).open(&newest).unwrap();
    file.write_all_at(&[bytes[middle] ^ 1], middle as u64).unwrap();
    newest
}

/// The results of the operator actions in the audit log, with their directories.
fn audited(dir: &Path) -> Vec<(String, String, String)> {
    let entries = json(dir, &["audit", "list", "--json"])["entries"].as_array().unwrap().clone();
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    let results = entries.iter().filter(|entry| entry["step"] == "result");
    results.map(|entry| (text(entry, "action"), text(entry, "place"), text(entry, "result"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_ledger_is_verified_backed_up_compacted_and_restored() {
    let dir = stopped().await;
    let verified = json(dir.path(), &["ledger", "verify", "--json"]);
    assert!(
        verified["claims"].as_u64() >= Some(3) && verified["problems"] == serde_json::json!([]),
        "{verified}"
    );
    assert!(ok(dir.path(), &["ledger", "verify"]).starts_with("checked 1 segment, "));

    let backup = json(dir.path(), &["ledger", "backup", "copies/first", "--json"]);
    let absolute = dir.path().join("copies/first");
    assert_eq!(backup["directory"], absolute.to_str().unwrap());
    assert!(backup["commit"].as_u64() >= verified["commit"].as_u64(), "{backup}");
    let printed = ok(dir.path(), &["ledger", "backup", "copies/second"]);
    assert!(
        printed.starts_with(&format!("backed up to {}", dir.path().join("copies/second").display())),
        "{printed}"
    );
    let occupied = refused(dir.path(), &["ledger", "backup", "copies/first"], 2);
    assert!(occupied.contains("copies/first is not empty"), "{occupied}");

    ok(dir.path(), &["ledger", "resolve", "doubt", "--as", "done", "--outcome", "later"]);
    assert!(ok(dir.path(), &["ledger", "compact"]).starts_with("removed 0"));
    let compacted = json(dir.path(), &["ledger", "verify", "--json"]);
    assert_eq!(compacted["claims"], 3, "replaced records are gone: {compacted}");

    let unconfirmed = refused(dir.path(), &["ledger", "restore", "copies/first"], 2);
    assert!(unconfirmed.contains("would run again; use --yes"), "{unconfirmed}");
    let full = refused(dir.path(), &["ledger", "restore", "copies/first", "--yes"], 2);
    assert!(full.contains("data/ledger is not empty; move it away"), "{full}");
    std::fs::rename(dir.path().join("data/ledger"), dir.path().join("data/ledger.old")).unwrap();
    let restored = ok(dir.path(), &["ledger", "restore", "copies/first", "--yes"]);
    assert!(restored.contains("Claims made after the backup was taken are unknown"), "{restored}");
    assert!(restored.contains("Claims that were running then are in doubt"), "{restored}");
    let shown = json(dir.path(), &["ledger", "show", "doubt", "--json"]);
    assert_eq!(shown["state"], "in-doubt", "as it was when the backup was taken");
    assert_eq!(json(dir.path(), &["ledger", "show", "done", "--json"])["outcome"]["orderId"], 17);

    let place = |name: &str| dir.path().join("copies").join(name).display().to_string();
    let entry = |action: &str, place: String, result: &str| (action.to_owned(), place, result.to_owned());
    let expected = [
        entry("backup", place("first"), "applied"),
        entry("backup", place("second"), "applied"),
        entry("backup", place("first"), "failed"),
        entry("resolve as done", String::new(), "applied"),
        entry("compact", String::new(), "applied"),
        entry("restore", place("first"), "failed"),
        entry("restore", place("first"), "applied"),
    ];
    assert_eq!(audited(dir.path()), expected, "verifying changes nothing, and is not recorded");
}

#[test]
fn a_gateway_is_backed_up_while_it_serves() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let gateway = Gateway::start(dir.path(), orders.address, "file:data/ledger", "");
    let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let client = std::thread::spawn({
        let (stop, acknowledged, address) = (stop.clone(), acknowledged.clone(), gateway.address);
        move || {
            while !stop.load(Ordering::SeqCst) {
                let number = acknowledged.load(Ordering::SeqCst);
                assert_eq!(post(address, "/orders", &format!("k{number}"), "{}").status, 201);
                acknowledged.store(number + 1, Ordering::SeqCst);
            }
        }
    });
    eventually("some orders", || (acknowledged.load(Ordering::SeqCst) > 20).then_some(()));
    let before = acknowledged.load(Ordering::SeqCst);
    let backup = json(dir.path(), &["ledger", "backup", "copy", "--json"]);
    assert_eq!(
        backup["directory"],
        dir.path().join("copy").to_str().unwrap(),
        "the holder gets an absolute path"
    );
    assert!(backup["commit"].as_u64() > Some(before as u64), "{backup}");
    for command in ["verify", "compact", "verify"] {
        ok(dir.path(), &["ledger", command]);
    }
    let occupied = refused(dir.path(), &["ledger", "backup", "copy"], 2);
    assert!(occupied.contains("copy is not empty"), "{occupied}");
    let in_use = refused(dir.path(), &["ledger", "restore", "copy", "--yes"], 2);
    assert!(in_use.contains(&format!("held by process {}", gateway.process.child.id())), "{in_use}");
    stop.store(true, Ordering::SeqCst);
    client.join().unwrap();
    for action in ["backup", "compact"] {
        gateway.process.wait_for_stderr(&format!("\"action\":\"{action}\""));
    }

    // The copy is a ledger with everything that was acknowledged before it was asked for.
    let copy = ["--ledger", "file:copy"];
    assert_eq!(
        json(dir.path(), &[&["ledger", "verify", "--json"][..], &copy].concat())["problems"],
        serde_json::json!([])
    );
    let listed = json(dir.path(), &[&["ledger", "list", "--json", "--limit", "100000"][..], &copy].concat());
    let done = listed["claims"].as_array().unwrap().iter().filter(|claim| claim["state"] == "done").count();
    assert!(done >= before, "{done} of {before}");
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_reported_with_its_file_and_offset() {
    let dir = stopped().await;
    ok(dir.path(), &["ledger", "backup", "copy"]);
    let file = damage(&dir.path().join("data/ledger"));
    let output = run(dir.path(), &["ledger", "verify"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let report = stdout(&output);
    assert!(report.contains(file.to_str().unwrap()) && report.contains("offset"), "{report}");
    assert_eq!(stderr(&output), "ichido: the ledger is not intact: 1 problem\n");
    let output = run(dir.path(), &["ledger", "verify", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let problems = serde_json::from_str::<Value>(&stdout(&output)).unwrap()["problems"].clone();
    assert!(problems[0].as_str().unwrap().contains(file.to_str().unwrap()), "{problems}");

    let damaged = damage(&dir.path().join("copy"));
    let line = refused(dir.path(), &["ledger", "restore", "copy", "--yes", "--ledger", "file:new"], 1);
    assert!(line.contains("nothing was restored") && line.contains(damaged.to_str().unwrap()), "{line}");
    assert!(!dir.path().join("new").exists());
}

/// The holder reads what is on the disk, not what it has in memory.
#[tokio::test(flavor = "multi_thread")]
async fn damage_is_reported_by_the_holder() {
    let dir = stopped().await;
    let _claims = Serving::claims(dir.path(), "file:data/ledger", None);
    let file = damage(&dir.path().join("data/ledger"));
    let output = run(dir.path(), &["ledger", "verify"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stdout(&output).contains(file.to_str().unwrap()), "{}", stdout(&output));
}

#[test]
fn other_ledgers_are_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    for command in [&["verify"][..], &["backup", "copy"], &["restore", "copy", "--yes"], &["compact"]] {
        for url in ["postgres://user:hunter2@127.0.0.1:9/db", "memory:"] {
            let line = refused(dir.path(), &[&["ledger"], command, &["--ledger", url]].concat(), 2);
            assert!(line.contains("ledger.url: only file: ledgers can be verified"), "{line}");
            assert!(!line.contains("hunter2"), "{line}");
        }
    }
    let claims = Serving::claims(dir.path(), "memory:", None);
    let admin = claims.address.to_string();
    for command in ["verify", "compact"] {
        let line = refused(dir.path(), &["ledger", command, "--admin", &admin], 2);
        assert!(line.contains("only file: ledgers support this"), "{line}");
    }
    let line = refused(dir.path(), &["ledger", "restore", "copy", "--admin", &admin], 2);
    assert!(line.contains("without --admin"), "{line}");
    assert_eq!(claims.post("/v1/ledger/verify", "").status, 501);
    let relative = claims.post("/v1/ledger/backup", r#"{"directory":"copy"}"#);
    assert_eq!(relative.status, 422, "{relative:?}");
    assert!(relative.json()["detail"].as_str().unwrap().contains("absolute path"), "{relative:?}");
}

#[test]
fn a_missing_ledger_or_backup_is_named() {
    let dir = tempfile::tempdir().unwrap();
    for command in [&["verify"][..], &["backup", "copy"], &["compact"]] {
        let line = refused(dir.path(), &[&["ledger"], command].concat(), 2);
        assert!(line.contains("there is no ledger at data/ledger"), "{line}");
    }
    let line = refused(dir.path(), &["ledger", "restore", "copy", "--yes"], 2);
    assert!(line.contains("copy"), "{line}");
    assert!(!dir.path().join("data/ledger").exists());
}
