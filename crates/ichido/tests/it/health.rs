//! `ichido health`: the probe of containers and services.

use std::net::SocketAddr;
use std::process::Output;

use ichido_testkit::certificates::Authority;
use ichido_testkit::free_port;
use ichido_testkit::http_server::{HttpServer, Reply};
use serde_json::{Value, json};

use crate::serving::Serving;
use crate::support::Gateway;
use crate::{ichido, stderr, stdout};

fn health(address: impl ToString, more: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    // A mistake in the settings says nothing about the process.
    std::fs::write(dir.path().join("ichido.toml"), "[ledger\n").unwrap();
    ichido(dir.path()).args(["health", "--admin", &address.to_string()]).args(more).output().unwrap()
}

/// Asserts that the probe fails with exit code 1 and one line, and returns the line.
#[track_caller]
fn unhealthy(output: &Output) -> String {
    let line = stderr(output);
    assert_eq!((output.status.code(), line.trim_end().lines().count()), (Some(1), 1), "{line}");
    line
}

#[test]
fn a_ready_process_is_healthy() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Serving::claims(dir.path(), "memory:", Some("s3cret-s3cret-s3cret"));
    let ready = health(claims.address, &[]);
    assert_eq!(ready.status.code(), Some(0), "{}", stderr(&ready));
    assert_eq!(stdout(&ready), format!("http://{}/readyz: ready\n", claims.address), "no token is needed");
    let alive = health(format!("http://{}", claims.address), &["--live", "--json"]);
    let report: Value = serde_json::from_str(&stdout(&alive)).unwrap();
    assert_eq!(report["ok"], true);
    assert_eq!(report["url"], format!("http://{}/healthz", claims.address));
    let variables = [("ICHIDO_ADMIN_LISTEN", format!("0.0.0.0:{}", claims.address.port()))];
    let by_setting = ichido(dir.path()).arg("health").envs(variables).output().unwrap();
    assert!(
        by_setting.status.success(),
        "a wildcard address is reached on loopback: {}",
        stderr(&by_setting)
    );
}

#[test]
fn a_process_that_is_not_ready_is_alive() {
    let dir = tempfile::tempdir().unwrap();
    let nothing = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let gateway = Gateway::start(dir.path(), nothing, "memory:", "[gateway]\nready_needs_upstream = true\n");
    let line = unhealthy(&health(gateway.admin, &[]));
    assert!(line.contains(&format!("/readyz: not ready: upstream: cannot connect to {nothing}")), "{line}");
    let json = health(gateway.admin, &["--json"]);
    unhealthy(&json);
    let report: Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert_eq!((&report["ok"], &report["response"]["status"]), (&json!(false), &json!("not-ready")));
    assert!(health(gateway.admin, &["--live"]).status.success());
}

#[test]
fn anything_else_is_unhealthy() {
    let nothing = format!("127.0.0.1:{}", free_port());
    let line = unhealthy(&health(&nothing, &[]));
    assert!(line.contains(&format!("http://{nothing}/readyz: cannot connect")), "{line}");
    let other = HttpServer::start(|_| async { Reply::status(200, "hello") }).unwrap();
    assert!(unhealthy(&health(other.address(), &[])).contains("is not an admin port"));
    for address in ["127.0.0.1", "ftp://h:1", "http://u:hunter2@h:1", "h:1/path"] {
        let line = unhealthy(&health(address, &[]));
        assert!(line.contains("--admin: expected HOST:PORT") && !line.contains("hunter2"), "{line}");
    }
    let dir = tempfile::tempdir().unwrap();
    let off = ichido(dir.path()).arg("health").env("ICHIDO_ADMIN_LISTEN", "off").output().unwrap();
    assert!(unhealthy(&off).contains("admin.listen is off"));
    std::fs::write(dir.path().join("ichido.toml"), "[ledger\n").unwrap();
    assert!(unhealthy(&ichido(dir.path()).arg("health").output().unwrap()).contains("ichido.toml:1"));
}

#[test]
fn a_process_that_does_not_respond_is_unhealthy() {
    let silent = HttpServer::start(|_| async { Reply::NeverRespond }).unwrap();
    assert!(unhealthy(&health(silent.address(), &[])).contains("no response within"));
}

#[test]
fn an_admin_port_may_use_tls() {
    let identity = Authority::new().localhost();
    let ready = |_| async { Reply::json(200, &json!({"status": "ready", "checks": []})) };
    let server = HttpServer::start_tls(identity.config, ready).unwrap();
    let url = format!("https://{}", server.address());
    let healthy = health(&url, &[]);
    assert!(healthy.status.success(), "{}", stderr(&healthy));
    unhealthy(&health(server.address(), &[]));
}
