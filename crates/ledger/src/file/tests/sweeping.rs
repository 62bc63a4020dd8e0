//! Forgetting.

use std::sync::atomic::Ordering;

use ichido_core::mark::{self, Mark};
use ichido_core::{Claim, MarkKey, Metadata, Nonce};

use super::super::queue::Call;
use super::super::sweep::Bite;
use super::{DAY_MS, RETENTION_MS, clock, complete, grant, key, open, request};
use crate::{Backend, Maintain, Swept};

#[tokio::test]
async fn a_sweep_removes_what_is_over_and_nothing_else() {
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

    let some = ledger.sweep(100).await.unwrap();
    assert_eq!(some, Swept { removed: 100, doubts_ended: 0, more: true });
    let rest = ledger.sweep(10_000).await.unwrap();
    assert_eq!(rest, Swept { removed: 599, doubts_ended: 0, more: false });
    assert_eq!(ledger.sweep(10_000).await.unwrap(), Swept::default());
    assert!(matches!(ledger.claim(&request("young", 2)).await.unwrap(), Claim::Done(_)));
    assert!(ledger.get(&key("running")).await.unwrap().is_some());
    assert!(matches!(ledger.claim(&request("old-3", 3)).await.unwrap(), Claim::Held { .. }));
    let engine = ledger.shared.engine().unwrap();
    assert_eq!(engine.done.len().unwrap(), 1);
    assert_eq!(engine.ends.len().unwrap(), 1);
}

#[tokio::test]
async fn doubt_that_ends_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    for number in 0..600 {
        grant(&ledger, &format!("k{number}"), 1).await;
    }
    clock.advance(super::LEASE_MS + 30 * DAY_MS - 1);
    assert_eq!(ledger.sweep(1_000).await.unwrap(), Swept::default());
    clock.advance(1);
    assert_eq!(ledger.sweep(400).await.unwrap(), Swept { removed: 400, doubts_ended: 400, more: true });
    assert_eq!(ledger.sweep(400).await.unwrap(), Swept { removed: 200, doubts_ended: 200, more: false });
    assert_eq!(ledger.stats().await.unwrap().in_doubt, Some(0));
}

#[tokio::test]
async fn marks_are_swept_and_a_reopened_ledger_goes_on_where_it_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    let marks: Vec<_> = (0..1_000)
        .map(|number| mark::Request {
            key: MarkKey::new(format!("e{number}")).unwrap(),
            nonce: Nonce::from_bytes([1; 16]),
            retention_ms: 1_000,
            metadata: Metadata::default(),
        })
        .collect();
    assert!(ledger.mark(&marks).await.unwrap().iter().all(|mark| *mark == Mark::New));
    clock.advance(1_000);
    assert_eq!(ledger.sweep(300).await.unwrap().removed, 300);
    ledger.close().await.unwrap();
    let ledger = open(dir.path(), &clock);
    // The opening sweeps by itself as well; between the two nothing is left.
    let swept = ledger.sweep(10_000).await.unwrap();
    assert!(swept.removed <= 700 && !swept.more);
    assert_eq!(ledger.shared.engine().unwrap().marks.len().unwrap(), 0);
    assert_eq!(ledger.stats().await.unwrap().marks, Some(0));
}

#[tokio::test]
async fn a_ledger_sweeps_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    for number in 0..50 {
        complete(&ledger, &format!("k{number}"), 1, "x").await;
    }
    clock.advance(RETENTION_MS + super::super::sweep::GRACE_MS);
    for number in 0..1_000 {
        if ledger.shared.engine().unwrap().done.len().unwrap() == 0 {
            return;
        }
        grant(&ledger, &format!("new-{number}"), 1).await;
    }
    panic!("nothing was swept");
}

#[tokio::test]
async fn an_end_that_a_sweep_cannot_have_seen_is_left_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path(), &clock());
    let seen = ledger.shared.published.load(Ordering::Acquire);
    let late = mark::Request {
        key: MarkKey::new("late").unwrap(),
        nonce: Nonce::from_bytes([1; 16]),
        retention_ms: 0,
        metadata: Metadata::default(),
    };
    assert_eq!(ledger.mark(&[late]).await.unwrap(), [Mark::New]);
    let swept_to = ledger.shared.time.now() + 1;
    let bite = Bite { seen, over: Vec::new(), spent: Vec::new(), swept_to };
    ledger.ask(|reply| Call::Sweep { bite, reply }).await.unwrap();
    assert_eq!(ledger.sweep(10).await.unwrap().removed, 1);
}
