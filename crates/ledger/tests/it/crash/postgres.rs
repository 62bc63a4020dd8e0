//! On PostgreSQL: the process is killed, or the server.

use std::time::Duration;

use ichido_core::{Claim, DoubtReason};
use ichido_testkit::ledger_server::open;
use ichido_testkit::postgres_server::PostgresServer;
use rand::RngExt;

use super::worker::{Acknowledged, Worker};
use super::{check, effects, rng};

const LEASE_MS: u64 = 1_500;

/// Waits until the leases of killed processes have lapsed.
async fn lapse() {
    tokio::time::sleep(Duration::from_millis(LEASE_MS + 200)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_loses_nothing_on_postgres() {
    let Some(server) = PostgresServer::start() else { return };
    let mut rng = rng();
    let url = server.url();
    open(&url).await.init().await.unwrap();
    let mut acknowledged = Acknowledged::default();
    for round in 0..3 {
        let mut worker = Worker::start(&url, &format!("r{round}"), 8, LEASE_MS);
        worker.read_for(Duration::from_millis(rng.random_range(1..600)), &mut acknowledged).await;
        worker.kill(&mut acknowledged).await;
        lapse().await;
        let ledger = open(&url).await;
        check(&*ledger, &acknowledged, |reason| *reason == DoubtReason::LeaseLapsed).await;
    }
    assert!(acknowledged.done().count() > 20, "the workers hardly worked");
}

/// The server is killed under a worker that keeps calling. What was acknowledged before and after still holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_loses_nothing_on_postgres() {
    let Some(server) = PostgresServer::start() else { return };
    let mut rng = rng();
    let url = server.url();
    open(&url).await.init().await.unwrap();
    let mut acknowledged = Acknowledged::default();
    let mut worker = Worker::start(&url, "w", 8, 60_000);
    for round in 0..4 {
        worker.read_for(Duration::from_millis(rng.random_range(50..500)), &mut acknowledged).await;
        if round % 2 == 0 {
            server.kill()
        } else {
            server.stop_immediately()
        }
        server.start_again();
    }
    worker.read_for(Duration::from_millis(300), &mut acknowledged).await;
    worker.kill(&mut acknowledged).await;
    let ledger = open(&url).await;
    for text in acknowledged.done() {
        let claim = ledger.claim(&effects::request(text, 60_000)).await.unwrap();
        assert_eq!(claim, Claim::Done(effects::outcome(text)), "{text} was done");
    }
    for text in acknowledged.unfinished() {
        let claim = ledger.claim(&effects::request(text, 60_000)).await.unwrap();
        assert!(!matches!(claim, Claim::Granted(_)), "{text} was granted before");
    }
    assert!(acknowledged.done().count() > 20, "the worker hardly worked");
}
