//! What a new opening finds.

use ichido_core::{Claim, Clock, Doubt, DoubtReason, Holder, Outcome, Settle, Settled, Timestamp};

use super::{LEASE_MS, START, clock, complete, grant, key, open, request};
use crate::{Backend, Kind, Maintain};

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    for round in 0..5_u8 {
        let ledger = open(dir.path(), &clock);
        for number in 0..round {
            let done = ledger.claim(&request(&format!("k{number}"), 99)).await.unwrap();
            assert_eq!(done, Claim::Done(Outcome::kept(format!("answer {number}"))));
        }
        complete(&ledger, &format!("k{round}"), round, &format!("answer {round}")).await;
        ledger.close().await.unwrap();
    }
}

/// A completion in the segment of its grant stores only what is new. Whoever reads or copies it gets the whole claim.
#[tokio::test]
async fn completion_does_not_repeat_its_grant() {
    let (dir, backup) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    complete(&ledger, "a-key-that-is-stored-once", 1, "answer").await;
    let record = ledger.get(&key("a-key-that-is-stored-once")).await.unwrap();
    let copies = |segment: &str| {
        let bytes = std::fs::read(dir.path().join(segment)).unwrap();
        bytes.windows(25).filter(|window| window == b"a-key-that-is-stored-once").count()
    };
    assert_eq!(copies("00000001.log"), 1);
    assert_eq!(ledger.verify().await.unwrap().problems, Vec::<String>::new());

    ledger.compact().await.unwrap();
    assert_eq!(copies("00000002.log"), 1);
    assert!(!dir.path().join("00000001.log").exists(), "the segment of the grant is gone");
    assert_eq!(ledger.get(&key("a-key-that-is-stored-once")).await.unwrap(), record);
    ledger.backup(&backup.path().join("copy")).await.unwrap();
    ledger.close().await.unwrap();
    for dir in [dir.path(), &backup.path().join("copy")] {
        let ledger = open(dir, &clock);
        assert_eq!(ledger.get(&key("a-key-that-is-stored-once")).await.unwrap(), record);
    }
}

#[tokio::test]
async fn claims_of_an_earlier_process_are_in_doubt_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    let grant = grant(&ledger, "k", 1).await;
    ledger.close().await.unwrap();
    clock.advance(1_000);
    let ledger = open(dir.path(), &clock);
    let doubt = Doubt { since: START + 1_000, reason: DoubtReason::HolderGone };
    assert_eq!(ledger.claim(&request("k", 2)).await.unwrap(), Claim::InDoubt(doubt.clone()));
    ledger.close().await.unwrap();

    clock.advance(1_000);
    let ledger = open(dir.path(), &clock);
    let answer = ledger.claim(&request("k", 2)).await.unwrap();
    assert_eq!(answer, Claim::InDoubt(doubt), "a second opening does not change when the doubt began");
    let action = Settle::Complete(Outcome::kept("after all"));
    assert_eq!(ledger.settle(&key("k"), grant.token, &action).await.unwrap(), Settled::Applied);
    assert_eq!(ledger.claim(&request("k", 2)).await.unwrap(), Claim::Done(Outcome::kept("after all")));
}

#[tokio::test]
async fn a_remote_claim_gets_one_fresh_lease() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    let mut remote = request("remote", 1);
    remote.holder = Holder::Remote;
    let mut lapsed = request("lapsed", 1);
    (lapsed.holder, lapsed.lease_ms) = (Holder::Remote, 10);
    assert!(matches!(ledger.claim(&remote).await.unwrap(), Claim::Granted(_)));
    assert!(matches!(ledger.claim(&lapsed).await.unwrap(), Claim::Granted(_)));
    clock.advance(100);
    grant(&ledger, "last commit", 1).await;
    ledger.close().await.unwrap();

    clock.advance(LEASE_MS * 10);
    let ledger = open(dir.path(), &clock);
    assert_eq!(ledger.claim(&request("remote", 2)).await.unwrap(), Claim::Held { retry_after_ms: LEASE_MS });
    let doubt = Doubt { since: START + 10, reason: DoubtReason::LeaseLapsed };
    assert_eq!(ledger.claim(&request("lapsed", 2)).await.unwrap(), Claim::InDoubt(doubt));
    clock.advance(LEASE_MS);
    assert!(matches!(ledger.claim(&request("remote", 2)).await.unwrap(), Claim::InDoubt(_)));
}

#[tokio::test]
async fn time_does_not_go_back_with_the_wall_clock() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    clock.advance(5_000);
    complete(&ledger, "k", 1, "x").await;
    ledger.close().await.unwrap();
    clock.jump_to(Timestamp(1));
    let ledger = open(dir.path(), &clock);
    assert_eq!(clock.now(), Timestamp(1));
    let done = ledger.get(&key("k")).await.unwrap().unwrap();
    assert!(ledger.shared.time.now() >= done.renewed_at);
}

#[tokio::test]
async fn a_closed_ledger_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path(), &clock());
    complete(&ledger, "k", 1, "x").await;
    ledger.close().await.unwrap();
    ledger.close().await.unwrap();
    assert_eq!(*ledger.claim(&request("k", 2)).await.unwrap_err().kind(), Kind::Closed);
    assert_eq!(*ledger.claim(&request("new", 2)).await.unwrap_err().kind(), Kind::Closed);
    assert_eq!(*ledger.stats().await.unwrap_err().kind(), Kind::Closed);
}

#[tokio::test]
async fn dropping_finishes_accepted_calls_and_releases_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    for round in 0..3 {
        let ledger = open(dir.path(), &clock);
        complete(&ledger, &format!("k{round}"), 1, "x").await;
    }
    let ledger = open(dir.path(), &clock);
    assert_eq!(ledger.stats().await.unwrap().done, Some(3));
}
