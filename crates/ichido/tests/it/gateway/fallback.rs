//! A Redis outage. Claims that this gateway grants meanwhile are visible here, survive a kill, and reach Redis: no other
//! gateway runs their requests again.

use std::path::Path;

use ichido_testkit::http_client::{Response, get, send, try_send};
use ichido_testkit::orders::Orders;
use ichido_testkit::process::Process;
use ichido_testkit::redis_server::{DURABLE, RedisServer};
use ichido_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::support::{Gateway, gateway_command};

fn settings(fallback: &str) -> String {
    format!(
        "[ledger]\ntimeout_ms = 1000\nfallback = \"{fallback}\"\nfallback_seconds = 1\n\
         [[gateway.routes]]\nmatch = \"POST /orders\"\noutage = \"fallback\"\nserver_errors = \"doubt\"\n"
    )
}

struct Case {
    dir: tempfile::TempDir,
    orders: Orders,
    redis: RedisServer,
}

impl Case {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let orders = Orders::start(dir.path());
        Self { dir, orders, redis: RedisServer::start(DURABLE) }
    }

    fn gateway(&self, dir: &Path, fallback: &str) -> Gateway {
        Gateway::start(dir, self.orders.address, &self.redis.url(), &settings(fallback))
    }
}

fn order(gateway: &Gateway, key: &str, trouble: &str) -> Response {
    let headers = [("Idempotency-Key", key), ("X-Trouble", trouble)];
    send(gateway.address, "POST", "/orders", &headers, b"{}")
}

fn is_in_doubt(answer: &Response) -> bool {
    (answer.status, answer.problem().as_str()) == (409, "in-doubt")
}

/// Lists the claims in doubt. A gateway that has not reached Redis since its restart fails once.
fn in_doubt(gateway: &Gateway) -> Vec<Value> {
    eventually("a list of claims", || {
        let page = get(gateway.admin, "/v1/claims?state=in-doubt").json();
        page["claims"].as_array().cloned()
    })
}

/// Whether an event is new.
fn is_new(gateway: &Gateway, event: &str) -> bool {
    let body = json!({ "events": [{ "key": event }] }).to_string();
    let kind = [("Content-Type", "application/json")];
    let answer = send(gateway.admin, "POST", "/v1/events/check", &kind, body.as_bytes());
    answer.json()["results"][0]["is_new"].as_bool().unwrap_or_else(|| panic!("{answer:?}"))
}

fn metric(gateway: &Gateway, name: &str) -> f64 {
    let text = get(gateway.admin, "/metrics").text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned));
    line.map_or(0.0, |value| value.parse().unwrap())
}

fn wait_until_healthy(gateway: &Gateway) {
    eventually("the recovery", || (metric(gateway, "ichido_ledger_degraded") == 0.0).then_some(()));
}

#[test]
fn a_claim_in_doubt_is_in_doubt_for_every_gateway_after_the_outage() {
    let mut case = Case::start();
    let elsewhere = tempfile::tempdir().unwrap();
    let (one, other) = (case.gateway(case.dir.path(), "memory:"), case.gateway(elsewhere.path(), "memory:"));
    case.redis.kill();
    for key in ["\"a\"", "\"b\""] {
        assert_eq!(order(&one, key, "status=500").status, 500);
        assert!(is_in_doubt(&order(&one, key, "")));
    }
    // An operator of this gateway sees both, and resolves the second as done.
    let admin = one.admin.to_string();
    let listed = crate::ok(case.dir.path(), &["ledger", "list", "--state", "in-doubt", "--admin", &admin]);
    assert!(listed.contains("not in the ledger yet") && listed.contains("2 claims"), "{listed}");
    assert!(in_doubt(&one).iter().all(|claim| claim["local"] == true));
    let stats = crate::ok(case.dir.path(), &["ledger", "stats", "--admin", &admin]);
    assert!(stats.contains("2 claims and 0 marks are not in the ledger yet"), "{stats}");
    crate::ok(
        case.dir.path(),
        &["ledger", "resolve", "b", "--as", "done", "--outcome", "1", "--admin", &admin],
    );

    case.redis.restart();
    wait_until_healthy(&one);
    let there = in_doubt(&other);
    assert_eq!((there.len(), &there[0]["key"], there[0].get("local")), (1, &json!("a"), None), "{there:?}");
    assert!(is_in_doubt(&order(&other, "\"a\"", "")), "it does not run again");
    assert_eq!(order(&other, "\"b\"", "").text(), "1");
    assert_eq!(case.orders.effects().len(), 2);
    assert_eq!(metric(&one, "ichido_ledger_doubts_handed_over_total"), 1.0);
    crate::ok(elsewhere.path(), &["ledger", "resolve", "a", "--as", "absent", "--ledger", &case.redis.url()]);
    assert_eq!(order(&other, "\"a\"", "").status, 201);
}

#[test]
fn a_file_fallback_keeps_pending_handovers_through_a_kill() {
    let mut case = Case::start();
    let elsewhere = tempfile::tempdir().unwrap();
    let mut one = case.gateway(case.dir.path(), "file:fallback");
    case.redis.kill();
    let first = order(&one, "\"done\"", "");
    assert_eq!(first.status, 201);
    assert_eq!(order(&one, "\"doubt\"", "status=500").status, 500);
    assert!(is_new(&one, "event"));
    let (address, slow) = (one.address, [("Idempotency-Key", "\"running\""), ("X-Trouble", "sleep=0.5")]);
    let client = std::thread::spawn(move || try_send(address, "POST", "/orders", &slow, b"{}"));
    case.orders.wait_for_start("\"running\"");
    one.process.kill();
    assert!(client.join().unwrap().is_err());
    eventually("the effect of the interrupted request", || (case.orders.effects().len() == 3).then_some(()));

    // The gateway starts without Redis, and knows everything.
    one = case.gateway(case.dir.path(), "file:fallback");
    let assert_known = |gateway: &Gateway| {
        let again = order(gateway, "\"done\"", "");
        assert_eq!((again.is_replay(), again.text()), (true, first.text()));
        assert!(is_in_doubt(&order(gateway, "\"doubt\"", "")));
        assert!(is_in_doubt(&order(gateway, "\"running\"", "")));
        assert!(!is_new(gateway, "event"));
    };
    assert_known(&one);
    one.process.kill();
    // With Redis, it serves nothing before Redis knows everything.
    case.redis.restart();
    one = case.gateway(case.dir.path(), "file:fallback");
    let other = case.gateway(elsewhere.path(), "file:fallback");
    assert_known(&other);
    assert_known(&one);
    assert_eq!(case.orders.effects().len(), 3);
    assert_eq!(metric(&one, "ichido_ledger_owed"), 0.0);
}

#[test]
fn without_a_durable_fallback_no_gateway_starts_without_redis() {
    let mut case = Case::start();
    case.redis.kill();
    let url = case.redis.url();
    let mut command = gateway_command(case.dir.path(), case.orders.address, &url, &settings("memory:"));
    let mut process = Process::start(&mut command).unwrap();
    assert_eq!(process.exit_code(), 2, "{}", process.stderr());
}
