//! Events once: many instances, one ledger, and consumers that are not ours.

mod aws_policies;
mod caller;
mod clients;
mod http_proxy;
mod instance;
mod json_lines_process;
mod many_instances;
mod policy_proxy;
mod sdk_consumer;
mod shared_table;

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use self::caller::Caller;

/// The servers that speak DynamoDB.
const DYNOXIDE: &str = "ICHIDO_TEST_DYNAMODB_URL";
const AMAZON: &str = "ICHIDO_TEST_DYNAMODB_LOCAL_URL";

/// An environment variable that `cargo xtask test` sets.
pub(crate) fn require_env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run `cargo xtask test`"))
}

/// A text that nobody else has.
pub(crate) fn unique() -> String {
    use ichido_core::{Nonce, SystemEntropy};
    Nonce::draw(&SystemEntropy).to_string()
}

fn address(url: &str) -> SocketAddr {
    let url: url::Url = url.parse().unwrap();
    url.socket_addrs(|| None).unwrap()[0]
}

/// A table of the test's own.
fn dynamodb(server: &str) -> String {
    format!("dynamodb://t-{}?region=us-east-1&endpoint={}", unique(), require_env(server))
}

/// A table of one's own: its name, and the server's address.
pub(crate) fn table() -> (String, String) {
    let ledger = created(dynamodb(DYNOXIDE));
    let name = ledger.trim_start_matches("dynamodb://").split('?').next().unwrap().to_owned();
    (name, require_env(DYNOXIDE))
}

fn created(ledger: String) -> String {
    crate::ok(Path::new("."), &["ledger", "init", "--ledger", &ledger]);
    ledger
}

/// Asks whether one event is new.
fn check(caller: &mut Caller, event: Value) -> Value {
    let answer = caller.post("/v1/events/check", &json!({ "events": [event] })).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let result = answer.json()["results"][0].clone();
    assert_eq!(result["degraded"], false, "{result}");
    result
}
