//! A real Slack bot behind the gateway: unmodified `@slack/bolt`, which checks signatures itself.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use ichido_testkit::http_client::{Response, send};
use ichido_testkit::process::Process;
use ichido_testkit::required_env;
use ichido_testkit::wait::eventually;
use serde_json::Value;

use super::events::{FILE_SHARE, FILE_SHARED, URL_VERIFICATION, now, signature};
use crate::support::Gateway;

const SECRET: &str = "bolt-signing-secret";
const SETTINGS: &str = "[[gateway.routes]]\npreset = \"slack-events\"\nmatch = \"POST /slack/events\"\n\
                        slack_signing_secret = \"bolt-signing-secret\"\nwait_ms = 30000\n";

/// Whether the bot responds to Slack after or before its work.
const MODES: [&str; 2] = ["before", "after"];

struct Bot {
    process: Process,
    address: SocketAddr,
    log: PathBuf,
}

impl Bot {
    fn start(dir: &Path, mode: &str) -> Self {
        let node = required_env("ICHIDO_TEST_NODE");
        let log = dir.join("handled.log");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/gateway/bolt.js");
        let mut command = Command::new(node);
        command.arg(script).arg(&log).arg(mode).env("NODE_PATH", required_env("ICHIDO_TEST_NODE_MODULES"));
        let mut process = Process::start(&mut command).unwrap();
        let mut line = String::new();
        BufReader::new(process.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port: u16 = line.trim().parse().unwrap_or_else(|_| panic!("bolt.js: {}", process.stderr()));
        Self { process, address: SocketAddr::from(([127, 0, 0, 1], port)), log }
    }

    fn handled(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until the bot has started to handle `count` events.
    fn wait_until_handled(&self, count: usize) {
        eventually("the bot's work", || (self.handled().len() >= count).then_some(()));
    }

    /// Lets the handlers that wait continue.
    fn proceed(&self) {
        std::fs::write(format!("{}.go", self.log.display()), "").unwrap();
    }
}

/// Sends an event as Slack does; `retry` counts its retries.
fn slack(to: SocketAddr, body: &str, retry: usize) -> Response {
    let time = now().to_string();
    let signature = signature(SECRET, &time, body);
    let mut headers = vec![
        ("Content-Type", "application/json"),
        ("X-Slack-Request-Timestamp", time.as_str()),
        ("X-Slack-Signature", signature.as_str()),
    ];
    let number = retry.to_string();
    if retry > 0 {
        headers.extend([("X-Slack-Retry-Num", number.as_str()), ("X-Slack-Retry-Reason", "http_timeout")]);
    }
    send(to, "POST", "/slack/events", &headers, body.as_bytes())
}

fn start(mode: &str) -> (tempfile::TempDir, Bot, Gateway) {
    let dir = tempfile::tempdir().unwrap();
    let bot = Bot::start(dir.path(), mode);
    let gateway = Gateway::start(dir.path(), bot.address, "file:ledger", SETTINGS);
    (dir, bot, gateway)
}

#[test]
fn an_event_that_slack_sends_three_times_is_handled_once() {
    for mode in MODES {
        let (_dir, bot, gateway) = start(mode);
        for (at, event) in [FILE_SHARE, FILE_SHARED].into_iter().enumerate() {
            for retry in 0..3 {
                let answer = slack(gateway.address, event, retry);
                assert_eq!((answer.status, answer.is_replay()), (200, retry > 0), "{mode}: {answer:?}");
            }
            bot.wait_until_handled(at + 1);
        }
        let challenge = slack(gateway.address, URL_VERIFICATION, 0);
        assert_eq!(challenge.json()["challenge"], "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P");
        let ids: Vec<_> = bot.handled().iter().map(|line| line["event_id"].clone()).collect();
        assert_eq!(ids, ["Ev07FILESHARE", "Ev07FILESHARED"], "{mode}");
    }
}

/// The problem is real: without the gateway, the same bot handles each retry.
#[test]
fn without_the_gateway_the_bot_handles_each_retry() {
    let dir = tempfile::tempdir().unwrap();
    let bot = Bot::start(dir.path(), "before");
    (0..3).for_each(|retry| assert_eq!(slack(bot.address, FILE_SHARE, retry).status, 200));
    assert_eq!(bot.handled().len(), 3);
}

#[test]
fn retries_wait_for_a_slow_bot() {
    let (_dir, bot, gateway) = start("before");
    let (address, event) = (gateway.address, FILE_SHARE.replace("見積書です", "wait"));
    let spawn = |retry: usize| {
        let event = event.clone();
        std::thread::spawn(move || slack(address, &event, retry))
    };
    let first = spawn(0);
    bot.wait_until_handled(1);
    let retries = [spawn(1), spawn(2)];
    bot.proceed();
    assert!(!first.join().unwrap().is_replay());
    for retry in retries {
        let answer = retry.join().unwrap();
        assert_eq!((answer.status, answer.is_replay()), (200, true));
    }
    assert_eq!(bot.handled().len(), 1);
}

#[test]
fn a_bot_that_throws_or_crashes_leaves_the_event_in_doubt() {
    let (_dir, mut bot, gateway) = start("before");
    for (trouble, status) in [("throw", 500), ("die", 502)] {
        let event = FILE_SHARE.replace("見積書です", trouble).replace("Ev07FILESHARE", trouble);
        assert_eq!(slack(gateway.address, &event, 0).status, status, "{trouble}");
        let again = slack(gateway.address, &event, 1);
        assert_eq!((again.status, again.problem().as_str()), (409, "in-doubt"), "{trouble}");
    }
    assert_eq!(bot.process.exit_code(), 1);
    assert_eq!(bot.handled().len(), 2, "each was handled once");
}
