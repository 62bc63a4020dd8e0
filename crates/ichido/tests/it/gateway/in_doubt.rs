//! A request whose effect is unknown is in doubt, and an operator can resolve it while the gateway runs.

use std::process::Command;

use crate::support::http::{post, send};
use crate::support::{Gateway, Orders, eventually};

struct Case {
    dir: tempfile::TempDir,
    orders: Orders,
    gateway: Gateway,
}

fn start(settings: &str) -> Case {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let gateway = Gateway::start(dir.path(), orders.address, "file:ledger", settings);
    Case { dir, orders, gateway }
}

impl Case {
    fn post(&self, key: &str, trouble: &str) -> crate::support::http::Response {
        send(
            self.gateway.address,
            "POST",
            "/orders",
            &[("Idempotency-Key", key), ("X-Trouble", trouble)],
            b"{}",
        )
    }

    fn ichido(&self, args: &[&str]) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_ichido"))
            .current_dir(&self.dir)
            .args(args)
            .args(["--ledger", "file:ledger"])
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn a_lost_response_is_in_doubt_until_an_operator_resolves_it() {
    let case = start("");
    for (key, trouble) in [("lost", "cut"), ("half", "half"), ("gateway", "status=502")] {
        let first = case.post(key, trouble);
        assert_eq!(first.status, 502, "{trouble}: {first:?}");
        let again = case.post(key, "");
        assert_eq!((again.status, again.problem().as_str()), (409, "in-doubt"), "{trouble}");
    }
    assert_eq!(case.orders.effects().len(), 3);
    let listed = case.ichido(&["ledger", "list", "--state", "in-doubt"]);
    assert!(["lost", "half", "gateway"].iter().all(|key| listed.contains(key)), "{listed}");

    case.ichido(&["ledger", "resolve", "lost", "--as", "done", "--outcome", r#"{"orderId":"O-1"}"#]);
    let resolved = case.post("lost", "");
    assert_eq!(
        (resolved.status, resolved.is_replay(), &resolved.json()["orderId"]),
        (200, true, &"O-1".into())
    );
    case.ichido(&["ledger", "resolve", "half", "--as", "absent"]);
    assert_eq!(case.post("half", "").status, 201);
    case.ichido(&["ledger", "resolve", "gateway", "--as", "done"]);
    let kept = case.post("gateway", "");
    assert_eq!((kept.status, kept.problem().as_str()), (409, "answer-not-kept"));
    assert_eq!(case.orders.effects().len(), 4);
}

#[test]
fn a_timeout_of_the_upstream_is_in_doubt() {
    let case = start("[[gateway.routes]]\nupstream_timeout_ms = 300\n");
    let first = case.post("k", "hang");
    assert_eq!((first.status, first.problem().as_str()), (504, "upstream-timeout"));
    let again = case.post("k", "");
    assert_eq!((again.status, again.problem().as_str()), (409, "in-doubt"));
    assert_eq!(case.orders.effects().len(), 1);
}

#[test]
fn a_route_that_allows_a_second_run_gets_one_and_the_upstream_is_told() {
    let case = start("[[gateway.routes]]\nin_doubt = \"retry\"\nupstream_timeout_ms = 400\n");
    assert_eq!(case.post("k", "cut").status, 502);
    let answer =
        eventually("the takeover", || Some(case.post("k", "")).filter(|answer| answer.status == 201));
    assert!(!answer.is_replay());
    let effects = case.orders.effects();
    assert_eq!(effects.len(), 2);
    assert_eq!((&effects[0]["attempt"], &effects[1]["attempt"]), (&serde_json::Value::Null, &"2".into()));
    assert_eq!(effects[1]["key"], "k", "the same key is forwarded");
    assert!(case.post("k", "").is_replay());
}

#[test]
fn an_unreachable_upstream_releases_the_key() {
    let mut case = start("");
    let address = case.orders.address;
    case.orders.process.kill();
    let unreachable = case.post("k", "");
    assert_eq!((unreachable.status, unreachable.problem().as_str()), (502, "upstream-unreachable"));
    case.orders = Orders::start_at(case.dir.path(), address.port());
    assert_eq!(case.post("k", "").status, 201);
    assert_eq!(case.orders.effects().len(), 1);
}

#[test]
fn refusals_of_the_upstream_release_the_key_and_its_errors_do_not() {
    let case = start("");
    for status in [401, 403, 408, 425, 429, 503] {
        let key = format!("k{status}");
        assert_eq!(case.post(&key, &format!("status={status}")).status, status);
        assert_eq!(case.post(&key, "").status, 201, "{status}");
    }
    for status in [400, 404, 409, 500, 501] {
        let key = format!("k{status}");
        assert_eq!(case.post(&key, &format!("status={status}")).status, status);
        let again = case.post(&key, "");
        assert_eq!((again.status, again.is_replay()), (status, true));
    }
}

#[test]
fn a_request_interrupted_by_a_kill_is_in_doubt_after_the_restart() {
    let mut case = start("");
    let address = case.gateway.address;
    let slow = [("Idempotency-Key", "\"k\""), ("X-Trouble", "sleep=0.5")];
    let client =
        std::thread::spawn(move || crate::support::http::try_send(address, "POST", "/orders", &slow, b"{}"));
    case.orders.started("\"k\"");
    case.gateway.process.kill();
    assert!(client.join().unwrap().is_err());
    case.gateway = Gateway::start(case.dir.path(), case.orders.address, "file:ledger", "");
    let again = post(case.gateway.address, "/orders", "\"k\"", "{}");
    assert_eq!((again.status, again.problem().as_str()), (409, "in-doubt"));
    eventually("the effect of the interrupted request", || (case.orders.effects().len() == 1).then_some(()));
    assert!(case.ichido(&["ledger", "list", "--state", "in-doubt"]).contains("\n1 claim\n"));
}
