//! What the ledger did not take waits in the completion journal, and nothing runs twice meanwhile.

use std::path::Path;
use std::sync::Arc;

use ichido_core::State;
use ichido_http::{Journal, Route};
use ichido_ledger::{Ledger, Settings};
use tokio_util::sync::CancellationToken;

use crate::lossy_proxy::Fault;
use crate::support::{
    BOUND, Faulty, Gate, Instance, Store, Upstream, Way, ms, on_every_ledger, order, post, quick, route,
    rules, text, until,
};

on_every_ledger! {
    a_completion_that_the_ledger_missed_is_answered_from_the_journal_and_drained_later,
    a_completion_survives_its_process,
    a_release_and_a_doubt_that_the_ledger_missed_arrive_later,
    a_claim_whose_answer_was_lost_is_taken_back,
    a_word_that_waits_keeps_its_lease,
}

struct Scene {
    faulty: Arc<Faulty>,
    journal: Arc<Journal>,
    instance: Instance,
    other: Instance,
}

async fn scene(store: &Store, dir: &Path, route: Route, upstream: &Upstream) -> Scene {
    let faulty = Faulty::around(store.backend().await);
    let journal = Arc::new(Journal::open(dir).unwrap());
    let ledger = Ledger::new(faulty.clone(), quick());
    let instance = Instance::with(ledger, rules(route.clone()), None, Some(journal.clone()), upstream);
    let other = Instance::new(store, route, upstream).await;
    Scene { faulty, journal, instance, other }
}

async fn a_completion_that_the_ledger_missed_is_answered_from_the_journal_and_drained_later(store: Store) {
    // Refused: it did not happen. Lost: it did, and the journal says it again, which changes nothing.
    tokio::join!(missed(&store, "refused", Way::Refused), missed(&store, "lost", Way::Lost));
}

async fn missed(store: &Store, key: &str, way: Way) {
    let dir = tempfile::tempdir().unwrap();
    let gate = Gate::shut();
    let upstream = Upstream::gated(&gate);
    let Scene { faulty, journal, instance, other } = scene(store, dir.path(), route(), &upstream).await;
    let first = instance.spawn(order(key));
    upstream.started(1).await;
    faulty.all(way);
    gate.open();
    let first = first.await.unwrap();
    first.is_first(201, "run 1");
    assert_eq!(journal.len(), 1);
    // During the outage.
    instance.send(order(key)).await.is_again(201, "run 1");
    instance.send(post("/orders", key, "else")).await.is_problem(422, "key-reused");
    assert_eq!(journal.drain(&instance.ledger).await, 1, "it still waits");
    // The ledger is back.
    faulty.all(Way::Sound);
    assert_eq!(journal.drain(&instance.ledger).await, 0);
    for instance in [&instance, &other] {
        instance.send(order(key)).await.is_again(201, "run 1");
    }
    assert_eq!(upstream.runs(), 1);
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"]);
}

async fn a_completion_survives_its_process(store: Store) {
    let dir = tempfile::tempdir().unwrap();
    let upstream = Upstream::counting();
    {
        let Scene { faulty, journal, instance, .. } = scene(&store, dir.path(), route(), &upstream).await;
        faulty.words(Way::Refused);
        instance.send(order("k")).await.is_first(201, "run 1");
        instance.layer.drain().await;
        assert_eq!(journal.len(), 1, "shutdown leaves it on disk");
    }
    let journal = reopened(dir.path()).await;
    assert_eq!(journal.len(), 1);
    let ledger = store.ledger().await;
    let instance = Instance::with(ledger.clone(), rules(route()), None, Some(journal.clone()), &upstream);
    // Not yet drained, it is known all the same.
    instance.send(order("k")).await.is_again(201, "run 1");
    assert_eq!(journal.drain(&ledger).await, 0);
    let other = Instance::new(&store, route(), &upstream).await;
    other.send(order("k")).await.is_again(201, "run 1");
    assert_eq!(upstream.runs(), 1);
}

/// Detached work may hold the journal for a moment longer.
async fn reopened(dir: &Path) -> Arc<Journal> {
    until("the journal was let go", async || Journal::open(dir).is_ok()).await;
    Arc::new(Journal::open(dir).unwrap())
}

async fn a_release_and_a_doubt_that_the_ledger_missed_arrive_later(store: Store) {
    let dir = tempfile::tempdir().unwrap();
    let upstream = Upstream::new(async |call| {
        let status = if call.parts.uri.path() == "/orders" { 504 } else { 429 };
        Ok(text(status, &format!("run {}", call.run)))
    });
    let Scene { faulty, journal, instance, other } = scene(&store, dir.path(), route(), &upstream).await;
    faulty.words(Way::Refused);
    instance.send(order("k")).await.is_first(504, "run 1");
    instance.send(post("/refused", "k", "")).await.is_first(429, "run 2");
    assert_eq!(journal.len(), 2);
    instance.send(order("k")).await.is_problem(409, "in-flight");
    instance.send(post("/refused", "k", "")).await.is_problem(409, "in-flight");
    faulty.words(Way::Sound);
    assert_eq!(journal.drain(&instance.ledger).await, 0);
    other.send(order("k")).await.is_problem(409, "in-doubt");
    other.send(post("/refused", "k", "")).await.is_first(429, "run 3");
}

/// Nothing ran, and the caller was told so: its key must not be in doubt for that.
async fn a_claim_whose_answer_was_lost_is_taken_back(store: Store) {
    let dir = tempfile::tempdir().unwrap();
    let upstream = Upstream::counting();
    let Scene { faulty, journal, instance, other } = scene(&store, dir.path(), route(), &upstream).await;
    faulty.claims(Way::Lost);
    instance.send(order("k")).await.is_problem(503, "ledger-unavailable");
    assert!(other.record("k").await.is_some(), "it was granted to nobody");
    assert_eq!((journal.len(), upstream.runs()), (1, 0));
    faulty.claims(Way::Sound);
    assert_eq!(journal.drain(&instance.ledger).await, 0);
    other.send(order("k")).await.is_first(201, "run 1");
}

/// Only last words fail here: as long as one waits, nobody takes the claim for abandoned.
async fn a_word_that_waits_keeps_its_lease(store: Store) {
    let dir = tempfile::tempdir().unwrap();
    let upstream = Upstream::counting();
    let route = Route { lease: ms(2_400), in_doubt: ichido_http::InDoubt::Retry, ..route() };
    let Scene { faulty, journal, instance, other } = scene(&store, dir.path(), route, &upstream).await;
    faulty.words(Way::Refused);
    instance.send(order("k")).await.is_first(201, "run 1");
    let started = tokio::time::Instant::now();
    while started.elapsed() < ms(2_800) {
        other.send(order("k")).await.is_problem(409, "in-flight");
        tokio::time::sleep(ms(50)).await;
    }
    faulty.words(Way::Sound);
    assert_eq!(journal.drain(&instance.ledger).await, 0);
    other.send(order("k")).await.is_again(201, "run 1");
    assert_eq!(upstream.runs(), 1);
}

/// A real server behind a proxy that is cut between claim and completion.
async fn a_server_that_is_cut_off_hears_of_it_later(store: Store) {
    let dir = tempfile::tempdir().unwrap();
    let gate = Gate::shut();
    let upstream = Upstream::gated(&gate);
    let proxy = store.proxy();
    // Patient enough for a connection to be made again on a busy machine.
    let settings = Settings { timeout: ms(1_500), ..quick() };
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
    first.await.unwrap().is_first(201, "run 1");
    instance.send(order("k")).await.is_again(201, "run 1");
    instance.send(order("new")).await.is_problem(503, "ledger-unavailable");
    other.send(order("k")).await.is_problem(409, "in-flight");
    proxy.set(Fault::None);
    // By itself.
    until("the journal is empty", async || journal.is_empty()).await;
    assert!(matches!(other.record("k").await.unwrap().state, State::Done(_)));
    for instance in [&instance, &other] {
        instance.send(order("k")).await.is_again(201, "run 1");
    }
    assert_eq!(upstream.runs(), 1);
    stop.cancel();
    tokio::time::timeout(BOUND, draining).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_of_server_that_is_cut_off_hears_of_it_later() {
    let stores = [Store::postgres().await, Store::redis().await, Store::dynamodb().await];
    let cases = stores.map(|store| tokio::spawn(a_server_that_is_cut_off_hears_of_it_later(store)));
    for (case, name) in cases.into_iter().zip(["postgres", "redis", "dynamodb"]) {
        assert!(case.await.is_ok(), "failed on {name}");
    }
}

/// Only completions are refused here, so the ledger goes on telling waiters that the request is under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_answered_from_the_journal_at_its_limit_at_the_latest() {
    let (store, dir) = (Store::memory(), tempfile::tempdir().unwrap());
    let gate = Gate::shut();
    let upstream = Upstream::gated(&gate);
    let waiting = Route { in_flight: ichido_http::InFlight::Wait(ms(1_000)), ..route() };
    let Scene { faulty, instance, .. } = scene(&store, dir.path(), waiting, &upstream).await;
    faulty.words(Way::Denied);
    let first = instance.spawn(order("k"));
    upstream.started(1).await;
    let waiter = instance.spawn(order("k"));
    until("the waiter is at work", async || instance.layer.in_flight() == 2).await;
    gate.open();
    first.await.unwrap().is_first(201, "run 1");
    waiter.await.unwrap().is_again(201, "run 1");
}

/// One claim that its server cannot settle is no reason to let the others lapse.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn words_that_never_arrive_do_not_keep_the_others_waiting() {
    let (store, dir) = (Store::memory(), tempfile::tempdir().unwrap());
    let upstream = Upstream::counting();
    let Scene { faulty, journal, instance, .. } = scene(&store, dir.path(), route(), &upstream).await;
    faulty.words(Way::Refused);
    let keys: Vec<String> = (0..8).map(|number| format!("k{number}")).collect();
    let sent: Vec<_> = keys.iter().map(|key| instance.spawn(order(key))).collect();
    for sent in sent {
        assert_eq!(sent.await.unwrap().status, 201);
    }
    assert_eq!(journal.len(), 8);
    faulty.words(Way::Sound);
    let hasty = Ledger::new(faulty.clone(), Settings { timeout: ms(50), try_timeout: ms(50), ..quick() });
    // Wherever these stand, three in a row end one round, and the next begins behind them.
    faulty.stuck(&["k1", "k2", "k5"]);
    journal.drain(&hasty).await;
    assert_eq!(journal.drain(&hasty).await, 3);
    faulty.stuck(&[]);
    assert_eq!(journal.drain(&hasty).await, 0);
    for key in &keys {
        assert!(matches!(instance.record(key).await.unwrap().state, State::Done(_)), "{key}");
    }
}
