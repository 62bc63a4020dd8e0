//! The `Idempotency-Key` header, and what happens if it is missing, invalid or reused.

use http::{Method, Request};
use ichido_http::{Route, Rules};

use crate::support::{
    Gate, Instance, Received, Store, Upstream, body, get, on_embedded_ledgers, order, patch, post, route,
    rules,
};

on_embedded_ledgers! {
    quoted_and_unquoted_are_the_same_key_and_strict_rules_require_quotes,
    escapes_in_a_key_are_decoded,
    an_invalid_key_is_refused_before_the_service_is_called,
    two_key_headers_are_refused,
    a_missing_key_is_refused_with_a_link_to_the_rules,
    a_request_without_an_optional_key_passes,
    safe_methods_pass_and_claim_nothing_even_with_a_key,
    a_different_body_for_a_completed_key_is_refused,
    a_different_body_for_a_running_key_is_key_reused,
    a_retry_of_a_running_request_is_in_flight,
    a_different_method_path_or_query_is_a_different_operation,
    responses_state_how_long_the_key_is_stored,
    conflicts_of_the_layer_differ_from_those_of_the_application,
    the_callers_key_reaches_the_service_unchanged,
}

fn with_lines(lines: &[&[u8]]) -> Request<crate::support::AnyBody> {
    let mut request = Request::post("/orders");
    for line in lines {
        request = request.header("idempotency-key", http::HeaderValue::from_bytes(line).unwrap());
    }
    request.body(body("{\"item\":1}")).unwrap()
}

async fn quoted_and_unquoted_are_the_same_key_and_strict_rules_require_quotes(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, route(), &upstream).await;
    instance.send(with_lines(&[b"\"k1\""])).await.assert_first(201, "run 1");
    instance.send(with_lines(&[b"k1"])).await.assert_replay(201, "run 1");
    instance.send(with_lines(&[b" \"k1\"; v=2"])).await.assert_replay(201, "run 1");

    let strict = Rules { strict_keys: true, ..rules(route()) };
    let strict = Instance::of(store.ledger().await, strict, &upstream);
    strict.send(with_lines(&[b"\"k1\""])).await.assert_replay(201, "run 1");
    strict.send(with_lines(&[b"k1"])).await.assert_problem(400, "key-invalid");
    assert_eq!(upstream.runs(), 1);
}

async fn escapes_in_a_key_are_decoded(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, route(), &upstream).await;
    instance.send(with_lines(&[br#""a\"b\\c""#])).await.assert_first(201, "run 1");
    assert_eq!(instance.record(r#"a"b\c"#).await.unwrap().key.text(), r#"a"b\c"#);
}

async fn an_invalid_key_is_refused_before_the_service_is_called(store: Store) {
    let upstream = Upstream::counting();
    let long = format!("\"{}\"", "k".repeat(256));
    for strict_keys in [false, true] {
        let rules = Rules { strict_keys, ..rules(route()) };
        let instance = Instance::of(store.ledger().await, rules, &upstream);
        let invalid: [&[u8]; 12] = [
            b"\"\"",
            b"",
            long.as_bytes(),
            b"\"tab\there\"",
            b"\"\xc3\xa9\"",
            b"\xc3\xa9",
            b"\"\xff\"",
            b"\"unterminated",
            b"terminated\"",
            b"\"a\", \"b\"",
            b"a,b",
            b"\"a\\n\"",
        ];
        for line in invalid {
            instance.send(with_lines(&[line])).await.assert_problem(400, "key-invalid");
        }
        let longest = format!("\"{}\"", "k".repeat(255));
        assert_eq!(instance.send(with_lines(&[longest.as_bytes()])).await.status, 201);
    }
    assert_eq!(upstream.runs(), 1);
}

async fn two_key_headers_are_refused(store: Store) {
    let upstream = Upstream::counting();
    for required in [true, false] {
        let instance = Instance::new(&store, Route { required, ..route() }, &upstream).await;
        instance.send(with_lines(&[b"\"a\"", b"\"b\""])).await.assert_problem(400, "key-invalid");
        instance.send(with_lines(&[b"\"a\"", b"\"a\""])).await.assert_problem(400, "key-invalid");
    }
    assert_eq!(upstream.runs(), 0);
}

async fn a_missing_key_is_refused_with_a_link_to_the_rules(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, route(), &upstream).await;
    let got = instance.send(with_lines(&[])).await;
    got.assert_problem(400, "key-missing");
    assert_eq!(got.header("link"), Some("</.well-known/idempotency>; rel=\"describedby\""));
    let problem: serde_json::Value = serde_json::from_slice(&got.body).unwrap();
    assert_eq!(problem["type"], "/.well-known/idempotency/key-missing");
    assert_eq!(instance.send(get("/.well-known/idempotency/key-missing")).await.status, 200);
    assert_eq!(upstream.runs(), 0);
}

async fn a_request_without_an_optional_key_passes(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, Route { required: false, ..route() }, &upstream).await;
    instance.send(with_lines(&[])).await.assert_first(201, "run 1");
    instance.send(with_lines(&[])).await.assert_first(201, "run 2");
    instance.send(with_lines(&[b"\"k\""])).await.assert_first(201, "run 3");
    instance.send(with_lines(&[b"\"k\""])).await.assert_replay(201, "run 3");
}

async fn safe_methods_pass_and_claim_nothing_even_with_a_key(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, route(), &upstream).await;
    let mut runs = 0;
    for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
        for _ in 0..2 {
            runs += 1;
            let mut request = order("k");
            *request.method_mut() = method.clone();
            instance.send(request).await.assert_first(201, &format!("run {runs}"));
        }
    }
    assert_eq!(upstream.runs(), 6);
    assert_eq!(instance.claims().await, []);
}

async fn a_different_body_for_a_completed_key_is_refused(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, route(), &upstream).await;
    instance.send(order("k")).await.assert_first(201, "run 1");
    let before = instance.record("k").await.unwrap();
    instance.send(post("/orders", "k", "{\"item\":2}")).await.assert_problem(422, "key-reused");
    instance.send(post("/orders", "k", "")).await.assert_problem(422, "key-reused");
    assert_eq!(instance.record("k").await.unwrap(), before);
    instance.send(order("k")).await.assert_replay(201, "run 1");
    assert_eq!((instance.record("k").await.unwrap(), upstream.runs()), (before, 1));
}

async fn a_different_body_for_a_running_key_is_key_reused(store: Store) {
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let instance = Instance::new(&store, route(), &upstream).await;
    let first = instance.spawn(order("k"));
    upstream.started(1).await;
    let before = instance.record("k").await.unwrap();
    instance.send(post("/orders", "k", "{\"item\":2}")).await.assert_problem(422, "key-reused");
    assert_eq!(instance.record("k").await.unwrap(), before);
    gate.open();
    first.await.unwrap().assert_first(201, "run 1");
}

async fn a_retry_of_a_running_request_is_in_flight(store: Store) {
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let instance = Instance::new(&store, route(), &upstream).await;
    let first = instance.spawn(order("k"));
    upstream.started(1).await;
    let before = instance.record("k").await.unwrap();
    let got = instance.send(order("k")).await;
    got.assert_problem(409, "in-flight");
    assert_eq!(got.header("retry-after"), Some("1"));
    assert_eq!(instance.record("k").await.unwrap(), before);
    gate.open();
    first.await.unwrap().assert_first(201, "run 1");
    instance.send(order("k")).await.assert_replay(201, "run 1");
}

async fn a_different_method_path_or_query_is_a_different_operation(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, route(), &upstream).await;
    let content = "{\"item\":1}";
    let operations = || {
        [
            order("k"),
            patch("/orders", "k", content),
            post("/orders/", "k", content),
            post("/orders?a=1", "k", content),
            post("/orders?a=2", "k", content),
            post("/orders?", "k", content),
        ]
    };
    for (at, request) in operations().into_iter().enumerate() {
        instance.send(request).await.assert_first(201, &format!("run {}", at + 1));
    }
    for (at, request) in operations().into_iter().enumerate() {
        instance.send(request).await.assert_replay(201, &format!("run {}", at + 1));
    }
}

async fn responses_state_how_long_the_key_is_stored(store: Store) {
    let retention = std::time::Duration::from_secs(7200);
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, Route { retention, ..route() }, &upstream).await;
    for _ in 0..2 {
        assert_eq!(instance.send(order("k")).await.header("idempotency-key-lifetime"), Some("7200"));
    }
    let released = Instance::new(&store, route(), &Upstream::responding(503)).await;
    let got = released.send(order("other")).await;
    assert_eq!((got.status.as_u16(), got.header("idempotency-key-lifetime")), (503, None));
}

async fn conflicts_of_the_layer_differ_from_those_of_the_application(store: Store) {
    let is_from_layer = |got: &Received| got.problem().is_some();
    for status in [409, 422] {
        let upstream = Upstream::responding(status);
        let instance = Instance::new(&store, route(), &upstream).await;
        let key = format!("k{status}");
        let first = instance.send(order(&key)).await;
        let again = instance.send(order(&key)).await;
        first.assert_first(status, "run 1");
        again.assert_replay(status, "run 1");
        let reused = instance.send(post("/orders", &key, "else")).await;
        assert_eq!([&first, &again, &reused].map(is_from_layer), [false, false, true]);
    }
}

async fn the_callers_key_reaches_the_service_unchanged(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, route(), &upstream).await;
    let line = br#""a\"b";v=1"#;
    let mut request = with_lines(&[line]);
    request.headers_mut().insert("idempotency-attempt", 7.into());
    instance.send(request).await.assert_first(201, "run 1");
    let call = upstream.calls().remove(0);
    assert_eq!(call.parts.headers["idempotency-key"].as_bytes(), line);
    assert!(!call.parts.headers.contains_key("idempotency-attempt"), "a caller cannot set the attempt");
    assert_eq!(call.body, "{\"item\":1}");
}
