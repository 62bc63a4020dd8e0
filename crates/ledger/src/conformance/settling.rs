//! What a holder's settlement does.

use ichido_core::{Claim, CurrentState, Grant, Key, Limits, Outcome, Settled};

use super::{LONG_MS, Subject, claim, granted, instance, key, outcome, request};
use crate::{Kind, Ledger};

async fn done(ledger: &Ledger, key: &Key, answer: &Outcome) -> Grant {
    let grant = granted(ledger, key, LONG_MS).await;
    assert_eq!(ledger.complete(key, grant.token, answer.clone()).await.unwrap(), Settled::Applied);
    grant
}

async fn claim_again(ledger: &Ledger, key: &Key) -> Claim {
    claim(ledger, &request(ledger, key, LONG_MS)).await
}

/// Every byte of the outcome comes back, from every instance.
pub async fn a_retry_gets_the_outcome_byte_for_byte(subject: &dyn Subject) {
    let (ledger, other) = (instance(subject).await, instance(subject).await);
    let key = key("bytes");
    let bytes: Vec<u8> = (0..=255).cycle().take(5000).collect();
    done(&ledger, &key, &Outcome::kept(bytes.clone())).await;
    assert_eq!(claim_again(&ledger, &key).await, Claim::Done(Outcome::kept(bytes.clone())));
    assert_eq!(claim_again(&other, &key).await, Claim::Done(Outcome::kept(bytes)));
}

/// An empty outcome is stored like any other.
pub async fn an_empty_outcome_is_an_outcome(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("empty");
    done(&ledger, &key, &Outcome::kept(Vec::new())).await;
    assert_eq!(claim_again(&ledger, &key).await, Claim::Done(Outcome::kept(Vec::new())));
}

/// A completion without a kept outcome is a completion.
pub async fn a_tombstone_is_remembered(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("tombstone");
    let tombstone = Outcome::Tombstone("the answer was streamed".to_owned());
    done(&ledger, &key, &tombstone).await;
    assert_eq!(claim_again(&ledger, &key).await, Claim::Done(tombstone));
}

/// A second completion with the same token succeeds, and changes nothing.
pub async fn the_first_outcome_stays(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("first-stays");
    let grant = done(&ledger, &key, &outcome("first")).await;
    assert_eq!(ledger.complete(&key, grant.token, outcome("second")).await.unwrap(), Settled::Applied);
    assert_eq!(claim_again(&ledger, &key).await, Claim::Done(outcome("first")));
}

/// Renewal, release and doubt are too late for a completed claim.
pub async fn a_done_claim_cannot_be_settled_otherwise(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("done");
    let grant = done(&ledger, &key, &outcome("x")).await;
    let stale = Settled::Stale(CurrentState::Done(outcome("x")));
    assert_eq!(ledger.renew(&key, grant.token, LONG_MS).await.unwrap(), stale);
    assert_eq!(ledger.release(&key, grant.token).await.unwrap(), stale);
    assert_eq!(ledger.declare_in_doubt(&key, grant.token, "?").await.unwrap(), stale);
    assert_eq!(claim_again(&ledger, &key).await, Claim::Done(outcome("x")));
}

/// After a release, the next caller is the first again.
pub async fn a_released_key_is_free(subject: &dyn Subject) {
    let (ledger, other) = (instance(subject).await, instance(subject).await);
    let key = key("released");
    let first = granted(&ledger, &key, LONG_MS).await;
    assert_eq!(ledger.release(&key, first.token).await.unwrap(), Settled::Applied);
    assert_eq!(ledger.release(&key, first.token).await.unwrap(), Settled::Stale(CurrentState::Absent));
    let second = granted(&other, &key, LONG_MS).await;
    assert_eq!(second.attempt, 1);
    assert_ne!(second.token, first.token);
    assert_eq!(
        ledger.complete(&key, first.token, outcome("old")).await.unwrap(),
        Settled::Stale(CurrentState::Running)
    );
}

/// A token that is not current changes nothing.
pub async fn a_stale_token_changes_nothing(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("stale");
    let grant = granted(&ledger, &key, LONG_MS).await;
    let before = ledger.get(&key).await.unwrap();
    let forged = ledger.request(key.clone()).token;
    let stale = Settled::Stale(CurrentState::Running);
    assert_eq!(ledger.renew(&key, forged, 1).await.unwrap(), stale);
    assert_eq!(ledger.complete(&key, forged, outcome("no")).await.unwrap(), stale);
    assert_eq!(ledger.release(&key, forged).await.unwrap(), stale);
    assert_eq!(ledger.declare_in_doubt(&key, forged, "no").await.unwrap(), stale);
    assert_eq!(ledger.get(&key).await.unwrap(), before);
    assert_eq!(ledger.complete(&key, grant.token, outcome("yes")).await.unwrap(), Settled::Applied);
}

/// A key that nobody claimed cannot be settled.
pub async fn nothing_can_be_settled_on_an_absent_key(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("absent");
    let token = ledger.request(key.clone()).token;
    let stale = Settled::Stale(CurrentState::Absent);
    assert_eq!(ledger.renew(&key, token, 1).await.unwrap(), stale);
    assert_eq!(ledger.complete(&key, token, outcome("no")).await.unwrap(), stale);
    assert_eq!(ledger.release(&key, token).await.unwrap(), stale);
    assert_eq!(ledger.declare_in_doubt(&key, token, "no").await.unwrap(), stale);
    assert_eq!(ledger.get(&key).await.unwrap(), None);
}

/// Up to the guaranteed size an outcome is kept; a larger one leaves a tombstone.
pub async fn a_large_outcome_is_kept_or_leaves_a_tombstone(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let promised = ledger.capabilities().outcome_bytes;
    let kept_key = key("large");
    let large = Outcome::kept(vec![b'x'; promised.min(1024 * 1024)]);
    done(&ledger, &kept_key, &large).await;
    assert_eq!(claim_again(&ledger, &kept_key).await, Claim::Done(large));
    if promised < Limits::STANDARD.outcome_bytes {
        let beyond = key("too-large");
        done(&ledger, &beyond, &Outcome::kept(vec![b'x'; promised + 1])).await;
        match claim_again(&ledger, &beyond).await {
            Claim::Done(Outcome::Tombstone(reason)) => assert!(!reason.is_empty()),
            other => panic!("expected a tombstone, got {other:?}"),
        }
    }
}

/// Beyond the limit: a typed error, and the claim is unchanged.
pub async fn an_oversized_outcome_is_refused_and_nothing_written(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("oversized");
    let grant = granted(&ledger, &key, LONG_MS).await;
    let before = ledger.get(&key).await.unwrap();
    let huge = Outcome::kept(vec![0; Limits::STANDARD.outcome_bytes + 1]);
    let error = ledger.complete(&key, grant.token, huge).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Limit(_)), "{error}");
    assert_eq!(ledger.get(&key).await.unwrap(), before);
}

/// Of two concurrent completions one outcome wins, the same for everyone, for good.
pub async fn one_of_two_concurrent_completions_wins(subject: &dyn Subject) {
    let (ledger, other) = (instance(subject).await, instance(subject).await);
    let key = key("two-completions");
    let grant = granted(&ledger, &key, LONG_MS).await;
    let (one, two) = tokio::join!(
        ledger.complete(&key, grant.token, outcome("one")),
        other.complete(&key, grant.token, outcome("two"))
    );
    assert_eq!((one.unwrap(), two.unwrap()), (Settled::Applied, Settled::Applied));
    let first = claim_again(&ledger, &key).await;
    assert!(first == Claim::Done(outcome("one")) || first == Claim::Done(outcome("two")), "{first:?}");
    assert_eq!(claim_again(&other, &key).await, first);
}
