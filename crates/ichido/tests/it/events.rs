//! Events are handled once across many instances on one ledger, and together with consumers that do not use ichido.

mod aws_policies;
mod caller;
mod clients;
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
use ichido_testkit::ledger_server::unique;
use ichido_testkit::required_env;

/// Environment variables with the URLs of DynamoDB-compatible servers.
const DYNOXIDE: &str = "ICHIDO_TEST_DYNAMODB_URL";
const AMAZON: &str = "ICHIDO_TEST_DYNAMODB_LOCAL_URL";

fn address(url: &str) -> SocketAddr {
    let url: url::Url = url.parse().unwrap();
    url.socket_addrs(|| None).unwrap()[0]
}

/// The ledger URL of a table with a unique name.
fn dynamodb_url(server: &str) -> String {
    format!("dynamodb://t-{}?region=us-east-1&endpoint={}", unique(), required_env(server))
}

/// Creates a table with a unique name, and returns that name and the URL of the server.
pub(crate) fn create_table() -> (String, String) {
    let ledger = create_ledger(dynamodb_url(DYNOXIDE));
    let name = ledger.trim_start_matches("dynamodb://").split('?').next().unwrap().to_owned();
    (name, required_env(DYNOXIDE))
}

/// Creates the tables of a ledger and returns its URL.
fn create_ledger(ledger: String) -> String {
    crate::ok(Path::new("."), &["ledger", "init", "--ledger", &ledger]);
    ledger
}

/// Checks one event and asserts that the result is not degraded.
fn check(caller: &mut Caller, event: Value) -> Value {
    let response = caller.post("/v1/events/check", &json!({ "events": [event] })).unwrap();
    assert_eq!(response.status, 200, "{}", response.text());
    let result = response.json()["results"][0].clone();
    assert_eq!(result["degraded"], false, "{result}");
    result
}
