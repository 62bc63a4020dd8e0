//! Limits, and what is refused beyond them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, StreamBody};
use ichido_core::mark::Mark;
use ichido_core::{MarkKey, Outcome};
use ichido_http::{Mode, Route, Rules, Tenant};
use ichido_ledger::{Ledger, Settings};
use tower_layer::Layer;
use tower_service::Service;

use crate::support::{
    AnyBody, Cut, FaultyBackend, Gate, Instance, Store, Upstream, on_embedded_ledgers, on_every_ledger,
    order, route, rules, until,
};

on_embedded_ledgers! {
    requests_over_the_limit_are_refused_and_not_claimed,
    a_slot_is_taken_before_the_body_is_read,
    a_connection_keeps_to_its_limit_even_if_it_resets_streams,
    a_tenant_keeps_to_its_limit,
    a_caller_keeps_to_its_limit,
    bodies_over_the_budget_are_refused_before_they_are_read,
}

on_every_ledger! {
    a_batch_of_a_hundred_events_is_one_call,
}

async fn requests_over_the_limit_are_refused_and_not_claimed(store: Store) {
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let rules = Rules { inflight_max: 2, ..rules(route()) };
    let instance = Instance::of(store.ledger().await, rules, &upstream);
    let held = [instance.spawn(order("a")), instance.spawn(order("b"))];
    upstream.started(2).await;
    let refused = instance.send(order("c")).await;
    refused.assert_problem(503, "overloaded");
    assert_eq!((refused.header("retry-after"), instance.record("c").await), (Some("1"), None));
    gate.open();
    for held in held {
        assert_eq!(held.await.unwrap().status, 201);
    }
    until("a slot is free", async || instance.layer.in_flight() == 0).await;
    assert_eq!(instance.send(order("c")).await.status, 201);
}

/// A request whose body arrives when the test sends it, and a flag for whether the body was polled.
fn withheld(key: &str, len: u64) -> (Request<AnyBody>, tokio::sync::oneshot::Sender<()>, Arc<AtomicBool>) {
    let (release, released) = tokio::sync::oneshot::channel();
    let polled = Arc::new(AtomicBool::new(false));
    let body = Withheld { released, len, polled: polled.clone() };
    let request = Request::post("/orders").header("idempotency-key", format!("\"{key}\""));
    (request.body(body.boxed_unsync()).unwrap(), release, polled)
}

struct Withheld {
    released: tokio::sync::oneshot::Receiver<()>,
    len: u64,
    polled: Arc<AtomicBool>,
}

impl Body for Withheld {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        self.polled.store(true, Ordering::SeqCst);
        if self.len == 0 {
            return Poll::Ready(None);
        }
        let _ = std::task::ready!(Pin::new(&mut self.released).poll(cx));
        let len = usize::try_from(std::mem::take(&mut self.len)).unwrap();
        Poll::Ready(Some(Ok(Frame::data(vec![b'x'; len].into()))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len)
    }
}

async fn a_slot_is_taken_before_the_body_is_read(store: Store) {
    let upstream = Upstream::counting();
    let rules = Rules { inflight_max: 1, ..rules(route()) };
    let instance = Instance::of(store.ledger().await, rules, &upstream);
    let (slow, release, polled) = withheld("slow", 10);
    let slow = instance.spawn(slow);
    until("the body is being read", async || polled.load(Ordering::SeqCst)).await;
    instance.send(order("new")).await.assert_problem(503, "overloaded");
    assert_eq!(instance.record("new").await, None);
    release.send(()).unwrap();
    slow.await.unwrap().assert_first(201, "run 1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recent_response_is_replayed_without_a_slot() {
    let upstream = Upstream::counting();
    let rules = Rules { inflight_max: 1, ..rules(route()) };
    let instance = Instance::of(Store::file().ledger().await, rules, &upstream);
    instance.send(order("known")).await.assert_first(201, "run 1");
    until("the response is cached", async || instance.send(order("known")).await.is_replay()).await;
    let (slow, release, polled) = withheld("slow", 10);
    let slow = instance.spawn(slow);
    until("the body is being read", async || polled.load(Ordering::SeqCst)).await;
    instance.send(order("known")).await.assert_replay(201, "run 1");
    instance.send(order("new")).await.assert_problem(503, "overloaded");
    release.send(()).unwrap();
    slow.await.unwrap().assert_first(201, "run 2");
}

/// A request keeps running and keeps its slot after its client disconnects. Without this limit, an HTTP/2 connection that
/// resets its streams could take all slots.
async fn a_connection_keeps_to_its_limit_even_if_it_resets_streams(store: Store) {
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let rules = Rules { inflight_max: 10, inflight_max_per_connection: 3, ..rules(route()) };
    let instance = Instance::of(store.ledger().await, rules, &upstream);
    let connect =
        || Instance { service: instance.layer.for_connection().layer(upstream.clone()), ..instance.clone() };
    let (rude, polite) = (connect(), connect());
    for number in 0..20 {
        let request = rude.spawn(order(&format!("rude{number}")));
        if number < 3 {
            upstream.started(number + 1).await;
            request.abort();
        } else {
            request.await.unwrap().assert_problem(503, "overloaded");
        }
    }
    let served = polite.spawn(order("polite"));
    upstream.started(4).await;
    gate.open();
    assert_eq!(served.await.unwrap().status, 201);
    until("the slots are free", async || instance.layer.in_flight() == 0).await;
    assert_eq!(rude.send(order("rude3")).await.status, 201);
}

async fn a_tenant_keeps_to_its_limit(store: Store) {
    keeps_to_its_limit(&store, Tenant::Header(http::header::AUTHORIZATION)).await;
}

async fn a_caller_keeps_to_its_limit(store: Store) {
    keeps_to_its_limit(&store, Tenant::Auto).await;
}

async fn keeps_to_its_limit(store: &Store, tenant: Tenant) {
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let rules = Rules { inflight_max: 10, inflight_max_per_tenant: 2, tenant, ..rules(route()) };
    let instance = Instance::of(store.ledger().await, rules, &upstream);
    let by = |caller: &'static str, key: &str| {
        let mut request = order(key);
        request.headers_mut().insert("authorization", http::HeaderValue::from_static(caller));
        request
    };
    let mut served = vec![instance.spawn(by("a", "1")), instance.spawn(by("a", "2"))];
    upstream.started(2).await;
    let refused = instance.send(by("a", "3")).await;
    refused.assert_problem(503, "overloaded");
    assert!(refused.text().contains("inflight_max_per_tenant"), "{}", refused.text());
    served.push(instance.spawn(by("b", "4")));
    served.extend(["x", "y", "z"].map(|key| instance.spawn(order(key))));
    upstream.started(6).await;
    gate.open();
    for served in served {
        assert_eq!(served.await.unwrap().status, 201);
    }
}

async fn bodies_over_the_budget_are_refused_before_they_are_read(store: Store) {
    let upstream = Upstream::counting();
    let rules = Rules {
        body_memory_bytes: 100,
        body_memory_total_bytes: 150,
        body_disk_total_bytes: 1000,
        ..rules(route())
    };
    let instance = Instance::of(store.ledger().await, rules, &upstream);
    for len in [100, 800] {
        let (first, release, polled) = withheld(&format!("a{len}"), len);
        let first = instance.spawn(first);
        until("the body is being read", async || polled.load(Ordering::SeqCst)).await;
        let (second, _, polled) = withheld(&format!("b{len}"), len);
        let refused = instance.send(second).await;
        refused.assert_problem(503, "overloaded");
        assert!(refused.headers.contains_key("retry-after") && !polled.load(Ordering::SeqCst));
        release.send(()).unwrap();
        assert_eq!(first.await.unwrap().status, 201);
    }
    // The test service keeps bodies in memory, but a spill file is released with its request.
    let (second, release, _) = withheld("b800", 800);
    release.send(()).unwrap();
    assert_eq!(instance.send(second).await.status, 201, "the budget is free again");
}

#[tokio::test(start_paused = true)]
async fn a_slow_upload_is_refused_and_releases_its_slot() {
    let upstream = Upstream::counting();
    let dripping = || {
        let chunks = futures_util::stream::unfold(0, |at| async move {
            tokio::time::sleep(Duration::from_secs(25)).await;
            (at < 8).then(|| (Ok::<_, Cut>(Frame::data(Bytes::from_static(b"x"))), at + 1))
        });
        StreamBody::new(Box::pin(chunks)).boxed_unsync()
    };
    let drip = || Request::post("/orders").header("idempotency-key", "\"k\"").body(dripping()).unwrap();
    let enforced = Rules { inflight_max: 1, body_memory_bytes: 0, ..rules(route()) };
    let instance = Instance::of(Store::memory().ledger().await, enforced, &upstream);
    instance.service.clone().call(drip()).await.map(|response| assert_eq!(response.status(), 408)).unwrap();
    assert_eq!((upstream.runs(), instance.record("k").await), (0, None));
    assert_eq!(instance.send(order("k")).await.status, 201);
    // A request of an observed route passes, however slow it is.
    let observed = rules(Route { mode: Mode::Observe, ..route() });
    let instance = Instance::of(Store::memory().ledger().await, observed, &upstream);
    assert_eq!(instance.service.clone().call(drip()).await.unwrap().status(), 201);
    assert_eq!(upstream.calls()[1].body, "xxxxxxxx");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_memory_ledger_refuses_new_keys_and_keeps_live_ones() {
    let store = Store::memory_of(3);
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, route(), &upstream).await;
    for number in 1..=3 {
        instance.send(order(&format!("k{number}"))).await.assert_first(201, &format!("run {number}"));
    }
    instance.send(order("k4")).await.assert_problem(503, "ledger-unavailable");
    assert_eq!(upstream.runs(), 3);
    for number in 1..=3 {
        instance.send(order(&format!("k{number}"))).await.assert_replay(201, &format!("run {number}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_of_many_keys_does_not_block_claims() {
    const KEYS: usize = 250_000;
    let store = Store::memory_of(KEYS + 10_000);
    let backend = store.backend().await;
    let handle = Ledger::new(backend.clone(), Settings::default());
    for number in 0..KEYS {
        let mut request = handle.request(ichido_core::Key::unscoped(number.to_string()).unwrap());
        request.retention_ms = 1;
        backend.claim(&request).await.unwrap();
        let complete = ichido_core::Settle::Complete(Outcome::kept("x"));
        let _ = backend.settle(&request.key, request.token, &complete).await.unwrap();
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
    assert!(meanwhile > 0, "claims were made during the sweep");
    assert_eq!(upstream.runs(), 2_000);
}

/// Marks share the ledger: one call returns a result for each event.
async fn a_batch_of_a_hundred_events_is_one_call(store: Store) {
    let faulty = FaultyBackend::wrap(store.backend().await);
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
