//! On PostgreSQL: the process is killed, or the server.

use std::time::Duration;

use ichido_core::DoubtReason;
use rand::RngExt;

use crate::server::Server;
use crate::worker::{Told, Worker};
use crate::{chance, check, open};

const LEASE_MS: u64 = 1_500;

/// Until the leases of the dead have lapsed.
async fn lapse() {
    tokio::time::sleep(Duration::from_millis(LEASE_MS + 200)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_loses_nothing_on_postgres() {
    let Some(server) = Server::start() else { return };
    let mut chance = chance();
    let url = server.url();
    open(&url).await.init().await.unwrap();
    let mut told = Told::default();
    for round in 0..3 {
        let mut worker = Worker::start(&url, &format!("r{round}"), 8, LEASE_MS);
        worker.listen_for(Duration::from_millis(chance.random_range(1..600)), &mut told).await;
        worker.kill(&mut told).await;
        lapse().await;
        let ledger = open(&url).await;
        check(&*ledger, &told, |reason| *reason == DoubtReason::LeaseLapsed).await;
    }
    assert!(told.done().count() > 20, "the workers hardly worked");
}

/// The server dies under a worker that goes on asking; what was told before and after holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_loses_nothing_on_postgres() {
    let Some(server) = Server::start() else { return };
    let mut chance = chance();
    let url = server.url();
    open(&url).await.init().await.unwrap();
    let mut told = Told::default();
    let mut worker = Worker::start(&url, "w", 8, 60_000);
    for round in 0..4 {
        worker.listen_for(Duration::from_millis(chance.random_range(50..500)), &mut told).await;
        if round % 2 == 0 {
            server.kill()
        } else {
            server.stop_at_once()
        }
        server.up();
    }
    worker.listen_for(Duration::from_millis(300), &mut told).await;
    worker.kill(&mut told).await;
    let ledger = open(&url).await;
    for text in told.done() {
        let claim = ledger.claim(&crate::effects::request(text, 60_000)).await.unwrap();
        assert_eq!(claim, ichido_core::Claim::Done(crate::effects::outcome(text)), "{text} was done");
    }
    for text in told.begun() {
        let claim = ledger.claim(&crate::effects::request(text, 60_000)).await.unwrap();
        assert!(!matches!(claim, ichido_core::Claim::Granted(_)), "{text} was granted before");
    }
    assert!(told.done().count() > 20, "the worker hardly worked");
}
