//! The switch into an outage and out of it, with fifty callers of one key in the middle of it.

use std::sync::Arc;
use std::time::Duration;

use ichido_core::{Claim, Key, MarkKey, Outcome, Settled};
use ichido_ledger::{Ledger, Settings};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::flaky_primary::Flaky;
use crate::{SHORT, Scene, ask, event, is_new, key, mark, with_memory};

const CALLERS: usize = 50;
/// Outages of the quick primary, each met by fifty callers; and of the real one.
const ROUNDS: u64 = 150;
const REAL_ROUNDS: u64 = 6;

/// A fallback that switches back and forth within milliseconds.
async fn restless(primary: &Arc<Flaky>) -> Ledger {
    let settings = Settings {
        timeout: Duration::from_millis(12),
        try_timeout: Duration::from_millis(12),
        backoff: Duration::from_millis(1),
        backoff_max: Duration::from_millis(2),
        ..Settings::default()
    };
    with_memory(&Ledger::new(primary.clone(), settings), Duration::from_millis(4)).await
}

/// Outages and recoveries, until it is dropped.
async fn flap(primary: &Flaky, seed: u64) {
    let mut chance = StdRng::seed_from_u64(seed);
    loop {
        for out in [true, false] {
            primary.set_out(out);
            sleep(Duration::from_millis(chance.random_range(1..25))).await;
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

/// How many of fifty callers, who come within some 60 ms, hear a yes.
async fn yes<F>(seed: u64, call: impl Fn() -> F) -> usize
where
    F: Future<Output = bool> + Send + 'static,
{
    let mut chance = StdRng::seed_from_u64(seed);
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (pause, call) = (Duration::from_millis(chance.random_range(0..60)), call());
        callers.spawn(async move {
            sleep(pause).await;
            call.await
        });
    }
    callers.join_all().await.into_iter().filter(|yes| *yes).count()
}

async fn new_answers(ledger: &Ledger, event: &MarkKey, seed: u64) -> usize {
    yes(seed, || {
        let (ledger, event) = (ledger.clone(), event.clone());
        async move { is_new(&mark(&ledger, &event).await) }
    })
    .await
}

async fn grants(ledger: &Ledger, key: &Key, seed: u64) -> usize {
    yes(seed, || {
        let (ledger, key) = (ledger.clone(), key.clone());
        async move { matches!(ask(&ledger, &key).await.claim, Claim::Granted(_)) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_is_new_once_while_the_ledger_switches() {
    for seed in seeds(ROUNDS) {
        let primary = Flaky::new(seed);
        let (ledger, event) = (restless(&primary).await, event());
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
        let primary = Flaky::new(seed);
        let (ledger, key) = (restless(&primary).await, key());
        let granted = tokio::select! {
            granted = grants(&ledger, &key, seed) => granted,
            () = flap(&primary, seed) => unreachable!("it flaps for ever"),
        };
        assert_eq!(granted, 1, "granted {granted} times with ICHIDO_SEED={seed}");
    }
}

/// Holders who give the key back let the next one in, and never two at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_given_back_has_one_holder_at_a_time() {
    for seed in seeds(ROUNDS) {
        let primary = Flaky::new(seed);
        let (ledger, key) = (restless(&primary).await, key());
        let holders = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let most = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let all = yes(seed, || hold_and_release(ledger.clone(), key.clone(), holders.clone(), most.clone()));
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
    // In an outage of the primary that granted, it cannot be given back: then it stays held.
    let _ = ledger.release(&key, grant.token).await;
    true
}

/// What was granted in an outage and completed about the time of the recovery is told to the primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_outcome_is_kept_back_by_a_recovery() {
    for seed in seeds(ROUNDS) {
        let primary = Flaky::new(seed);
        let (ledger, key) = (restless(&primary).await, key());
        primary.set_out(true);
        while !mark(&ledger, &event()).await.degraded {}
        let request = ledger.request(key.clone());
        let Claim::Granted(grant) = ledger.claim(&request).await.unwrap().claim else {
            panic!("the key is free")
        };
        primary.set_out(false);
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
            .unwrap_or_else(|_| panic!("the primary was never told, with ICHIDO_SEED={seed}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_is_new_once_while_a_real_primary_comes_and_goes() {
    let scene = Scene::open(SHORT).await;
    for seed in seeds(REAL_ROUNDS) {
        let mut chance = StdRng::seed_from_u64(seed);
        let event = event();
        let trouble = async {
            for fault in [crate::Fault::Refuse, crate::Fault::None] {
                sleep(Duration::from_millis(chance.random_range(0..60))).await;
                scene.proxy.set(fault);
            }
        };
        let (new, ()) = tokio::join!(new_answers(&scene.ledger, &event, seed), trouble);
        assert_eq!(new, 1, "new {new} times with ICHIDO_SEED={seed}");
        scene.recovery().await;
        assert!(!is_new(&mark(&scene.other, &event).await));
    }
}

/// The primary granted without an answer, the local ledger granted in its place, and the holder gave the key back: then
/// the primary must not keep it for a holder that does not exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_was_given_back_is_free_in_the_primary_too() {
    for seed in seeds(ROUNDS / 5) {
        let primary = Flaky::new(seed);
        let (ledger, key) = (restless(&primary).await, key());
        primary.set_out(true);
        let request = ledger.request(key.clone());
        let Claim::Granted(grant) = ledger.claim(&request).await.unwrap().claim else {
            panic!("the key is free")
        };
        assert_eq!(ledger.release(&key, grant.token).await.unwrap(), Settled::Applied);
        primary.set_out(false);
        while mark(&ledger, &event()).await.degraded {
            sleep(Duration::from_millis(1)).await;
        }
        let other = Ledger::new(primary.clone(), Settings::default());
        let claim = ask(&other, &key).await.claim;
        assert!(matches!(claim, Claim::Granted(_)), "{claim:?} with ICHIDO_SEED={seed}");
    }
}
