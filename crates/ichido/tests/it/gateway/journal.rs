//! The ledger crashes after the effect: the client gets the real response, and the completion is not lost.

use ichido_testkit::http_client::{Response, get, post, send, try_send};
use ichido_testkit::orders::Orders;
use ichido_testkit::redis_server::{DURABLE, RedisServer};
use ichido_testkit::wait::eventually;

use crate::support::Gateway;

struct Case {
    dir: tempfile::TempDir,
    orders: Orders,
    redis: RedisServer,
    gateway: Gateway,
}

const SETTINGS: &str = "[ledger]\ntimeout_ms = 3000\n[[gateway.routes]]\nlease_ms = 10000\n";

fn start() -> Case {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let redis = RedisServer::start(DURABLE);
    let gateway = Gateway::start(dir.path(), orders.address, &redis.url(), SETTINGS);
    Case { dir, orders, redis, gateway }
}

impl Case {
    /// Sends a request during which the ledger crashes: after the claim, before the completion.
    fn order_while_the_ledger_crashes(&mut self) -> Response {
        let (address, slow) =
            (self.gateway.address, [("Idempotency-Key", "\"k\""), ("X-Trouble", "sleep=2")]);
        let client = std::thread::spawn(move || send(address, "POST", "/orders", &slow, b"{}"));
        self.orders.wait_for_start("\"k\"");
        self.redis.kill();
        client.join().unwrap()
    }

    fn journal_len(&self) -> usize {
        let files = std::fs::read_dir(self.dir.path().join("data/journal")).unwrap();
        files.filter(|file| file.as_ref().unwrap().file_name() != "lock").count()
    }
}

#[test]
fn the_client_gets_the_real_response_and_the_completion_reaches_the_ledger_later() {
    let mut case = start();
    let first = case.order_while_the_ledger_crashes();
    assert_eq!(first.status, 201, "{first:?}");
    assert_eq!(case.journal_len(), 1);
    assert_eq!(get(case.gateway.admin, "/readyz").status, 503);
    let during = post(case.gateway.address, "/orders", "\"k\"", "{}");
    assert_eq!(
        (during.status, &during.body, during.is_replay()),
        (201, &first.body, true),
        "replayed from the journal"
    );
    let new = post(case.gateway.address, "/orders", "\"new\"", "{}");
    assert_eq!((new.status, new.problem().as_str()), (503, "ledger-unavailable"));

    case.redis.restart();
    eventually("an empty journal", || (case.journal_len() == 0).then_some(()));
    eventually("ready again", || (get(case.gateway.admin, "/readyz").status == 200).then_some(()));
    // Another instance, which never saw the first request, replays its response.
    let elsewhere = tempfile::tempdir().unwrap();
    let other = Gateway::start(elsewhere.path(), case.orders.address, &case.redis.url(), SETTINGS);
    let again = post(other.address, "/orders", "\"k\"", "{}");
    assert_eq!((again.is_replay(), &again.body), (true, &first.body));
    assert_eq!(case.orders.effects().len(), 1);
}

#[test]
fn the_journal_survives_a_kill_of_the_gateway() {
    let mut case = start();
    let first = case.order_while_the_ledger_crashes();
    case.gateway.process.kill();
    assert_eq!(case.journal_len(), 1);
    case.redis.restart();
    case.gateway = Gateway::start(case.dir.path(), case.orders.address, &case.redis.url(), SETTINGS);
    eventually("ready", || (get(case.gateway.admin, "/readyz").status == 200).then_some(()));
    assert_eq!(case.journal_len(), 0, "drained before the gateway is ready");
    let again = post(case.gateway.address, "/orders", "\"k\"", "{}");
    assert_eq!((again.is_replay(), &again.body), (true, &first.body));
    assert_eq!(case.orders.effects().len(), 1);
}

#[test]
fn a_shutdown_keeps_the_journal_and_logs_it() {
    let mut case = start();
    case.order_while_the_ledger_crashes();
    case.gateway.process.signal("TERM");
    case.gateway.process.exit_code();
    assert!(
        case.gateway.process.stderr().contains("completion journal is not empty"),
        "{}",
        case.gateway.process.stderr()
    );
    assert_eq!(case.journal_len(), 1);
}

#[test]
fn a_kill_between_the_effect_and_the_completion_is_in_doubt() {
    let mut case = start();
    let (address, slow) = (case.gateway.address, [("Idempotency-Key", "\"k\""), ("X-Trouble", "sleep=2")]);
    let client = std::thread::spawn(move || try_send(address, "POST", "/orders", &slow, b"{}"));
    case.orders.wait_for_start("\"k\"");
    // The ledger hangs: the effect happens, but its completion cannot be recorded.
    case.redis.signal("STOP");
    eventually("the effect", || (case.orders.effects().len() == 1).then_some(()));
    case.gateway.process.kill();
    assert!(client.join().unwrap().is_err());
    case.redis.signal("CONT");
    case.gateway = Gateway::start(case.dir.path(), case.orders.address, &case.redis.url(), SETTINGS);
    let again = eventually("the end of the lease", || {
        Some(post(case.gateway.address, "/orders", "\"k\"", "{}"))
            .filter(|answer| answer.problem() != "in-flight")
    });
    assert_eq!((again.status, again.problem().as_str()), (409, "in-doubt"));
    assert_eq!(case.orders.effects().len(), 1);
}
