//! The recipe in the README: the Express and FastAPI examples behind the gateway, unchanged.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use ichido_testkit::http_client::{get, post};
use ichido_testkit::process::Process;
use ichido_testkit::required_env;

use crate::support::Gateway;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

/// Starts a program and returns its address.
fn start_program(command: &mut Command) -> (Process, SocketAddr) {
    let mut process = Process::start(command).unwrap();
    let address = process.wait_for_address(" on http://").unwrap();
    (process, address)
}

/// A shell command whose output goes to standard error, where the tests look.
fn shell(line: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("exec {line} 1>&2"));
    command
}

fn assert_safe_to_retry(name: &str, service: SocketAddr) {
    let dir = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(dir.path(), service, "file:ledger", "");
    let first = post(gateway.address, "/orders", "\"k1\"", "{\"qty\":1}");
    assert_eq!((first.status, first.is_replay()), (201, false), "{name}: {first:?}");
    assert_eq!((&first.json()["order"], &first.json()["qty"]), (&1.into(), &1.into()), "{name}");
    let again = post(gateway.address, "/orders", "\"k1\"", "{\"qty\":1}");
    assert_eq!(
        (again.status, again.header("idempotency-replayed")),
        (201, Some("true")),
        "{name}: {again:?}"
    );
    assert_eq!(again.body, first.body, "{name}: the same answer");
    let other = post(gateway.address, "/orders", "\"k1\"", "{\"qty\":2}");
    assert_eq!((other.status, other.problem().as_str()), (422, "key-reused"), "{name}");
    assert_eq!(get(gateway.address, "/orders").json()["made"], 1, "{name}: one order");
    let next = post(gateway.address, "/orders", "\"k2\"", "{\"qty\":2}");
    assert_eq!((next.status, &next.json()["order"]), (201, &2.into()), "{name}");
}

#[test]
fn express_behind_the_gateway_makes_one_order_for_one_key() {
    let mut command = shell("\"$NODE\" server.js");
    command
        .env("NODE", required_env("ICHIDO_TEST_NODE"))
        .env("NODE_PATH", required_env("ICHIDO_TEST_NODE_MODULES"));
    let (_express, address) = start_program(command.current_dir(example("express")).env("PORT", "0"));
    assert_safe_to_retry("express", address);
}

#[test]
fn fastapi_behind_the_gateway_makes_one_order_for_one_key() {
    let mut command = shell("\"$UVICORN\" app:app --port 0");
    command.env("UVICORN", required_env("ICHIDO_TEST_UVICORN")).env("PYTHONDONTWRITEBYTECODE", "1");
    let (_fastapi, address) = start_program(command.current_dir(example("fastapi")));
    assert_safe_to_retry("fastapi", address);
}
