//! A running holder keeps its lease; a crashed one loses it.

use std::sync::Arc;

use ichido_core::{Phase, Timestamp};
use ichido_http::{InDoubt, Route};
use ichido_ledger::Ledger;
use ichido_testkit::clock::JumpingClock;
use tokio::time::{Instant, sleep};

use crate::support::{
    Behavior, FaultyBackend, Gate, Instance, Process, Store, TIMEOUT, Upstream, ms, on_every_ledger, order,
    route, rules, until,
};

on_every_ledger! {
    a_handler_slower_than_its_lease_runs_once,
    a_crashed_holder_leaves_its_claim_in_doubt,
    a_failed_renewal_does_not_lose_the_lease,
    a_clock_jump_takes_no_claim_over,
    an_expired_key_is_free_and_concurrent_reuses_run_once,
}

async fn a_handler_slower_than_its_lease_runs_once(store: Store) {
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    // If the lease lapsed, a retry would run the request again immediately.
    let route = Route { lease: ms(3_000), in_doubt: InDoubt::Retry, ..route() };
    let holder = Instance::new(&store, route.clone(), &upstream).await;
    let other = Instance::new(&store, route, &upstream).await;
    let first = holder.spawn(order("k"));
    upstream.started(1).await;
    // A renewal is due after each third of the lease. After the fourth, the first lease is over.
    while other.record("k").await.unwrap().renewals < 4 {
        other.send(order("k")).await.assert_problem(409, "in-flight");
        sleep(ms(50)).await;
    }
    gate.open();
    first.await.unwrap().assert_first(201, "run 1");
    other.send(order("k")).await.assert_replay(201, "run 1");
    assert_eq!(upstream.runs(), 1);
}

async fn a_crashed_holder_leaves_its_claim_in_doubt(store: Store) {
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let route = Route { lease: ms(400), ..route() };
    let crashing = Process::start(&store, route.clone(), &upstream).await;
    crashing.send(order("k"));
    upstream.started(1).await;
    let other = Instance::new(&store, route, &upstream).await;
    crashing.kill().await;
    other.send_until_settled(|| order("k")).await.assert_problem(409, "in-doubt");
    // The doubt remains.
    sleep(ms(500)).await;
    other.send(order("k")).await.assert_problem(409, "in-doubt");
    assert_eq!(upstream.runs(), 1);
}

async fn a_failed_renewal_does_not_lose_the_lease(store: Store) {
    const LEASE_MS: u64 = 3_000;
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let route = Route { lease: ms(LEASE_MS), in_doubt: InDoubt::Retry, ..route() };
    let faulty = FaultyBackend::wrap(store.backend().await);
    let holder = Instance::impatient(faulty.clone(), route.clone(), &upstream);
    let other = Instance::new(&store, route, &upstream).await;
    faulty.renewals(Behavior::Refused);
    let first = holder.spawn(order("k"));
    upstream.started(1).await;
    // The first renewal is due after a third of the lease; that whole period fails.
    until("a renewal has failed", async || faulty.failed_renewals() > 0).await;
    sleep(ms(LEASE_MS / 6)).await;
    assert_eq!(other.record("k").await.unwrap().renewals, 0);
    faulty.renewals(Behavior::Normal);
    until("the lease is renewed", async || other.record("k").await.unwrap().renewals > 0).await;
    other.send(order("k")).await.assert_problem(409, "in-flight");
    gate.open();
    first.await.unwrap().assert_first(201, "run 1");
    assert_eq!(upstream.runs(), 1);
}

/// After a failed renewal there is time for another, because the first is due after a third of the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_renewal_is_due_after_a_third_of_the_lease() {
    const LEASE_MS: u64 = 3_000;
    let mut seen = Vec::new();
    // A busy machine may be late once, but not every time.
    for _ in 0..3 {
        let store = Store::memory();
        let faulty = FaultyBackend::wrap(store.backend().await);
        let gate = Gate::closed();
        let upstream = Upstream::gated(&gate);
        let instance =
            Instance::impatient(faulty.clone(), Route { lease: ms(LEASE_MS), ..route() }, &upstream);
        faulty.renewals(Behavior::Refused);
        let first = instance.spawn(order("k"));
        upstream.started(1).await;
        let started = Instant::now();
        until("a renewal has failed", async || faulty.failed_renewals() > 0).await;
        seen.push(started.elapsed());
        gate.open();
        first.await.unwrap().assert_first(201, "run 1");
        if seen.iter().any(|tried| *tried < ms(LEASE_MS * 2 / 5)) {
            return;
        }
    }
    panic!("{seen:?}");
}

async fn a_clock_jump_takes_no_claim_over(store: Store) {
    const HOUR_MS: i64 = 3_600_000;
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let route = Route { in_doubt: InDoubt::Retry, ..route() };
    let holder = Instance::new(&store, route.clone(), &upstream).await;
    let clock = Arc::new(JumpingClock::default());
    let settings = ichido_ledger::Settings { clock: clock.clone(), timeout: TIMEOUT, ..Default::default() };
    let jumper = Ledger::new(store.backend_at(clock.clone()).await, settings);
    let jumper = Instance::of(jumper, rules(route), &upstream);
    let first = holder.spawn(order("k"));
    upstream.started(1).await;
    jumper.send(order("k")).await.assert_problem(409, "in-flight");
    for jump in [HOUR_MS, -2 * HOUR_MS, HOUR_MS] {
        clock.jump(jump);
        jumper.send(order("k")).await.assert_problem(409, "in-flight");
        sleep(ms(50)).await;
        jumper.send(order("k")).await.assert_problem(409, "in-flight");
    }
    gate.open();
    first.await.unwrap().assert_first(201, "run 1");
    for jump in [HOUR_MS, -2 * HOUR_MS] {
        clock.jump(jump);
        jumper.send(order("k")).await.assert_replay(201, "run 1");
    }
    assert_eq!(upstream.runs(), 1);
}

/// Nothing sweeps here: an expired key is free although its record still exists.
async fn an_expired_key_is_free_and_concurrent_reuses_run_once(store: Store) {
    const RETENTION_MS: u64 = 1_500;
    let gate = Gate::closed();
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
    let sent = Instant::now();
    one.send(order("k")).await.assert_first(201, "run 1");
    let completed = Instant::now();
    // Every response before the key can have expired is a replay.
    loop {
        let got = two.send(order("k")).await;
        if sent.elapsed() >= ms(RETENTION_MS - 300) {
            break;
        }
        got.assert_replay(201, "run 1");
        sleep(ms(50)).await;
    }
    tokio::time::sleep_until(completed + ms(RETENTION_MS + 20)).await;
    let reuses = [one.spawn(order("k")), two.spawn(order("k")), one.spawn(order("k")), two.spawn(order("k"))];
    upstream.started(2).await;
    until("the others are refused", async || reuses.iter().filter(|reuse| reuse.is_finished()).count() == 3)
        .await;
    gate.open();
    let mut first = 0;
    for reuse in reuses {
        let got = reuse.await.unwrap();
        match got.problem() {
            None => {
                got.assert_first(201, "run 2");
                first += 1;
            }
            Some(_) => got.assert_problem(409, "in-flight"),
        }
    }
    assert_eq!((first, upstream.runs()), (1, 2));
    let record = one.record("k").await.unwrap();
    assert!(matches!(record.phase(Timestamp(record.claimed_at.0)), Phase::Done(_)));
    assert_eq!(record.attempt, 1, "a reuse is a new operation");
}
