//! A Redis server that was flushed, restored or restarted: lost data is detected, and nothing else is taken for it.

use std::time::Duration;

use ichido_core::{CurrentState, Outcome, Settle, Settled};
use ichido_ledger::redis::Redis;
use ichido_ledger::{Backend, Effect, Error, Kind, Maintain};
use ichido_testkit::ledger_server::unique;
use ichido_testkit::redis_server::{DURABLE, RedisServer};
use redis::AsyncCommands;

use super::TestNamespace;
use crate::support::{claim, granted, key, mark_request, request};

/// A loaded machine is slow, a broken detector never finishes.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap_or_else(|_| panic!("never: {what}"))
}

async fn loss(ledger: &Redis) -> Error {
    until("the loss is noticed", async || {
        ledger.check().await.err().filter(|error| matches!(error.kind(), Kind::DataLost(_)))
    })
    .await
}

async fn recovery(ledger: &Redis) {
    until("the ledger is used again", async || ledger.check().await.ok()).await;
}

fn identity(namespace: &TestNamespace) -> String {
    format!("{}identity", namespace.prefix)
}

/// State, id, time and beat.
async fn stored(namespace: &TestNamespace) -> Vec<String> {
    let value: String = namespace.client().await.get(identity(namespace)).await.unwrap();
    value.split(' ').map(str::to_owned).collect()
}

async fn beat(namespace: &TestNamespace) -> u64 {
    stored(namespace).await[3].parse().unwrap()
}

async fn wait_for_checks(namespace: &TestNamespace, beyond: u64) {
    until("checks continue", async || (beat(namespace).await > beyond).then_some(())).await;
}

async fn flush(namespace: &TestNamespace) {
    let () = redis::cmd("FLUSHALL").query_async(&mut namespace.client().await).await.unwrap();
}

#[tokio::test]
async fn after_a_flush_new_work_is_an_outage_until_init() {
    let server = RedisServer::start(&[]);
    let namespace = TestNamespace::on(server.url());
    let (one, other) = (namespace.ledger().await, namespace.ledger().await);
    let running = key("running");
    let token = granted(&one, &running).await.token;
    flush(&namespace).await;
    let later = key("later");
    for ledger in [&one, &other] {
        let error = loss(ledger).await;
        assert!(error.to_string().contains("ichido ledger init"), "{error}");
        for error in [
            ledger.claim(&request(&later)).await.unwrap_err(),
            ledger.mark(&[mark_request(&unique())]).await.unwrap_err(),
        ] {
            assert!(error.is_outage() && !error.is_transient(), "{error:?}");
            assert_eq!(error.effect(), Effect::None);
        }
    }
    let keys: Vec<String> = namespace.client().await.keys("*").await.unwrap();
    assert_eq!(keys, [identity(&namespace)], "nothing was sent");
    // Its claim is gone, and the holder learns that.
    let done = Settle::Complete(Outcome::kept("done"));
    assert_eq!(one.settle(&running, token, &done).await.unwrap(), Settled::Stale(CurrentState::Absent));

    // A process that starts now knows it too, and so does its `init`.
    let operator = namespace.ledger().await;
    assert!(matches!(operator.check().await.unwrap_err().kind(), Kind::DataLost(_)));
    operator.init().await.unwrap();
    operator.check().await.unwrap();
    for ledger in [&one, &other] {
        recovery(ledger).await;
        granted(ledger, &key("again")).await;
    }
}

#[tokio::test]
async fn surviving_claim_can_be_settled_after_data_loss() {
    let server = RedisServer::start(&[]);
    let namespace = TestNamespace::on(server.url());
    let ledger = namespace.ledger().await;
    let running = key("running");
    let token = granted(&ledger, &running).await.token;
    let () = namespace.client().await.del(identity(&namespace)).await.unwrap();
    loss(&ledger).await;
    let renewed = ledger.settle(&running, token, &Settle::Renew { lease_ms: 60_000 }).await.unwrap();
    let done = ledger.settle(&running, token, &Settle::Complete(Outcome::kept("done"))).await.unwrap();
    assert_eq!((renewed, done), (Settled::Applied, Settled::Applied));
}

/// With several threads, so that checks continue while the server restarts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_snapshot_is_detected() {
    let mut server = RedisServer::start(&[]);
    let namespace = TestNamespace::on(server.url());
    let ledger = namespace.ledger().await;
    let () = redis::cmd("SAVE").query_async(&mut namespace.client().await).await.unwrap();
    wait_for_checks(&namespace, beat(&namespace).await + 1).await;
    server.restart();
    assert!(loss(&ledger).await.to_string().contains("restored from a backup"));
    namespace.ledger().await.init().await.unwrap();
    recovery(&ledger).await;
}

/// The restore is simulated by setting the identity key back.
#[tokio::test]
async fn backup_from_before_the_last_init_is_detected() {
    let namespace = TestNamespace::new();
    let (ledger, mut client) = (namespace.ledger().await, namespace.client().await);
    ledger.init().await.unwrap();
    let backup: String = client.get(identity(&namespace)).await.unwrap();
    namespace.ledger().await.init().await.unwrap();
    wait_for_checks(&namespace, 1).await;
    let () = client.set(identity(&namespace), &backup).await.unwrap();
    assert!(loss(&ledger).await.to_string().contains("restored from a backup"));
}

/// With several threads, so that checks continue while the server restarts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_is_a_loss_only_if_data_is_gone() {
    for (settings, is_kept) in [(DURABLE, true), (&[], false)] {
        let mut server = RedisServer::start(settings);
        let namespace = TestNamespace::on(server.url());
        let ledger = namespace.ledger().await;
        let before = stored(&namespace).await;
        server.restart();
        if is_kept {
            wait_for_checks(&namespace, before[3].parse::<u64>().unwrap() + 1).await;
            assert_eq!(stored(&namespace).await[..3], before[..3]);
            recovery(&ledger).await;
            granted(&ledger, &key("kept")).await;
        } else {
            loss(&ledger).await;
        }
    }
}

#[tokio::test]
async fn init_of_a_healthy_ledger_changes_nothing_for_others() {
    let namespace = TestNamespace::new();
    let (ledger, other_namespace) = (namespace.ledger().await, TestNamespace::new());
    let held = key("held");
    let held_request = request(&held);
    claim(&ledger, &held_request).await;
    let other = other_namespace.ledger().await;
    for _ in 0..2 {
        namespace.ledger().await.init().await.unwrap();
        wait_for_checks(&namespace, 1).await;
        ledger.check().await.unwrap();
        assert_eq!(stored(&namespace).await[0], "init");
        claim(&ledger, &held_request).await;
    }
    // Each prefix has an identity of its own.
    let () = namespace.client().await.del(identity(&namespace)).await.unwrap();
    loss(&ledger).await;
    wait_for_checks(&other_namespace, beat(&other_namespace).await).await;
    other.check().await.unwrap();
}

#[tokio::test]
async fn closed_ledger_stops_checking() {
    let (namespace, other_namespace) = (TestNamespace::new(), TestNamespace::new());
    let (closed, _open) = (namespace.ledger().await, other_namespace.ledger().await);
    closed.close().await.unwrap();
    let before = beat(&namespace).await;
    // The checks of another ledger serve as the clock.
    wait_for_checks(&other_namespace, beat(&other_namespace).await + 1).await;
    assert_eq!(beat(&namespace).await, before);
}

/// A process that connects right after a flush takes the server for a new one, until another process checks.
#[tokio::test]
async fn process_that_starts_after_a_flush_learns_of_the_loss() {
    let namespace = TestNamespace::new();
    let ledger = namespace.ledger().await;
    // The newcomer's identity replaces the old one in one step, so no check finds it missing.
    let other_namespace = TestNamespace::on(namespace.server.clone());
    other_namespace.ledger().await.close().await.unwrap();
    let mut client = namespace.client().await;
    let () = client.rename(identity(&other_namespace), identity(&namespace)).await.unwrap();
    let newcomer = namespace.ledger().await;
    for ledger in [&ledger, &newcomer] {
        let error = loss(ledger).await;
        assert!(error.to_string().contains("created again"), "{error}");
        assert!(ledger.claim(&request(&key("new"))).await.unwrap_err().is_outage());
    }
}
