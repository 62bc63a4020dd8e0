//! What the gateway is for: a retry gets the same order, another body 422, a concurrent retry 409, a missing key 400.

use std::sync::Barrier;

use crate::support::http::{get, post, send, try_send};
use crate::support::{Gateway, Orders, eventually};

fn with_gateway(settings: &str, test: impl FnOnce(&Gateway, &Orders)) {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let gateway = Gateway::start(dir.path(), orders.address, "file:ledger", settings);
    test(&gateway, &orders);
}

#[test]
fn a_retry_gets_the_same_order() {
    with_gateway("", |gateway, orders| {
        let first = post(gateway.address, "/orders", "\"k1\"", r#"{"qty":2}"#);
        assert_eq!(first.status, 201, "{first:?}");
        assert!(!first.is_replay());
        assert_eq!(first.header("idempotency-key-lifetime"), Some("86400"));
        assert!(first.header("set-cookie").is_some());
        let again = post(gateway.address, "/orders", "k1", r#"{"qty":2}"#);
        assert_eq!((again.status, &again.body, again.is_replay()), (201, &first.body, true));
        assert_eq!(again.header("location"), first.header("location"));
        let many: Vec<_> = again
            .headers
            .iter()
            .filter(|(name, _)| name == "x-many")
            .map(|(_, value)| value.as_str())
            .collect();
        assert_eq!(many, ["one", "two"]);
        assert_eq!(again.header("set-cookie"), None);
        assert_eq!(orders.effects().len(), 1);
        assert_eq!(orders.effects()[0]["key"], "\"k1\"", "the caller's key is forwarded unchanged");
    });
}

#[test]
fn another_quantity_under_the_same_key_is_refused() {
    with_gateway("", |gateway, orders| {
        let first = post(gateway.address, "/orders", "\"k1\"", r#"{"qty":2}"#);
        let other = post(gateway.address, "/orders", "\"k1\"", r#"{"qty":3}"#);
        assert_eq!((other.status, other.problem().as_str()), (422, "key-reused"));
        let again = post(gateway.address, "/orders", "\"k1\"", r#"{"qty":2}"#);
        assert_eq!((again.status, &again.body), (201, &first.body));
        assert_eq!(orders.effects().len(), 1);
    });
}

#[test]
fn a_concurrent_retry_conflicts_and_another_body_is_a_mismatch() {
    with_gateway("", |gateway, orders| {
        let slow = [("Idempotency-Key", "\"k1\""), ("X-Trouble", "sleep=1.5")];
        std::thread::scope(|scope| {
            let first = scope.spawn(|| send(gateway.address, "POST", "/orders", &slow, b"{}"));
            orders.started("\"k1\"");
            let retry = post(gateway.address, "/orders", "\"k1\"", "{}");
            assert_eq!(
                (retry.status, retry.problem().as_str(), retry.header("retry-after")),
                (409, "in-flight", Some("1"))
            );
            assert_eq!(post(gateway.address, "/orders", "\"k1\"", "{\"qty\":9}").status, 422);
            assert_eq!(first.join().unwrap().status, 201);
        });
        assert!(post(gateway.address, "/orders", "\"k1\"", "{}").is_replay());
        assert_eq!(orders.effects().len(), 1);
    });
}

#[test]
fn a_request_without_a_key_is_refused_with_a_reason() {
    with_gateway("", |gateway, orders| {
        let missing = send(gateway.address, "POST", "/orders", &[], b"{}");
        assert_eq!((missing.status, missing.problem().as_str()), (400, "key-missing"));
        assert_eq!(missing.header("link"), Some("</.well-known/idempotency>; rel=\"describedby\""));
        let rules = get(gateway.address, "/.well-known/idempotency").json();
        assert_eq!(rules["operations"][0]["required"], true, "{rules}");
        assert!(orders.effects().is_empty());
    });
}

#[test]
fn invalid_keys_do_not_reach_the_upstream() {
    with_gateway("", |gateway, orders| {
        let long = format!("\"{}\"", "k".repeat(256));
        for key in ["", "\"\"", "\"open", "a b", "a,b", "\"\u{e9}\"", long.as_str()] {
            let answer = post(gateway.address, "/orders", key, "{}");
            assert_eq!((answer.status, answer.problem().as_str()), (400, "key-invalid"), "{key:?}");
        }
        let two = [("Idempotency-Key", "\"a\""), ("Idempotency-Key", "\"a\"")];
        let answer = send(gateway.address, "POST", "/orders", &two, b"{}");
        assert_eq!((answer.status, answer.problem().as_str()), (400, "key-invalid"));
        assert!(orders.effects().is_empty());
    });
}

#[test]
fn concurrent_requests_make_one_order() {
    for (in_flight, statuses) in [("conflict", &[201, 409][..]), ("wait", &[201][..])] {
        let settings = format!("[[gateway.routes]]\nin_flight = \"{in_flight}\"\nwait_ms = 30000\n");
        with_gateway(&settings, |gateway, orders| {
            let (callers, start) = (64, Barrier::new(64));
            let headers = [("Idempotency-Key", "\"k1\""), ("X-Trouble", "sleep=0.3")];
            let answers: Vec<_> = std::thread::scope(|scope| {
                let asked: Vec<_> = (0..callers)
                    .map(|_| {
                        scope.spawn(|| {
                            start.wait();
                            send(gateway.address, "POST", "/orders", &headers, b"{}")
                        })
                    })
                    .collect();
                asked.into_iter().map(|asked| asked.join().unwrap()).collect()
            });
            assert_eq!(orders.effects().len(), 1, "{in_flight}");
            assert!(answers.iter().all(|answer| statuses.contains(&answer.status)), "{in_flight}");
            assert_eq!(
                answers.iter().filter(|answer| answer.status == 201 && !answer.is_replay()).count(),
                1
            );
        });
    }
}

#[test]
fn another_path_query_method_or_tenant_is_another_order() {
    with_gateway("[gateway]\ntenant = \"header:Authorization\"\n", |gateway, orders| {
        let key = ("Idempotency-Key", "\"k1\"");
        for (method, path, authorization) in [
            ("POST", "/orders", "Bearer a"),
            ("POST", "/orders", "Bearer b"),
            ("POST", "/orders?x=1", "Bearer a"),
            ("POST", "/orders/", "Bearer a"),
            ("PATCH", "/orders", "Bearer a"),
        ] {
            let answer = send(gateway.address, method, path, &[key, ("Authorization", authorization)], b"{}");
            assert!(
                answer.status == 201 && !answer.is_replay(),
                "{method} {path} {authorization}: {answer:?}"
            );
        }
        assert_eq!(orders.effects().len(), 5);
        let cookies = send(gateway.address, "POST", "/orders", &[key, ("Cookie", "sid=1")], b"{}");
        assert_eq!((cookies.status, cookies.problem().as_str()), (400, "tenant-unknown"));
    });
}

/// By default there is one effect for each key, whatever token the caller uses, even after a crash.
#[test]
fn a_refreshed_token_is_not_another_order() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let order = |gateway: &Gateway, key, token| {
        let fields = [("Idempotency-Key", key), ("Authorization", token)];
        send(gateway.address, "POST", "/orders", &fields, b"{}")
    };
    let mut gateway = Gateway::start(dir.path(), orders.address, "file:ledger", "");
    let caution = "callers who can guess each other's keys can block each other";
    eventually("the rule in force", || gateway.process.stderr().contains(caution).then_some(()));
    let first = order(&gateway, "\"k1\"", "Bearer a");
    let slow = [("Idempotency-Key", "\"k2\""), ("Authorization", "Bearer a"), ("X-Trouble", "sleep=60")];
    let address = gateway.address;
    let client = std::thread::spawn(move || try_send(address, "POST", "/orders", &slow, b"{}"));
    orders.started("\"k2\"");
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
    assert_eq!(order(&gateway, "\"k2\"", "Bearer a").problem(), "in-doubt");
    let metrics = get(gateway.admin, "/metrics").text();
    let line = "ichido_requests_total{route=\"POST,PATCH /**\",outcome=\"caller-changed\"} 2";
    assert!(metrics.contains(line), "{metrics}");
}

#[test]
fn responses_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let mut gateway = Gateway::start(dir.path(), orders.address, "file:ledger", "");
    let first = post(gateway.address, "/orders", "\"k1\"", "{}");
    gateway.process.kill();
    let gateway = Gateway::start(dir.path(), orders.address, "file:ledger", "");
    let again = post(gateway.address, "/orders", "\"k1\"", "{}");
    assert_eq!((again.is_replay(), &again.body), (true, &first.body));
    assert_eq!(orders.effects().len(), 1);
}
