//! The published rules.

use http::{HeaderValue, Method};
use ichido_http::Rules;
use serde_json::Value;

use crate::support::{Instance, Store, Upstream, get, on_embedded_ledgers, order, route, rules};

on_embedded_ledgers! {
    the_rules_are_published_as_json_and_html,
    each_problem_type_is_a_path_of_the_rules,
    other_requests_to_the_policy_path_reach_the_service,
}

async fn the_rules_are_published_as_json_and_html(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, route(), &upstream).await;
    let json = instance.send(get("/.well-known/idempotency")).await;
    assert_eq!((json.status.as_u16(), json.header("content-type")), (200, Some("application/json")));
    let rules: Value = serde_json::from_slice(&json.body).unwrap();
    assert_eq!(rules["field"], "Idempotency-Key");
    assert_eq!(rules["operations"][0]["match"], "POST,PATCH /**");
    assert_eq!(rules["operations"][0]["required"], true);
    assert_eq!(rules["operations"][0]["remembered_seconds"], 86_400);
    assert_eq!(rules["key"]["max_characters"], 255);

    let mut request = get("/.well-known/idempotency");
    request.headers_mut().insert("accept", HeaderValue::from_static("text/html"));
    let html = instance.send(request).await;
    assert_eq!(html.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(html.text().contains("POST,PATCH /**"));
    assert_eq!(upstream.runs(), 0);
}

async fn each_problem_type_is_a_path_of_the_rules(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, route(), &upstream).await;
    let json = instance.send(get("/.well-known/idempotency")).await;
    let rules: Value = serde_json::from_slice(&json.body).unwrap();
    let types: Vec<_> = rules["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|problem| problem["type"].as_str().unwrap())
        .collect();
    assert!(types.len() >= 14, "{types:?}");
    for path in types {
        assert_eq!(instance.send(get(path)).await.status, 200, "{path}");
    }
    assert_eq!(upstream.runs(), 0);
}

async fn other_requests_to_the_policy_path_reach_the_service(store: Store) {
    let upstream = Upstream::counting();
    let elsewhere = Rules { policy_path: "/rules".to_owned(), ..rules(route()) };
    let instance = Instance::of(store.ledger().await, elsewhere, &upstream);
    instance.send(get("/.well-known/idempotency")).await.assert_first(201, "run 1");
    let mut keyed = order("k");
    *keyed.uri_mut() = "/rules".parse().unwrap();
    instance.send(keyed).await.assert_first(201, "run 2");
    let mut deletion = get("/rules");
    *deletion.method_mut() = Method::DELETE;
    instance.send(deletion).await.assert_first(201, "run 3");
    assert_eq!(instance.send(get("/rules")).await.status, 200);
    assert_eq!(upstream.runs(), 3);
}
