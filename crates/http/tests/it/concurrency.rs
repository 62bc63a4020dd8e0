//! Many callers with one key, and many keys at once.

use http::StatusCode;
use ichido_core::State;
use ichido_http::{InFlight, Route};

use crate::support::{Gate, Instance, Store, Upstream, on_every_ledger, order, post, route, text, until};

on_every_ledger! {
    a_thousand_identical_requests_over_several_instances_run_once,
    a_thousand_waiters_over_several_instances_get_the_same_response,
    nested_and_interleaved_claims_keep_their_own_keys,
    many_keys_at_once_do_not_mix,
}

const CALLERS: usize = 1000;

async fn instances(store: &Store, count: usize, route: &Route, upstream: &Upstream) -> Vec<Instance> {
    let mut instances = Vec::new();
    for _ in 0..count {
        instances.push(Instance::new(store, route.clone(), upstream).await);
    }
    instances
}

async fn a_thousand_identical_requests_over_several_instances_run_once(store: Store) {
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let instances = instances(&store, 4, &route(), &upstream).await;
    let callers: Vec<_> = (0..CALLERS).map(|number| instances[number % 4].spawn(order("k"))).collect();
    // All but the holder get a response while it runs.
    until("all others have a response", async || {
        callers.iter().filter(|caller| caller.is_finished()).count() == CALLERS - 1
    })
    .await;
    gate.open();
    let mut first = 0;
    for caller in callers {
        let got = caller.await.unwrap();
        match got.status {
            StatusCode::CREATED => {
                got.assert_first(201, "run 1");
                first += 1;
            }
            _ => got.assert_problem(409, "in-flight"),
        }
    }
    assert_eq!((first, upstream.runs()), (1, 1));
    for instance in &instances {
        instance.send(order("k")).await.assert_replay(201, "run 1");
    }
    assert_eq!(upstream.runs(), 1);
}

async fn a_thousand_waiters_over_several_instances_get_the_same_response(store: Store) {
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let waiting = Route { in_flight: InFlight::Wait(crate::support::TIMEOUT), ..route() };
    let instances = instances(&store, 4, &waiting, &upstream).await;
    let callers: Vec<_> = (0..CALLERS).map(|number| instances[number % 4].spawn(order("k"))).collect();
    upstream.started(1).await;
    until("all requests are running", async || {
        instances.iter().map(|instance| instance.layer.in_flight()).sum::<usize>() == CALLERS
    })
    .await;
    gate.open();
    let mut first = 0;
    for caller in callers {
        let got = caller.await.unwrap();
        assert_eq!((got.status.as_u16(), got.text()), (201, "run 1"), "{got:?}");
        first += usize::from(!got.is_replay());
    }
    assert_eq!((first, upstream.runs()), (1, 1));
}

async fn nested_and_interleaved_claims_keep_their_own_keys(store: Store) {
    let inner_upstream =
        Upstream::new(async |call| Ok(text(200, &format!("inner {}", call.parts.uri.path()))));
    let waiting = Route { in_flight: InFlight::Wait(crate::support::TIMEOUT), ..route() };
    let inner = Instance::new(&store, waiting, &inner_upstream).await;
    let gate = Gate::closed();
    let outer_upstream = Upstream::new({
        let (inner, gate) = (inner.clone(), gate.clone());
        move |call| {
            let (inner, gate) = (inner.clone(), gate.clone());
            async move {
                // The same key text for two operations of a different service, while the outer claim is held.
                let one = inner.send(post("/one", "k", call.body.clone())).await;
                gate.turn(call.run).await;
                let two = inner.send(post("/two", "k", call.body.clone())).await;
                Ok(text(200, &format!("{} and {}", one.text(), two.text())))
            }
        }
    });
    let outer = Instance::new(&store, route(), &outer_upstream).await;
    let first = outer.spawn(order("k"));
    outer_upstream.started(1).await;
    let second = outer.spawn(order("other"));
    outer_upstream.started(2).await;
    // The second ends before the first.
    gate.open_for(2);
    for (caller, key) in [(second, "other"), (first, "k")] {
        let got = caller.await.unwrap();
        got.assert_first(200, "inner /one and inner /two");
        outer.send(order(key)).await.assert_replay(200, "inner /one and inner /two");
    }
    assert_eq!((outer_upstream.runs(), inner_upstream.runs()), (2, 2), "both inner operations ran once");
    for key in ["k", "other"] {
        assert!(matches!(outer.record(key).await.unwrap().state, State::Done(_)));
    }
}

async fn many_keys_at_once_do_not_mix(store: Store) {
    let upstream = Upstream::new(async |call| {
        let key = call.parts.headers["idempotency-key"].to_str().unwrap().to_owned();
        Ok(text(200, &key))
    });
    let instances = instances(&store, 3, &route(), &upstream).await;
    let callers: Vec<_> = (0..150)
        .map(|number| (number, instances[number % 3].spawn(order(&format!("k{}", number / 3)))))
        .collect();
    for (number, caller) in callers {
        let got = caller.await.unwrap();
        if got.problem().is_none() {
            assert_eq!(got.text(), format!("\"k{}\"", number / 3));
        }
    }
    assert_eq!(upstream.runs(), 50);
}
