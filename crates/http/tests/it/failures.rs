//! Hang-ups, panics, failures and shutdown: what surrounds the effect.

use ichido_core::State;
use ichido_http::{Failure, InDoubt, Route, ServerErrors};
use tokio::io::AsyncWriteExt;

use crate::support::{
    Gate, Got, Instance, Process, Server, Store, Upstream, ms, on_embedded_ledgers, on_every_ledger, order,
    route, text, until,
};

on_embedded_ledgers! {
    a_caller_that_gives_up_loses_nothing,
    a_client_that_hangs_up_finds_its_answer_later,
    a_client_that_hangs_up_on_http2_finds_its_answer_later,
    a_panic_is_an_answer_that_the_route_judges,
    a_panic_never_holds_a_place,
    a_request_that_was_not_sent_frees_its_key_at_once,
    a_request_that_timed_out_is_in_doubt,
    a_service_slower_than_its_limit_is_in_doubt,
    a_lost_answer_is_in_doubt,
    a_failure_of_unknown_meaning_is_in_doubt,
    draining_waits_for_keyed_work_and_its_record,
}

on_every_ledger! {
    a_killed_process_leaves_a_lease_not_a_lock,
}

async fn a_caller_that_gives_up_loses_nothing(store: Store) {
    let gate = Gate::shut();
    let upstream = Upstream::gated(&gate);
    let instance = Instance::new(&store, route(), &upstream).await;
    let caller = instance.spawn(order("k"));
    upstream.started(1).await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    instance.send(order("k")).await.is_problem(409, "in-flight");
    gate.open();
    instance.layer.drain().await;
    assert_eq!(upstream.ended(), 1);
    instance.send(order("k")).await.is_again(201, "run 1");
}

async fn a_client_that_hangs_up_finds_its_answer_later(store: Store) {
    let gate = Gate::shut();
    let upstream = Upstream::gated(&gate);
    let instance = Instance::new(&store, route(), &upstream).await;
    let server = Server::start(&instance).await;
    let mut stream = server.raw().await;
    let request = "POST /orders HTTP/1.1\r\nhost: here\r\nidempotency-key: \"k\"\r\ncontent-length: 10\r\n\r\n{\"item\":1}";
    stream.write_all(request.as_bytes()).await.unwrap();
    upstream.started(1).await;
    drop(stream);
    tokio::time::sleep(ms(100)).await;
    assert_eq!(instance.layer.in_flight(), 1, "the work goes on");
    gate.open();
    instance.layer.drain().await;
    let response = server.connect().await.send_request(Server::order("k")).await.unwrap();
    Got::read(response).await.unwrap().is_again(201, "run 1");
    assert_eq!((upstream.runs(), upstream.ended()), (1, 1));
}

async fn a_client_that_hangs_up_on_http2_finds_its_answer_later(store: Store) {
    let gate = Gate::shut();
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
    let asking = tokio::spawn(client.send_request(request()));
    upstream.started(1).await;
    // The stream is reset, the connection stays.
    asking.abort();
    tokio::time::sleep(ms(100)).await;
    gate.open();
    instance.layer.drain().await;
    Got::read(client.send_request(request()).await.unwrap()).await.unwrap().is_again(201, "run 1");
    assert_eq!((upstream.runs(), upstream.ended()), (1, 1));
}

fn panicking_once() -> Upstream {
    Upstream::new(async |call| {
        assert!(call.run > 1, "on purpose: the first run panics");
        Ok(text(201, &format!("run {}", call.run)))
    })
}

async fn a_panic_is_an_answer_that_the_route_judges(store: Store) {
    for (word, server_errors) in [
        ("default", None),
        ("store", Some(ServerErrors::Store)),
        ("release", Some(ServerErrors::Release)),
        ("doubt", Some(ServerErrors::Doubt)),
    ] {
        let upstream = panicking_once();
        let instance = Instance::new(&store, Route { server_errors, ..route() }, &upstream).await;
        instance.send(order(word)).await.is_first(500, "");
        let again = instance.send(order(word)).await;
        match server_errors {
            None | Some(ServerErrors::Store) => again.is_again(500, ""),
            Some(ServerErrors::Release) => again.is_first(201, "run 2"),
            Some(ServerErrors::Doubt) => again.is_problem(409, "in-doubt"),
        }
        assert!(again.problem().as_deref() != Some("in-flight"), "never a permanent conflict");
    }
}

async fn a_panic_never_holds_a_place(store: Store) {
    let upstream = Upstream::new(async |_| panic!("on purpose: every run panics"));
    let rules = ichido_http::Rules { inflight_max: 2, ..crate::support::rules(route()) };
    let instance = Instance::of(store.ledger().await, rules, &upstream);
    for number in 0..5 {
        instance.send(order(&format!("k{number}"))).await.is_first(500, "");
        // The answer is out a moment before its place is free.
        until("the work has ended", async || instance.layer.in_flight() == 0).await;
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

async fn a_request_that_was_not_sent_frees_its_key_at_once(store: Store) {
    let upstream = failing(|| Failure::NotSent("connection refused".into()));
    let instance = Instance::new(&store, route(), &upstream).await;
    instance.send(order("k")).await.is_problem(502, "upstream-unreachable");
    assert_eq!(instance.record("k").await, None);
    instance.send(order("k")).await.is_first(201, "run 2");
}

async fn a_request_that_timed_out_is_in_doubt(store: Store) {
    let upstream = failing(|| Failure::TimedOut("no answer".into()));
    let instance = Instance::new(&store, route(), &upstream).await;
    instance.send(order("k")).await.is_problem(504, "upstream-timeout");
    instance.send(order("k")).await.is_problem(409, "in-doubt");
    assert!(matches!(instance.record("k").await.unwrap().state, State::InDoubt(_)));
    assert_eq!(upstream.runs(), 1);
}

async fn a_service_slower_than_its_limit_is_in_doubt(store: Store) {
    let gate = Gate::shut();
    let upstream = Upstream::gated(&gate);
    let timeout = Some(ms(150));
    let instance = Instance::new(&store, Route { timeout, ..route() }, &upstream).await;
    instance.send(order("k")).await.is_problem(504, "upstream-timeout");
    let State::InDoubt(doubt) = instance.record("k").await.unwrap().state else { panic!("in doubt") };
    assert_eq!(doubt.reason.to_string(), "the service timed out");
    gate.open();
    instance.send(order("k")).await.is_problem(409, "in-doubt");
    assert_eq!(upstream.runs(), 1);

    // A route that retries does so after that time, and says when.
    let upstream = Upstream::counting();
    let route = Route { timeout, in_doubt: InDoubt::Retry, ..route() };
    let instance = Instance::new(&store, route, &upstream).await;
    tokio::time::sleep(ms(200)).await;
    instance.send(order("k")).await.is_first(201, "run 1");
    assert_eq!(upstream.calls()[0].parts.headers["idempotency-attempt"], "2");
}

async fn a_lost_answer_is_in_doubt(store: Store) {
    let upstream = failing(|| Failure::Lost("connection reset".into()));
    let instance = Instance::new(&store, route(), &upstream).await;
    instance.send(order("k")).await.is_problem(502, "answer-lost");
    instance.send(order("k")).await.is_problem(409, "in-doubt");
    assert_eq!(upstream.runs(), 1);
}

async fn a_failure_of_unknown_meaning_is_in_doubt(store: Store) {
    // A reason longer than any ledger takes is cut, at a border between characters.
    let upstream = failing(|| Failure::Lost("é".repeat(5_000).into()));
    let instance = Instance::new(&store, route(), &upstream).await;
    instance.send(order("k")).await.is_problem(502, "answer-lost");
    let State::InDoubt(doubt) = instance.record("k").await.unwrap().state else { panic!("in doubt") };
    assert!(doubt.reason.to_string().contains("éé"));
}

async fn draining_waits_for_keyed_work_and_its_record(store: Store) {
    let gate = Gate::shut();
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

async fn a_killed_process_leaves_a_lease_not_a_lock(store: Store) {
    let gate = Gate::shut();
    let upstream = Upstream::gated(&gate);
    let route = Route { lease: ms(500), in_doubt: InDoubt::Retry, ..route() };
    let dying = Process::start(&store, route.clone(), &upstream).await;
    dying.send(order("k"));
    upstream.started(1).await;
    let heir = Instance::new(&store, route, &upstream).await;
    dying.kill().await;
    gate.open();
    let got = heir.send_until_settled(|| order("k")).await;
    got.is_first(201, "run 2");
    assert_eq!(upstream.calls()[1].parts.headers["idempotency-attempt"], "2");
    assert_eq!(upstream.ended(), 1, "the first run died with its process");
}
