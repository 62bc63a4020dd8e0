//! Switching into and out of an outage, with fifty concurrent callers of one key.

use std::sync::Arc;
use std::time::Duration;

use ichido_core::{Claim, Key, MarkKey, Outcome, Settled};
use ichido_ledger::{Ledger, Settings};
use ichido_testkit::faulty_backend::{Behavior, FaultyBackend};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Fault, SHORT, Scene, ask, event, flaky_primary, is_new, key, mark, with_memory};

const CALLERS: usize = 50;
/// Outages of the fast primary with fifty callers each, and of the real one.
const ROUNDS: u64 = 150;
const REAL_ROUNDS: u64 = 6;

/// A fallback that switches back and forth within milliseconds.
async fn fast_switching(primary: &Arc<FaultyBackend>) -> Ledger {
    let settings = Settings {
        timeout: Duration::from_millis(12),
        try_timeout: Duration::from_millis(12),
        backoff: Duration::from_millis(1),
        backoff_max: Duration::from_millis(2),
        ..Settings::default()
    };
    with_memory(&Ledger::new(primary.clone(), settings), Duration::from_millis(4)).await
}

/// Alternates between outage and recovery until it is dropped.
async fn flap(primary: &FaultyBackend, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    loop {
        for behavior in [Behavior::RandomlyLost, Behavior::Normal] {
            primary.all(behavior);
            sleep(Duration::from_millis(rng.random_range(1..25))).await;
        }
    }
}

fn seeds(rounds: u64) -> std::ops::Range<u64> {
    match std::env::var("ICHIDO_SEED") {
        Ok(seed) => {
            let seed = seed.parse().expect("ICHIDO_SEED is a number");
            seed..seed + 1
        }
        Err(_) => 0..rounds,
    }
}

/// How many of fifty callers, spread over some 60 ms, get a positive result.
async fn count_positive<F>(seed: u64, call: impl Fn() -> F) -> usize
where
    F: Future<Output = bool> + Send + 'static,
{
    let mut rng = StdRng::seed_from_u64(seed);
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (pause, call) = (Duration::from_millis(rng.random_range(0..60)), call());
        callers.spawn(async move {
            sleep(pause).await;
            call.await
        });
    }
    callers.join_all().await.into_iter().filter(|yes| *yes).count()
}

async fn new_answers(ledger: &Ledger, event: &MarkKey, seed: u64) -> usize {
    count_positive(seed, || {
        let (ledger, event) = (ledger.clone(), event.clone());
        async move { is_new(&mark(&ledger, &event).await) }
    })
    .await
}

async fn grants(ledger: &Ledger, key: &Key, seed: u64) -> usize {
    count_positive(seed, || {
        let (ledger, key) = (ledger.clone(), key.clone());
        async move { matches!(ask(&ledger, &key).await.claim, Claim::Granted(_)) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_is_new_once_while_the_ledger_switches() {
    for seed in seeds(ROUNDS) {
        let primary = flaky_primary(seed);
        let (ledger, event) = (fast_switching(&primary).await, event());
        let new = tokio::select! {
            new = new_answers(&ledger, &event, seed) => new,
            () = flap(&primary, seed) => unreachable!("it flaps for ever"),
        };
        assert_eq!(new, 1, "new {new} times with ICHIDO_SEED={seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_has_one_holder_while_the_ledger_switches() {
    for seed in seeds(ROUNDS) {
        let primary = flaky_primary(seed);
        let (ledger, key) = (fast_switching(&primary).await, key());
        let granted = tokio::select! {
            granted = grants(&ledger, &key, seed) => granted,
            () = flap(&primary, seed) => unreachable!("it flaps for ever"),
        };
        assert_eq!(granted, 1, "granted {granted} times with ICHIDO_SEED={seed}");
    }
}

/// When holders release the key, the next one gets it, and never two at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn released_key_has_one_holder_at_a_time() {
    for seed in seeds(ROUNDS) {
        let primary = flaky_primary(seed);
        let (ledger, key) = (fast_switching(&primary).await, key());
        let holders = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let most = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let all = count_positive(seed, || {
            hold_and_release(ledger.clone(), key.clone(), holders.clone(), most.clone())
        });
        tokio::select! {
            _ = all => {}
            () = flap(&primary, seed) => unreachable!("it flaps for ever"),
        }
        let most = most.load(std::sync::atomic::Ordering::SeqCst);
        assert!(most <= 1, "{most} holders at a time with ICHIDO_SEED={seed}");
    }
}

async fn hold_and_release(
    ledger: Ledger,
    key: Key,
    holders: Arc<std::sync::atomic::AtomicUsize>,
    most: Arc<std::sync::atomic::AtomicUsize>,
) -> bool {
    use std::sync::atomic::Ordering::SeqCst;
    let Claim::Granted(grant) = ask(&ledger, &key).await.claim else { return false };
    most.fetch_max(holders.fetch_add(1, SeqCst) + 1, SeqCst);
    sleep(Duration::from_millis(2)).await;
    holders.fetch_sub(1, SeqCst);
    // If the primary that granted the claim is unavailable, the key cannot be released and stays held.
    let _ = ledger.release(&key, grant.token).await;
    true
}

/// A claim that was granted in an outage and completed around the time of the recovery reaches the primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcome_completed_during_recovery_reaches_the_primary() {
    for seed in seeds(ROUNDS) {
        let primary = flaky_primary(seed);
        let (ledger, key) = (fast_switching(&primary).await, key());
        primary.all(Behavior::RandomlyLost);
        while !mark(&ledger, &event()).await.degraded {}
        let request = ledger.request(key.clone());
        let Claim::Granted(grant) = ledger.claim(&request).await.unwrap().claim else {
            panic!("the key is free")
        };
        primary.all(Behavior::Normal);
        let recovery = async {
            while mark(&ledger, &event()).await.degraded {
                sleep(Duration::from_micros(200)).await;
            }
        };
        let completion = async {
            sleep(Duration::from_micros(seed * 97 % 12_000)).await;
            assert_eq!(
                ledger.complete(&key, grant.token, Outcome::kept("x")).await.unwrap(),
                Settled::Applied
            );
        };
        tokio::join!(recovery, completion);
        let other = Ledger::new(primary.clone(), Settings::default());
        let told = async {
            while ask(&other, &key).await.claim != Claim::Done(Outcome::kept("x")) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), told)
            .await
            .unwrap_or_else(|_| panic!("the outcome never reached the primary, with ICHIDO_SEED={seed}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_is_new_once_while_a_real_primary_fails_and_recovers() {
    let scene = Scene::open(SHORT).await;
    for seed in seeds(REAL_ROUNDS) {
        let mut rng = StdRng::seed_from_u64(seed);
        let event = event();
        let trouble = async {
            for fault in [Fault::Refuse, Fault::None] {
                sleep(Duration::from_millis(rng.random_range(0..60))).await;
                scene.proxy.set(fault);
            }
        };
        let (new, ()) = tokio::join!(new_answers(&scene.ledger, &event, seed), trouble);
        assert_eq!(new, 1, "new {new} times with ICHIDO_SEED={seed}");
        scene.recovery().await;
        assert!(!is_new(&mark(&scene.other, &event).await));
    }
}

/// The primary granted a claim but its reply was lost. The local ledger granted it instead, and the holder released
/// the key. The primary must not keep the key for a holder that does not exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn released_key_is_free_in_the_primary_too() {
    for seed in seeds(ROUNDS / 5) {
        let primary = flaky_primary(seed);
        let (ledger, key) = (fast_switching(&primary).await, key());
        primary.all(Behavior::RandomlyLost);
        let request = ledger.request(key.clone());
        let Claim::Granted(grant) = ledger.claim(&request).await.unwrap().claim else {
            panic!("the key is free")
        };
        assert_eq!(ledger.release(&key, grant.token).await.unwrap(), Settled::Applied);
        primary.all(Behavior::Normal);
        while mark(&ledger, &event()).await.degraded {
            sleep(Duration::from_millis(1)).await;
        }
        let other = Ledger::new(primary.clone(), Settings::default());
        let claim = ask(&other, &key).await.claim;
        assert!(matches!(claim, Claim::Granted(_)), "{claim:?} with ICHIDO_SEED={seed}");
    }
}
