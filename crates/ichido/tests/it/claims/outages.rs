//! A table that throttles, goes away and comes back, between two instances: real processes on a real server, each behind
//! a proxy of the test's.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::lossy_proxy::{Fault, Proxy};
use super::{check, check_one, claim, granted, metric, say};
use crate::ok;
use crate::serving::Serving;
use crate::support::eventually;

/// An instance, and what stands between it and the table.
struct Instance {
    claims: Serving,
    proxy: Proxy,
}

struct Table {
    dir: tempfile::TempDir,
    server: SocketAddr,
    name: String,
}

impl Table {
    fn make() -> Self {
        let url = std::env::var("ICHIDO_TEST_DYNAMODB_URL")
            .expect("ICHIDO_TEST_DYNAMODB_URL: run `cargo xtask test`");
        let url: url::Url = url.parse().unwrap();
        let server = url.socket_addrs(|| None).unwrap()[0];
        let nonce = ichido_core::Nonce::draw(&ichido_core::SystemEntropy);
        let table = Self { dir: tempfile::tempdir().unwrap(), server, name: format!("t-{nonce}") };
        ok(table.dir.path(), &["ledger", "init", "--ledger", &table.url(server)]);
        table
    }

    fn url(&self, at: SocketAddr) -> String {
        format!("dynamodb://{}?region=us-east-1&endpoint=http://{at}", self.name)
    }

    fn instance(&self, timeout_ms: &str, pause_seconds: &str) -> Instance {
        self.started(Serving::claims_with, timeout_ms, pause_seconds)
    }

    fn started(
        &self,
        start: fn(&Path, &str, &[(&str, &str)]) -> Serving,
        timeout_ms: &str,
        pause_seconds: &str,
    ) -> Instance {
        let proxy = Proxy::start(self.server);
        let variables =
            [("ICHIDO_LEDGER_TIMEOUT_MS", timeout_ms), ("ICHIDO_LEDGER_FALLBACK_SECONDS", pause_seconds)];
        let claims = start(self.dir.path(), &self.url(proxy.addr()), &variables);
        Instance { claims, proxy }
    }
}

impl Instance {
    /// The server says that there is no such table.
    fn lose_table(&self) {
        let body =
            r#"{"__type":"com.amazonaws.dynamodb.v20120810#ResourceNotFoundException","message":"gone"}"#;
        let (to, times, body) = ("DynamoDB_20120810", usize::MAX, body.to_owned());
        self.proxy.set(Fault::Answer { to, times, status: 400, body });
    }

    fn recovered(&self) {
        self.claims.says("primary ledger available again");
    }

    fn count(&self, name: &str) -> f64 {
        metric(&self.claims, name, "")
    }
}

#[test]
fn throttling_is_retried() {
    let table = Table::make();
    let one = table.instance("5000", "60");
    let body = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"slow"}"#;
    one.proxy.set(Fault::Answer { to: "PutItem", times: 4, status: 400, body: body.to_owned() });
    assert_eq!(check_one(&one.claims, "E"), (true, false));
    assert_eq!(one.proxy.faults(), 4);
    assert!(metric(&one.claims, "ichido_ledger_retries_total", "dynamodb") >= 4.0);
    assert_eq!(check_one(&one.claims, "E"), (false, false));
}

#[test]
fn results_are_degraded_during_an_outage_and_handed_over_after_it() {
    let table = Table::make();
    let (one, other) = (table.instance("1500", "1"), table.instance("1500", "1"));
    assert_eq!(check_one(&one.claims, "before"), (true, false));
    one.lose_table();
    assert_eq!(check_one(&one.claims, "before"), (false, true), "what it knew, it still knows");
    assert_eq!(check_one(&one.claims, "during"), (true, true));
    assert_eq!(check_one(&one.claims, "during"), (false, true), "new once, also now");
    assert_eq!(check_one(&one.claims, "both"), (true, true));
    assert_eq!(check_one(&other.claims, "both"), (true, false), "the price, and it is counted");
    assert_eq!((one.count("ichido_ledger_degraded"), other.count("ichido_ledger_degraded")), (1.0, 0.0));
    assert_eq!(one.count("ichido_events_degraded_total"), 4.0);
    assert!(metric(&one.claims, "ichido_ledger_errors_total", "dynamodb") >= 1.0);
    assert_eq!(one.claims.get("/readyz").status, 503);
    one.claims.says("primary ledger unavailable");

    // Nobody asks anything, and it is told all the same.
    one.proxy.set(Fault::None);
    one.recovered();
    let said = one.claims.stderr();
    let back: Value = serde_json::from_str(
        said.lines().find(|line| line.contains("primary ledger available again")).unwrap(),
    )
    .unwrap();
    assert_eq!(
        (&back["level"], &back["written_back"], &back["conflicts"]),
        (&json!("WARN"), &json!(1), &json!(1)),
        "{back}"
    );
    assert_eq!(
        (one.count("ichido_ledger_conflicts_total"), one.count("ichido_ledger_written_back_total")),
        (1.0, 1.0)
    );
    assert_eq!(one.count("ichido_ledger_degraded"), 0.0);
    assert_eq!(check_one(&other.claims, "during"), (false, false), "the other instance sees it");
    for key in ["before", "during", "both"] {
        assert_eq!(check_one(&one.claims, key), (false, false), "{key}");
    }
    assert_eq!(check_one(&one.claims, "after"), (true, false));
    let lines: Vec<Value> = said
        .lines()
        .filter(|line| line.contains("Deduplication check"))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let modes: Vec<_> = lines.iter().map(|line| line["fallbackMode"].as_bool().unwrap()).collect();
    assert_eq!(modes, [false, true, true, true, true]);
    assert!(lines.iter().all(|line| line["dynamodbLatency"].is_number()), "{lines:?}");
}

#[test]
fn daemon_with_the_claim_api_falls_back_too() {
    let table = Table::make();
    std::fs::write(table.dir.path().join("ichido.toml"), "[meter]\nlisten = \"127.0.0.1:0\"\n").unwrap();
    let one = table.started(Serving::daemon, "1500", "1");
    assert_eq!(check_one(&one.claims, "before"), (true, false));
    one.lose_table();
    assert_eq!(check_one(&one.claims, "before"), (false, true));
    assert_eq!(check_one(&one.claims, "during"), (true, true));
    one.proxy.set(Fault::None);
    one.recovered();
    assert_eq!(check_one(&one.claims, "during"), (false, false));
}

#[test]
fn claim_granted_in_an_outage_is_completed_and_handed_over() {
    let table = Table::make();
    let (one, other) = (table.instance("1500", "1"), table.instance("1500", "1"));
    one.proxy.set(Fault::Refuse);
    let first = claim(&one.claims, json!({"key": "K"}));
    assert_eq!((first.status, &first.json()["degraded"]), (201, &json!(true)), "{first:?}");
    let held = claim(&one.claims, json!({"key": "K"}));
    assert_eq!((held.status, held.problem().as_str()), (409, "in-flight"));
    let done = json!({"key": "K", "token": first.json()["token"], "outcome": {"id": 17}});
    assert_eq!(say(&one.claims, "complete", done).status, 200);
    one.proxy.set(Fault::None);
    one.recovered();
    let there = claim(&other.claims, json!({"key": "K"}));
    assert_eq!((there.status, there.body.as_str()), (200, r#"{"state":"done","outcome":{"id":17}}"#));
}

/// A claim of the primary's cannot be settled while it is out: nobody may say that it was.
#[test]
fn completion_that_cannot_be_recorded_is_not_acknowledged() {
    let table = Table::make();
    let one = table.instance("1500", "1");
    let token = granted(&one.claims, json!({"key": "K"}));
    one.proxy.set(Fault::Refuse);
    let done = json!({"key": "K", "token": token, "outcome": 1});
    let answer = say(&one.claims, "complete", done.clone());
    assert_eq!((answer.status, answer.problem().as_str()), (503, "ledger-unavailable"));
    assert!(answer.head.contains("retry-after: 1"), "{answer:?}");
    one.proxy.set(Fault::None);
    assert_eq!(say(&one.claims, "complete", done).status, 200);
}

/// The table comes and goes while many callers ask: no instance calls an event new twice.
#[test]
fn one_instance_reports_an_event_as_new_once() {
    let table = Table::make();
    let one = table.instance("1000", "1");
    let (news, over) = (Mutex::new(HashMap::<String, usize>::new()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for caller in 0..6_usize {
            let (one, news, over) = (&one, &news, &over);
            scope.spawn(move || {
                for turn in 0.. {
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                    // Everyone asks for the same keys, from different places on.
                    let keys: Vec<_> = (0..5)
                        .map(|step| format!("E{}", (turn * 5 + step + caller * 3) % 150 + turn / 30 * 150))
                        .collect();
                    let events = keys.iter().map(|key| json!({"key": key})).collect();
                    for result in check(&one.claims, events) {
                        if result["is_new"] == true {
                            let key = result["key"].as_str().unwrap().to_owned();
                            *news.lock().unwrap().entry(key).or_default() += 1;
                        }
                    }
                }
            });
        }
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(300));
            one.proxy.set(Fault::Refuse);
            eventually("the outage", || (one.count("ichido_ledger_degraded") == 1.0).then_some(()));
            std::thread::sleep(Duration::from_millis(200));
            one.proxy.set(Fault::None);
            eventually("the recovery", || (one.count("ichido_ledger_degraded") == 0.0).then_some(()));
        }
        std::thread::sleep(Duration::from_millis(200));
        over.store(true, Ordering::SeqCst);
    });
    let news = news.into_inner().unwrap();
    let twice: Vec<_> = news.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert!(news.len() >= 150, "{}", news.len());
    assert!(one.count("ichido_ledger_outages_total") >= 2.0);
    assert!(one.count("ichido_events_degraded_total") > 0.0);
    // A mark whose reply was cut may lie in the table under the name of a call that was answered "seen" in the end. Nobody
    // can tell it from another instance's, so it is counted; there is one such call per caller and outage at most.
    assert!(one.count("ichido_ledger_conflicts_total") <= 60.0);
}

#[test]
fn results_of_an_outage_are_handed_over_before_exit() {
    let table = Table::make();
    let (mut one, mut other) = (table.instance("1500", "600"), table.instance("1500", "600"));
    for instance in [&one, &other] {
        instance.proxy.set(Fault::Refuse);
    }
    assert_eq!(check_one(&one.claims, "E"), (true, true));
    assert_eq!(check_one(&other.claims, "F"), (true, true));
    one.proxy.set(Fault::None);
    for instance in [&mut one, &mut other] {
        instance.claims.signal();
        assert_eq!(instance.claims.exit_code(), 0, "{}", instance.claims.stderr());
    }
    assert!(one.claims.stderr().contains("primary ledger available again"), "{}", one.claims.stderr());
    let said = other.claims.stderr();
    assert!(said.contains("\"pending\":1"), "it could not be told, and that is said: {said}");
    let third = table.instance("1500", "1");
    assert_eq!(
        (check_one(&third.claims, "E"), check_one(&third.claims, "F")),
        ((false, false), (true, false))
    );
}
