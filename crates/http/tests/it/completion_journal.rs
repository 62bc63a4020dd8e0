//! The completion journal keeps what the ledger could not accept, and nothing runs twice in the meantime.

use std::path::Path;
use std::sync::Arc;

use ichido_core::State;
use ichido_http::{Journal, Route};
use ichido_ledger::{Ledger, Settings};
use ichido_testkit::tcp_proxy::Fault;
use tokio_util::sync::CancellationToken;

use crate::support::{
    Behavior, FaultyBackend, Gate, Instance, Store, TIMEOUT, Upstream, ms, on_every_ledger, order, post,
    route, rules, short_timeouts, text, until,
};

on_every_ledger! {
    a_completion_that_the_ledger_missed_is_replayed_from_the_journal_and_settled_later,
    a_journaled_completion_survives_a_restart,
    a_release_and_a_doubt_that_the_ledger_missed_are_settled_later,
    a_claim_whose_grant_was_lost_is_released_later,
    a_journal_entry_keeps_its_lease,
}

struct Scene {
    faulty: Arc<FaultyBackend>,
    journal: Arc<Journal>,
    instance: Instance,
    other: Instance,
}

async fn scene(store: &Store, dir: &Path, route: Route, upstream: &Upstream) -> Scene {
    let faulty = FaultyBackend::wrap(store.backend().await);
    let journal = Arc::new(Journal::open(dir).unwrap());
    let ledger = Ledger::new(faulty.clone(), short_timeouts());
    let instance = Instance::with(ledger, rules(route.clone()), None, Some(journal.clone()), upstream);
    let other = Instance::new(store, route, upstream).await;
    Scene { faulty, journal, instance, other }
}

async fn a_completion_that_the_ledger_missed_is_replayed_from_the_journal_and_settled_later(store: Store) {
    // Refused: the ledger did not record it. Lost: it did, and settling it again changes nothing.
    tokio::join!(missed(&store, "refused", Behavior::Refused), missed(&store, "lost", Behavior::Lost));
}

async fn missed(store: &Store, key: &str, behavior: Behavior) {
    let dir = tempfile::tempdir().unwrap();
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let Scene { faulty, journal, instance, other } = scene(store, dir.path(), route(), &upstream).await;
    let first = instance.spawn(order(key));
    upstream.started(1).await;
    faulty.all_claims(behavior);
    gate.open();
    let first = first.await.unwrap();
    first.assert_first(201, "run 1");
    assert_eq!(journal.len(), 1);
    // During the outage.
    instance.send(order(key)).await.assert_replay(201, "run 1");
    instance.send(post("/orders", key, "else")).await.assert_problem(422, "key-reused");
    assert_eq!(journal.drain(&instance.ledger).await, 1, "the entry is still in the journal");
    // After the outage.
    faulty.all_claims(Behavior::Normal);
    assert_eq!(journal.drain(&instance.ledger).await, 0);
    for instance in [&instance, &other] {
        instance.send(order(key)).await.assert_replay(201, "run 1");
    }
    assert_eq!(upstream.runs(), 1);
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"]);
}

async fn a_journaled_completion_survives_a_restart(store: Store) {
    let dir = tempfile::tempdir().unwrap();
    let upstream = Upstream::counting();
    {
        let Scene { faulty, journal, instance, .. } = scene(&store, dir.path(), route(), &upstream).await;
        faulty.settlements(Behavior::Refused);
        instance.send(order("k")).await.assert_first(201, "run 1");
        instance.layer.drain().await;
        assert_eq!(journal.len(), 1, "a shutdown leaves the entry on disk");
    }
    let journal = reopen(dir.path()).await;
    assert_eq!(journal.len(), 1);
    let ledger = store.ledger().await;
    let instance = Instance::with(ledger.clone(), rules(route()), None, Some(journal.clone()), &upstream);
    // An entry is replayed before it is settled.
    instance.send(order("k")).await.assert_replay(201, "run 1");
    assert_eq!(journal.drain(&ledger).await, 0);
    let other = Instance::new(&store, route(), &upstream).await;
    other.send(order("k")).await.assert_replay(201, "run 1");
    assert_eq!(upstream.runs(), 1);
}

/// Opens the journal again. Detached tasks may hold it for a moment.
async fn reopen(dir: &Path) -> Arc<Journal> {
    until("the journal is closed", async || Journal::open(dir).is_ok()).await;
    Arc::new(Journal::open(dir).unwrap())
}

async fn a_release_and_a_doubt_that_the_ledger_missed_are_settled_later(store: Store) {
    let dir = tempfile::tempdir().unwrap();
    let upstream = Upstream::new(async |call| {
        let status = if call.parts.uri.path() == "/orders" { 504 } else { 429 };
        Ok(text(status, &format!("run {}", call.run)))
    });
    let Scene { faulty, journal, instance, other } = scene(&store, dir.path(), route(), &upstream).await;
    faulty.settlements(Behavior::Refused);
    instance.send(order("k")).await.assert_first(504, "run 1");
    instance.send(post("/refused", "k", "")).await.assert_first(429, "run 2");
    assert_eq!(journal.len(), 2);
    instance.send(order("k")).await.assert_problem(409, "in-flight");
    instance.send(post("/refused", "k", "")).await.assert_problem(409, "in-flight");
    faulty.settlements(Behavior::Normal);
    assert_eq!(journal.drain(&instance.ledger).await, 0);
    other.send(order("k")).await.assert_problem(409, "in-doubt");
    other.send(post("/refused", "k", "")).await.assert_first(429, "run 3");
}

/// The request was not run, and the caller knows it, so its key must not become in doubt.
async fn a_claim_whose_grant_was_lost_is_released_later(store: Store) {
    let dir = tempfile::tempdir().unwrap();
    let upstream = Upstream::counting();
    let Scene { faulty, journal, instance, other } = scene(&store, dir.path(), route(), &upstream).await;
    faulty.claims(Behavior::Lost);
    instance.send(order("k")).await.assert_problem(503, "ledger-unavailable");
    assert!(other.record("k").await.is_some(), "the claim was granted, but the grant was lost");
    assert_eq!((journal.len(), upstream.runs()), (1, 0));
    faulty.claims(Behavior::Normal);
    assert_eq!(journal.drain(&instance.ledger).await, 0);
    other.send(order("k")).await.assert_first(201, "run 1");
}

/// Only settlements fail here. As long as one is in the journal, its lease is renewed and nobody takes the claim over.
async fn a_journal_entry_keeps_its_lease(store: Store) {
    let dir = tempfile::tempdir().unwrap();
    let upstream = Upstream::counting();
    let route = Route { lease: ms(2_400), in_doubt: ichido_http::InDoubt::Retry, ..route() };
    let Scene { faulty, journal, instance, other } = scene(&store, dir.path(), route, &upstream).await;
    faulty.settlements(Behavior::Refused);
    instance.send(order("k")).await.assert_first(201, "run 1");
    let started = tokio::time::Instant::now();
    while started.elapsed() < ms(2_800) {
        other.send(order("k")).await.assert_problem(409, "in-flight");
        tokio::time::sleep(ms(50)).await;
    }
    faulty.settlements(Behavior::Normal);
    assert_eq!(journal.drain(&instance.ledger).await, 0);
    other.send(order("k")).await.assert_replay(201, "run 1");
    assert_eq!(upstream.runs(), 1);
}

/// A real server behind a proxy that fails between claim and completion.
async fn a_completion_reaches_a_disconnected_server_later(store: Store) {
    let dir = tempfile::tempdir().unwrap();
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let proxy = store.proxy();
    // Long enough to reconnect on a busy machine.
    let settings = Settings { timeout: ms(1_500), ..short_timeouts() };
    let ledger = store.ledger_through(&proxy, settings).await;
    let journal = Arc::new(Journal::open(dir.path()).unwrap());
    let stop = CancellationToken::new();
    let draining = tokio::spawn(journal.clone().run(ledger.clone(), stop.clone()));
    let instance = Instance::with(ledger, rules(route()), None, Some(journal.clone()), &upstream);
    let other = Instance::new(&store, route(), &upstream).await;
    let first = instance.spawn(order("k"));
    upstream.started(1).await;
    proxy.set(Fault::Refuse);
    gate.open();
    first.await.unwrap().assert_first(201, "run 1");
    instance.send(order("k")).await.assert_replay(201, "run 1");
    instance.send(order("new")).await.assert_problem(503, "ledger-unavailable");
    other.send(order("k")).await.assert_problem(409, "in-flight");
    proxy.set(Fault::None);
    // The background task settles the entry.
    until("the journal is empty", async || journal.is_empty()).await;
    assert!(matches!(other.record("k").await.unwrap().state, State::Done(_)));
    for instance in [&instance, &other] {
        instance.send(order("k")).await.assert_replay(201, "run 1");
    }
    assert_eq!(upstream.runs(), 1);
    stop.cancel();
    tokio::time::timeout(TIMEOUT, draining).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_reaches_every_kind_of_disconnected_server_later() {
    let stores = [Store::postgres().await, Store::redis().await, Store::dynamodb().await];
    let cases = stores.map(|store| tokio::spawn(a_completion_reaches_a_disconnected_server_later(store)));
    for (case, name) in cases.into_iter().zip(["postgres", "redis", "dynamodb"]) {
        assert!(case.await.is_ok(), "failed on {name}");
    }
}

/// Only completions are refused here, so for the ledger the request is still running.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_replayed_from_the_journal() {
    let (store, dir) = (Store::memory(), tempfile::tempdir().unwrap());
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let waiting = Route { in_flight: ichido_http::InFlight::Wait(ms(1_000)), ..route() };
    let Scene { faulty, instance, .. } = scene(&store, dir.path(), waiting, &upstream).await;
    faulty.settlements(Behavior::Denied);
    let first = instance.spawn(order("k"));
    upstream.started(1).await;
    let waiter = instance.spawn(order("k"));
    until("the waiter is running", async || instance.layer.in_flight() == 2).await;
    gate.open();
    first.await.unwrap().assert_first(201, "run 1");
    waiter.await.unwrap().assert_replay(201, "run 1");
}

/// A claim that cannot be settled must not make others lapse.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_that_never_succeed_do_not_delay_the_others() {
    let (store, dir) = (Store::memory(), tempfile::tempdir().unwrap());
    let upstream = Upstream::counting();
    let Scene { faulty, journal, instance, .. } = scene(&store, dir.path(), route(), &upstream).await;
    faulty.settlements(Behavior::Refused);
    let keys: Vec<String> = (0..8).map(|number| format!("k{number}")).collect();
    let sent: Vec<_> = keys.iter().map(|key| instance.spawn(order(key))).collect();
    for sent in sent {
        assert_eq!(sent.await.unwrap().status, 201);
    }
    assert_eq!(journal.len(), 8);
    faulty.settlements(Behavior::Normal);
    let impatient =
        Ledger::new(faulty.clone(), Settings { timeout: ms(50), try_timeout: ms(50), ..short_timeouts() });
    // Whatever the order, three failures in a row end a round, and the next one starts after them.
    faulty.stuck(&["k1", "k2", "k5"]);
    journal.drain(&impatient).await;
    assert_eq!(journal.drain(&impatient).await, 3);
    faulty.stuck(&[]);
    assert_eq!(journal.drain(&impatient).await, 0);
    for key in &keys {
        assert!(matches!(instance.record(key).await.unwrap().state, State::Done(_)), "{key}");
    }
}
