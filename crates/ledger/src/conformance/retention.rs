//! When a key is free again.

use std::time::Duration;

use ichido_core::{Claim, ClaimRequest, Key, Settled};
use tokio::time::Instant;

use super::{BOUND, LONG_MS, Subject, claim, grant_of, instance, key, outcome, request};
use crate::Ledger;

async fn done_for(ledger: &Ledger, key: &Key, retention_ms: u64) -> Instant {
    let ask = ClaimRequest { retention_ms, ..request(ledger, key, LONG_MS) };
    let grant = grant_of(claim(ledger, &ask).await);
    let completing = Instant::now();
    assert_eq!(ledger.complete(key, grant.token, outcome("x")).await.unwrap(), Settled::Applied);
    completing
}

/// The key is not free early, and free on time although nothing was deleted.
pub async fn a_done_key_is_free_exactly_at_its_expiry(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("expiry");
    let retention = Duration::from_millis(1500);
    let completing = done_for(&ledger, &key, 1500).await;
    loop {
        let answer = claim(&ledger, &request(&ledger, &key, LONG_MS)).await;
        let elapsed = completing.elapsed();
        match answer {
            Claim::Done(_) => assert!(elapsed < BOUND, "never freed"),
            Claim::Granted(grant) => {
                // The store's clock counts whole milliseconds.
                assert!(elapsed + Duration::from_millis(2) >= retention, "freed after {elapsed:?}");
                assert_eq!(grant.attempt, 1);
                return;
            }
            other => panic!("expected done or granted, got {other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Of fifty callers that come after the retention, one is granted.
pub async fn an_expired_key_has_one_new_holder(subject: &dyn Subject) {
    let instances = [instance(subject).await, instance(subject).await];
    let key = key("reuse");
    done_for(&instances[0], &key, 300).await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    let mut tasks = tokio::task::JoinSet::new();
    for racer in 0..50 {
        let ledger = instances[racer % 2].clone();
        let ask = request(&ledger, &key, LONG_MS);
        tasks.spawn(async move { claim(&ledger, &ask).await });
    }
    let answers = tasks.join_all().await;
    assert_eq!(answers.iter().filter(|answer| matches!(answer, Claim::Granted(_))).count(), 1, "{answers:?}");
    assert!(
        answers.iter().all(|answer| matches!(answer, Claim::Granted(_) | Claim::Held { .. })),
        "{answers:?}"
    );
}

/// Retention applies to outcomes: it does not end a running claim.
pub async fn a_running_claim_never_expires(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("running");
    let ask = ClaimRequest { retention_ms: 1, ..request(&ledger, &key, LONG_MS) };
    let grant = grant_of(claim(&ledger, &ask).await);
    tokio::time::sleep(Duration::from_millis(300)).await;
    ledger.sweep(10_000).await.unwrap();
    assert!(matches!(claim(&ledger, &request(&ledger, &key, LONG_MS)).await, Claim::Held { .. }));
    assert_eq!(ledger.renew(&key, grant.token, LONG_MS).await.unwrap(), Settled::Applied);
}

/// A slow effect does not shorten the time for which its outcome is kept.
pub async fn retention_counts_from_completion(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("from-completion");
    let ask = ClaimRequest { retention_ms: 30_000, ..request(&ledger, &key, LONG_MS) };
    let grant = grant_of(claim(&ledger, &ask).await);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(ledger.complete(&key, grant.token, outcome("x")).await.unwrap(), Settled::Applied);
    let record = ledger.get(&key).await.unwrap().expect("it is there");
    let kept_ms = record.expires_at().ms_since(record.claimed_at);
    assert!(kept_ms >= 30_250, "kept for {kept_ms} ms from the claim");
}
