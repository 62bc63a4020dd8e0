//! The ledger is out when a claim is made, or when it is to be completed.

use std::sync::Arc;

use ichido_http::{Outage, Route};
use ichido_ledger::memory::Memory;
use ichido_ledger::{FallbackSettings, Ledger};

use crate::support::{
    Faulty, Gate, Instance, Store, Upstream, Way, ms, on_embedded_ledgers, on_every_ledger, order, post,
    quick, route, rules, text, until,
};

on_every_ledger! {
    out_at_claim_a_closed_route_refuses,
    out_at_claim_an_open_route_runs_and_says_so,
    out_at_claim_a_fallback_route_goes_on_locally_and_tells_the_ledger_later,
    out_at_completion_the_client_gets_the_real_answer_and_nothing_runs_twice,
}

on_embedded_ledgers! {
    a_claim_that_was_granted_to_nobody_is_given_back_without_a_journal,
}

fn during(outage: Outage) -> Route {
    Route { outage, ..route() }
}

async fn out_at_claim_a_closed_route_refuses(store: Store) {
    let upstream = Upstream::counting();
    let faulty = Faulty::around(store.backend().await);
    let instance = Instance::hasty(faulty.clone(), during(Outage::Closed), &upstream);
    faulty.all(Way::Refused);
    instance.send(order("k")).await.is_problem(503, "ledger-unavailable");
    assert_eq!(upstream.runs(), 0);
    faulty.all(Way::Sound);
    instance.send(order("k")).await.is_first(201, "run 1");
    instance.send(order("k")).await.is_again(201, "run 1");
}

async fn out_at_claim_an_open_route_runs_and_says_so(store: Store) {
    let upstream = Upstream::counting();
    let faulty = Faulty::around(store.backend().await);
    let instance = Instance::hasty(faulty.clone(), during(Outage::Open), &upstream);
    faulty.all(Way::Refused);
    for run in 1..=2 {
        let mut request = order("k");
        request.headers_mut().insert("idempotency-attempt", 9.into());
        let got = instance.send(request).await;
        got.is_first(201, &format!("run {run}"));
        assert_eq!(got.header("idempotency-unprotected"), Some("true"));
        assert_eq!(got.header("idempotency-key-lifetime"), None, "nothing is remembered");
    }
    assert!(upstream.calls().iter().all(|call| !call.parts.headers.contains_key("idempotency-attempt")));
    faulty.all(Way::Sound);
    let got = instance.send(order("k")).await;
    got.is_first(201, "run 3");
    assert_eq!(got.header("idempotency-unprotected"), None);
}

async fn out_at_claim_a_fallback_route_goes_on_locally_and_tells_the_ledger_later(store: Store) {
    let upstream = Upstream::new(async |call| {
        let size = if call.parts.uri.path() == "/large" { 2_000_000 } else { 1 };
        Ok(text(201, &"x".repeat(size)))
    });
    let faulty = Faulty::around(store.backend().await);
    let ledger = Ledger::new(faulty.clone(), quick());
    let local = Arc::new(Memory::new(Arc::new(ichido_core::SystemClock::default()), 1000));
    let settings = FallbackSettings { pause: ms(300), ..FallbackSettings::default() };
    let fallback = ledger.with_fallback(local, settings).await.unwrap();
    let instance = Instance::with(ledger, rules(during(Outage::Fallback)), Some(fallback), None, &upstream);
    let other = Instance::new(&store, route(), &upstream).await;

    let healthy = instance.send(order("before")).await;
    assert_eq!((healthy.status.as_u16(), healthy.header("idempotency-degraded")), (201, None));
    faulty.all(Way::Refused);
    let first = instance.send(order("k")).await;
    first.is_first(201, "x");
    assert_eq!(first.header("idempotency-degraded"), Some("true"));
    for key in ["k", "before"] {
        let again = instance.send(order(key)).await;
        again.is_again(201, "x");
        assert_eq!(again.header("idempotency-degraded"), Some("true"), "{key}");
    }
    let large = instance.send(post("/large", "k", "")).await;
    assert_eq!((large.body.len(), large.header("idempotency-degraded")), (2_000_000, Some("true")));
    let reused = instance.send(post("/orders", "k", "else")).await;
    reused.is_problem(422, "key-reused");
    assert_eq!(reused.header("idempotency-degraded"), Some("true"));

    faulty.all(Way::Sound);
    until("the ledger heard of it", async || {
        // After the pause, a question that only the primary can answer makes the probe.
        instance.send(post("/probes", &crate::servers::unique(), "")).await;
        other.record("k").await.is_some()
    })
    .await;
    other.send(order("k")).await.is_again(201, "x");
    let orders = upstream.calls().iter().filter(|call| call.parts.uri.path() == "/orders").count();
    assert_eq!(orders, 2, "before and k");
}

/// Without a journal the record is lost, and the claim is in doubt; the answer is not, and nothing runs again.
async fn out_at_completion_the_client_gets_the_real_answer_and_nothing_runs_twice(store: Store) {
    let upstream = Upstream::counting();
    let faulty = Faulty::around(store.backend().await);
    let route = Route { lease: ms(600), ..during(Outage::Closed) };
    let instance = Instance::hasty(faulty.clone(), route, &upstream);
    let other = Instance::new(&store, crate::support::route(), &upstream).await;
    faulty.words(Way::Refused);
    instance.send(order("k")).await.is_first(201, "run 1");
    faulty.all(Way::Sound);
    other.send_until_settled(|| order("k")).await.is_problem(409, "in-doubt");
    assert_eq!(upstream.runs(), 1);
}

/// Nothing ran, and the caller was told so: its key must not be in doubt for that.
async fn a_claim_that_was_granted_to_nobody_is_given_back_without_a_journal(store: Store) {
    for (key, way) in [("late", Way::Late), ("lost", Way::Lost)] {
        let upstream = Upstream::counting();
        let faulty = Faulty::around(store.backend().await);
        let instance = Instance::hasty(faulty.clone(), during(Outage::Closed), &upstream);
        faulty.claims(way);
        instance.send(order(key)).await.is_problem(503, "ledger-unavailable");
        instance.layer.drain().await;
        assert_eq!((upstream.runs(), instance.record(key).await), (0, None));
        faulty.claims(Way::Sound);
        instance.send(order(key)).await.is_first(201, "run 1");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_ledger_is_an_outage_within_its_deadline() {
    let upstream = Upstream::counting();
    let faulty = Faulty::around(Store::memory().backend().await);
    let instance = Instance::hasty(faulty.clone(), during(Outage::Closed), &upstream);
    faulty.claims(Way::Hangs);
    instance.send(order("k")).await.is_problem(503, "ledger-unavailable");
    assert_eq!(upstream.runs(), 0);
}

/// A grant whose answer came late must be confirmed before anything runs. If that fails, the key is given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_cannot_be_confirmed_is_given_back() {
    let store = Store::memory();
    let upstream = Upstream::counting();
    let faulty = Faulty::around(store.backend().await);
    let route = Route { lease: ms(600), ..during(Outage::Closed) };
    let instance = Instance::hasty(faulty.clone(), route, &upstream);
    // The grant is made, its answer is lost until most of the lease is over.
    faulty.claims(Way::Lost);
    faulty.renewals(Way::Refused);
    let asking = instance.spawn(order("k"));
    until("the claim was made", async || instance.record("k").await.is_some()).await;
    tokio::time::sleep(ms(400)).await;
    faulty.claims(Way::Sound);
    asking.await.unwrap().is_problem(503, "ledger-unavailable");
    faulty.renewals(Way::Sound);
    assert_eq!((upstream.runs(), instance.record("k").await), (0, None));
    instance.send(order("k")).await.is_first(201, "run 1");
}

/// The service is not asked again while its answer waits for the ledger, whatever the route does in an outage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_whose_question_fails_looks_into_the_journal_before_it_runs() {
    for outage in [Outage::Open, Outage::Closed] {
        let store = Store::memory();
        let gate = Gate::shut();
        let upstream = Upstream::gated(&gate);
        let faulty = Faulty::around(store.backend().await);
        let dir = tempfile::tempdir().unwrap();
        let journal = Arc::new(ichido_http::Journal::open(dir.path()).unwrap());
        let ledger = Ledger::new(faulty.clone(), quick());
        let instance = Instance::with(ledger, rules(during(outage)), None, Some(journal), &upstream);
        let first = instance.spawn(order("k"));
        upstream.started(1).await;
        faulty.claims(Way::Hangs);
        faulty.words(Way::Denied);
        let repeat = instance.spawn(order("k"));
        until("the repeat asks", async || faulty.failed_claims() > 0).await;
        gate.open();
        first.await.unwrap().is_first(201, "run 1");
        repeat.await.unwrap().is_again(201, "run 1");
        assert_eq!(upstream.runs(), 1);
    }
}
