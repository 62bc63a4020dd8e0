//! Whose directory it is.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ichido_core::Claim;

use super::super::{File, FileSettings, HeldBy};
use super::{clock, complete, open, request};
use crate::{Backend, Kind, Maintain};

fn refused(dir: &std::path::Path) -> (Kind, String) {
    let error = File::open(dir, FileSettings::default(), clock()).unwrap_err();
    (error.kind().clone(), error.to_string())
}

#[tokio::test]
async fn a_second_opener_is_told_who_holds_it() {
    let dir = tempfile::tempdir().unwrap();
    let settings = FileSettings { admin: Some("127.0.0.1:9090".to_owned()), ..FileSettings::default() };
    let first = File::open(dir.path(), settings, clock()).unwrap();
    let (kind, text) = refused(dir.path());
    assert!(matches!(kind, Kind::InUse(_)));
    assert!(
        text.contains(&format!("process {}", std::process::id())) && text.contains("127.0.0.1:9090"),
        "{text}"
    );
    let holder = HeldBy::of(dir.path());
    assert_eq!(holder, HeldBy { pid: Some(std::process::id()), admin: Some("127.0.0.1:9090".to_owned()) });
    first.close().await.unwrap();
    assert_eq!(HeldBy::of(dir.path()), HeldBy::default());
    open(dir.path(), &clock());
}

#[tokio::test]
async fn the_directory_is_ours_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data/ledger");
    let ledger = open(&path, &clock());
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    for name in ["lock", "holder", "format", "high-water"] {
        assert_eq!(mode(&path.join(name)), 0o600, "{name}");
    }
    assert!(ledger.check().await.unwrap().iter().all(|warning| warning.contains("MiB")));
}

#[test]
fn a_path_that_is_a_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "mine").unwrap();
    let (kind, text) = refused(&path);
    assert!(matches!(kind, Kind::Settings(_)) && text.contains("is not a directory"), "{text}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.txt"), "mine").unwrap();
    let (kind, text) = refused(dir.path());
    assert!(matches!(kind, Kind::Schema(_)) && text.contains("thesis.txt"), "{text}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// Root may write anywhere; for root a read-only mount says the same.
#[test]
fn a_directory_without_permission_is_refused_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger");
    fs::create_dir(&path).unwrap();
    if rustix::process::geteuid().is_root() {
        let Some(_mount) = super::full_disk::Mount::tmpfs(&path, "size=1m,ro") else { return };
        let (kind, text) = refused(&path);
        assert!(matches!(kind, Kind::Denied(_)) && text.contains("read-only"), "{text}");
    } else {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o500)).unwrap();
        let (kind, text) = refused(&path);
        assert!(matches!(kind, Kind::Denied(_)) && text.contains("permission denied"), "{text}");
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn a_store_of_another_format_is_refused_with_a_clear_word() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path(), &clock());
    complete(&ledger, "k", 1, "x").await;
    ledger.close().await.unwrap();
    fs::write(dir.path().join("format"), "ichido ledger, format 4\n").unwrap();
    let (kind, text) = refused(dir.path());
    assert!(matches!(kind, Kind::Schema(_)), "{kind:?}");
    assert!(text.contains("format 4") && text.contains("reads formats 1 to 3"), "{text}");
    fs::write(dir.path().join("format"), "ichido ledger, format 1\n").unwrap();
    open(dir.path(), &clock());
}

#[test]
fn a_store_that_was_left_half_made_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lock"), "").unwrap();
    fs::write(dir.path().join("making"), "").unwrap();
    open(dir.path(), &clock());
    assert!(!dir.path().join("making").exists());
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("store")).unwrap();
    let files =
        [("lock", ""), ("making", ""), ("format", "ichido ledger, format 1\n"), ("store/0.jnl", "half")];
    files.iter().for_each(|(name, text)| fs::write(dir.path().join(name), text).unwrap());
    open(dir.path(), &clock());
    assert!(!dir.path().join("making").exists());
    open(dir.path(), &clock());
}

#[tokio::test]
async fn a_store_that_was_in_use_is_not_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path(), &clock());
    complete(&ledger, "k", 1, "x").await;
    ledger.close().await.unwrap();
    fs::write(dir.path().join("making"), "").unwrap();
    let (kind, text) = refused(dir.path());
    assert!(matches!(kind, Kind::Corrupt(_)) && text.contains("`making`"), "{kind:?} {text}");
    fs::remove_file(dir.path().join("making")).unwrap();
    let ledger = open(dir.path(), &clock());
    assert!(matches!(ledger.claim(&request("k", 2)).await.unwrap(), Claim::Done(_)));
}
