//! Holders that are slow, crashed, or come back.

use std::sync::Arc;
use std::time::Duration;

use ichido_core::{
    Claim, ClaimRequest, CurrentState, DoubtReason, InDoubtPolicy, Resolution, Resolved, Settled, SystemClock,
};

use super::{
    LONG_MS, SHORT_MS, Subject, WrongClock, claim, claim_past_lease, grant_of, granted, instance, key, lapse,
    outcome, request, take_over,
};

/// A lapsed lease means doubt: the key is not granted to anyone.
pub async fn a_lapsed_lease_is_in_doubt_and_not_granted(subject: &dyn Subject) {
    let (ledger, other) = (instance(subject).await, instance(subject).await);
    let key = key("lapsed");
    granted(&ledger, &key, SHORT_MS).await;
    match claim_past_lease(&other, &request(&other, &key, LONG_MS)).await {
        Claim::InDoubt(doubt) => assert_eq!(doubt.reason, DoubtReason::LeaseLapsed),
        answer => panic!("expected doubt, got {answer:?}"),
    }
    assert!(
        matches!(claim(&other, &request(&other, &key, LONG_MS)).await, Claim::InDoubt(_)),
        "and it stays so"
    );
}

/// The holder comes back before anyone took over.
pub async fn a_holder_may_complete_after_its_lease_lapsed(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("late-complete");
    let grant = granted(&ledger, &key, SHORT_MS).await;
    lapse(&ledger, &key).await;
    assert_eq!(ledger.complete(&key, grant.token, outcome("late")).await.unwrap(), Settled::Applied);
    assert_eq!(claim(&ledger, &request(&ledger, &key, LONG_MS)).await, Claim::Done(outcome("late")));
}

/// A late renewal ends the doubt.
pub async fn a_holder_may_renew_after_its_lease_lapsed(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("late-renew");
    let grant = granted(&ledger, &key, SHORT_MS).await;
    lapse(&ledger, &key).await;
    assert_eq!(ledger.renew(&key, grant.token, LONG_MS).await.unwrap(), Settled::Applied);
    assert!(matches!(claim(&ledger, &request(&ledger, &key, LONG_MS)).await, Claim::Held { .. }));
}

/// A late release frees the key: the holder knows that nothing happened.
pub async fn a_holder_may_release_after_its_lease_lapsed(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("late-release");
    let grant = granted(&ledger, &key, SHORT_MS).await;
    lapse(&ledger, &key).await;
    assert_eq!(ledger.release(&key, grant.token).await.unwrap(), Settled::Applied);
    assert_eq!(granted(&ledger, &key, LONG_MS).await.attempt, 1);
}

/// Work that takes longer than the lease does not run twice while its process lives.
pub async fn a_living_holder_keeps_its_claim_beyond_the_lease(subject: &dyn Subject) {
    let (ledger, other) = (instance(subject).await, instance(subject).await);
    let key = key("slow");
    let grant = granted(&ledger, &key, 2_000).await;
    let renewal = ledger.start_renewal(&key, &grant);
    let policy = InDoubtPolicy::Retry { silent_ms: 0 };
    let started = tokio::time::Instant::now();
    while started.elapsed() < Duration::from_millis(5_000) {
        let ask = ClaimRequest { in_doubt: policy, ..request(&other, &key, LONG_MS) };
        assert!(matches!(claim(&other, &ask).await, Claim::Held { .. }), "after {:?}", started.elapsed());
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    assert_eq!(ledger.complete(&key, grant.token, outcome("slow")).await.unwrap(), Settled::Applied);
    drop(renewal);
}

/// A timeout after the request was sent means doubt from that moment on, with its reason.
pub async fn doubt_can_be_declared_at_once(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("declared");
    let grant = granted(&ledger, &key, LONG_MS).await;
    assert_eq!(
        ledger.declare_in_doubt(&key, grant.token, "upstream timed out").await.unwrap(),
        Settled::Applied
    );
    assert_eq!(
        ledger.declare_in_doubt(&key, grant.token, "upstream timed out").await.unwrap(),
        Settled::Applied
    );
    match claim(&ledger, &request(&ledger, &key, LONG_MS)).await {
        Claim::InDoubt(doubt) => {
            assert_eq!(doubt.reason, DoubtReason::Declared("upstream timed out".to_owned()))
        }
        answer => panic!("expected doubt, got {answer:?}"),
    }
    assert_eq!(ledger.complete(&key, grant.token, outcome("after all")).await.unwrap(), Settled::Applied);
    assert_eq!(claim(&ledger, &request(&ledger, &key, LONG_MS)).await, Claim::Done(outcome("after all")));
}

/// A retry with the same nonce gets the grant again, even if the lease has lapsed.
pub async fn a_retry_after_a_lost_reply_is_granted_even_in_doubt(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("lost-in-doubt");
    let first = request(&ledger, &key, SHORT_MS);
    let grant = grant_of(claim(&ledger, &first).await);
    lapse(&ledger, &key).await;
    let again = grant_of(claim(&ledger, &first).await);
    assert_eq!((again.token, again.attempt, again.left_ms), (grant.token, grant.attempt, 0));
}

/// After its holder declared doubt, a retry with the same nonce is in doubt too: the effect may have happened.
pub async fn a_declared_doubt_is_not_granted_again_to_the_same_nonce(subject: &dyn Subject) {
    let (ledger, other) = (instance(subject).await, instance(subject).await);
    let key = key("declared-again");
    let first = request(&ledger, &key, LONG_MS);
    let grant = grant_of(claim(&ledger, &first).await);
    assert_eq!(ledger.declare_in_doubt(&key, grant.token, "timed out").await.unwrap(), Settled::Applied);
    for in_doubt in [InDoubtPolicy::Reject, InDoubtPolicy::Retry { silent_ms: 0 }] {
        for ledger in [&ledger, &other] {
            match claim(ledger, &ClaimRequest { in_doubt, ..first.clone() }).await {
                Claim::InDoubt(doubt) => {
                    assert_eq!(doubt.reason, DoubtReason::Declared("timed out".to_owned()));
                }
                answer => panic!("expected doubt, got {answer:?}"),
            }
        }
    }
}

/// Under the retry policy, a lapsed claim is granted again with a new token, as the second attempt.
pub async fn takeover_by_policy_counts_the_attempt(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("takeover");
    let first = granted(&ledger, &key, SHORT_MS).await;
    let second = take_over(&ledger, &key).await;
    assert_eq!(second.attempt, 2);
    assert_ne!(second.token, first.token);
}

/// The retry policy waits until the old holder has been silent for the requested time.
pub async fn takeover_waits_for_silence(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("silence");
    granted(&ledger, &key, SHORT_MS).await;
    lapse(&ledger, &key).await;
    let patient = InDoubtPolicy::Retry { silent_ms: 3_600_000 };
    let ask = ClaimRequest { in_doubt: patient, ..request(&ledger, &key, LONG_MS) };
    assert!(matches!(claim(&ledger, &ask).await, Claim::InDoubt(_)));
}

/// Of fifty callers that may take over, one does.
pub async fn fifty_racers_on_a_lapsed_lease_have_one_winner(subject: &dyn Subject) {
    let instances = [instance(subject).await, instance(subject).await];
    let key = key("fifty");
    granted(&instances[0], &key, SHORT_MS).await;
    for ledger in &instances {
        lapse(ledger, &key).await;
    }
    let mut tasks = tokio::task::JoinSet::new();
    for racer in 0..50 {
        let ledger = instances[racer % 2].clone();
        let in_doubt = InDoubtPolicy::Retry { silent_ms: 0 };
        let ask = ClaimRequest { in_doubt, ..request(&ledger, &key, LONG_MS) };
        tasks.spawn(async move { claim(&ledger, &ask).await });
    }
    let answers = tasks.join_all().await;
    assert_eq!(answers.iter().filter(|answer| matches!(answer, Claim::Granted(_))).count(), 1, "{answers:?}");
    assert!(
        answers.iter().all(|answer| matches!(answer, Claim::Granted(_) | Claim::Held { .. })),
        "{answers:?}"
    );
}

/// A stale holder's completion is refused, and it gets the winner's outcome.
pub async fn a_stale_holder_cannot_complete_after_a_takeover(subject: &dyn Subject) {
    let (zombie, winner) = (instance(subject).await, instance(subject).await);
    let key = key("zombie");
    let old = granted(&zombie, &key, SHORT_MS).await;
    let new = take_over(&winner, &key).await;
    assert_eq!(
        zombie.complete(&key, old.token, outcome("zombie")).await.unwrap(),
        Settled::Stale(CurrentState::Running)
    );
    assert_eq!(winner.complete(&key, new.token, outcome("winner")).await.unwrap(), Settled::Applied);
    let settled = zombie.complete(&key, old.token, outcome("zombie")).await.unwrap();
    assert_eq!(settled, Settled::Stale(CurrentState::Done(outcome("winner"))));
    assert_eq!(claim(&zombie, &request(&zombie, &key, LONG_MS)).await, Claim::Done(outcome("winner")));
}

/// A stale holder that releases, renews or declares doubt after a takeover changes nothing.
pub async fn a_stale_holder_cannot_change_the_winners_claim(subject: &dyn Subject) {
    let (zombie, winner) = (instance(subject).await, instance(subject).await);
    let key = key("zombie-fails");
    let old = granted(&zombie, &key, SHORT_MS).await;
    let new = take_over(&winner, &key).await;
    let before = winner.get(&key).await.unwrap();
    assert_eq!(zombie.release(&key, old.token).await.unwrap(), Settled::Stale(CurrentState::Running));
    assert_eq!(zombie.renew(&key, old.token, LONG_MS).await.unwrap(), Settled::Stale(CurrentState::Running));
    assert_eq!(
        zombie.declare_in_doubt(&key, old.token, "lost").await.unwrap(),
        Settled::Stale(CurrentState::Running)
    );
    assert_eq!(winner.get(&key).await.unwrap(), before);
    assert_eq!(winner.complete(&key, new.token, outcome("winner")).await.unwrap(), Settled::Applied);
}

/// An instance whose wall clock is an hour ahead still respects a valid lease.
pub async fn a_clock_that_is_an_hour_ahead_takes_nothing_over(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let wrong = WrongClock { system: SystemClock::default(), ahead_ms: 3_600_000 };
    let ahead = subject.instance(Arc::new(wrong)).await;
    let key = key("jump");
    let grant = granted(&ledger, &key, LONG_MS).await;
    let in_doubt = InDoubtPolicy::Retry { silent_ms: 0 };
    for _ in 0..3 {
        let ask = ClaimRequest { in_doubt, ..request(&ahead, &key, LONG_MS) };
        assert!(matches!(claim(&ahead, &ask).await, Claim::Held { .. }));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(ledger.complete(&key, grant.token, outcome("mine")).await.unwrap(), Settled::Applied);
}

/// A call that is retried after an operator released its key is granted again with the same token. What others saw
/// of the first lease says nothing about the second. Found by a random history.
pub async fn a_key_granted_again_has_a_lease_of_its_own(subject: &dyn Subject) {
    const LEASE_MS: u64 = 2_000;
    let (holder, other) = (instance(subject).await, instance(subject).await);
    let key = key("granted-again");
    let ask = request(&holder, &key, LEASE_MS);
    grant_of(claim(&holder, &ask).await);
    assert!(matches!(claim(&other, &request(&other, &key, LONG_MS)).await, Claim::Held { .. }));
    assert_eq!(other.resolve(&key, &Resolution::Release).await.unwrap(), Resolved::Applied);
    tokio::time::sleep(Duration::from_millis(LEASE_MS)).await;
    let again = grant_of(claim(&holder, &ask).await);
    assert_eq!(again.attempt, 1);
    let answer = claim(&other, &request(&other, &key, LONG_MS)).await;
    assert!(matches!(answer, Claim::Held { .. }), "{answer:?}");
}
