//! Backups: consistent while the ledger is in use, checked, and restored.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ichido_core::{Claim, Outcome, Settle};

use super::super::{File, FileSettings, restore, verify};
use super::{clock, complete, grant, key, open, request};
use crate::{Backend, Kind, Maintain};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_has_everything_that_was_acknowledged_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = Arc::new(open(&dir.path().join("ledger"), &clock));
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let writing = tokio::spawn({
        let (ledger, acknowledged) = (ledger.clone(), acknowledged.clone());
        async move {
            for number in 0..2_000 {
                let text = format!("k{number}");
                let grant = grant(&ledger, &text, 1).await;
                // Some outcomes have files of their own.
                let size = if number % 100 == 0 { 200_000 } else { 20_000 };
                let action = Settle::Complete(Outcome::kept(vec![u8::try_from(number % 251).unwrap(); size]));
                let _ = ledger.settle(&key(&text), grant.token, &action).await.unwrap();
                acknowledged.store(number + 1, Ordering::SeqCst);
            }
        }
    });
    for number in 0..3 {
        tokio::task::yield_now().await;
        let before = acknowledged.load(Ordering::SeqCst);
        let copy = dir.path().join(format!("backup-{number}"));
        let backup = ledger.backup(&copy).await.unwrap();
        assert!(backup.commit as usize >= before && backup.files > 1);
        let target = dir.path().join(format!("restored-{number}"));
        assert_eq!(restore(&copy, &target).unwrap().commit, backup.commit);
        let restored = open(&target, &clock);
        for number in 0..before {
            let answer = restored.claim(&request(&format!("k{number}"), 2)).await.unwrap();
            assert!(matches!(answer, Claim::Done(_)), "k{number}: {answer:?}");
        }
        restored.close().await.unwrap();
        assert_eq!(verify(&target).unwrap().problems, Vec::<String>::new());
        fs::remove_dir_all(&target).unwrap();
        fs::remove_dir_all(&copy).unwrap();
    }
    writing.await.unwrap();
    assert_eq!(ledger.verify().await.unwrap().problems, Vec::<String>::new());
}

#[tokio::test]
async fn a_damaged_backup_is_not_restored() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(&dir.path().join("ledger"), &clock());
    complete(&ledger, "k", 1, "x").await;
    let copy = dir.path().join("copy");
    ledger.backup(&copy).await.unwrap();
    let occupied = ledger.backup(&copy).await.unwrap_err();
    assert!(occupied.to_string().contains("is not empty"), "{occupied}");
    let segment = copy.join("00000001.log");
    let mut bytes = fs::read(&segment).unwrap();
    let last = bytes.len() - 20;
    bytes[last] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let error = restore(&copy, &dir.path().join("target")).unwrap_err();
    assert!(matches!(error.kind(), Kind::Corrupt(text) if text.contains("00000001.log")), "{error}");
    assert!(!dir.path().join("target").exists());
    let error = restore(&dir.path().join("nothing"), &dir.path().join("target")).unwrap_err();
    assert!(error.to_string().contains("nothing"), "{error}");
}

#[tokio::test]
async fn compaction_keeps_what_is_needed_in_one_segment() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path(), &clock());
    for number in 0..50 {
        complete(&ledger, &format!("k{number}"), 1, "x").await;
    }
    grant(&ledger, "open", 1).await;
    ledger.compact().await.unwrap();
    assert!(!dir.path().join("00000001.log").exists());
    for number in 0..50 {
        let answer = ledger.claim(&request(&format!("k{number}"), 2)).await.unwrap();
        assert_eq!(answer, Claim::Done(Outcome::kept("x")));
    }
    let verified = ledger.verify().await.unwrap();
    assert_eq!((verified.claims, verified.problems), (51, Vec::new()));
}

/// A crash may interrupt a restore after any file. What is there must not be opened as a new, empty ledger.
#[tokio::test]
async fn an_interrupted_restore_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(&dir.path().join("ledger"), &clock());
    complete(&ledger, "k", 1, "x").await;
    let copy = dir.path().join("copy");
    ledger.backup(&copy).await.unwrap();
    for (number, files) in [&["high-water"][..], &["high-water", "00000001.log"]].iter().enumerate() {
        let partial = dir.path().join(format!("partial-{number}"));
        fs::create_dir(&partial).unwrap();
        for file in *files {
            fs::copy(copy.join(file), partial.join(file)).unwrap();
        }
        let error = File::open(&partial, FileSettings::default(), clock()).unwrap_err();
        assert!(matches!(error.kind(), Kind::Corrupt(text) if text.contains("format")), "{error}");
    }
    let target = dir.path().join("target");
    restore(&copy, &target).unwrap();
    assert!(matches!(open(&target, &clock()).claim(&request("k", 2)).await.unwrap(), Claim::Done(_)));
}

#[tokio::test]
async fn an_interrupted_backup_is_not_restored() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(&dir.path().join("ledger"), &clock());
    complete(&ledger, "k", 1, "x").await;
    let copy = dir.path().join("copy");
    ledger.backup(&copy).await.unwrap();
    fs::remove_file(copy.join("high-water")).unwrap();
    let error = restore(&copy, &dir.path().join("target")).unwrap_err();
    assert!(matches!(error.kind(), Kind::Corrupt(text) if text.contains("high-water")), "{error}");
    assert!(!dir.path().join("target").exists());
}

#[tokio::test]
async fn nothing_is_restored_over_a_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger");
    let ledger = open(&path, &clock());
    complete(&ledger, "k", 1, "x").await;
    let inside = ledger.backup(&path.join("copy")).await.unwrap_err();
    assert!(inside.to_string().contains("inside the ledger's own directory"), "{inside}");
    let copy = dir.path().join("copy");
    ledger.backup(&copy).await.unwrap();
    complete(&ledger, "later", 1, "x").await;
    let error = restore(&copy, &path).unwrap_err();
    assert!(matches!(error.kind(), Kind::InUse(_)), "{error}");
    ledger.close().await.unwrap();
    let error = restore(&copy, &path).unwrap_err();
    assert!(matches!(error.kind(), Kind::Settings(text) if text.contains("is not empty")), "{error}");
    let ledger = open(&path, &clock());
    assert!(matches!(ledger.claim(&request("later", 2)).await.unwrap(), Claim::Done(_)));
}

/// Root may write anywhere, so root tests a read-only mount instead.
#[tokio::test]
async fn a_backup_that_cannot_be_written_is_verified_and_restored() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(&dir.path().join("ledger"), &clock());
    complete(&ledger, "k", 1, "x").await;
    let copy = dir.path().join("copy");
    fs::create_dir(&copy).unwrap();
    let mount = ichido_testkit::tmpfs::Tmpfs::mount(&copy, "size=80m");
    ledger.backup(&copy).await.unwrap();
    fs::remove_file(copy.join("lock")).unwrap();
    match &mount {
        Some(mount) => mount.remount("ro"),
        None => fs::set_permissions(&copy, fs::Permissions::from_mode(0o500)).unwrap(),
    }
    assert_eq!(verify(&copy).unwrap().problems, Vec::<String>::new());
    restore(&copy, &dir.path().join("target")).unwrap();
    assert!(!copy.join("lock").exists());
    let restored = open(&dir.path().join("target"), &clock());
    assert!(matches!(restored.claim(&request("k", 2)).await.unwrap(), Claim::Done(_)));
}

#[tokio::test]
async fn a_backup_to_a_full_disk_is_an_error_and_does_not_stop_the_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(&dir.path().join("ledger"), &clock());
    for number in 0..20 {
        complete(&ledger, &format!("k{number}"), 1, &"x".repeat(100_000)).await;
    }
    let copy = dir.path().join("copy");
    let Some(_mount) = ichido_testkit::tmpfs::Tmpfs::mount(&copy, "size=1m") else { return };
    let error = ledger.backup(&copy).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error.kind(), Kind::Settings(_)), "{error:?}");
    assert!(text.contains("No space left") && text.contains("the copy is incomplete"), "{text}");
    assert!(restore(&copy, &dir.path().join("target")).is_err());
    complete(&ledger, "afterwards", 1, "x").await;
}
