//! What becomes of a key after each kind of answer.

use http::{Response, StatusCode};
use ichido_core::{Phase, State};
use ichido_http::{Route, ServerErrors};

use crate::support::{Instance, Store, Upstream, on_embedded_ledgers, order, pieces, route};

on_embedded_ledgers! {
    refusals_free_the_key,
    every_other_answer_is_stored_500_included,
    an_upstreams_gateway_errors_are_doubt,
    cloudflares_failure_to_reach_the_service_frees_the_key,
    a_route_says_what_its_server_errors_mean,
    a_cut_answer_is_doubt_whatever_its_status,
    a_no_store_refusal_frees_the_key_like_any_refusal,
}

const ALL: [u16; 25] = [
    200, 201, 202, 204, 206, 207, 300, 301, 303, 304, 400, 402, 404, 405, 409, 410, 412, 413, 415, 422, 451,
    500, 501, 505, 511,
];

async fn refusals_free_the_key(store: Store) {
    for server_errors in [None, Some(ServerErrors::Store), Some(ServerErrors::Doubt)] {
        for status in [401, 403, 408, 425, 429, 503, 529] {
            let upstream = Upstream::answering(status);
            let instance = Instance::new(&store, Route { server_errors, ..route() }, &upstream).await;
            let key = format!("k{status}{server_errors:?}");
            instance.send(order(&key)).await.is_first(status, "run 1");
            assert_eq!(instance.record(&key).await, None, "{status}");
            instance.send(order(&key)).await.is_first(status, "run 2");
        }
    }
}

async fn every_other_answer_is_stored_500_included(store: Store) {
    for status in ALL {
        let upstream = Upstream::answering(status);
        let instance = Instance::new(&store, route(), &upstream).await;
        let key = format!("k{status}");
        instance.send(order(&key)).await.is_first(status, "run 1");
        instance.send(order(&key)).await.is_again(status, "run 1");
        assert_eq!(upstream.runs(), 1);
    }
}

async fn an_upstreams_gateway_errors_are_doubt(store: Store) {
    for status in [502, 504, 520, 521, 522, 523, 524, 525, 526, 527] {
        let upstream = Upstream::answering(status);
        let instance = Instance::new(&store, route(), &upstream).await;
        let key = format!("k{status}");
        instance.send(order(&key)).await.is_first(status, "run 1");
        instance.send(order(&key)).await.is_problem(409, "in-doubt");
        assert!(matches!(instance.record(&key).await.unwrap().state, State::InDoubt(_)));
        assert_eq!(upstream.runs(), 1);
    }
}

async fn cloudflares_failure_to_reach_the_service_frees_the_key(store: Store) {
    for status in [521, 523, 525, 526] {
        let upstream = Upstream::new(move |call| async move {
            let response = Response::builder().status(status).header("cf-ray", "8f1a2b3c4d5e6f70-NRT");
            Ok(response.body(crate::support::body(format!("run {}", call.run))).unwrap())
        });
        let instance = Instance::new(&store, route(), &upstream).await;
        let key = format!("k{status}");
        instance.send(order(&key)).await.is_first(status, "run 1");
        instance.send(order(&key)).await.is_first(status, "run 2");
    }
}

async fn a_route_says_what_its_server_errors_mean(store: Store) {
    for (word, server_errors) in
        [("s", ServerErrors::Store), ("r", ServerErrors::Release), ("d", ServerErrors::Doubt)]
    {
        for status in [500, 501, 502, 504, 507, 599, 404] {
            let upstream = Upstream::answering(status);
            let route = Route { server_errors: Some(server_errors), ..route() };
            let instance = Instance::new(&store, route, &upstream).await;
            let key = format!("{word}{status}");
            instance.send(order(&key)).await.is_first(status, "run 1");
            let again = instance.send(order(&key)).await;
            match server_errors {
                _ if status == 404 => again.is_again(status, "run 1"),
                ServerErrors::Store => again.is_again(status, "run 1"),
                ServerErrors::Release => again.is_first(status, "run 2"),
                ServerErrors::Doubt => again.is_problem(409, "in-doubt"),
            }
        }
    }
}

/// The promise of a refusal is the whole of its answer; of a cut one nobody knows who said what.
async fn a_cut_answer_is_doubt_whatever_its_status(store: Store) {
    for status in [201, 429, 500, 503] {
        for size in [10, 5_000] {
            let upstream = Upstream::new(move |_| async move {
                let parts = vec![Ok(vec![b'x'; size].into()), Err("cut")];
                Ok(Response::builder().status(status).body(pieces(parts, None)).unwrap())
            });
            let rules = ichido_http::Rules { answer_max_bytes: 1000, ..crate::support::rules(route()) };
            let instance = Instance::of(store.ledger().await, rules, &upstream);
            let key = format!("k{status}-{size}");
            let begun = instance.begin(order(&key)).await.unwrap();
            let expected = if size < 1000 { 502 } else { status };
            assert_eq!(begun.status(), StatusCode::from_u16(expected).unwrap());
            let _ = crate::support::Got::read(begun).await;
            instance.layer.drain().await;
            let record = instance.record(&key).await.expect("the key is not free");
            let now = record.renewed_at;
            assert!(matches!(record.phase(now), Phase::InDoubt(_)), "{status} {size}: {record:?}");
            instance.send(order(&key)).await.is_problem(409, "in-doubt");
            assert_eq!(upstream.runs(), 1);
        }
    }
}

async fn a_no_store_refusal_frees_the_key_like_any_refusal(store: Store) {
    let upstream = Upstream::new(async |_| {
        let response = Response::builder().status(429).header("cache-control", "no-store");
        Ok(response.body(crate::support::body("later")).unwrap())
    });
    let instance = Instance::new(&store, route(), &upstream).await;
    instance.send(order("k")).await.is_first(429, "later");
    instance.send(order("k")).await.is_first(429, "later");
    assert_eq!(upstream.runs(), 2);
}
