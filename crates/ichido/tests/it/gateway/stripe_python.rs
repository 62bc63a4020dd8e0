//! A widely used client with retries enabled: Stripe's library for Python.

use std::net::SocketAddr;
use std::process::Command;

use ichido_testkit::orders::Orders;
use ichido_testkit::required_env;
use serde_json::Value;

use crate::support::Gateway;

const SCRIPT: &str = r#"
import json, sys, stripe
stripe.api_key = "sk_test_once"
stripe.api_base = sys.argv[1]
stripe.max_network_retries = 3
stripe.DEFAULT_HTTP_CLIENT = None
stripe.default_http_client = stripe.RequestsClient()
stripe.default_http_client._sleep_time_seconds = lambda *_: 0.05
ends = []
for number in range(4):
    try:
        ends.append({"id": stripe.Customer.create(name="n%d" % number)["id"]})
    except stripe.StripeError as error:
        ends.append({"error": type(error).__name__, "status": error.http_status})
print(json.dumps(ends))
"#;

/// Tries to create four customers, and returns how each try ended.
fn create_customers(api: SocketAddr) -> Vec<Value> {
    let mut python = Command::new(required_env("ICHIDO_TEST_PYTHON"));
    let output = python.args(["-c", SCRIPT, &format!("http://{api}")]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Creates four customers through the gateway, with this trouble in the upstream for each.
fn customers(trouble: &str) -> (Vec<Value>, Vec<Value>) {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start_with(dir.path(), 0, trouble);
    // The upstream sets a cookie in each response, and this client sends it back on its retry. So the cookie must not
    // identify the caller.
    let settings = "[gateway]\ntenant = \"header:Authorization\"\n";
    let gateway = Gateway::start(dir.path(), orders.address, "file:ledger", settings);
    (create_customers(gateway.address), orders.effects())
}

fn assert_one_effect_each(effects: &[Value]) {
    let mut keys: Vec<_> = effects
        .iter()
        .map(|effect| effect["key"].as_str().expect("the client sends keys").to_owned())
        .collect();
    keys.sort();
    keys.dedup();
    assert_eq!((keys.len(), effects.len()), (4, 4), "{effects:?}");
}

#[test]
fn without_trouble_every_customer_is_created_once() {
    let (ends, effects) = customers("");
    assert!(ends.iter().all(|end| end["id"].as_str().is_some_and(|id| id.starts_with("O-"))), "{ends:?}");
    assert_one_effect_each(&effects);
}

#[test]
fn an_upstream_that_acts_and_drops_the_connection_acts_once() {
    let (ends, effects) = customers("cut");
    assert!(ends.iter().all(|end| end["status"] == 409), "reported as in doubt: {ends:?}");
    assert_one_effect_each(&effects);
}

#[test]
fn an_upstream_that_acts_and_responds_500_acts_once() {
    let (ends, effects) = customers("status=500");
    assert!(ends.iter().all(|end| end["status"] == 500), "{ends:?}");
    assert_one_effect_each(&effects);
}

/// The problem is real: without the gateway, the same client repeats the effect.
#[test]
fn without_the_gateway_the_effect_is_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start_with(dir.path(), 0, "cut");
    create_customers(orders.address);
    assert_eq!(orders.effects().len(), 16, "four customers, four tries each");
}
