//! Backups: consistent while the ledger is in use, checked, and restored.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ichido_core::{Claim, Outcome, Settle};

use super::super::{restore, verify};
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
