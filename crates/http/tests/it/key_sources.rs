//! Keys from sources other than the `Idempotency-Key` header.

use http::Request;
use ichido_http::{FingerprintRule, Mode, Route, Rules, Tenant};

use crate::support::{AnyBody, Instance, Store, Upstream, body, on_embedded_ledgers, post, route, rules};

on_embedded_ledgers! {
    a_key_in_the_body_is_found_by_its_pointer,
    a_number_in_the_body_is_a_key_with_all_its_digits,
    a_template_joins_several_values,
    the_hash_of_fields_ignores_their_order,
    the_whole_body_can_be_the_key,
    sources_are_tried_in_order,
    the_body_is_compared_unless_its_fields_are_the_key,
    other_headers_are_read_as_plain_text,
    an_optional_key_may_be_missing_without_a_tenant,
    a_key_is_searched_within_the_first_bytes_only,
}

fn keyed_by(sources: &[&str]) -> Route {
    let keys = sources.iter().map(|source| source.parse().unwrap()).collect();
    Route { keys, fingerprint: FingerprintRule::None, ..route() }
}

fn unkeyed(content: &str) -> Request<AnyBody> {
    Request::post("/events").body(body(content.to_owned())).unwrap()
}

async fn a_key_in_the_body_is_found_by_its_pointer(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, keyed_by(&["json:/event_id"]), &upstream).await;
    instance.send(unkeyed(r#"{"event_id":"Ev1","try":1}"#)).await.assert_first(201, "run 1");
    instance.send(unkeyed(r#"{"try":2,"event_id":"Ev1"}"#)).await.assert_replay(201, "run 1");
    instance.send(unkeyed(r#"{"event_id":"Ev2"}"#)).await.assert_first(201, "run 2");
    for without in ["{}", "", "[]", r#"{"event_id":null}"#, r#"{"event_id":{}}"#, r#"{"event_id":true}"#] {
        instance.send(unkeyed(without)).await.assert_problem(400, "key-missing");
    }
    instance.send(unkeyed(r#"{"event_id":""}"#)).await.assert_problem(400, "key-invalid");
    instance.send(unkeyed(r#"{"event_id":"a\nb"}"#)).await.assert_problem(400, "key-invalid");
    assert_eq!(upstream.calls()[0].body, r#"{"event_id":"Ev1","try":1}"#);
    assert_eq!(upstream.runs(), 2);
}

async fn a_key_is_searched_within_the_first_bytes_only(store: Store) {
    let long = "x".repeat(5000);
    let early = format!(r#"{{"a":1,"b":2,"more":"{long}","c":3}}"#);
    for (sources, is_found) in [
        (&["json:/a"][..], true),
        (&["json:/c"], false),
        (&["json:/c", "json:/a"], false),
        (&["template:{/a}_{/b}"], true),
        (&["template:{/a}_{/c}"], false),
        (&["fields:/a,/b"], true),
        (&["fields:/a,/c"], false),
        (&["body"], true),
    ] {
        for body_memory_bytes in [1_000_000, 100] {
            let upstream = Upstream::counting();
            let limits = |route| Rules { body_parse_max_bytes: 1000, body_memory_bytes, ..rules(route) };
            let fresh = Store::memory();
            let instance = Instance::of(fresh.ledger().await, limits(keyed_by(sources)), &upstream);
            let got = instance.send(unkeyed(&early)).await;
            if is_found {
                got.assert_first(201, "run 1");
                instance.send(unkeyed(&early)).await.assert_replay(201, "run 1");
            } else {
                got.assert_problem(413, "body-too-large");
                assert!(got.text().contains("body_parse_max_bytes"), "{}", got.text());
                assert_eq!(upstream.runs(), 0);
            }
            let observed = Route { mode: Mode::Observe, ..keyed_by(sources) };
            let observing = Instance::of(fresh.ledger().await, limits(observed), &upstream);
            observing.send(unkeyed(&early)).await;
            assert_eq!(upstream.calls().last().unwrap().body, early);
        }
    }
    let limits = |route| Rules { body_parse_max_bytes: 1000, ..rules(route) };
    let instance = Instance::of(store.ledger().await, limits(keyed_by(&["json:/a"])), &Upstream::counting());
    instance.send(unkeyed(&format!("a={long}"))).await.assert_problem(400, "key-missing");
    // A body that is compared as JSON must fit as a whole.
    let compared = Route { fingerprint: FingerprintRule::Json(Vec::new()), ..keyed_by(&["json:/a"]) };
    let instance = Instance::of(store.ledger().await, limits(compared), &Upstream::counting());
    instance.send(unkeyed(&early)).await.assert_problem(413, "body-too-large");
    instance.send(unkeyed(r#"{"a":1}"#)).await.assert_first(201, "run 1");
}

async fn a_number_in_the_body_is_a_key_with_all_its_digits(store: Store) {
    for (at, source) in ["json:/id", "template:{/id}-x", "fields:/id"].into_iter().enumerate() {
        let upstream = Upstream::counting();
        let instance = Instance::new(&store, keyed_by(&[source]), &upstream).await;
        let event = |id: &str| {
            let mut request = unkeyed(&format!("{{\"id\":{id}}}"));
            *request.uri_mut() = format!("/events/{at}").parse().unwrap();
            request
        };
        let ids = [
            "17",
            "9007199254740993",
            "9007199254740992",
            "18446744073709551617",
            "18446744073709551616",
            "0.1",
        ];
        for (at, id) in ids.into_iter().enumerate() {
            instance.send(event(id)).await.assert_first(201, &format!("run {}", at + 1));
        }
        for (at, id) in ids.into_iter().enumerate() {
            instance.send(event(id)).await.assert_replay(201, &format!("run {}", at + 1));
        }
        instance.send(event("17.0")).await.assert_replay(201, "run 1");
    }
}

async fn a_template_joins_several_values(store: Store) {
    let upstream = Upstream::counting();
    let slack = keyed_by(&["json:/event_id", "template:{/event/files/0/id}_{/event/ts}"]);
    let instance = Instance::new(&store, slack, &upstream).await;
    let event = |ts: &str| unkeyed(&format!(r#"{{"event":{{"files":[{{"id":"F9"}}],"ts":"{ts}"}}}}"#));
    instance.send(event("1.2")).await.assert_first(201, "run 1");
    instance.send(event("1.2")).await.assert_replay(201, "run 1");
    instance.send(event("1.3")).await.assert_first(201, "run 2");
    instance.send(unkeyed(r#"{"event":{"ts":"1.2"}}"#)).await.assert_problem(400, "key-missing");
}

async fn the_hash_of_fields_ignores_their_order(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, keyed_by(&["fields:/user,/cart"]), &upstream).await;
    instance.send(unkeyed(r#"{"user":1,"cart":{"a":1,"b":2},"t":1}"#)).await.assert_first(201, "run 1");
    instance.send(unkeyed(r#"{"t":2,"cart":{"b":2,"a":1},"user":1}"#)).await.assert_replay(201, "run 1");
    instance.send(unkeyed(r#"{"user":1,"cart":{"a":1,"b":3}}"#)).await.assert_first(201, "run 2");
    instance.send(unkeyed(r#"{"user":1}"#)).await.assert_first(201, "run 3");
    instance.send(unkeyed(r#"{"user":1,"cart":null}"#)).await.assert_first(201, "run 4");
    instance.send(unkeyed(r#"{"t":1}"#)).await.assert_problem(400, "key-missing");
}

async fn the_whole_body_can_be_the_key(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, keyed_by(&["body"]), &upstream).await;
    instance.send(unkeyed("a")).await.assert_first(201, "run 1");
    instance.send(unkeyed("a")).await.assert_replay(201, "run 1");
    instance.send(unkeyed("b")).await.assert_first(201, "run 2");
    instance.send(unkeyed("")).await.assert_first(201, "run 3");
    instance.send(unkeyed("")).await.assert_replay(201, "run 3");
}

async fn sources_are_tried_in_order(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, keyed_by(&["json:/id", "header:Idempotency-Key"]), &upstream).await;
    instance.send(post("/events", "header", r#"{"id":"body"}"#)).await.assert_first(201, "run 1");
    instance.send(unkeyed(r#"{"id":"body"}"#)).await.assert_replay(201, "run 1");
    instance.send(post("/events", "header", "{}")).await.assert_first(201, "run 2");
    let instance = Instance::new(&store, keyed_by(&["header:Idempotency-Key", "json:/id"]), &upstream).await;
    instance.send(post("/events", "header", r#"{"id":"body"}"#)).await.assert_replay(201, "run 2");
    instance.send(unkeyed(r#"{"id":"body"}"#)).await.assert_replay(201, "run 1");
}

async fn other_headers_are_read_as_plain_text(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, keyed_by(&["header:X-GitHub-Delivery"]), &upstream).await;
    let with =
        |value: &str| Request::post("/events").header("x-github-delivery", value).body(body("x")).unwrap();
    instance.send(with("a, b (c)")).await.assert_first(201, "run 1");
    instance.send(with("a, b (c)")).await.assert_replay(201, "run 1");
    let mut twice = with("a");
    twice.headers_mut().append("x-github-delivery", "b".parse().unwrap());
    instance.send(twice).await.assert_problem(400, "key-invalid");
}

async fn the_body_is_compared_unless_its_fields_are_the_key(store: Store) {
    for (at, sources) in
        [["header:idempotency-key", "fields:/a,/b"], ["fields:/a,/b", "header:idempotency-key"]]
            .iter()
            .enumerate()
    {
        let upstream = Upstream::counting();
        let route = Route { fingerprint: FingerprintRule::Standard, ..keyed_by(sources) };
        let instance = Instance::new(&store, route, &upstream).await;
        let key = format!("k{at}");
        // The body has neither field, so the header is used, whichever source is tried first.
        instance.send(post("/events", &key, r#"{"c":1}"#)).await.assert_first(201, "run 1");
        instance.send(post("/events", &key, r#"{"c":1}"#)).await.assert_replay(201, "run 1");
        instance.send(post("/events", &key, r#"{"c":2}"#)).await.assert_problem(422, "key-reused");
        let event = |number: i32| unkeyed(&format!(r#"{{"a":{at},"b":2,"id":{number}}}"#));
        instance.send(event(1)).await.assert_first(201, "run 2");
        instance.send(event(2)).await.assert_replay(201, "run 2");
    }
}

/// A browser's request carries cookies. Without a key, there is no response that another user could get.
async fn an_optional_key_may_be_missing_without_a_tenant(store: Store) {
    let upstream = Upstream::counting();
    let route = Route { required: false, ..keyed_by(&["json:/id"]) };
    let rules = Rules { tenant: Tenant::Header(http::header::AUTHORIZATION), ..rules(route) };
    let instance = Instance::of(store.ledger().await, rules, &upstream);
    let with_cookie = |content: &str| {
        let mut request = unkeyed(content);
        request.headers_mut().insert("cookie", "sid=1".parse().unwrap());
        request
    };
    instance.send(with_cookie("{}")).await.assert_first(201, "run 1");
    instance.send(with_cookie(r#"{"id":"k"}"#)).await.assert_problem(400, "tenant-unknown");
    assert_eq!(upstream.runs(), 1);
}
