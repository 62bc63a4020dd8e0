//! Stripe's library for Node, as a client of an API behind the gateway and as a receiver of events.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use ichido_testkit::http_client::{Response, get, send};
use ichido_testkit::orders::Orders;
use ichido_testkit::process::Process;
use ichido_testkit::required_env;
use serde_json::{Value, json};

use super::events::{STRIPE_PAID, now};
use super::start;
use crate::support::Gateway;

fn node(args: &[&str]) -> Command {
    let mut command = Command::new(required_env("ICHIDO_TEST_NODE"));
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/gateway/stripe.js")).args(args);
    command.env("NODE_PATH", required_env("ICHIDO_TEST_NODE_MODULES"));
    command
}

fn printed(args: &[&str]) -> String {
    let output = node(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn customer(gateway: &Gateway, key: &str, name: &str) -> Value {
    let port = gateway.address.port().to_string();
    serde_json::from_str(&printed(&["customer", &port, key, name])).unwrap()
}

fn counted(gateway: &Gateway, outcome: &str) -> u64 {
    let metrics = get(gateway.admin, "/metrics").text();
    let wanted = format!("outcome=\"{outcome}\"}} ");
    let lines = metrics.lines().filter(|line| line.starts_with("ichido_requests_total{"));
    lines.filter_map(|line| line.split_once(&wanted)?.1.parse::<u64>().ok()).sum()
}

/// The library treats every response without an `error` member as a success, and retries a 409 unless told not to.
#[test]
fn a_request_in_doubt_is_an_error_and_not_retried() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start_with(dir.path(), 0, "cut");
    let gateway = Gateway::start(dir.path(), orders.address, "file:ledger", "");
    let in_doubt = json!({"error": "idempotency_error", "code": "in-doubt", "status": 409});
    assert_eq!(customer(&gateway, "k1", "n"), in_doubt);
    // One response to the first try, whose own response was lost; one to the retry, which told the client to stop.
    assert_eq!((counted(&gateway, "in-doubt"), orders.effects().len()), (2, 1));
    assert_eq!(customer(&gateway, "k1", "n"), in_doubt);
    assert_eq!((counted(&gateway, "in-doubt"), orders.effects().len()), (3, 1));
}

#[test]
fn a_key_reused_for_another_customer_is_an_error_and_not_retried() {
    let (_dir, orders, gateway) = start("");
    let first = customer(&gateway, "k1", "one");
    assert!(first["id"].as_str().is_some_and(|id| id.starts_with("O-")), "{first}");
    assert_eq!(customer(&gateway, "k1", "one"), first);
    let reused = json!({"error": "idempotency_error", "code": "key-reused", "status": 422});
    assert_eq!(customer(&gateway, "k1", "two"), reused);
    assert_eq!((counted(&gateway, "mismatch"), orders.effects().len()), (1, 1));
}

fn event(gateway: &Gateway, signature: &str, body: &str) -> Response {
    let headers = [("Content-Type", "application/json"), ("Stripe-Signature", signature)];
    send(gateway.address, "POST", "/stripe", &headers, body.as_bytes())
}

const ROUTE: &str = "[[gateway.routes]]\npreset = \"stripe-events\"\nmatch = \"POST /stripe\"\n";

#[test]
fn an_event_without_a_recent_signature_claims_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let gateway = Gateway::start_with(dir.path(), orders.address, "file:ledger", ROUTE, |command| {
        command.env("STRIPE_WEBHOOK_SECRET", "whsec_new, whsec_old");
    });
    let sign = |secret: &str, age: u64| printed(&["sign", STRIPE_PAID, secret, &(now() - age).to_string()]);
    let good = sign("whsec_old", 0);
    let tampered = STRIPE_PAID.replacen("evt_", "evt_x", 1);
    for (signature, body, problem) in [
        (sign("whsec_stranger", 0), STRIPE_PAID, "signature-refused"),
        (good.clone(), tampered.as_str(), "signature-refused"),
        (sign("whsec_new", 400), STRIPE_PAID, "timestamp-refused"),
    ] {
        let refused = event(&gateway, &signature, body);
        assert_eq!((refused.status, refused.problem().as_str()), (401, problem), "{refused:?}");
    }
    assert_eq!(get(gateway.admin, "/v1/claims").json()["claims"], json!([]));
    assert_eq!(event(&gateway, &good, STRIPE_PAID).status, 201);
    assert!(event(&gateway, &sign("whsec_new", 0), STRIPE_PAID).is_replay(), "both secrets are accepted");
    assert_eq!(orders.effects().len(), 1);
}

/// A bot with a wrong secret refuses genuine events. They must not be blocked once the secret is corrected.
#[test]
fn an_event_refused_because_of_a_wrong_secret_runs_when_the_secret_is_corrected() {
    let dir = tempfile::tempdir().unwrap();
    let (secret, effects) = (dir.path().join("secret"), dir.path().join("effects"));
    std::fs::write(&secret, "whsec_wrong").unwrap();
    let mut bot =
        Process::start(&mut node(&["bot", secret.to_str().unwrap(), effects.to_str().unwrap()])).unwrap();
    let mut line = String::new();
    BufReader::new(bot.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port: u16 = line.trim().parse().unwrap_or_else(|_| panic!("stripe.js: {}", bot.stderr()));
    let upstream = SocketAddr::from(([127, 0, 0, 1], port));
    let gateway = Gateway::start(dir.path(), upstream, "file:ledger", ROUTE);
    gateway.process.wait_for_stderr("set stripe_webhook_secret or STRIPE_WEBHOOK_SECRET");
    let signature = printed(&["sign", STRIPE_PAID, "whsec_right", &now().to_string()]);
    for _ in 0..2 {
        assert_eq!(event(&gateway, &signature, STRIPE_PAID).status, 400);
    }
    std::fs::write(&secret, "whsec_right").unwrap();
    let handled = event(&gateway, &signature, STRIPE_PAID);
    assert_eq!((handled.status, handled.is_replay()), (200, false), "{handled:?}");
    assert!(event(&gateway, &signature, STRIPE_PAID).is_replay());
    assert_eq!(std::fs::read_to_string(&effects).unwrap().lines().count(), 1);
}
