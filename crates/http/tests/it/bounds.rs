//! Everything has a bound, and refuses beyond it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ichido_core::mark::Mark;
use ichido_core::{MarkKey, Outcome};
use ichido_http::Rules;
use ichido_ledger::{Ledger, Settings};

use crate::support::{
    Faulty, Gate, Instance, Store, Upstream, on_embedded_ledgers, on_every_ledger, order, route, rules, until,
};

on_embedded_ledgers! {
    work_beyond_its_bound_is_refused_and_never_claimed,
}

on_every_ledger! {
    a_batch_of_a_hundred_events_is_one_call,
}

async fn work_beyond_its_bound_is_refused_and_never_claimed(store: Store) {
    let gate = Gate::shut();
    let upstream = Upstream::gated(&gate);
    let rules = Rules { inflight_max: 2, ..rules(route()) };
    let instance = Instance::of(store.ledger().await, rules, &upstream);
    let held = [instance.spawn(order("a")), instance.spawn(order("b"))];
    upstream.started(2).await;
    instance.send(order("c")).await.is_problem(503, "overloaded");
    assert_eq!(instance.record("c").await, None);
    gate.open();
    for held in held {
        assert_eq!(held.await.unwrap().status, 201);
    }
    until("there is room again", async || instance.layer.in_flight() == 0).await;
    assert_eq!(instance.send(order("c")).await.status, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_memory_ledger_at_its_bound_refuses_and_forgets_no_live_key() {
    let store = Store::memory_of(3);
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, route(), &upstream).await;
    for number in 1..=3 {
        instance.send(order(&format!("k{number}"))).await.is_first(201, &format!("run {number}"));
    }
    instance.send(order("k4")).await.is_problem(503, "ledger-unavailable");
    assert_eq!(upstream.runs(), 3);
    for number in 1..=3 {
        instance.send(order(&format!("k{number}"))).await.is_again(201, &format!("run {number}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_of_very_many_keys_does_not_block_claims() {
    const KEYS: usize = 250_000;
    let store = Store::memory_of(KEYS + 10_000);
    let backend = store.backend().await;
    let handle = Ledger::new(backend.clone(), Settings::default());
    for number in 0..KEYS {
        let mut request = handle.request(ichido_core::Key::unscoped(number.to_string()).unwrap());
        request.retention_ms = 1;
        backend.claim(&request).await.unwrap();
        let word = ichido_core::Settle::Complete(Outcome::kept("x"));
        let _ = backend.settle(&request.key, request.token, &word).await.unwrap();
    }
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, route(), &upstream).await;
    let swept = Arc::new(AtomicBool::new(false));
    let sweeping = tokio::task::spawn_blocking({
        let (swept, backend, runtime) = (swept.clone(), backend.clone(), tokio::runtime::Handle::current());
        move || {
            while runtime.block_on(backend.sweep(KEYS)).unwrap().removed > 0 {}
            swept.store(true, Ordering::SeqCst);
        }
    });
    let mut meanwhile = 0;
    for number in 0..2_000 {
        assert_eq!(instance.send(order(&format!("k{number}"))).await.status, 201);
        meanwhile += usize::from(!swept.load(Ordering::SeqCst));
    }
    sweeping.await.unwrap();
    assert!(meanwhile > 0, "claims were answered while the sweep was under way");
    assert_eq!(upstream.runs(), 2_000);
}

/// The form for events, of the same ledger: one question, and a result for each.
async fn a_batch_of_a_hundred_events_is_one_call(store: Store) {
    let faulty = Faulty::around(store.backend().await);
    let ledger = Ledger::new(faulty.clone(), Settings::default());
    let mut requests: Vec<_> =
        (0..100).map(|number| ledger.mark_request(MarkKey::new(format!("E{number}")).unwrap())).collect();
    let marked = ledger.mark(&requests).await.unwrap();
    assert_eq!(faulty.mark_calls(), 1);
    assert_eq!(marked.len(), 100);
    assert!(marked.iter().all(|marked| marked.mark == Mark::New));
    requests =
        (50..150).map(|number| ledger.mark_request(MarkKey::new(format!("E{number}")).unwrap())).collect();
    let marked = ledger.mark(&requests).await.unwrap();
    let new: Vec<bool> = marked.iter().map(|marked| marked.mark == Mark::New).collect();
    assert_eq!((faulty.mark_calls(), new), (2, (50..150).map(|number| number >= 100).collect()));
}
