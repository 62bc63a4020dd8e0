//! A request whose effect is unknown is in doubt, and an operator can resolve it while the gateway runs.

use ichido_testkit::http_client::{Response, get, send};
use ichido_testkit::orders::Orders;
use ichido_testkit::wait::eventually;

use super::start;
use crate::support::Gateway;

fn order(gateway: &Gateway, key: &str, trouble: &str) -> Response {
    let headers = [("Idempotency-Key", key), ("X-Trouble", trouble)];
    send(gateway.address, "POST", "/orders", &headers, b"{}")
}

#[test]
fn a_lost_response_is_in_doubt_until_an_operator_resolves_it() {
    let (dir, orders, gateway) = start("");
    let ledger = |args: &[&str]| {
        crate::ok(dir.path(), &[&["ledger"][..], args, &["--ledger", "file:ledger"]].concat())
    };
    for (key, trouble) in [("lost", "cut"), ("half", "half"), ("gateway", "status=502")] {
        let first = order(&gateway, key, trouble);
        assert_eq!(first.status, 502, "{trouble}: {first:?}");
        let again = order(&gateway, key, "");
        assert_eq!((again.status, again.problem().as_str()), (409, "in-doubt"), "{trouble}");
    }
    assert_eq!(orders.effects().len(), 3);
    let listed = ledger(&["list", "--state", "in-doubt"]);
    assert!(["lost", "half", "gateway"].iter().all(|key| listed.contains(key)), "{listed}");

    ledger(&["resolve", "lost", "--as", "done", "--outcome", r#"{"orderId":"O-1"}"#]);
    let resolved = order(&gateway, "lost", "");
    assert_eq!(
        (resolved.status, resolved.is_replay(), &resolved.json()["orderId"]),
        (200, true, &"O-1".into())
    );
    ledger(&["resolve", "half", "--as", "absent"]);
    assert_eq!(order(&gateway, "half", "").status, 201);
    ledger(&["resolve", "gateway", "--as", "done"]);
    let kept = order(&gateway, "gateway", "");
    assert_eq!((kept.status, kept.problem().as_str()), (409, "answer-not-kept"));
    assert_eq!(orders.effects().len(), 4);
}

#[test]
fn a_request_that_timed_out_runs_again_if_its_route_says_so() {
    let (_dir, orders, gateway) =
        start("[[gateway.routes]]\nin_doubt = \"retry\"\nupstream_timeout_ms = 1000\n");
    let first = order(&gateway, "k", "hang");
    assert_eq!((first.status, first.problem().as_str()), (504, "upstream-timeout"));
    let second =
        eventually("the second run", || Some(order(&gateway, "k", "")).filter(|answer| answer.status == 201));
    assert!(!second.is_replay());
    let effects = orders.effects();
    assert_eq!(effects.len(), 2);
    assert_eq!((&effects[0]["attempt"], &effects[1]["attempt"]), (&serde_json::Value::Null, &"2".into()));
    assert!(order(&gateway, "k", "").is_replay());
}

#[test]
fn an_unreachable_upstream_releases_the_key() {
    let (dir, mut orders, gateway) = start("");
    let port = orders.address.port();
    orders.process.kill();
    for unreachable in [order(&gateway, "k", ""), get(gateway.address, "/x")] {
        assert_eq!((unreachable.status, unreachable.problem().as_str()), (502, "upstream-unreachable"));
    }
    let orders = Orders::start_at(dir.path(), port);
    assert_eq!(order(&gateway, "k", "").status, 201);
    assert_eq!(orders.effects().len(), 1);
}
