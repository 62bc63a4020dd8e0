//! Which process holds a directory, and which directories are refused.

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
async fn a_second_process_learns_which_one_holds_the_store() {
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
async fn only_the_owner_may_read_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data/ledger");
    let ledger = open(&path, &clock());
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    for name in ["lock", "holder", "format", "high-water", "00000001.log"] {
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

/// Root may write anywhere, so root tests a read-only mount instead.
#[test]
fn a_directory_without_permission_is_refused_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger");
    fs::create_dir(&path).unwrap();
    if rustix::process::geteuid().is_root() {
        let Some(_mount) = ichido_testkit::tmpfs::Tmpfs::mount(&path, "size=1m,ro") else { return };
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
async fn a_ledger_on_a_read_only_disk_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mount) = ichido_testkit::tmpfs::Tmpfs::mount(dir.path(), "size=80m") else { return };
    let ledger = open(dir.path(), &clock());
    complete(&ledger, "k", 1, "x").await;
    ledger.close().await.unwrap();
    mount.remount("ro");
    let (kind, text) = refused(dir.path());
    assert!(matches!(kind, Kind::Denied(_)) && text.contains("read-only") && !text.contains('\n'), "{text}");
}

#[tokio::test]
async fn a_store_of_another_format_is_refused_in_one_clear_line() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path(), &clock());
    complete(&ledger, "k", 1, "x").await;
    ledger.close().await.unwrap();
    fs::write(dir.path().join("format"), "ichido ledger, format 3\n").unwrap();
    let (kind, text) = refused(dir.path());
    assert!(matches!(kind, Kind::Schema(_)), "{kind:?}");
    assert!(text.contains("format 3") && text.contains("reads format 5") && !text.contains('\n'), "{text}");
}

/// A crash may interrupt the creation of a store at any point, before anything is acknowledged.
#[tokio::test]
async fn a_store_that_was_never_completed_is_created_again() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path(), &clock());
    ledger.close().await.unwrap();
    fs::remove_file(dir.path().join("high-water")).unwrap();
    let segment = dir.path().join("00000001.log");
    for content in [Some(&[][..]), Some(&[0; 4096]), None] {
        match content {
            Some(bytes) => fs::write(&segment, bytes).unwrap(),
            None => fs::remove_file(&segment).unwrap(),
        }
        let ledger = open(dir.path(), &clock());
        complete(&ledger, "k", 1, "x").await;
        ledger.close().await.unwrap();
        fs::remove_file(dir.path().join("high-water")).unwrap();
    }
}

#[tokio::test]
async fn a_store_that_was_in_use_is_not_created_again() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path(), &clock());
    complete(&ledger, "k", 1, "x").await;
    ledger.close().await.unwrap();
    let segment = dir.path().join("00000001.log");
    let bytes = fs::read(&segment).unwrap();
    fs::remove_file(&segment).unwrap();
    let (kind, text) = refused(dir.path());
    assert!(matches!(kind, Kind::Corrupt(_)) && text.contains("segments are missing"), "{kind:?} {text}");
    fs::write(&segment, bytes).unwrap();
    let ledger = open(dir.path(), &clock());
    assert!(matches!(ledger.claim(&request("k", 2)).await.unwrap(), Claim::Done(_)));
}
