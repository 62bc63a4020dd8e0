//! `ichido gateway` in front of a service in another language, over real sockets.
//!
//! What the idempotency layer promises is tested in `ichido-http`. These tests show that settings reach the layer, that
//! the gateway forwards HTTP as it should, that it survives crashes, and that real clients work with it.

mod acceptance;
mod backpressure;
mod bolt;
mod cors;
mod doubt;
mod edge_cases;
mod events;
mod fallback;
mod hop_by_hop;
mod in_doubt;
mod journal;
mod limits;
mod pass_through;
mod proxies;
mod recipes;
mod redis_data_loss;
mod reload;
mod shutdown;
mod startup;
mod stripe_node;
mod stripe_python;

use ichido_testkit::orders::Orders;
use serde_json::Value;

use crate::support::Gateway;

/// A gateway with these settings and a ledger on disk, in front of the orders API.
fn start(settings: &str) -> (tempfile::TempDir, Orders, Gateway) {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let gateway = Gateway::start(dir.path(), orders.address, "file:ledger", settings);
    (dir, orders, gateway)
}

/// A header of a GET request, as the orders API received it.
fn received_header(seen: &Value, name: &str) -> Option<String> {
    let mut headers = seen["headers"].as_object().unwrap().iter();
    let (_, value) = headers.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
    Some(value.as_str().unwrap().to_owned())
}
