//! What each response means for the key.

use http::{Response, StatusCode};
use ichido_core::{Phase, State};
use ichido_http::{Route, ServerErrors};

use crate::support::{Instance, Store, Upstream, chunks, on_embedded_ledgers, order, route};

on_embedded_ledgers! {
    refusals_release_the_key,
    every_other_response_is_stored_including_500,
    gateway_errors_are_in_doubt,
    cloudflare_errors_before_a_connection_release_the_key,
    a_route_can_define_its_server_errors,
    a_response_that_is_cut_off_is_in_doubt_whatever_its_status,
    a_refusal_with_no_store_releases_the_key,
}

const STORED: [u16; 25] = [
    200, 201, 202, 204, 206, 207, 300, 301, 303, 304, 400, 402, 404, 405, 409, 410, 412, 413, 415, 422, 451,
    500, 501, 505, 511,
];

async fn refusals_release_the_key(store: Store) {
    for server_errors in [None, Some(ServerErrors::Store), Some(ServerErrors::Doubt)] {
        for status in [401, 403, 408, 425, 429, 503, 529] {
            let upstream = Upstream::responding(status);
            let instance = Instance::new(&store, Route { server_errors, ..route() }, &upstream).await;
            let key = format!("k{status}{server_errors:?}");
            instance.send(order(&key)).await.assert_first(status, "run 1");
            assert_eq!(instance.record(&key).await, None, "{status}");
            instance.send(order(&key)).await.assert_first(status, "run 2");
        }
    }
}

async fn every_other_response_is_stored_including_500(store: Store) {
    for status in STORED {
        let upstream = Upstream::responding(status);
        let instance = Instance::new(&store, route(), &upstream).await;
        let key = format!("k{status}");
        instance.send(order(&key)).await.assert_first(status, "run 1");
        instance.send(order(&key)).await.assert_replay(status, "run 1");
        assert_eq!(upstream.runs(), 1);
    }
}

async fn gateway_errors_are_in_doubt(store: Store) {
    for status in [502, 504, 520, 521, 522, 523, 524, 525, 526, 527] {
        let upstream = Upstream::responding(status);
        let instance = Instance::new(&store, route(), &upstream).await;
        let key = format!("k{status}");
        instance.send(order(&key)).await.assert_first(status, "run 1");
        instance.send(order(&key)).await.assert_problem(409, "in-doubt");
        assert!(matches!(instance.record(&key).await.unwrap().state, State::InDoubt(_)));
        assert_eq!(upstream.runs(), 1);
    }
}

async fn cloudflare_errors_before_a_connection_release_the_key(store: Store) {
    for status in [521, 523, 525, 526] {
        let upstream = Upstream::new(move |call| async move {
            let response = Response::builder().status(status).header("cf-ray", "8f1a2b3c4d5e6f70-NRT");
            Ok(response.body(crate::support::body(format!("run {}", call.run))).unwrap())
        });
        let instance = Instance::new(&store, route(), &upstream).await;
        let key = format!("k{status}");
        instance.send(order(&key)).await.assert_first(status, "run 1");
        instance.send(order(&key)).await.assert_first(status, "run 2");
    }
}

async fn a_route_can_define_its_server_errors(store: Store) {
    for (prefix, server_errors) in
        [("s", ServerErrors::Store), ("r", ServerErrors::Release), ("d", ServerErrors::Doubt)]
    {
        for status in [500, 501, 502, 504, 507, 599, 404] {
            let upstream = Upstream::responding(status);
            let route = Route { server_errors: Some(server_errors), ..route() };
            let instance = Instance::new(&store, route, &upstream).await;
            let key = format!("{prefix}{status}");
            instance.send(order(&key)).await.assert_first(status, "run 1");
            let again = instance.send(order(&key)).await;
            match server_errors {
                _ if status == 404 => again.assert_replay(status, "run 1"),
                ServerErrors::Store => again.assert_replay(status, "run 1"),
                ServerErrors::Release => again.assert_first(status, "run 2"),
                ServerErrors::Doubt => again.assert_problem(409, "in-doubt"),
            }
        }
    }
}

/// Only a complete refusal proves that nothing happened.
async fn a_response_that_is_cut_off_is_in_doubt_whatever_its_status(store: Store) {
    for status in [201, 429, 500, 503] {
        for size in [10, 5_000] {
            let upstream = Upstream::new(move |_| async move {
                let parts = vec![Ok(vec![b'x'; size].into()), Err("cut")];
                Ok(Response::builder().status(status).body(chunks(parts, None)).unwrap())
            });
            let rules = ichido_http::Rules { answer_max_bytes: 1000, ..crate::support::rules(route()) };
            let instance = Instance::of(store.ledger().await, rules, &upstream);
            let key = format!("k{status}-{size}");
            let response = instance.start(order(&key)).await.unwrap();
            let expected = if size < 1000 { 502 } else { status };
            assert_eq!(response.status(), StatusCode::from_u16(expected).unwrap());
            let _ = crate::support::Received::read(response).await;
            instance.layer.drain().await;
            let record = instance.record(&key).await.expect("a claim");
            let now = record.renewed_at;
            assert!(matches!(record.phase(now), Phase::InDoubt(_)), "{status} {size}: {record:?}");
            instance.send(order(&key)).await.assert_problem(409, "in-doubt");
            assert_eq!(upstream.runs(), 1);
        }
    }
}

async fn a_refusal_with_no_store_releases_the_key(store: Store) {
    let upstream = Upstream::new(async |_| {
        let response = Response::builder().status(429).header("cache-control", "no-store");
        Ok(response.body(crate::support::body("later")).unwrap())
    });
    let instance = Instance::new(&store, route(), &upstream).await;
    instance.send(order("k")).await.assert_first(429, "later");
    instance.send(order("k")).await.assert_first(429, "later");
    assert_eq!(upstream.runs(), 2);
}
