//! Zombies: holders that finish after their claim was taken over.

use ichido_core::State;
use ichido_http::{Failure, InDoubt, Route, ServerErrors};

use crate::support::{
    Behavior, Call, FaultyBackend, Gate, Instance, Received, Reply, Store, Upstream, ms, on_every_ledger,
    order, route, text, until,
};

on_every_ledger! {
    a_zombie_that_finishes_after_a_takeover_sends_the_winners_response,
    a_zombie_that_finishes_while_the_winner_runs_is_in_flight,
    a_zombie_that_fails_after_a_takeover_leaves_the_winners_record,
    a_zombie_that_streams_after_a_takeover_cuts_its_response_off,
    a_holder_that_completes_before_a_takeover_ends_the_doubt,
}

struct Scene {
    faulty: std::sync::Arc<FaultyBackend>,
    zombie: Instance,
    winner: Instance,
    upstream: Upstream,
    gate: Gate,
}

/// Two instances, of which the first cannot renew its leases. The first run ends after the second.
async fn scene(store: &Store, in_doubt: InDoubt, end: fn(Call) -> Reply) -> Scene {
    let gate = Gate::closed();
    let upstream = Upstream::new({
        let gate = gate.clone();
        move |call| {
            let gate = gate.clone();
            async move {
                gate.turn(if call.run == 1 { 2 } else { 1 }).await;
                end(call)
            }
        }
    });
    let route = Route { lease: ms(400), in_doubt, server_errors: Some(ServerErrors::Release), ..route() };
    let faulty = FaultyBackend::wrap(store.backend().await);
    faulty.renewals(Behavior::Refused);
    let zombie = Instance::impatient(faulty.clone(), route.clone(), &upstream);
    let winner = Instance::new(store, Route { lease: ms(30_000), ..route }, &upstream).await;
    Scene { faulty, zombie, winner, upstream, gate }
}

/// Retries in a task until the claim is taken over.
fn take_over(winner: &Instance) -> tokio::task::JoinHandle<Received> {
    let winner = winner.clone();
    tokio::spawn(async move { winner.send_until_settled(|| order("k")).await })
}

fn counted(call: Call) -> Reply {
    Ok(text(201, &format!("run {}", call.run)))
}

async fn a_zombie_that_finishes_after_a_takeover_sends_the_winners_response(store: Store) {
    let Scene { zombie, winner, upstream, gate, .. } = scene(&store, InDoubt::Retry, counted).await;
    let first = zombie.spawn(order("k"));
    upstream.started(1).await;
    let second = take_over(&winner);
    upstream.started(2).await;
    let headers = upstream.calls().remove(1).parts.headers;
    assert_eq!(headers["idempotency-attempt"], "2");
    assert_eq!(headers["idempotency-key"], "\"k\"");
    gate.open_for(1);
    second.await.unwrap().assert_first(201, "run 2");
    let before = winner.record("k").await.unwrap();
    gate.open();
    first.await.unwrap().assert_replay(201, "run 2");
    for instance in [&zombie, &winner] {
        instance.send(order("k")).await.assert_replay(201, "run 2");
    }
    assert_eq!(winner.record("k").await.unwrap(), before);
    assert_eq!(upstream.runs(), 2);
}

async fn a_zombie_that_finishes_while_the_winner_runs_is_in_flight(store: Store) {
    let gate = Gate::closed();
    let Scene { zombie, winner, upstream, .. } = {
        let upstream = Upstream::new({
            let gate = gate.clone();
            move |call| {
                let gate = gate.clone();
                async move {
                    gate.turn(call.run).await;
                    counted(call)
                }
            }
        });
        let scene = scene(&store, InDoubt::Retry, counted).await;
        let route = Route { lease: ms(400), in_doubt: InDoubt::Retry, ..route() };
        let zombie = Instance::impatient(scene.faulty.clone(), route.clone(), &upstream);
        let winner = Instance::new(&store, Route { lease: ms(30_000), ..route }, &upstream).await;
        Scene { zombie, winner, upstream, ..scene }
    };
    let first = zombie.spawn(order("k"));
    upstream.started(1).await;
    let second = take_over(&winner);
    upstream.started(2).await;
    gate.open_for(1);
    first.await.unwrap().assert_problem(409, "in-flight");
    gate.open();
    second.await.unwrap().assert_first(201, "run 2");
    zombie.send(order("k")).await.assert_replay(201, "run 2");
}

async fn a_zombie_that_fails_after_a_takeover_leaves_the_winners_record(store: Store) {
    fn failing(call: Call) -> Reply {
        let way = call.parts.uri.query().map(str::to_owned);
        match (call.run, way.as_deref()) {
            (1, None) => Ok(text(503, "refused")),
            (1, Some("lost")) => Err(Failure::Lost("reset".into())),
            (1, Some("unsent")) => Err(Failure::NotSent("refused".into())),
            (1, Some("panic")) => panic!("on purpose: the zombie panics"),
            (1, Some(other)) => panic!("{other}"),
            (run, _) => Ok(text(201, &format!("run {run}"))),
        }
    }
    for way in ["/orders", "/orders?lost", "/orders?unsent", "/orders?panic"] {
        let request = || {
            let mut request = order("k");
            *request.uri_mut() = way.parse().unwrap();
            request
        };
        let Scene { zombie, winner, upstream, gate, .. } = scene(&store, InDoubt::Retry, failing).await;
        let first = zombie.spawn(request());
        upstream.started(1).await;
        let second = tokio::spawn({
            let winner = winner.clone();
            async move { winner.send_until_settled(request).await }
        });
        upstream.started(2).await;
        gate.open_for(1);
        second.await.unwrap().assert_first(201, "run 2");
        gate.open();
        let own = first.await.unwrap();
        assert!(own.status.is_server_error() || own.is_replay(), "{own:?}");
        for instance in [&zombie, &winner] {
            instance.send(request()).await.assert_replay(201, "run 2");
        }
        assert_eq!(upstream.runs(), 2, "{way}");
    }
}

async fn a_zombie_that_streams_after_a_takeover_cuts_its_response_off(store: Store) {
    fn large(call: Call) -> Reply {
        let size = if call.run == 1 { 3_000_000 } else { 10 };
        Ok(text(200, &"x".repeat(size)))
    }
    let Scene { zombie, winner, upstream, gate, .. } = scene(&store, InDoubt::Retry, large).await;
    let first = tokio::spawn({
        let zombie = zombie.clone();
        async move { Received::read(zombie.start(order("k")).await.unwrap()).await }
    });
    upstream.started(1).await;
    let second = take_over(&winner);
    upstream.started(2).await;
    gate.open_for(1);
    second.await.unwrap().assert_first(200, "xxxxxxxxxx");
    gate.open();
    assert!(first.await.unwrap().is_err(), "a complete response would be a second one");
    winner.send(order("k")).await.assert_replay(200, "xxxxxxxxxx");
}

async fn a_holder_that_completes_before_a_takeover_ends_the_doubt(store: Store) {
    let Scene { faulty, zombie, winner, upstream, gate } = scene(&store, InDoubt::Reject, counted).await;
    let first = zombie.spawn(order("k"));
    upstream.started(1).await;
    winner.send_until_settled(|| order("k")).await.assert_problem(409, "in-doubt");
    gate.open();
    first.await.unwrap().assert_first(201, "run 1");
    until("the claim is completed", async || {
        matches!(winner.record("k").await.unwrap().state, State::Done(_))
    })
    .await;
    winner.send(order("k")).await.assert_replay(201, "run 1");
    assert!(faulty.failed_renewals() > 0);
    assert_eq!(upstream.runs(), 1);
}
