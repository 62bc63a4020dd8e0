//! Fingerprints tell a retry from a different request with the same key.

use ichido_http::{FingerprintRule, Route, Rules};

use crate::support::{Instance, Store, Upstream, on_embedded_ledgers, post, route, rules};

on_embedded_ledgers! {
    a_json_fingerprint_ignores_order_and_white_space,
    by_default_bodies_are_compared_byte_by_byte,
    an_ignored_field_does_not_count,
    long_numbers_that_differ_are_different_requests,
    different_notations_of_a_number_are_equal,
    a_duplicate_member_is_not_a_retry,
    strings_are_compared_after_decoding_escapes,
    a_body_that_is_not_json_is_compared_byte_by_byte,
    a_route_can_disable_comparison,
    a_spilled_json_body_is_compared_like_any_other,
}

fn json(ignored: &[&str]) -> Route {
    let ignored = ignored.iter().map(|pointer| pointer.parse().unwrap()).collect();
    Route { fingerprint: FingerprintRule::Json(ignored), ..route() }
}

async fn a_json_fingerprint_ignores_order_and_white_space(store: Store) {
    let instance = Instance::new(&store, json(&[]), &Upstream::counting()).await;
    instance
        .send(post("/orders", "k", r#"{"a":1,"b":[1,2,{"c":"x","d":null}]}"#))
        .await
        .assert_first(201, "run 1");
    let again = "{ \"b\" : [1,\n2, {\"d\":null, \"c\":\"x\"}],\t\"a\": 1 }";
    instance.send(post("/orders", "k", again)).await.assert_replay(201, "run 1");
    for other in [
        r#"{"a":1,"b":[2,1,{"c":"x","d":null}]}"#,
        r#"{"a":1,"b":[1,2,{"c":"x"}]}"#,
        r#"{"a":"1","b":[1,2,{"c":"x","d":null}]}"#,
        r#"{"a":true,"b":[1,2,{"c":"x","d":null}]}"#,
    ] {
        instance.send(post("/orders", "k", other)).await.assert_problem(422, "key-reused");
    }
}

async fn by_default_bodies_are_compared_byte_by_byte(store: Store) {
    let instance = Instance::new(&store, route(), &Upstream::counting()).await;
    instance.send(post("/orders", "k", r#"{"a":1,"b":2}"#)).await.assert_first(201, "run 1");
    instance.send(post("/orders", "k", r#"{"b":2,"a":1}"#)).await.assert_problem(422, "key-reused");
    instance.send(post("/orders", "k", r#"{"a":1, "b":2}"#)).await.assert_problem(422, "key-reused");
    instance.send(post("/orders", "k", r#"{"a":1,"b":2}"#)).await.assert_replay(201, "run 1");
}

async fn an_ignored_field_does_not_count(store: Store) {
    let instance = Instance::new(&store, json(&["/sent_at", "/items/0/at"]), &Upstream::counting()).await;
    instance
        .send(post("/orders", "k", r#"{"a":1,"sent_at":1,"items":[{"at":1,"n":1}]}"#))
        .await
        .assert_first(201, "run 1");
    for again in [r#"{"a":1,"sent_at":2,"items":[{"at":9,"n":1}]}"#, r#"{"items":[{"n":1}],"a":1}"#] {
        instance.send(post("/orders", "k", again)).await.assert_replay(201, "run 1");
    }
    instance
        .send(post("/orders", "k", r#"{"a":2,"sent_at":1,"items":[{"n":1}]}"#))
        .await
        .assert_problem(422, "key-reused");
}

/// As doubles, which have 53 bits of precision, the numbers of each pair would be equal.
async fn long_numbers_that_differ_are_different_requests(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, json(&[]), &upstream).await;
    for (at, (one, other)) in [
        ("9007199254740993", "9007199254740992"),
        ("-9007199254740993", "-9007199254740992"),
        ("18446744073709551617", "18446744073709551616"),
        ("0.10000000000000000001", "0.1"),
        ("12345678901234567.89", "12345678901234567.88"),
        ("1e400", "1e401"),
        ("5e-400", "0"),
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("k{at}");
        let body = |number: &str| format!("{{\"b\":2,\"amount\":{number}}}");
        let first = instance.send(post("/orders", &key, body(one))).await;
        assert_eq!((first.status.as_u16(), first.is_replay()), (201, false), "{one}");
        let again = instance.send(post("/orders", &key, format!("{{\"amount\": {one}, \"b\":2}}"))).await;
        assert!(again.is_replay(), "{one}: {again:?}");
        instance.send(post("/orders", &key, body(other))).await.assert_problem(422, "key-reused");
    }
}

async fn different_notations_of_a_number_are_equal(store: Store) {
    let instance = Instance::new(&store, json(&[]), &Upstream::counting()).await;
    instance.send(post("/orders", "k", "[100, 0.5, 0, -20]")).await.assert_first(201, "run 1");
    instance.send(post("/orders", "k", "[1e2, 5E-1, 0.0, -2.0e+1]")).await.assert_replay(201, "run 1");
    instance.send(post("/orders", "k", "[100.0, 0.50, -0, -20]")).await.assert_replay(201, "run 1");
    instance.send(post("/orders", "k", "[\"100\", 0.5, 0, -20]")).await.assert_problem(422, "key-reused");
}

/// The service decides which of the two values counts, and the layer does not know which.
async fn a_duplicate_member_is_not_a_retry(store: Store) {
    let instance = Instance::new(&store, json(&[]), &Upstream::counting()).await;
    instance.send(post("/orders", "k", r#"{"amount":1}"#)).await.assert_first(201, "run 1");
    instance
        .send(post("/orders", "k", r#"{"amount":100,"amount":1}"#))
        .await
        .assert_problem(422, "key-reused");
    instance.send(post("/orders", "k", r#"{"amount":1,"amount":1}"#)).await.assert_problem(422, "key-reused");
}

async fn strings_are_compared_after_decoding_escapes(store: Store) {
    let instance = Instance::new(&store, json(&[]), &Upstream::counting()).await;
    instance.send(post("/orders", "k", r#"{"né":"A\u0000n1"}"#)).await.assert_first(201, "run 1");
    instance.send(post("/orders", "k", r#"{"n\u00e9":"\u0041\u0000n1"}"#)).await.assert_replay(201, "run 1");
    // A number never equals a string that looks like it, however the string is written.
    for (at, (number, text)) in
        [("1", r#""1""#), ("1", r#""\u00001""#), ("1", r#""\u0000n1""#), ("1", r#""n1""#)]
            .into_iter()
            .enumerate()
    {
        let key = format!("t{at}");
        assert_eq!(instance.send(post("/orders", &key, number)).await.status, 201);
        instance.send(post("/orders", &key, text)).await.assert_problem(422, "key-reused");
    }
}

async fn a_body_that_is_not_json_is_compared_byte_by_byte(store: Store) {
    let instance = Instance::new(&store, json(&[]), &Upstream::counting()).await;
    for (at, content) in
        ["", "a=1&b=2", "{\"a\":1}{", "[1,]", "{\"a\":01}", "\"\\ud800\"", "nul", "[1 2]"].iter().enumerate()
    {
        let key = format!("k{at}");
        let first = instance.send(post("/orders", &key, *content)).await;
        assert_eq!((first.status.as_u16(), first.is_replay()), (201, false), "{content}");
        assert!(instance.send(post("/orders", &key, *content)).await.is_replay(), "{content}");
        instance.send(post("/orders", &key, format!("{content} "))).await.assert_problem(422, "key-reused");
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    instance.send(post("/orders", "deep", deep.clone())).await;
    assert!(instance.send(post("/orders", "deep", deep)).await.is_replay());
}

async fn a_route_can_disable_comparison(store: Store) {
    let route = Route { fingerprint: FingerprintRule::None, ..route() };
    let instance = Instance::new(&store, route, &Upstream::counting()).await;
    instance.send(post("/orders", "k", "one")).await.assert_first(201, "run 1");
    instance.send(post("/orders", "k", "two")).await.assert_replay(201, "run 1");
}

async fn a_spilled_json_body_is_compared_like_any_other(store: Store) {
    let upstream = Upstream::counting();
    let spilling = Rules { body_memory_bytes: 10, ..rules(json(&["/t"])) };
    let spilling = Instance::of(store.ledger().await, spilling, &upstream);
    let in_memory = Instance::new(&store, json(&["/t"]), &upstream).await;
    let long = "x".repeat(200_000);
    spilling
        .send(post("/orders", "k", format!("{{\"t\":1,\"a\":\"{long}\",\"b\":9007199254740993}}")))
        .await
        .assert_first(201, "run 1");
    let again = format!("{{\"b\":9007199254740993,\"a\":\"{long}\"}}");
    in_memory.send(post("/orders", "k", again)).await.assert_replay(201, "run 1");
    let other = format!("{{\"b\":9007199254740992,\"a\":\"{long}\"}}");
    spilling.send(post("/orders", "k", other)).await.assert_problem(422, "key-reused");
}
