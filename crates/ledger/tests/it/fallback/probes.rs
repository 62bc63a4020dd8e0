//! How often an unavailable primary is probed, and how often its outage is logged.

use std::time::Duration;

use futures_util::future::join_all;
use ichido_testkit::ledger_server::LedgerServer;
use ichido_testkit::tcp_proxy::Fault;
use ichido_testkit::wait::until;
use tokio::time::sleep;

use super::telemetry::Log;
use super::{LONG, SHORT, Scene, event, mark};

/// Fifty concurrent callers with different events.
async fn stampede(scene: &Scene) -> Vec<bool> {
    let events: Vec<_> = (0..50).map(|_| event()).collect();
    let marks = join_all(events.iter().map(|event| mark(&scene.ledger, event))).await;
    marks.iter().map(|marked| marked.degraded).collect()
}

#[tokio::test]
async fn during_the_pause_the_primary_is_left_alone() {
    // Not Redis, whose identity key is checked all the time.
    let scene = Scene::open_on(LedgerServer::postgres().await, LONG).await;
    scene.outage().await;
    scene.proxy.set(Fault::None);
    let before = (scene.proxy.connections(), scene.proxy.requests());
    assert!(stampede(&scene).await.iter().all(|degraded| *degraded));
    sleep(Duration::from_millis(200)).await;
    assert_eq!((scene.proxy.connections(), scene.proxy.requests()), before);
}

#[tokio::test]
async fn after_the_pause_there_is_one_probe() {
    let scene = Scene::open(SHORT).await;
    scene.outage().await;
    // Connections are accepted, but nothing is answered: a probe is visible, and hangs until its deadline.
    scene.proxy.set(Fault::BlackHole);
    let before = scene.proxy.connections();
    sleep(SHORT).await;
    assert!(stampede(&scene).await.iter().all(|degraded| *degraded));
    until("a probe is made", || async { scene.proxy.connections() > before }).await;
    assert!(stampede(&scene).await.iter().all(|degraded| *degraded));
    assert_eq!(scene.proxy.connections() - before, 1, "one probe for all callers");
}

/// On one thread, so that all log messages on it are from this test.
#[tokio::test]
async fn an_outage_and_its_end_are_logged_once() {
    let log = Log::install();
    let scene = Scene::open(SHORT).await;
    scene.proxy.set(Fault::Refuse);
    assert!(stampede(&scene).await.iter().all(|degraded| *degraded));
    // More callers, and more probes during the outage.
    for _ in 0..5 {
        sleep(SHORT).await;
        stampede(&scene).await;
    }
    assert_eq!(log.count("primary ledger unavailable"), 1);
    assert_eq!(log.count("primary ledger available again"), 0);
    assert_eq!(scene.counts.of("ichido_ledger_outages_total"), 1);
    scene.recovery().await;
    stampede(&scene).await;
    assert_eq!(
        (log.count("primary ledger unavailable"), log.count("primary ledger available again")),
        (1, 1)
    );
}
