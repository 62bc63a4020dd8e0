//! Two instances share a DynamoDB table that throttles, becomes unavailable and recovers. Both are real processes on a real
//! server, each behind its own proxy.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{check, check_one, claim, granted, metric, update_claim};
use crate::ok;
use crate::serving::Serving;
use ichido_testkit::ledger_server::unique;
use ichido_testkit::required_env;
use ichido_testkit::tcp_proxy::{Fault, TcpProxy};
use ichido_testkit::wait::eventually;

/// An instance, and the proxy between it and the table.
struct Instance {
    claims: Serving,
    proxy: TcpProxy,
}

struct Table {
    dir: tempfile::TempDir,
    server: SocketAddr,
    name: String,
}

impl Table {
    fn create() -> Self {
        let url: url::Url = required_env("ICHIDO_TEST_DYNAMODB_URL").parse().unwrap();
        let server = url.socket_addrs(|| None).unwrap()[0];
        let table = Self { dir: tempfile::tempdir().unwrap(), server, name: format!("t-{}", unique()) };
        ok(table.dir.path(), &["ledger", "init", "--ledger", &table.url(server)]);
        table
    }

    fn url(&self, at: SocketAddr) -> String {
        format!("dynamodb://{}?region=us-east-1&endpoint=http://{at}", self.name)
    }

    fn instance(&self, timeout_ms: &str, pause_seconds: &str) -> Instance {
        self.start_with(Serving::claims_with, timeout_ms, pause_seconds)
    }

    fn start_with(
        &self,
        start: fn(&Path, &str, &[(&str, &str)]) -> Serving,
        timeout_ms: &str,
        pause_seconds: &str,
    ) -> Instance {
        let proxy = TcpProxy::start(self.server);
        let variables =
            [("ICHIDO_LEDGER_TIMEOUT_MS", timeout_ms), ("ICHIDO_LEDGER_FALLBACK_SECONDS", pause_seconds)];
        let claims = start(self.dir.path(), &self.url(proxy.address()), &variables);
        Instance { claims, proxy }
    }
}

impl Instance {
    /// Makes the server report that the table does not exist.
    fn lose_table(&self) {
        let body =
            r#"{"__type":"com.amazonaws.dynamodb.v20120810#ResourceNotFoundException","message":"gone"}"#;
        let (to, times, body) = ("DynamoDB_20120810", usize::MAX, body.to_owned());
        self.proxy.set(Fault::Answer { to, times, status: 400, body });
    }

    fn wait_for_recovery(&self) {
        self.claims.says("primary ledger available again");
    }

    fn count(&self, name: &str) -> f64 {
        metric(&self.claims, name, "")
    }
}

#[test]
fn throttling_is_retried() {
    let table = Table::create();
    let instance = table.instance("5000", "60");
    let body = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"slow"}"#;
    instance.proxy.set(Fault::Answer { to: "PutItem", times: 4, status: 400, body: body.to_owned() });
    assert_eq!(check_one(&instance.claims, "E"), (true, false));
    assert_eq!(instance.proxy.faults(), 4);
    assert!(metric(&instance.claims, "ichido_ledger_retries_total", "dynamodb") >= 4.0);
    assert_eq!(check_one(&instance.claims, "E"), (false, false));
}

#[test]
fn results_are_degraded_during_an_outage_and_handed_over_after_it() {
    let table = Table::create();
    let (instance, other) = (table.instance("1500", "1"), table.instance("1500", "1"));
    assert_eq!(check_one(&instance.claims, "before"), (true, false));
    instance.lose_table();
    assert_eq!(
        check_one(&instance.claims, "before"),
        (false, true),
        "events seen before the outage are still known"
    );
    assert_eq!(check_one(&instance.claims, "during"), (true, true));
    assert_eq!(
        check_one(&instance.claims, "during"),
        (false, true),
        "an event is new once during an outage too"
    );
    assert_eq!(check_one(&instance.claims, "both"), (true, true));
    assert_eq!(
        check_one(&other.claims, "both"),
        (true, false),
        "two instances may both report an event as new; the conflict is counted"
    );
    assert_eq!((instance.count("ichido_ledger_degraded"), other.count("ichido_ledger_degraded")), (1.0, 0.0));
    assert_eq!(instance.count("ichido_events_degraded_total"), 4.0);
    assert!(metric(&instance.claims, "ichido_ledger_errors_total", "dynamodb") >= 1.0);
    assert_eq!(instance.claims.get("/readyz").status, 503);
    instance.claims.says("primary ledger unavailable");

    // The handover needs no request to trigger it.
    instance.proxy.set(Fault::None);
    instance.wait_for_recovery();
    let log = instance.claims.stderr();
    let recovery: Value = serde_json::from_str(
        log.lines().find(|line| line.contains("primary ledger available again")).unwrap(),
    )
    .unwrap();
    assert_eq!(
        (&recovery["level"], &recovery["written_back"], &recovery["conflicts"]),
        (&json!("WARN"), &json!(1), &json!(1)),
        "{recovery}"
    );
    assert_eq!(
        (instance.count("ichido_ledger_conflicts_total"), instance.count("ichido_ledger_written_back_total")),
        (1.0, 1.0)
    );
    assert_eq!(instance.count("ichido_ledger_degraded"), 0.0);
    assert_eq!(check_one(&other.claims, "during"), (false, false), "the other instance sees it");
    for key in ["before", "during", "both"] {
        assert_eq!(check_one(&instance.claims, key), (false, false), "{key}");
    }
    assert_eq!(check_one(&instance.claims, "after"), (true, false));
    let lines: Vec<Value> = log
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
    let table = Table::create();
    std::fs::write(table.dir.path().join("ichido.toml"), "[meter]\nlisten = \"127.0.0.1:0\"\n").unwrap();
    let instance = table.start_with(Serving::daemon, "1500", "1");
    assert_eq!(check_one(&instance.claims, "before"), (true, false));
    instance.lose_table();
    assert_eq!(check_one(&instance.claims, "before"), (false, true));
    assert_eq!(check_one(&instance.claims, "during"), (true, true));
    instance.proxy.set(Fault::None);
    instance.wait_for_recovery();
    assert_eq!(check_one(&instance.claims, "during"), (false, false));
}

#[test]
fn claim_granted_in_an_outage_is_completed_and_handed_over() {
    let table = Table::create();
    let (instance, other) = (table.instance("1500", "1"), table.instance("1500", "1"));
    instance.proxy.set(Fault::Refuse);
    let first = claim(&instance.claims, json!({"key": "K"}));
    assert_eq!((first.status, &first.json()["degraded"]), (201, &json!(true)), "{first:?}");
    let held = claim(&instance.claims, json!({"key": "K"}));
    assert_eq!((held.status, held.problem().as_str()), (409, "in-flight"));
    let done = json!({"key": "K", "token": first.json()["token"], "outcome": {"id": 17}});
    assert_eq!(update_claim(&instance.claims, "complete", done).status, 200);
    instance.proxy.set(Fault::None);
    instance.wait_for_recovery();
    let replay = claim(&other.claims, json!({"key": "K"}));
    assert_eq!((replay.status, replay.text().as_str()), (200, r#"{"state":"done","outcome":{"id":17}}"#));
}

/// A claim that the primary granted cannot be settled while the primary is unavailable, so its completion must fail.
#[test]
fn completion_that_cannot_be_recorded_is_not_acknowledged() {
    let table = Table::create();
    let instance = table.instance("1500", "1");
    let token = granted(&instance.claims, json!({"key": "K"}));
    instance.proxy.set(Fault::Refuse);
    let done = json!({"key": "K", "token": token, "outcome": 1});
    let response = update_claim(&instance.claims, "complete", done.clone());
    assert_eq!((response.status, response.problem().as_str()), (503, "ledger-unavailable"));
    assert_eq!(response.header("retry-after"), Some("1"), "{response:?}");
    instance.proxy.set(Fault::None);
    assert_eq!(update_claim(&instance.claims, "complete", done).status, 200);
}

/// The table fails and recovers while many callers check the same events.
#[test]
fn instance_reports_an_event_as_new_once_across_outages() {
    let table = Table::create();
    let instance = table.instance("1000", "1");
    let (news, stopped) = (Mutex::new(HashMap::<String, usize>::new()), CancellationToken::new());
    std::thread::scope(|scope| {
        // The scope waits for the callers even if an assertion fails.
        let _stop = stopped.clone().drop_guard();
        for caller in 0..6_usize {
            let (instance, news, stopped) = (&instance, &news, &stopped);
            scope.spawn(move || {
                for turn in 0.. {
                    if stopped.is_cancelled() {
                        return;
                    }
                    // All callers check the same keys, each from a different offset.
                    let keys: Vec<_> = (0..5)
                        .map(|step| format!("E{}", (turn * 5 + step + caller * 3) % 150 + turn / 30 * 150))
                        .collect();
                    let events = keys.iter().map(|key| json!({"key": key})).collect();
                    for result in check(&instance.claims, events) {
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
            instance.proxy.set(Fault::Refuse);
            eventually("the outage", || (instance.count("ichido_ledger_degraded") == 1.0).then_some(()));
            std::thread::sleep(Duration::from_millis(200));
            instance.proxy.set(Fault::None);
            eventually("the recovery", || (instance.count("ichido_ledger_degraded") == 0.0).then_some(()));
        }
        std::thread::sleep(Duration::from_millis(200));
    });
    let news = news.into_inner().unwrap();
    let twice: Vec<_> = news.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert!(news.len() >= 150, "{}", news.len());
    assert!(instance.count("ichido_ledger_outages_total") >= 2.0);
    assert!(instance.count("ichido_events_degraded_total") > 0.0);
    // A mark whose response was lost may be in the table under the nonce of a check that finally reported a duplicate. It is
    // indistinguishable from another instance's mark, so it counts as a conflict: at most one check per caller and outage.
    assert!(instance.count("ichido_ledger_conflicts_total") <= 60.0);
}

#[test]
fn results_of_an_outage_are_handed_over_before_exit() {
    let table = Table::create();
    let (mut instance, mut other) = (table.instance("1500", "600"), table.instance("1500", "600"));
    for instance in [&instance, &other] {
        instance.proxy.set(Fault::Refuse);
    }
    assert_eq!(check_one(&instance.claims, "E"), (true, true));
    assert_eq!(check_one(&other.claims, "F"), (true, true));
    instance.proxy.set(Fault::None);
    for instance in [&mut instance, &mut other] {
        instance.claims.signal();
        assert_eq!(instance.claims.exit_code(), 0, "{}", instance.claims.stderr());
    }
    assert!(
        instance.claims.stderr().contains("primary ledger available again"),
        "{}",
        instance.claims.stderr()
    );
    let log = other.claims.stderr();
    assert!(log.contains("\"pending\":1"), "the pending handover must be logged: {log}");
    let third = table.instance("1500", "1");
    assert_eq!(
        (check_one(&third.claims, "E"), check_one(&third.claims, "F")),
        ((false, false), (true, false))
    );
}
