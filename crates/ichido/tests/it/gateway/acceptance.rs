//! What the gateway is for: a retry gets the response of the first request, and there is one order.

use ichido_testkit::http_client::{get, post, send, try_send};

use super::start;
use crate::support::Gateway;

#[test]
fn a_retry_gets_the_same_order() {
    let (_dir, orders, gateway) = start("");
    let first = post(gateway.address, "/orders", "\"k1\"", r#"{"qty":2}"#);
    assert_eq!(first.status, 201, "{first:?}");
    assert!(!first.is_replay());
    assert_eq!(first.header("idempotency-key-lifetime"), Some("86400"));
    assert!(first.header("set-cookie").is_some());
    let again = post(gateway.address, "/orders", "k1", r#"{"qty":2}"#);
    assert_eq!((again.status, &again.body, again.is_replay()), (201, &first.body, true));
    assert_eq!(again.header("location"), first.header("location"));
    let many = again.headers.iter().filter(|(name, _)| name == "x-many").map(|(_, value)| value.as_str());
    assert_eq!(many.collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(again.header("set-cookie"), None);
    assert_eq!(orders.effects().len(), 1);
    assert_eq!(orders.effects()[0]["key"], "\"k1\"", "the caller's key is forwarded unchanged");
}

/// By default there is one effect for each key, whatever token the caller uses.
#[test]
fn a_killed_gateway_replays_what_was_done_and_repeats_nothing() {
    let (dir, orders, mut gateway) = start("");
    let order = |gateway: &Gateway, key, token| {
        let headers = [("Idempotency-Key", key), ("Authorization", token)];
        send(gateway.address, "POST", "/orders", &headers, b"{}")
    };
    gateway.process.wait_for_stderr("callers who can guess each other's keys can block each other");
    let first = order(&gateway, "\"k1\"", "Bearer a");
    let slow = [("Idempotency-Key", "\"k2\""), ("Authorization", "Bearer a"), ("X-Trouble", "sleep=60")];
    let address = gateway.address;
    let client = std::thread::spawn(move || try_send(address, "POST", "/orders", &slow, b"{}"));
    orders.wait_for_start("\"k2\"");
    let other = order(&gateway, "\"k2\"", "Bearer b");
    assert_eq!((other.status, other.problem().as_str()), (409, "caller-changed"), "it runs");
    gateway.process.kill();
    assert!(client.join().unwrap().is_err());
    let gateway = Gateway::start(dir.path(), orders.address, "file:ledger", "");
    for key in ["\"k1\"", "\"k2\""] {
        let other = order(&gateway, key, "Bearer b");
        assert_eq!((other.status, other.problem().as_str()), (409, "caller-changed"), "{key}");
    }
    let again = order(&gateway, "\"k1\"", "Bearer a");
    assert_eq!((again.is_replay(), &again.body), (true, &first.body));
    let interrupted = order(&gateway, "\"k2\"", "Bearer a");
    assert_eq!((interrupted.status, interrupted.problem().as_str()), (409, "in-doubt"));
    assert_eq!(orders.effects().len(), 1);
    let in_doubt = ["ledger", "list", "--state", "in-doubt", "--ledger", "file:ledger"];
    assert!(crate::ok(dir.path(), &in_doubt).contains("\n1 claim\n"));
    let metrics = get(gateway.admin, "/metrics").text();
    let line = "ichido_requests_total{route=\"POST,PATCH /**\",outcome=\"caller-changed\"} 2";
    assert!(metrics.contains(line), "{metrics}");
}
