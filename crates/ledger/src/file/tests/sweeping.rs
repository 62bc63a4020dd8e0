//! Expired records make room, and nothing else does.

use ichido_core::mark::{self, Mark};
use ichido_core::{Claim, Fingerprint, MarkKey, Metadata, Nonce, Outcome, Settle};

use super::{DAY_MS, RETENTION_MS, clock, complete, grant, key, open, request};
use crate::{Backend, Maintain, Swept};

#[tokio::test]
async fn a_sweep_removes_expired_records_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    for number in 0..700 {
        complete(&ledger, &format!("old-{number}"), 1, "x").await;
    }
    clock.advance(RETENTION_MS / 2);
    complete(&ledger, "young", 1, "x").await;
    grant(&ledger, "running", 1).await;
    clock.advance(RETENTION_MS / 2);
    grant(&ledger, "old-3", 2).await;

    let swept = ledger.sweep(10_000).await.unwrap();
    assert_eq!(swept, Swept { removed: 699, doubts_ended: 0, more: false });
    assert_eq!(ledger.sweep(10_000).await.unwrap(), Swept::default());
    assert!(matches!(ledger.claim(&request("young", 2)).await.unwrap(), Claim::Done(_)));
    assert!(ledger.get(&key("running")).await.unwrap().is_some());
    assert!(matches!(ledger.claim(&request("old-3", 3)).await.unwrap(), Claim::Held { .. }));
    assert!(!dir.path().join("00000001.log").exists(), "the segment with the expired records is gone");
    ledger.close().await.unwrap();
    let ledger = open(dir.path(), &clock);
    assert!(matches!(ledger.claim(&request("young", 2)).await.unwrap(), Claim::Done(_)));
    assert!(matches!(ledger.claim(&request("running", 2)).await.unwrap(), Claim::InDoubt(_)));
    assert_eq!(ledger.stats().await.unwrap().done, Some(1));
}

#[tokio::test]
async fn doubts_that_expire_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    for number in 0..600 {
        grant(&ledger, &format!("k{number}"), 1).await;
    }
    clock.advance(super::LEASE_MS + 30 * DAY_MS - 1);
    assert_eq!(ledger.sweep(1_000).await.unwrap(), Swept::default());
    assert_eq!(ledger.stats().await.unwrap().in_doubt, Some(600));
    clock.advance(1);
    let swept = ledger.sweep(1_000).await.unwrap();
    assert_eq!(swept, Swept { removed: 600, doubts_ended: 600, more: false });
    assert_eq!(ledger.stats().await.unwrap().in_doubt, Some(0));
}

fn marks(count: u32) -> Vec<mark::Request> {
    let mark = |number| mark::Request {
        key: MarkKey::new(format!("e{number}")).unwrap(),
        nonce: Nonce::from_bytes([1; 16]),
        retention_ms: 1_000,
        metadata: Metadata::default(),
    };
    (0..count).map(mark).collect()
}

#[tokio::test]
async fn expired_marks_are_swept() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    assert!(ledger.mark(&marks(1_000)).await.unwrap().iter().all(|mark| *mark == Mark::New));
    clock.advance(1_000);
    assert_eq!(ledger.sweep(10_000).await.unwrap().removed, 1_000);
    assert_eq!(ledger.stats().await.unwrap().marks, Some(0));
    assert!(ledger.mark(&marks(10)).await.unwrap().iter().all(|mark| *mark == Mark::New));
}

/// Writes more than one segment, lets it expire, and waits until its files are gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn space_is_reclaimed_without_a_sweep() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    // Bytes that cannot be compressed.
    let noise = (0..3_125_u32).flat_map(|part| *Fingerprint::of([part.to_be_bytes()]).as_bytes());
    let body = Outcome::kept(noise.collect::<Vec<u8>>());
    complete(&ledger, "kept", 1, "x").await;
    for number in 0..200 {
        let text = format!("k{number}");
        let grant = grant(&ledger, &text, 1).await;
        let action = Settle::Complete(body.clone());
        let _ = ledger.settle(&key(&text), grant.token, &action).await.unwrap();
    }
    assert!(dir.path().join("00000002.log").exists(), "this filled a segment");
    grant(&ledger, "open", 1).await;
    clock.advance(RETENTION_MS);
    ichido_testkit::wait::eventually("the first segment to be dropped", || {
        (!dir.path().join("00000001.log").exists()).then_some(())
    });
    assert!(ledger.get(&key("kept")).await.unwrap().is_none());
    assert!(ledger.get(&key("open")).await.unwrap().is_some());
    let granted = ledger.claim(&request("k1", 2)).await.unwrap();
    assert!(matches!(granted, Claim::Granted(_)), "{granted:?}");
}

#[tokio::test]
async fn a_long_retention_does_not_hold_up_a_segment() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    let mut long = request("long", 1);
    long.retention_ms = 365 * DAY_MS;
    let large = Outcome::kept(vec![9; 300_000]);
    assert!(matches!(ledger.claim(&long).await.unwrap(), Claim::Granted(_)));
    let _ = ledger.settle(&long.key, long.token, &Settle::Complete(large.clone())).await.unwrap();
    for number in 0..100 {
        complete(&ledger, &format!("k{number}"), 1, "x").await;
    }
    clock.advance(RETENTION_MS);
    assert_eq!(ledger.sweep(1_000).await.unwrap().removed, 100);
    assert!(!dir.path().join("00000001.log").exists());
    let again = request("long", 2);
    assert_eq!(ledger.claim(&again).await.unwrap(), Claim::Done(large.clone()), "its outcome has a file");
    ledger.compact().await.unwrap();
    ledger.close().await.unwrap();
    let ledger = open(dir.path(), &clock);
    assert_eq!(ledger.claim(&again).await.unwrap(), Claim::Done(large));
    clock.advance(365 * DAY_MS);
    ledger.sweep(1_000).await.unwrap();
    ledger.close().await.unwrap();
    let left = std::fs::read_dir(dir.path()).unwrap();
    let names: Vec<_> = left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(!names.iter().any(|name| name.starts_with("outcome-")), "{names:?}");
}
