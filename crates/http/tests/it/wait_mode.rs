//! Wait mode: a repeat waits for the first answer.

use std::time::Duration;

use ichido_http::{InFlight, Route};
use tokio::time::Instant;

use crate::support::{
    BOUND, Gate, Instance, Store, Upstream, ms, on_every_ledger, order, post, route, text, until,
};

on_every_ledger! {
    waiters_here_and_elsewhere_get_the_stored_answer,
    a_waiter_at_its_limit_is_told_to_come_back,
    exactly_one_waiter_is_promoted_when_the_holders_answer_is_not_stored,
    a_waiter_is_told_of_doubt,
    a_waiter_is_woken_in_its_process_and_looks_again_elsewhere,
}

fn waiting(limit: Duration) -> Route {
    Route { in_flight: InFlight::Wait(limit), ..route() }
}

async fn waiters_here_and_elsewhere_get_the_stored_answer(store: Store) {
    let gate = Gate::shut();
    let upstream = Upstream::gated(&gate);
    let here = Instance::new(&store, waiting(BOUND), &upstream).await;
    let elsewhere = Instance::new(&store, waiting(BOUND), &upstream).await;
    let first = here.spawn(order("k"));
    upstream.started(1).await;
    let waiters: Vec<_> = (0..10).map(|number| [&here, &elsewhere][number % 2].spawn(order("k"))).collect();
    // Another body does not wait.
    elsewhere.send(post("/orders", "k", "else")).await.is_problem(422, "key-reused");
    tokio::time::sleep(ms(100)).await;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    gate.open();
    first.await.unwrap().is_first(201, "run 1");
    for waiter in waiters {
        waiter.await.unwrap().is_again(201, "run 1");
    }
    assert_eq!(upstream.runs(), 1);
}

async fn a_waiter_at_its_limit_is_told_to_come_back(store: Store) {
    let gate = Gate::shut();
    let upstream = Upstream::gated(&gate);
    let here = Instance::new(&store, waiting(ms(200)), &upstream).await;
    let elsewhere = Instance::new(&store, waiting(ms(200)), &upstream).await;
    let first = here.spawn(order("k"));
    upstream.started(1).await;
    for instance in [&here, &elsewhere] {
        let started = Instant::now();
        instance.send(order("k")).await.is_problem(409, "in-flight");
        assert!(started.elapsed() >= ms(200));
    }
    gate.open();
    first.await.unwrap().is_first(201, "run 1");
}

async fn exactly_one_waiter_is_promoted_when_the_holders_answer_is_not_stored(store: Store) {
    let gate = Gate::shut();
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
    let here = Instance::new(&store, waiting(BOUND), &upstream).await;
    let elsewhere = Instance::new(&store, waiting(BOUND), &upstream).await;
    let first = here.spawn(order("k"));
    upstream.started(1).await;
    let waiters: Vec<_> = (0..20).map(|number| [&here, &elsewhere][number % 2].spawn(order("k"))).collect();
    until("all wait", async || here.layer.in_flight() + elsewhere.layer.in_flight() == 21).await;
    gate.open_for(1);
    first.await.unwrap().is_first(503, "run 1");
    upstream.started(2).await;
    tokio::time::sleep(ms(100)).await;
    assert_eq!(upstream.runs(), 2, "one waiter runs, the others go on waiting");
    gate.open();
    let mut promoted = 0;
    for waiter in waiters {
        let got = waiter.await.unwrap();
        assert_eq!((got.status.as_u16(), got.text()), (201, "run 2"));
        promoted += usize::from(!got.is_replay());
    }
    assert_eq!((promoted, upstream.runs()), (1, 2));
}

async fn a_waiter_is_told_of_doubt(store: Store) {
    let gate = Gate::shut();
    let upstream = Upstream::new({
        let gate = gate.clone();
        move |_| {
            let gate = gate.clone();
            async move {
                gate.passed().await;
                Ok(text(504, "late"))
            }
        }
    });
    let here = Instance::new(&store, waiting(BOUND), &upstream).await;
    let elsewhere = Instance::new(&store, waiting(BOUND), &upstream).await;
    let first = here.spawn(order("k"));
    upstream.started(1).await;
    let waiters = [here.spawn(order("k")), elsewhere.spawn(order("k"))];
    gate.open();
    first.await.unwrap().is_first(504, "late");
    for waiter in waiters {
        waiter.await.unwrap().is_problem(409, "in-doubt");
    }
    assert_eq!(upstream.runs(), 1);
}

/// A waiter looks again every 25 to 500 ms, and its looks are counted from its start: woken, it comes long before.
async fn latencies(store: &Store) -> (Duration, Duration) {
    let gate = Gate::shut();
    let upstream = Upstream::gated(&gate);
    let here = Instance::new(store, waiting(BOUND), &upstream).await;
    let elsewhere = Instance::new(store, waiting(BOUND), &upstream).await;
    let key = crate::servers::unique();
    let first = here.spawn(order(&key));
    upstream.started(1).await;
    let timed = |instance: &Instance| {
        let (instance, request) = (instance.clone(), order(&key));
        tokio::spawn(async move { (instance.send(request).await, Instant::now()) })
    };
    let (near, far) = (timed(&here), timed(&elsewhere));
    // Looks are at 25, 75, 175, 375, 775, 1275 and 1775 ms.
    tokio::time::sleep(ms(1_320)).await;
    gate.open();
    first.await.unwrap().is_first(201, "run 1");
    let ended = Instant::now();
    let (near, far) = (near.await.unwrap(), far.await.unwrap());
    near.0.is_again(201, "run 1");
    far.0.is_again(201, "run 1");
    (near.1.saturating_duration_since(ended), far.1.saturating_duration_since(ended))
}

async fn a_waiter_is_woken_in_its_process_and_looks_again_elsewhere(store: Store) {
    // A busy machine may be late once, not each time.
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
