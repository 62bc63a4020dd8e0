//! The orders API behind the layer: a retry gets the same order, a different quantity gets 422, a concurrent retry 409, and
//! a request without a key 400.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "anything unexpected fails the test")]

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

use ichido_testkit::http_client::{post, send};
use ichido_testkit::process::Process;
use tempfile::TempDir;

struct Orders {
    _process: Process,
    address: SocketAddr,
    dir: Arc<TempDir>,
}

impl Orders {
    fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap().into())
    }

    /// Starts with the ledger that an earlier process left in this directory.
    fn start_in(dir: Arc<TempDir>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orders"));
        command.current_dir(dir.path()).env("ORDERS_LISTEN", "127.0.0.1:0").env_remove("ORDERS_LEDGER");
        let mut process = Process::start(&mut command).unwrap();
        let mut line = String::new();
        BufReader::new(process.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
        Self { _process: process, address, dir }
    }
}

const ORDER: &str =
    r#"{"customerId":"C123","items":[{"productId":"P001","qty":2},{"productId":"P777","qty":1}]}"#;

#[test]
fn the_same_key_gives_the_same_order() {
    let orders = Orders::start();
    let first = post(orders.address, "/orders", "\"8e03978e-40d5-43e8-bc93-6894a57f9324\"", ORDER);
    assert_eq!((first.status, &first.json()["pieces"]), (201, &3.into()));
    let again = post(orders.address, "/orders", "\"8e03978e-40d5-43e8-bc93-6894a57f9324\"", ORDER);
    assert_eq!((again.status, &again.json()["orderId"]), (201, &first.json()["orderId"]));
    assert!(again.is_replay() && !first.is_replay());
    let other = post(orders.address, "/orders", "\"other\"", ORDER);
    assert_ne!(other.json()["orderId"], first.json()["orderId"]);
}

/// The ledger still replays orders from before the restart, so no new order may have the id of one of them.
#[test]
fn a_restart_does_not_reuse_order_ids() {
    let before = Orders::start();
    let first = post(before.address, "/orders", "\"before\"", ORDER).json();
    let dir = before.dir.clone();
    drop(before);
    let after = Orders::start_in(dir);
    assert_eq!(post(after.address, "/orders", "\"before\"", ORDER).json(), first);
    let second = post(after.address, "/orders", "\"after\"", ORDER).json();
    assert_ne!(second["orderId"], first["orderId"]);
}

#[test]
fn a_different_quantity_with_the_same_key_is_422() {
    let orders = Orders::start();
    assert_eq!(post(orders.address, "/orders", "\"k\"", ORDER).status, 201);
    let other = post(orders.address, "/orders", "\"k\"", &ORDER.replace("\"qty\":2", "\"qty\":3"));
    assert_eq!((other.status, other.problem().as_str()), (422, "key-reused"));
}

#[test]
fn a_retry_while_the_order_is_created_is_409() {
    let orders = Orders::start();
    let responses: Vec<_> = std::thread::scope(|scope| {
        let calls: Vec<_> =
            (0..8).map(|_| scope.spawn(|| post(orders.address, "/orders", "\"k\"", ORDER))).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert_eq!(
        responses.iter().filter(|response| response.status == 201 && !response.is_replay()).count(),
        1
    );
    let conflicts: Vec<_> = responses.iter().filter(|response| response.status == 409).collect();
    assert!(!conflicts.is_empty(), "{responses:?}");
    assert!(
        conflicts
            .iter()
            .all(|response| response.problem() == "in-flight" && response.header("retry-after").is_some())
    );
}

#[test]
fn a_request_without_a_key_is_400() {
    let orders = Orders::start();
    let missing =
        send(orders.address, "POST", "/orders", &[("Content-Type", "application/json")], ORDER.as_bytes());
    assert_eq!((missing.status, missing.problem().as_str()), (400, "key-missing"));
}
