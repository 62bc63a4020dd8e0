//! A live holder keeps its lease; a dead one does not.

use std::sync::Arc;

use ichido_core::{Phase, Timestamp};
use ichido_http::{InDoubt, Route};
use ichido_ledger::Ledger;
use tokio::time::{Instant, sleep};

use crate::support::{
    BOUND, Faulty, Gate, Instance, Jumping, Process, Store, Upstream, Way, ms, on_every_ledger, order, route,
    rules, until,
};

on_every_ledger! {
    a_handler_slower_than_its_lease_runs_once,
    a_killed_holder_leaves_doubt_long_before_retention,
    a_renewal_that_fails_for_a_period_keeps_the_lease,
    a_clock_that_jumps_an_hour_takes_nothing_over,
    a_key_is_free_exactly_at_its_expiry_and_two_reuses_run_once,
}

async fn a_handler_slower_than_its_lease_runs_once(store: Store) {
    let gate = Gate::shut();
    let upstream = Upstream::gated(&gate);
    // Whoever found the lease over would run it again at once.
    let route = Route { lease: ms(3_000), in_doubt: InDoubt::Retry, ..route() };
    let holder = Instance::new(&store, route.clone(), &upstream).await;
    let other = Instance::new(&store, route, &upstream).await;
    let first = holder.spawn(order("k"));
    upstream.started(1).await;
    // A renewal falls due after a third of the lease: with the fourth, the first lease is over.
    while other.record("k").await.unwrap().renewals < 4 {
        other.send(order("k")).await.is_problem(409, "in-flight");
        sleep(ms(50)).await;
    }
    gate.open();
    first.await.unwrap().is_first(201, "run 1");
    other.send(order("k")).await.is_again(201, "run 1");
    assert_eq!(upstream.runs(), 1);
}

async fn a_killed_holder_leaves_doubt_long_before_retention(store: Store) {
    let gate = Gate::shut();
    let upstream = Upstream::gated(&gate);
    let route = Route { lease: ms(400), ..route() };
    let dying = Process::start(&store, route.clone(), &upstream).await;
    dying.send(order("k"));
    upstream.started(1).await;
    let other = Instance::new(&store, route, &upstream).await;
    dying.kill().await;
    other.send_until_settled(|| order("k")).await.is_problem(409, "in-doubt");
    // It stays so: nobody knows.
    sleep(ms(500)).await;
    other.send(order("k")).await.is_problem(409, "in-doubt");
    assert_eq!(upstream.runs(), 1);
}

async fn a_renewal_that_fails_for_a_period_keeps_the_lease(store: Store) {
    const LEASE_MS: u64 = 3_000;
    let gate = Gate::shut();
    let upstream = Upstream::gated(&gate);
    let route = Route { lease: ms(LEASE_MS), in_doubt: InDoubt::Retry, ..route() };
    let faulty = Faulty::around(store.backend().await);
    let holder = Instance::hasty(faulty.clone(), route.clone(), &upstream);
    let other = Instance::new(&store, route, &upstream).await;
    faulty.renewals(Way::Refused);
    let first = holder.spawn(order("k"));
    upstream.started(1).await;
    // The first renewal is due after a third of the lease; that whole period fails.
    until("a renewal was tried", async || faulty.failed_renewals() > 0).await;
    sleep(ms(LEASE_MS / 6)).await;
    assert_eq!(other.record("k").await.unwrap().renewals, 0);
    faulty.renewals(Way::Sound);
    until("it was renewed", async || other.record("k").await.unwrap().renewals > 0).await;
    other.send(order("k")).await.is_problem(409, "in-flight");
    gate.open();
    first.await.unwrap().is_first(201, "run 1");
    assert_eq!(upstream.runs(), 1);
}

/// One failed renewal leaves another before the lease is over: the first is due after a third of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_renewal_is_due_after_a_third_of_the_lease() {
    const LEASE_MS: u64 = 3_000;
    let mut seen = Vec::new();
    // A busy machine may be late once, not each time.
    for _ in 0..3 {
        let store = Store::memory();
        let faulty = Faulty::around(store.backend().await);
        let gate = Gate::shut();
        let upstream = Upstream::gated(&gate);
        let instance = Instance::hasty(faulty.clone(), Route { lease: ms(LEASE_MS), ..route() }, &upstream);
        faulty.renewals(Way::Refused);
        let first = instance.spawn(order("k"));
        upstream.started(1).await;
        let started = Instant::now();
        until("a renewal was tried", async || faulty.failed_renewals() > 0).await;
        seen.push(started.elapsed());
        gate.open();
        first.await.unwrap().is_first(201, "run 1");
        if seen.iter().any(|tried| *tried < ms(LEASE_MS * 2 / 5)) {
            return;
        }
    }
    panic!("{seen:?}");
}

async fn a_clock_that_jumps_an_hour_takes_nothing_over(store: Store) {
    const HOUR_MS: i64 = 3_600_000;
    let gate = Gate::shut();
    let upstream = Upstream::gated(&gate);
    let route = Route { in_doubt: InDoubt::Retry, ..route() };
    let holder = Instance::new(&store, route.clone(), &upstream).await;
    let clock = Arc::new(Jumping::default());
    let settings = ichido_ledger::Settings { clock: clock.clone(), timeout: BOUND, ..Default::default() };
    let jumper = Ledger::new(store.backend_at(clock.clone()).await, settings);
    let jumper = Instance::of(jumper, rules(route), &upstream);
    let first = holder.spawn(order("k"));
    upstream.started(1).await;
    jumper.send(order("k")).await.is_problem(409, "in-flight");
    for jump in [HOUR_MS, -2 * HOUR_MS, HOUR_MS] {
        clock.jump(jump);
        jumper.send(order("k")).await.is_problem(409, "in-flight");
        sleep(ms(50)).await;
        jumper.send(order("k")).await.is_problem(409, "in-flight");
    }
    gate.open();
    first.await.unwrap().is_first(201, "run 1");
    for jump in [HOUR_MS, -2 * HOUR_MS] {
        clock.jump(jump);
        jumper.send(order("k")).await.is_again(201, "run 1");
    }
    assert_eq!(upstream.runs(), 1);
}

/// Nothing sweeps here: what is over is free although it is still there.
async fn a_key_is_free_exactly_at_its_expiry_and_two_reuses_run_once(store: Store) {
    const RETENTION_MS: u64 = 1_500;
    let gate = Gate::shut();
    gate.open_for(1);
    let upstream = Upstream::new({
        let gate = gate.clone();
        move |call| {
            let gate = gate.clone();
            async move {
                gate.turn(call.run).await;
                Ok(crate::support::text(201, &format!("run {}", call.run)))
            }
        }
    });
    let route = Route { retention: ms(RETENTION_MS), ..route() };
    let one = Instance::new(&store, route.clone(), &upstream).await;
    let two = Instance::new(&store, route, &upstream).await;
    let asked = Instant::now();
    one.send(order("k")).await.is_first(201, "run 1");
    let answered = Instant::now();
    // Whatever was answered before it can have been over is a replay.
    loop {
        let got = two.send(order("k")).await;
        if asked.elapsed() >= ms(RETENTION_MS - 300) {
            break;
        }
        got.is_again(201, "run 1");
        sleep(ms(50)).await;
    }
    tokio::time::sleep_until(answered + ms(RETENTION_MS + 20)).await;
    let reuses = [one.spawn(order("k")), two.spawn(order("k")), one.spawn(order("k")), two.spawn(order("k"))];
    upstream.started(2).await;
    until("the others were refused", async || reuses.iter().filter(|reuse| reuse.is_finished()).count() == 3)
        .await;
    gate.open();
    let mut first = 0;
    for reuse in reuses {
        let got = reuse.await.unwrap();
        match got.problem() {
            None => {
                got.is_first(201, "run 2");
                first += 1;
            }
            Some(_) => got.is_problem(409, "in-flight"),
        }
    }
    assert_eq!((first, upstream.runs()), (1, 2));
    let record = one.record("k").await.unwrap();
    assert!(matches!(record.phase(Timestamp(record.claimed_at.0)), Phase::Done(_)));
    assert_eq!(record.attempt, 1, "a reuse is a new operation");
}
