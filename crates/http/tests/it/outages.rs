//! Outages of the ledger, at the claim or at completion.

use std::sync::Arc;

use ichido_http::{Outage, Route};
use ichido_ledger::memory::Memory;
use ichido_ledger::{FallbackSettings, Ledger};

use crate::support::{
    Behavior, FaultyBackend, Gate, Instance, Store, Upstream, ms, on_embedded_ledgers, on_every_ledger,
    order, post, route, rules, short_timeouts, text, until,
};

on_every_ledger! {
    during_an_outage_a_closed_route_refuses,
    during_an_outage_an_open_route_runs_unprotected,
    during_an_outage_a_fallback_route_claims_locally_and_hands_over_later,
    an_outage_at_completion_loses_no_response_and_runs_nothing_twice,
}

on_embedded_ledgers! {
    a_claim_whose_grant_was_lost_is_released_without_a_journal,
}

fn during(outage: Outage) -> Route {
    Route { outage, ..route() }
}

async fn during_an_outage_a_closed_route_refuses(store: Store) {
    let upstream = Upstream::counting();
    let faulty = FaultyBackend::wrap(store.backend().await);
    let instance = Instance::impatient(faulty.clone(), during(Outage::Closed), &upstream);
    faulty.all_claims(Behavior::Refused);
    instance.send(order("k")).await.assert_problem(503, "ledger-unavailable");
    assert_eq!(upstream.runs(), 0);
    faulty.all_claims(Behavior::Normal);
    instance.send(order("k")).await.assert_first(201, "run 1");
    instance.send(order("k")).await.assert_replay(201, "run 1");
}

async fn during_an_outage_an_open_route_runs_unprotected(store: Store) {
    let upstream = Upstream::counting();
    let faulty = FaultyBackend::wrap(store.backend().await);
    let instance = Instance::impatient(faulty.clone(), during(Outage::Open), &upstream);
    faulty.all_claims(Behavior::Refused);
    for run in 1..=2 {
        let mut request = order("k");
        request.headers_mut().insert("idempotency-attempt", 9.into());
        let got = instance.send(request).await;
        got.assert_first(201, &format!("run {run}"));
        assert_eq!(got.header("idempotency-unprotected"), Some("true"));
        assert_eq!(got.header("idempotency-key-lifetime"), None, "nothing is stored");
    }
    assert!(upstream.calls().iter().all(|call| !call.parts.headers.contains_key("idempotency-attempt")));
    faulty.all_claims(Behavior::Normal);
    let got = instance.send(order("k")).await;
    got.assert_first(201, "run 3");
    assert_eq!(got.header("idempotency-unprotected"), None);
}

async fn during_an_outage_a_fallback_route_claims_locally_and_hands_over_later(store: Store) {
    let upstream = Upstream::new(async |call| {
        let size = if call.parts.uri.path() == "/large" { 2_000_000 } else { 1 };
        Ok(text(201, &"x".repeat(size)))
    });
    let faulty = FaultyBackend::wrap(store.backend().await);
    let ledger = Ledger::new(faulty.clone(), short_timeouts());
    let local = Arc::new(Memory::new(Arc::new(ichido_core::SystemClock::default()), 1000));
    let settings = FallbackSettings { pause: ms(300), ..FallbackSettings::default() };
    let fallback = ledger.with_fallback(local, settings).await.unwrap();
    let instance = Instance::with(ledger, rules(during(Outage::Fallback)), Some(fallback), None, &upstream);
    let other = Instance::new(&store, route(), &upstream).await;

    let healthy = instance.send(order("before")).await;
    assert_eq!((healthy.status.as_u16(), healthy.header("idempotency-degraded")), (201, None));
    faulty.all_claims(Behavior::Refused);
    let first = instance.send(order("k")).await;
    first.assert_first(201, "x");
    assert_eq!(first.header("idempotency-degraded"), Some("true"));
    for key in ["k", "before"] {
        let again = instance.send(order(key)).await;
        again.assert_replay(201, "x");
        assert_eq!(again.header("idempotency-degraded"), Some("true"), "{key}");
    }
    let large = instance.send(post("/large", "k", "")).await;
    assert_eq!((large.body.len(), large.header("idempotency-degraded")), (2_000_000, Some("true")));
    let reused = instance.send(post("/orders", "k", "else")).await;
    reused.assert_problem(422, "key-reused");
    assert_eq!(reused.header("idempotency-degraded"), Some("true"));

    faulty.all_claims(Behavior::Normal);
    until("the claim is handed over", async || {
        // After the pause, a request that only the primary can decide triggers the probe.
        instance.send(post("/probes", &ichido_testkit::ledger_server::unique(), "")).await;
        other.record("k").await.is_some()
    })
    .await;
    other.send(order("k")).await.assert_replay(201, "x");
    let orders = upstream.calls().iter().filter(|call| call.parts.uri.path() == "/orders").count();
    assert_eq!(orders, 2, "before and k");
}

/// Without a journal, the outcome is lost and the claim becomes in doubt. The response is not lost, and nothing runs again.
async fn an_outage_at_completion_loses_no_response_and_runs_nothing_twice(store: Store) {
    let upstream = Upstream::counting();
    let faulty = FaultyBackend::wrap(store.backend().await);
    let route = Route { lease: ms(600), ..during(Outage::Closed) };
    let instance = Instance::impatient(faulty.clone(), route, &upstream);
    let other = Instance::new(&store, crate::support::route(), &upstream).await;
    faulty.settlements(Behavior::Refused);
    instance.send(order("k")).await.assert_first(201, "run 1");
    faulty.all_claims(Behavior::Normal);
    other.send_until_settled(|| order("k")).await.assert_problem(409, "in-doubt");
    assert_eq!(upstream.runs(), 1);
}

/// The request was not run, and the caller knows it, so its key must not become in doubt.
async fn a_claim_whose_grant_was_lost_is_released_without_a_journal(store: Store) {
    for (key, behavior) in [("late", Behavior::Late), ("lost", Behavior::Lost)] {
        let upstream = Upstream::counting();
        let faulty = FaultyBackend::wrap(store.backend().await);
        let instance = Instance::impatient(faulty.clone(), during(Outage::Closed), &upstream);
        faulty.claims(behavior);
        instance.send(order(key)).await.assert_problem(503, "ledger-unavailable");
        instance.layer.drain().await;
        assert_eq!((upstream.runs(), instance.record(key).await), (0, None));
        faulty.claims(Behavior::Normal);
        instance.send(order(key)).await.assert_first(201, "run 1");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_that_does_not_respond_is_an_outage() {
    let upstream = Upstream::counting();
    let faulty = FaultyBackend::wrap(Store::memory().backend().await);
    let instance = Instance::impatient(faulty.clone(), during(Outage::Closed), &upstream);
    faulty.claims(Behavior::Hangs);
    instance.send(order("k")).await.assert_problem(503, "ledger-unavailable");
    assert_eq!(upstream.runs(), 0);
}

/// A grant that arrives late must be confirmed before the service is called. If that fails, the claim is released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_cannot_be_confirmed_is_released() {
    let store = Store::memory();
    let upstream = Upstream::counting();
    let faulty = FaultyBackend::wrap(store.backend().await);
    let route = Route { lease: ms(600), ..during(Outage::Closed) };
    let instance = Instance::impatient(faulty.clone(), route, &upstream);
    // The claim is granted, but the grant is lost until most of the lease is over.
    faulty.claims(Behavior::Lost);
    faulty.renewals(Behavior::Refused);
    let request = instance.spawn(order("k"));
    until("the claim is granted", async || instance.record("k").await.is_some()).await;
    tokio::time::sleep(ms(400)).await;
    faulty.claims(Behavior::Normal);
    request.await.unwrap().assert_problem(503, "ledger-unavailable");
    faulty.renewals(Behavior::Normal);
    assert_eq!((upstream.runs(), instance.record("k").await), (0, None));
    instance.send(order("k")).await.assert_first(201, "run 1");
}

/// The service is not called again while the completion is in the journal, whatever the route does in an outage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_whose_claim_fails_is_replayed_from_the_journal() {
    for outage in [Outage::Open, Outage::Closed] {
        let store = Store::memory();
        let gate = Gate::closed();
        let upstream = Upstream::gated(&gate);
        let faulty = FaultyBackend::wrap(store.backend().await);
        let dir = tempfile::tempdir().unwrap();
        let journal = Arc::new(ichido_http::Journal::open(dir.path()).unwrap());
        let ledger = Ledger::new(faulty.clone(), short_timeouts());
        let instance = Instance::with(ledger, rules(during(outage)), None, Some(journal), &upstream);
        let first = instance.spawn(order("k"));
        upstream.started(1).await;
        faulty.claims(Behavior::Hangs);
        faulty.settlements(Behavior::Denied);
        let retry = instance.spawn(order("k"));
        until("the retry tries to claim", async || faulty.failed_claims() > 0).await;
        gate.open();
        first.await.unwrap().assert_first(201, "run 1");
        retry.await.unwrap().assert_replay(201, "run 1");
        assert_eq!(upstream.runs(), 1);
    }
}
