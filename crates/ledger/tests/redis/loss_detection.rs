//! A Redis server that was flushed, restored or restarted: lost data is noticed, and nothing else is taken for it.

use std::time::Duration;

use ichido_core::{Now, Outcome, Settle, Settled};
use ichido_ledger::redis::Redis;
use ichido_ledger::{Backend, Effect, Error, Kind, Maintain};
use redis::AsyncCommands;

use crate::Place;
use crate::requests::{claim, granted, key, marking, request, unique};
use crate::server::Server;

const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// A loaded machine is slow, a broken watch never gets there.
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

fn identity(place: &Place) -> String {
    format!("{}identity", place.prefix)
}

/// State, id, time and beat.
async fn stored(place: &Place) -> Vec<String> {
    let value: String = place.client().await.get(identity(place)).await.unwrap();
    value.split(' ').map(str::to_owned).collect()
}

async fn beat(place: &Place) -> u64 {
    stored(place).await[3].parse().unwrap()
}

async fn looks(place: &Place, beyond: u64) {
    until("looks go on", async || (beat(place).await > beyond).then_some(())).await;
}

async fn flush(place: &Place) {
    let () = redis::cmd("FLUSHALL").query_async(&mut place.client().await).await.unwrap();
}

#[tokio::test]
async fn after_a_flush_new_work_is_an_outage_until_init() {
    let server = Server::start(&[]).await;
    let place = Place::on(server.url());
    let (one, other) = (place.ledger().await, place.ledger().await);
    let running = key("running");
    let token = granted(&one, &running).await.token;
    flush(&place).await;
    let later = key("later");
    for ledger in [&one, &other] {
        let error = loss(ledger).await;
        assert!(error.to_string().contains("ichido ledger init"), "{error}");
        for error in [
            ledger.claim(&request(&later)).await.unwrap_err(),
            ledger.mark(&[marking(&unique())]).await.unwrap_err(),
        ] {
            assert!(error.is_outage() && !error.is_transient(), "{error:?}");
            assert_eq!(error.effect(), Effect::None);
        }
    }
    let keys: Vec<String> = place.client().await.keys("*").await.unwrap();
    assert_eq!(keys, [identity(&place)], "nothing was sent");
    // Its claim is gone, and the holder learns it.
    let done = Settle::Complete(Outcome::kept("done"));
    assert_eq!(one.settle(&running, token, &done).await.unwrap(), Settled::Stale(Now::Absent));

    // A process that starts now knows it too, and so does its init.
    let operator = place.ledger().await;
    assert!(matches!(operator.check().await.unwrap_err().kind(), Kind::DataLost(_)));
    operator.init().await.unwrap();
    operator.check().await.unwrap();
    for ledger in [&one, &other] {
        recovery(ledger).await;
        granted(ledger, &key("again")).await;
    }
}

#[tokio::test]
async fn a_claim_that_survived_is_settled_although_data_was_lost() {
    let server = Server::start(&[]).await;
    let place = Place::on(server.url());
    let ledger = place.ledger().await;
    let running = key("running");
    let token = granted(&ledger, &running).await.token;
    let () = place.client().await.del(identity(&place)).await.unwrap();
    loss(&ledger).await;
    let renewed = ledger.settle(&running, token, &Settle::Renew { lease_ms: 60_000 }).await.unwrap();
    let done = ledger.settle(&running, token, &Settle::Complete(Outcome::kept("done"))).await.unwrap();
    assert_eq!((renewed, done), (Settled::Applied, Settled::Applied));
}

#[tokio::test]
async fn a_restored_snapshot_is_noticed() {
    let mut server = Server::start(&[]).await;
    let place = Place::on(server.url());
    let ledger = place.ledger().await;
    let () = redis::cmd("SAVE").query_async(&mut place.client().await).await.unwrap();
    looks(&place, beat(&place).await + 1).await;
    server.restart().await;
    assert!(loss(&ledger).await.to_string().contains("restored from a backup"));
    place.ledger().await.init().await.unwrap();
    recovery(&ledger).await;
}

/// The restore is simulated: the identity key, and it alone, is set back to what it was.
#[tokio::test]
async fn a_backup_from_before_the_last_init_is_noticed() {
    let place = Place::new();
    let (ledger, mut client) = (place.ledger().await, place.client().await);
    ledger.init().await.unwrap();
    let backup: String = client.get(identity(&place)).await.unwrap();
    place.ledger().await.init().await.unwrap();
    looks(&place, 1).await;
    let () = client.set(identity(&place), &backup).await.unwrap();
    assert!(loss(&ledger).await.to_string().contains("restored from a backup"));
}

#[tokio::test]
async fn a_restart_is_a_loss_only_if_the_data_is_gone() {
    for (settings, is_kept) in [(&DURABLE[..], true), (&[], false)] {
        let mut server = Server::start(settings).await;
        let place = Place::on(server.url());
        let ledger = place.ledger().await;
        let before = stored(&place).await;
        server.restart().await;
        if is_kept {
            looks(&place, before[3].parse::<u64>().unwrap() + 1).await;
            assert_eq!(stored(&place).await[..3], before[..3]);
            recovery(&ledger).await;
            granted(&ledger, &key("kept")).await;
        } else {
            loss(&ledger).await;
        }
    }
}

#[tokio::test]
async fn an_init_of_a_healthy_ledger_changes_nothing_for_others() {
    let place = Place::new();
    let (ledger, elsewhere) = (place.ledger().await, Place::new());
    let held = key("held");
    let held_request = request(&held);
    claim(&ledger, &held_request).await;
    let other = elsewhere.ledger().await;
    for _ in 0..2 {
        place.ledger().await.init().await.unwrap();
        looks(&place, 1).await;
        ledger.check().await.unwrap();
        assert_eq!(stored(&place).await[0], "init");
        claim(&ledger, &held_request).await;
    }
    // Each prefix has an identity of its own.
    let () = place.client().await.del(identity(&place)).await.unwrap();
    loss(&ledger).await;
    looks(&elsewhere, beat(&elsewhere).await).await;
    other.check().await.unwrap();
}

#[tokio::test]
async fn a_closed_ledger_looks_no_more() {
    let (place, elsewhere) = (Place::new(), Place::new());
    let (closed, _open) = (place.ledger().await, elsewhere.ledger().await);
    closed.close().await.unwrap();
    let before = beat(&place).await;
    // The looks of another ledger are the clock.
    looks(&elsewhere, beat(&elsewhere).await + 1).await;
    assert_eq!(beat(&place).await, before);
}

/// A process that connects right after a flush takes the server for a new one, until another process looks.
#[tokio::test]
async fn a_process_that_starts_on_the_emptied_server_learns_of_the_loss() {
    let place = Place::new();
    let ledger = place.ledger().await;
    // The identity of the newcomer comes in place of the old one in one step: no look finds it missing.
    let elsewhere = Place::on(place.server.clone());
    elsewhere.ledger().await.close().await.unwrap();
    let mut client = place.client().await;
    let () = client.rename(identity(&elsewhere), identity(&place)).await.unwrap();
    let newcomer = place.ledger().await;
    for ledger in [&ledger, &newcomer] {
        let error = loss(ledger).await;
        assert!(error.to_string().contains("created again"), "{error}");
        assert!(ledger.claim(&request(&key("new"))).await.unwrap_err().is_outage());
    }
}
