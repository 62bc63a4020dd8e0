//! The ledger crashes after the effect: the client gets the real response, and the completion is not lost.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use crate::support::http::{get, post, send, try_send};
use crate::support::{Gateway, Orders, Process, eventually};

/// A Redis server that loses nothing when it is killed.
pub(super) struct Redis {
    pub(super) process: Process,
    pub(super) port: u16,
}

impl Redis {
    pub(super) fn start(dir: &Path, port: u16) -> Self {
        let program = std::env::var("ICHIDO_TEST_REDIS_SERVER")
            .expect("ICHIDO_TEST_REDIS_SERVER: run `cargo xtask test`");
        let mut command = Command::new(program);
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--dir"]).arg(dir);
        command.args(["--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction"]);
        let process = Process::start(&mut command);
        eventually("redis", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        Self { process, port }
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

struct Case {
    dir: tempfile::TempDir,
    orders: Orders,
    redis: Redis,
    gateway: Gateway,
}

const SETTINGS: &str = "[ledger]\ntimeout_ms = 1000\n[[gateway.routes]]\nlease_ms = 2000\n";

fn start() -> Case {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let redis = Redis::start(dir.path(), port);
    let gateway = Gateway::start(dir.path(), orders.address, &redis.url(), SETTINGS);
    Case { dir, orders, redis, gateway }
}

impl Case {
    /// Sends a request during which the ledger crashes: after the claim, before the completion.
    fn order_while_the_ledger_crashes(&mut self) -> crate::support::http::Response {
        let (address, slow) =
            (self.gateway.address, [("Idempotency-Key", "\"k\""), ("X-Trouble", "sleep=0.5")]);
        let client = std::thread::spawn(move || send(address, "POST", "/orders", &slow, b"{}"));
        self.orders.started("\"k\"");
        self.redis.process.kill();
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
    assert_eq!(post(case.gateway.address, "/orders", "\"k\"", "{\"other\":1}").status, 422);
    let new = post(case.gateway.address, "/orders", "\"new\"", "{}");
    assert_eq!((new.status, new.problem().as_str()), (503, "ledger-unavailable"));

    case.redis = Redis::start(case.dir.path(), case.redis.port);
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
    case.redis = Redis::start(case.dir.path(), case.redis.port);
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
    let (address, slow) = (case.gateway.address, [("Idempotency-Key", "\"k\""), ("X-Trouble", "sleep=0.5")]);
    let client = std::thread::spawn(move || try_send(address, "POST", "/orders", &slow, b"{}"));
    case.orders.started("\"k\"");
    // The ledger hangs: the effect happens, but its completion cannot be recorded.
    case.redis.process.signal("STOP");
    eventually("the effect", || (case.orders.effects().len() == 1).then_some(()));
    case.gateway.process.kill();
    assert!(client.join().unwrap().is_err());
    case.redis.process.signal("CONT");
    case.gateway = Gateway::start(case.dir.path(), case.orders.address, &case.redis.url(), SETTINGS);
    let again = eventually("the end of the lease", || {
        Some(post(case.gateway.address, "/orders", "\"k\"", "{}"))
            .filter(|answer| answer.problem() != "in-flight")
    });
    assert_eq!((again.status, again.problem().as_str()), (409, "in-doubt"));
    assert_eq!(case.orders.effects().len(), 1);
}
