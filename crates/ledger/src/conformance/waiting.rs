//! Waiting for a holder, and `once`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ichido_core::{Claim, Settled};
use tokio::time::Instant;

use super::{BOUND, LONG_MS, Subject, claim, granted, instance, key, outcome, request};
use crate::{Failure, Ledger, Once, OnceError};

async fn end_seen_by(holder: &Ledger, waiter: &Ledger, name: &str) -> Duration {
    let key = key(name);
    let grant = granted(holder, &key, LONG_MS).await;
    let ask = request(waiter, &key, LONG_MS);
    let waiting = tokio::spawn({
        let waiter = waiter.clone();
        async move { waiter.claim_or_wait(&ask, BOUND).await.unwrap().claim }
    });
    // Long enough for the waiter to poll only every half second.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(holder.complete(&key, grant.token, outcome("end")).await.unwrap(), Settled::Applied);
    let ended = Instant::now();
    assert_eq!(waiting.await.unwrap(), Claim::Done(outcome("end")));
    ended.elapsed()
}

/// A waiter in the same process does not poll: it is woken. The bound is loose for busy machines, but shorter than
/// the polling interval.
pub async fn a_waiter_in_the_same_process_is_woken(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let mut fastest = Duration::MAX;
    for _ in 0..3 {
        fastest = fastest.min(end_seen_by(&ledger, &ledger, "woken").await);
    }
    assert!(fastest < Duration::from_millis(150), "{fastest:?}");
}

/// A waiter in another process polls again within half a second.
pub async fn a_waiter_in_another_process_notices_the_end_soon(subject: &dyn Subject) {
    let (holder, waiter) = (instance(subject).await, instance(subject).await);
    let took = end_seen_by(&holder, &waiter, "elsewhere").await;
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// When its time is up, a waiter is told that the key is held.
pub async fn a_waiter_gives_up_at_its_limit(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("limit");
    granted(&ledger, &key, LONG_MS).await;
    let started = Instant::now();
    let ask = request(&ledger, &key, LONG_MS);
    let answer = ledger.claim_or_wait(&ask, Duration::from_millis(300)).await.unwrap().claim;
    assert!(matches!(answer, Claim::Held { .. }), "{answer:?}");
    assert!(started.elapsed() >= Duration::from_millis(300));
}

/// The holder releases the key: one of the waiters gets it, the others keep waiting.
pub async fn exactly_one_waiter_is_promoted(subject: &dyn Subject) {
    let (ledger, other) = (instance(subject).await, instance(subject).await);
    let key = key("promoted");
    let grant = granted(&ledger, &key, LONG_MS).await;
    let mut waiting = tokio::task::JoinSet::new();
    for waiter in 0..10 {
        let ledger = if waiter % 2 == 0 { ledger.clone() } else { other.clone() };
        let ask = request(&ledger, &key, LONG_MS);
        waiting.spawn(async move { ledger.claim_or_wait(&ask, Duration::from_secs(3)).await.unwrap().claim });
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(ledger.release(&key, grant.token).await.unwrap(), Settled::Applied);
    let answers = waiting.join_all().await;
    assert_eq!(answers.iter().filter(|answer| matches!(answer, Claim::Granted(_))).count(), 1, "{answers:?}");
    assert_eq!(
        answers.iter().filter(|answer| matches!(answer, Claim::Held { .. })).count(),
        9,
        "{answers:?}"
    );
}

/// Fifty calls of `once` for a key on two instances run the effect once, and all get its result.
pub async fn once_runs_an_effect_once(subject: &dyn Subject) {
    let instances = [instance(subject).await, instance(subject).await];
    let key = key("once");
    let runs = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..50 {
        let (ledger, key, runs) = (instances[caller % 2].clone(), key.clone(), runs.clone());
        tasks.spawn(async move {
            let effect =
                move || async move { Ok::<_, Failure<std::io::Error>>(runs.fetch_add(1, Ordering::SeqCst)) };
            ledger.once(key, effect).await
        });
    }
    for answer in tasks.join_all().await {
        match answer {
            Ok(Once::First(run) | Once::Replayed(run)) => assert_eq!(run, 0),
            Err(OnceError::Held { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    let unused = || async { Err::<usize, _>(Failure::NotDone(std::io::Error::other("never called"))) };
    assert_eq!(instances[0].once(key, unused).await.unwrap(), Once::Replayed(0));
}

/// An effect that did not happen frees the key; one that may have happened leaves the claim in doubt.
pub async fn once_releases_failed_effects_and_doubts_unknown_ones(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("once-fails");
    let refused = || async { Err::<u8, _>(Failure::NotDone(std::io::Error::other("refused"))) };
    assert!(matches!(ledger.once(key.clone(), refused).await, Err(OnceError::NotDone(_))));
    let cut = || async { Err::<u8, Failure<_>>(std::io::Error::other("cut off").into()) };
    assert!(matches!(ledger.once(key.clone(), cut).await, Err(OnceError::Unknown(_))));
    assert!(matches!(claim(&ledger, &request(&ledger, &key, LONG_MS)).await, Claim::InDoubt(_)));
}
