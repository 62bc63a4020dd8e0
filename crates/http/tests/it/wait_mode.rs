//! Wait mode: a retry waits for the first response.

use std::time::Duration;

use ichido_http::{InFlight, Route};
use tokio::time::Instant;

use crate::support::{
    Gate, Instance, Store, TIMEOUT, Upstream, ms, on_every_ledger, order, post, route, text, until,
};

on_every_ledger! {
    waiters_in_every_process_get_the_stored_response,
    a_waiter_that_times_out_gets_a_conflict,
    exactly_one_waiter_runs_when_the_first_response_is_not_stored,
    a_waiter_learns_of_doubt,
    a_waiter_is_woken_in_the_same_process_and_polls_in_others,
}

fn waiting(limit: Duration) -> Route {
    Route { in_flight: InFlight::Wait(limit), ..route() }
}

async fn waiters_in_every_process_get_the_stored_response(store: Store) {
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let here = Instance::new(&store, waiting(TIMEOUT), &upstream).await;
    let elsewhere = Instance::new(&store, waiting(TIMEOUT), &upstream).await;
    let first = here.spawn(order("k"));
    upstream.started(1).await;
    let waiters: Vec<_> = (0..10).map(|number| [&here, &elsewhere][number % 2].spawn(order("k"))).collect();
    // A request with a different body does not wait.
    elsewhere.send(post("/orders", "k", "else")).await.assert_problem(422, "key-reused");
    tokio::time::sleep(ms(100)).await;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    gate.open();
    first.await.unwrap().assert_first(201, "run 1");
    for waiter in waiters {
        waiter.await.unwrap().assert_replay(201, "run 1");
    }
    assert_eq!(upstream.runs(), 1);
}

async fn a_waiter_that_times_out_gets_a_conflict(store: Store) {
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let here = Instance::new(&store, waiting(ms(200)), &upstream).await;
    let elsewhere = Instance::new(&store, waiting(ms(200)), &upstream).await;
    let first = here.spawn(order("k"));
    upstream.started(1).await;
    for instance in [&here, &elsewhere] {
        let started = Instant::now();
        instance.send(order("k")).await.assert_problem(409, "in-flight");
        assert!(started.elapsed() >= ms(200));
    }
    gate.open();
    first.await.unwrap().assert_first(201, "run 1");
}

async fn exactly_one_waiter_runs_when_the_first_response_is_not_stored(store: Store) {
    let gate = Gate::closed();
    let upstream = Upstream::new({
        let gate = gate.clone();
        move |call| {
            let gate = gate.clone();
            async move {
                gate.turn(call.run).await;
                Ok(text(if call.run == 1 { 503 } else { 201 }, &format!("run {}", call.run)))
            }
        }
    });
    let here = Instance::new(&store, waiting(TIMEOUT), &upstream).await;
    let elsewhere = Instance::new(&store, waiting(TIMEOUT), &upstream).await;
    let first = here.spawn(order("k"));
    upstream.started(1).await;
    let waiters: Vec<_> = (0..20).map(|number| [&here, &elsewhere][number % 2].spawn(order("k"))).collect();
    until("all requests are waiting", async || here.layer.in_flight() + elsewhere.layer.in_flight() == 21)
        .await;
    gate.open_for(1);
    first.await.unwrap().assert_first(503, "run 1");
    upstream.started(2).await;
    tokio::time::sleep(ms(100)).await;
    assert_eq!(upstream.runs(), 2, "one waiter runs, and the others keep waiting");
    gate.open();
    let mut first = 0;
    for waiter in waiters {
        let got = waiter.await.unwrap();
        assert_eq!((got.status.as_u16(), got.text()), (201, "run 2"));
        first += usize::from(!got.is_replay());
    }
    assert_eq!((first, upstream.runs()), (1, 2));
}

async fn a_waiter_learns_of_doubt(store: Store) {
    let gate = Gate::closed();
    let upstream = Upstream::new({
        let gate = gate.clone();
        move |_| {
            let gate = gate.clone();
            async move {
                gate.opened().await;
                Ok(text(504, "late"))
            }
        }
    });
    let here = Instance::new(&store, waiting(TIMEOUT), &upstream).await;
    let elsewhere = Instance::new(&store, waiting(TIMEOUT), &upstream).await;
    let first = here.spawn(order("k"));
    upstream.started(1).await;
    let waiters = [here.spawn(order("k")), elsewhere.spawn(order("k"))];
    gate.open();
    first.await.unwrap().assert_first(504, "late");
    for waiter in waiters {
        waiter.await.unwrap().assert_problem(409, "in-doubt");
    }
    assert_eq!(upstream.runs(), 1);
}

/// How long waiters take to see the completion, in this process and in another. A waiter polls every 25 to 500 ms, counted
/// from its start; one that is woken is much faster.
async fn latencies(store: &Store) -> (Duration, Duration) {
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let here = Instance::new(store, waiting(TIMEOUT), &upstream).await;
    let elsewhere = Instance::new(store, waiting(TIMEOUT), &upstream).await;
    let key = ichido_testkit::ledger_server::unique();
    let first = here.spawn(order(&key));
    upstream.started(1).await;
    let timed = |instance: &Instance| {
        let (instance, request) = (instance.clone(), order(&key));
        tokio::spawn(async move { (instance.send(request).await, Instant::now()) })
    };
    let (near, far) = (timed(&here), timed(&elsewhere));
    // Waiters poll at 25, 75, 175, 375, 775, 1275 and 1775 ms.
    tokio::time::sleep(ms(1_320)).await;
    gate.open();
    first.await.unwrap().assert_first(201, "run 1");
    let ended = Instant::now();
    let (near, far) = (near.await.unwrap(), far.await.unwrap());
    near.0.assert_replay(201, "run 1");
    far.0.assert_replay(201, "run 1");
    (near.1.saturating_duration_since(ended), far.1.saturating_duration_since(ended))
}

async fn a_waiter_is_woken_in_the_same_process_and_polls_in_others(store: Store) {
    // A busy machine may be late once, but not every time.
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (near, far) = latencies(&store).await;
        if near < ms(250) && far < ms(600) {
            return;
        }
        seen.push((near, far));
    }
    panic!("{seen:?}");
}
