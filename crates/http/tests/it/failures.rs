//! Disconnects, panics, failures and shutdown.

use ichido_core::State;
use ichido_http::{Failure, InDoubt, Route, ServerErrors};
use tokio::io::AsyncWriteExt;

use crate::support::{
    Gate, Instance, Process, Received, Server, Store, Upstream, ms, on_embedded_ledgers, on_every_ledger,
    order, route, text, until,
};

on_embedded_ledgers! {
    a_cancelled_call_is_finished_and_stored,
    a_client_that_disconnects_can_replay_its_response,
    a_client_that_resets_an_http2_stream_can_replay_its_response,
    a_panic_counts_as_a_500_response,
    a_panic_releases_its_slot,
    a_request_that_was_not_sent_releases_its_key,
    a_request_that_timed_out_is_in_doubt,
    a_service_that_exceeds_its_timeout_is_in_doubt,
    a_lost_response_is_in_doubt,
    a_long_failure_reason_is_cut_to_the_limit,
    draining_waits_for_keyed_requests_and_their_records,
}

on_every_ledger! {
    a_crashed_process_leaves_a_lease_that_expires,
}

async fn a_cancelled_call_is_finished_and_stored(store: Store) {
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let instance = Instance::new(&store, route(), &upstream).await;
    let caller = instance.spawn(order("k"));
    upstream.started(1).await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    instance.send(order("k")).await.assert_problem(409, "in-flight");
    gate.open();
    instance.layer.drain().await;
    assert_eq!(upstream.ended(), 1);
    instance.send(order("k")).await.assert_replay(201, "run 1");
}

async fn a_client_that_disconnects_can_replay_its_response(store: Store) {
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let instance = Instance::new(&store, route(), &upstream).await;
    let server = Server::start(&instance).await;
    let mut stream = server.connect_raw().await;
    let request = "POST /orders HTTP/1.1\r\nhost: here\r\nidempotency-key: \"k\"\r\ncontent-length: 10\r\n\r\n{\"item\":1}";
    stream.write_all(request.as_bytes()).await.unwrap();
    upstream.started(1).await;
    drop(stream);
    tokio::time::sleep(ms(100)).await;
    assert_eq!(instance.layer.in_flight(), 1, "the request keeps running");
    gate.open();
    instance.layer.drain().await;
    let response = server.connect().await.send_request(Server::order("k")).await.unwrap();
    Received::read(response).await.unwrap().assert_replay(201, "run 1");
    assert_eq!((upstream.runs(), upstream.ended()), (1, 1));
}

async fn a_client_that_resets_an_http2_stream_can_replay_its_response(store: Store) {
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let instance = Instance::new(&store, route(), &upstream).await;
    let server = Server::start(&instance).await;
    let request = || {
        let mut request = Server::order("k");
        *request.uri_mut() = "http://here/orders".parse().unwrap();
        request.headers_mut().remove("host");
        request
    };
    let mut client = server.connect_h2().await;
    let sending = tokio::spawn(client.send_request(request()));
    upstream.started(1).await;
    // The stream is reset, the connection stays.
    sending.abort();
    tokio::time::sleep(ms(100)).await;
    gate.open();
    instance.layer.drain().await;
    Received::read(client.send_request(request()).await.unwrap()).await.unwrap().assert_replay(201, "run 1");
    assert_eq!((upstream.runs(), upstream.ended()), (1, 1));
}

fn panicking_once() -> Upstream {
    Upstream::new(async |call| {
        assert!(call.run > 1, "intended: the first run panics");
        Ok(text(201, &format!("run {}", call.run)))
    })
}

async fn a_panic_counts_as_a_500_response(store: Store) {
    for (key, server_errors) in [
        ("default", None),
        ("store", Some(ServerErrors::Store)),
        ("release", Some(ServerErrors::Release)),
        ("doubt", Some(ServerErrors::Doubt)),
    ] {
        let upstream = panicking_once();
        let instance = Instance::new(&store, Route { server_errors, ..route() }, &upstream).await;
        instance.send(order(key)).await.assert_first(500, "");
        let again = instance.send(order(key)).await;
        match server_errors {
            None | Some(ServerErrors::Store) => again.assert_replay(500, ""),
            Some(ServerErrors::Release) => again.assert_first(201, "run 2"),
            Some(ServerErrors::Doubt) => again.assert_problem(409, "in-doubt"),
        }
        assert!(again.problem().as_deref() != Some("in-flight"), "never a permanent conflict");
    }
}

async fn a_panic_releases_its_slot(store: Store) {
    let upstream = Upstream::new(async |_| panic!("intended: every run panics"));
    let rules = ichido_http::Rules { inflight_max: 2, ..crate::support::rules(route()) };
    let instance = Instance::of(store.ledger().await, rules, &upstream);
    for number in 0..5 {
        instance.send(order(&format!("k{number}"))).await.assert_first(500, "");
        // The response is sent a moment before the slot is released.
        until("the slot is released", async || instance.layer.in_flight() == 0).await;
    }
}

fn failing(failure: fn() -> Failure) -> Upstream {
    Upstream::new(move |call| async move {
        match call.run {
            1 => Err(failure()),
            run => Ok(text(201, &format!("run {run}"))),
        }
    })
}

async fn a_request_that_was_not_sent_releases_its_key(store: Store) {
    let upstream = failing(|| Failure::NotSent("connection refused".into()));
    let instance = Instance::new(&store, route(), &upstream).await;
    instance.send(order("k")).await.assert_problem(502, "upstream-unreachable");
    assert_eq!(instance.record("k").await, None);
    instance.send(order("k")).await.assert_first(201, "run 2");
}

async fn a_request_that_timed_out_is_in_doubt(store: Store) {
    let upstream = failing(|| Failure::TimedOut("no response".into()));
    let instance = Instance::new(&store, route(), &upstream).await;
    instance.send(order("k")).await.assert_problem(504, "upstream-timeout");
    instance.send(order("k")).await.assert_problem(409, "in-doubt");
    assert!(matches!(instance.record("k").await.unwrap().state, State::InDoubt(_)));
    assert_eq!(upstream.runs(), 1);
}

async fn a_service_that_exceeds_its_timeout_is_in_doubt(store: Store) {
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let timeout = Some(ms(150));
    let instance = Instance::new(&store, Route { timeout, ..route() }, &upstream).await;
    instance.send(order("k")).await.assert_problem(504, "upstream-timeout");
    let State::InDoubt(doubt) = instance.record("k").await.unwrap().state else { panic!("not in doubt") };
    assert_eq!(doubt.reason.to_string(), "the service timed out");
    gate.open();
    instance.send(order("k")).await.assert_problem(409, "in-doubt");
    assert_eq!(upstream.runs(), 1);

    // A route that retries in doubt runs the request again after the timeout.
    let upstream = Upstream::counting();
    let route = Route { timeout, in_doubt: InDoubt::Retry, ..route() };
    let instance = Instance::new(&store, route, &upstream).await;
    tokio::time::sleep(ms(200)).await;
    instance.send(order("k")).await.assert_first(201, "run 1");
    assert_eq!(upstream.calls()[0].parts.headers["idempotency-attempt"], "2");
}

async fn a_lost_response_is_in_doubt(store: Store) {
    let upstream = failing(|| Failure::Lost("connection reset".into()));
    let instance = Instance::new(&store, route(), &upstream).await;
    instance.send(order("k")).await.assert_problem(502, "answer-lost");
    instance.send(order("k")).await.assert_problem(409, "in-doubt");
    assert_eq!(upstream.runs(), 1);
}

async fn a_long_failure_reason_is_cut_to_the_limit(store: Store) {
    // The reason is longer than the limit, and is cut between characters.
    let upstream = failing(|| Failure::Lost("é".repeat(5_000).into()));
    let instance = Instance::new(&store, route(), &upstream).await;
    instance.send(order("k")).await.assert_problem(502, "answer-lost");
    let State::InDoubt(doubt) = instance.record("k").await.unwrap().state else { panic!("not in doubt") };
    assert!(doubt.reason.to_string().contains("éé"));
}

async fn draining_waits_for_keyed_requests_and_their_records(store: Store) {
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let instance = Instance::new(&store, route(), &upstream).await;
    let callers: Vec<_> = (0..5).map(|number| instance.spawn(order(&format!("k{number}")))).collect();
    upstream.started(5).await;
    let draining = tokio::spawn({
        let layer = instance.layer.clone();
        async move { layer.drain().await }
    });
    tokio::time::sleep(ms(100)).await;
    assert!(!draining.is_finished());
    assert_eq!(instance.layer.in_flight(), 5);
    gate.open();
    draining.await.unwrap();
    assert_eq!((instance.layer.in_flight(), upstream.ended()), (0, 5));
    for number in 0..5 {
        let record = instance.record(&format!("k{number}")).await.unwrap();
        assert!(matches!(record.state, State::Done(_)), "{record:?}");
    }
    for caller in callers {
        assert_eq!(caller.await.unwrap().status, 201);
    }
}

async fn a_crashed_process_leaves_a_lease_that_expires(store: Store) {
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let route = Route { lease: ms(500), in_doubt: InDoubt::Retry, ..route() };
    let crashing = Process::start(&store, route.clone(), &upstream).await;
    crashing.send(order("k"));
    upstream.started(1).await;
    let other = Instance::new(&store, route, &upstream).await;
    crashing.kill().await;
    gate.open();
    let got = other.send_until_settled(|| order("k")).await;
    got.assert_first(201, "run 2");
    assert_eq!(upstream.calls()[1].parts.headers["idempotency-attempt"], "2");
    assert_eq!(upstream.ended(), 1, "the first run ended with its process");
}
