//! A widely used client with retries enabled: Stripe's library for Python.

use std::process::Command;

use serde_json::Value;

use crate::support::{Gateway, Orders};

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

/// Creates four customers through the gateway, with this trouble in the upstream for each.
fn customers(trouble: &str) -> (Vec<Value>, Vec<Value>) {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start_with(dir.path(), 0, trouble);
    // The upstream sets a cookie in each response, and this client sends it back on its retry. So the cookie must not
    // identify the caller.
    let settings = "[gateway]\ntenant = \"header:Authorization\"\n";
    let gateway = Gateway::start(dir.path(), orders.address, "file:ledger", settings);
    let python = std::env::var("ICHIDO_TEST_PYTHON").expect("ICHIDO_TEST_PYTHON: run `cargo xtask test`");
    let output =
        Command::new(python).args(["-c", SCRIPT, &format!("http://{}", gateway.address)]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (serde_json::from_slice(&output.stdout).unwrap(), orders.effects())
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
    let python = std::env::var("ICHIDO_TEST_PYTHON").expect("ICHIDO_TEST_PYTHON: run `cargo xtask test`");
    let output =
        Command::new(python).args(["-c", SCRIPT, &format!("http://{}", orders.address)]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(orders.effects().len(), 16, "four customers, four tries each");
}
