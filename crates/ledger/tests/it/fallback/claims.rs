//! Claims that are granted during an outage.

use ichido_core::{Claim, Outcome, Resolution, Resolved, Settled};

use super::{SHORT, Scene, ask, granted, key};

#[tokio::test]
async fn claim_of_an_outage_is_replayed_by_other_instances_afterwards() {
    let scene = Scene::open(SHORT).await;
    let key = key();
    scene.outage().await;
    let (grant, degraded) = granted(&scene.ledger, &scene.ledger.request(key.clone())).await;
    assert!(degraded);
    let held = ask(&scene.ledger, &key).await;
    assert!(matches!(held.claim, Claim::Held { .. }) && held.degraded, "{held:?}");
    assert_eq!(scene.ledger.complete(&key, grant.token, Outcome::kept("x")).await.unwrap(), Settled::Applied);
    assert_eq!(ask(&scene.ledger, &key).await.claim, Claim::Done(Outcome::kept("x")));
    scene.recovery().await;
    for ledger in [&scene.other, &scene.ledger] {
        let claimed = ask(ledger, &key).await;
        assert_eq!((claimed.claim, claimed.degraded), (Claim::Done(Outcome::kept("x")), false));
    }
}

#[tokio::test]
async fn claim_that_outlives_the_outage_continues_on_the_primary() {
    let scene = Scene::open(SHORT).await;
    let key = key();
    scene.outage().await;
    let (grant, _) = granted(&scene.ledger, &scene.ledger.request(key.clone())).await;
    scene.recovery().await;
    for ledger in [&scene.other, &scene.ledger] {
        let held = ask(ledger, &key).await;
        assert!(matches!(held.claim, Claim::Held { .. }) && !held.degraded, "{held:?}");
    }
    assert_eq!(scene.ledger.renew(&key, grant.token, 30_000).await.unwrap(), Settled::Applied);
    assert_eq!(scene.ledger.complete(&key, grant.token, Outcome::kept("x")).await.unwrap(), Settled::Applied);
    for ledger in [&scene.other, &scene.ledger] {
        let claimed = ask(ledger, &key).await;
        assert_eq!((claimed.claim, claimed.degraded), (Claim::Done(Outcome::kept("x")), false));
    }
}

#[tokio::test]
async fn released_claim_is_answered_by_the_primary_again() {
    let scene = Scene::open(SHORT).await;
    let key = key();
    scene.outage().await;
    let (grant, _) = granted(&scene.ledger, &scene.ledger.request(key.clone())).await;
    scene.recovery().await;
    assert_eq!(scene.ledger.release(&key, grant.token).await.unwrap(), Settled::Applied);
    let (_, degraded) = granted(&scene.ledger, &scene.ledger.request(key.clone())).await;
    assert!(!degraded);
    assert!(matches!(ask(&scene.other, &key).await.claim, Claim::Held { .. }));
}

#[tokio::test]
async fn claim_from_before_an_outage_stays_held_during_it() {
    let scene = Scene::open(SHORT).await;
    let key = key();
    let request = scene.ledger.request(key.clone());
    let (grant, degraded) = granted(&scene.ledger, &request).await;
    assert!(!degraded);
    scene.outage().await;
    let held = ask(&scene.ledger, &key).await;
    assert!(matches!(held.claim, Claim::Held { .. }) && held.degraded, "{held:?}");
    let (again, _) = granted(&scene.ledger, &request).await;
    assert_eq!(again.token, grant.token, "the same call, the same grant");
    let error = scene.ledger.complete(&key, grant.token, Outcome::kept("x")).await.unwrap_err();
    assert!(error.is_outage(), "it is completed where it was granted, and that is out: {error}");
    scene.recovery().await;
    assert_eq!(scene.ledger.complete(&key, grant.token, Outcome::kept("x")).await.unwrap(), Settled::Applied);
}

/// The primary granted the key to another instance meanwhile: both ran, which is counted, and the primary's record
/// wins.
#[tokio::test]
async fn conflicting_outcome_is_counted_and_the_primary_wins() {
    let scene = Scene::open(SHORT).await;
    let key = key();
    scene.outage().await;
    let (here, _) = granted(&scene.ledger, &scene.ledger.request(key.clone())).await;
    let (there, _) = granted(&scene.other, &scene.other.request(key.clone())).await;
    assert_eq!(
        scene.other.complete(&key, there.token, Outcome::kept("there")).await.unwrap(),
        Settled::Applied
    );
    assert_eq!(
        scene.ledger.complete(&key, here.token, Outcome::kept("here")).await.unwrap(),
        Settled::Applied
    );
    scene.recovery().await;
    assert_eq!(scene.counts.of("ichido_ledger_conflicts_total"), 1);
    for ledger in [&scene.other, &scene.ledger] {
        assert_eq!(ask(ledger, &key).await.claim, Claim::Done(Outcome::kept("there")));
    }
}

/// A completed claim is forgotten where it is: in the fallback, or in the primary and the mirror of it.
#[tokio::test]
async fn completed_claim_can_be_forgotten_during_an_outage_and_before_it() {
    let scene = Scene::open(SHORT).await;
    let (before, during) = (key(), key());
    for key in [&before, &during] {
        if key == &during {
            scene.outage().await;
        }
        let (grant, _) = granted(&scene.ledger, &scene.ledger.request(key.clone())).await;
        assert_eq!(
            scene.ledger.complete(key, grant.token, Outcome::kept("x")).await.unwrap(),
            Settled::Applied
        );
        let forget = Resolution::Forget(grant.token);
        assert_eq!(scene.ledger.resolve(key, &forget).await.unwrap(), Resolved::Applied);
    }
    let (_, degraded) = granted(&scene.ledger, &scene.ledger.request(before)).await;
    assert!(degraded, "the mirror must not replay it");
    scene.recovery().await;
    granted(&scene.other, &scene.other.request(during)).await;
}

/// An erased claim is not replayed by the mirror, and does not run again either. What the primary does not have yet is not
/// erased.
#[tokio::test]
async fn erased_claim_stays_erased_during_the_next_outage() {
    let scene = Scene::open(SHORT).await;
    let complete = async |key: &ichido_core::Key| {
        let (grant, _) = granted(&scene.ledger, &scene.ledger.request(key.clone())).await;
        let settled = scene.ledger.complete(key, grant.token, Outcome::kept("secret")).await.unwrap();
        assert_eq!(settled, Settled::Applied);
        grant.token
    };
    let (before, during) = (key(), key());
    let token = complete(&before).await;
    assert_eq!(scene.ledger.erase(&before, token).await.unwrap(), Resolved::Applied);
    scene.outage().await;
    let answer = ask(&scene.ledger, &before).await;
    assert!(answer.degraded && matches!(answer.claim, Claim::Done(Outcome::Tombstone(_))), "{answer:?}");
    let token = complete(&during).await;
    assert!(scene.ledger.erase(&during, token).await.is_err(), "it is not in the primary yet");
    scene.recovery().await;
    assert_eq!(ask(&scene.ledger, &during).await.claim, Claim::Done(Outcome::kept("secret")));
    assert_eq!(scene.ledger.erase(&during, token).await.unwrap(), Resolved::Applied);
}
