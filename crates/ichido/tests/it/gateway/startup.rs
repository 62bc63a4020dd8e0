//! Startup: invalid settings, the start-up line, health, metrics and TLS.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use ichido_testkit::certificates::write_self_signed;
use ichido_testkit::http_client::{get, post, send, try_send};
use ichido_testkit::orders::Orders;
use ichido_testkit::process::Process;
use ichido_testkit::wait::eventually;

use crate::meter::Meter;
use crate::support::{Gateway, gateway_command, gateway_command_on};

fn unused_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 9))
}

fn refused(command: &mut Command) -> String {
    let mut process = Process::start(command).unwrap();
    assert_eq!(process.exit_code(), 2, "{}", process.stderr());
    let line = process.stderr();
    assert_eq!(line.trim_end().lines().count(), 1, "expected one line: {line}");
    line
}

#[test]
fn an_invalid_setting_stops_the_start() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("not.pem"), "hello").unwrap();
    for (settings, word) in [
        ("[gateway]\nlisten = 5\n", "gateway.listen: expected a string, found a whole number"),
        ("[gateway]\nupstreams = \"x\"\n", "upstreams"),
        (
            "[gateway]\ntls_cert_file = \"not.pem\"\ntls_key_file = \"not.pem\"\n",
            "gateway.tls_cert_file: not.pem",
        ),
        ("[[gateway.routes]]\noutage = \"maybe\"\n", "gateway.routes[0].outage"),
        (
            "[[gateway.routes]]\nkey = 5\n",
            "gateway.routes[0].key: expected a string or a list of strings, found a whole number",
        ),
    ] {
        let line = refused(&mut gateway_command(dir.path(), unused_address(), "memory:", settings));
        assert!(line.contains(word), "{word}: {line}");
    }
    let line =
        refused(&mut gateway_command(dir.path(), unused_address(), "redis://:hunter2@127.0.0.1:1", ""));
    assert!(line.contains("redis 127.0.0.1:1") && !line.contains("hunter2"), "{line}");
    let mut without = Command::new(env!("CARGO_BIN_EXE_ichido"));
    assert!(refused(without.current_dir(dir.path()).arg("gateway")).contains("--upstream"));
}

#[test]
fn an_admin_port_off_loopback_needs_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let line = refused(&mut gateway_command_on(
        dir.path(),
        unused_address(),
        "memory:",
        "",
        "127.0.0.1:0",
        "0.0.0.0:0",
    ));
    assert!(line.contains("ICHIDO_ADMIN_TOKEN"), "{line}");
}

#[test]
fn a_port_in_use_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let line = refused(&mut gateway_command_on(dir.path(), unused_address(), "memory:", "", &address, "off"));
    assert!(line.contains("gateway.listen") && line.contains(&address), "{line}");
}

#[test]
fn the_gateway_prints_its_settings_and_serves_health_and_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let gateway = Gateway::start(dir.path(), orders.address, "memory:", "");
    assert!(
        gateway.process.stderr().contains("memory:"),
        "a ledger that forgets is worth a warning: {}",
        gateway.process.stderr()
    );
    assert_eq!(get(gateway.admin, "/healthz").status, 200);
    assert_eq!(get(gateway.admin, "/readyz").status, 200);
    post(gateway.address, "/orders", "\"secret-key\"", "{}");
    post(gateway.address, "/orders", "\"secret-key\"", "{}");
    post(gateway.address, "/orders", "\"secret-key\"", "{\"x\":1}");
    let metrics = get(gateway.admin, "/metrics").text();
    for line in [
        "ichido_requests_total{route=\"POST,PATCH /**\",outcome=\"first\"} 1",
        "ichido_requests_total{route=\"POST,PATCH /**\",outcome=\"replayed\"} 1",
        "ichido_requests_total{route=\"POST,PATCH /**\",outcome=\"mismatch\"} 1",
        "ichido_inflight 0",
        "ichido_upstream_seconds_count 1",
        "ichido_ledger_seconds_count{backend=\"memory\",verb=\"claim\"} 3",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    let lines: Vec<serde_json::Value> = eventually("three log lines", || {
        let said = gateway.process.stderr();
        let lines: Vec<_> = said
            .lines()
            .filter(|line| line.contains("keyed request"))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        (lines.len() == 3).then_some(lines)
    });
    let outcomes: Vec<_> = lines.iter().map(|line| line["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["first", "replayed", "mismatch"]);
    assert_eq!(lines[0]["key"], lines[1]["key"]);
    assert!(lines[0]["ms"].as_f64().unwrap() > 0.0 && lines[0]["status"] == 201, "{}", lines[0]);
    assert!(!gateway.process.stderr().contains("secret-key"), "only the hash of the key is logged");
}

#[test]
fn clients_may_use_tls_and_http2() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    write_self_signed(dir.path());
    let settings = "[gateway]\ntls_cert_file = \"cert.pem\"\ntls_key_file = \"key.pem\"\n";
    let gateway = Gateway::start(dir.path(), orders.address, "memory:", settings);
    for version in ["--http2", "--http1.1"] {
        let curl = Command::new("curl")
            .current_dir(dir.path())
            .args([
                "-sS",
                version,
                "--cacert",
                "cert.pem",
                "-X",
                "POST",
                "-H",
                "Idempotency-Key: \"k\"",
                "-d",
                "{}",
                "-w",
                "\n%{http_version} %{http_code}",
            ])
            .arg(format!("https://localhost:{}/orders", gateway.address.port()))
            .output()
            .unwrap();
        let text = String::from_utf8(curl.stdout).unwrap();
        let expected = if version == "--http2" { "2 201" } else { "1.1 201" };
        assert!(text.ends_with(expected), "{version}: {text} {}", String::from_utf8_lossy(&curl.stderr));
    }
    assert_eq!(orders.effects().len(), 1, "both were one order");
    let plain = try_send(gateway.address, "GET", "/x", &[], b"");
    assert!(plain.is_err(), "a TLS port does not serve plain HTTP: {plain:?}");
}

#[test]
fn a_refreshed_token_belongs_to_the_same_tenant() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    std::fs::write(dir.path().join("jwt.key"), "0123456789abcdef0123456789abcdef").unwrap();
    let settings = "[gateway]\ntenant = \"jwt:sub\"\njwt_key_file = \"jwt.key\"\n";
    let gateway = Gateway::start(dir.path(), orders.address, "memory:", settings);
    let order = |token: &str| {
        let authorization = format!("Bearer {token}");
        send(
            gateway.address,
            "POST",
            "/orders",
            &[("Idempotency-Key", "\"k\""), ("Authorization", &authorization)],
            b"{}",
        )
    };
    let token = |sub: &str, exp: u64| {
        let claims = serde_json::json!({"sub": sub, "exp": exp});
        let key = jsonwebtoken::EncodingKey::from_secret(b"0123456789abcdef0123456789abcdef");
        jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).unwrap()
    };
    assert!(!order(&token("u1", 4_000_000_000)).is_replay());
    assert!(order(&token("u1", 4_000_000_001)).is_replay(), "a refreshed token belongs to the same tenant");
    assert!(!order(&token("u2", 4_000_000_000)).is_replay());
    assert_eq!(orders.effects().len(), 2);
}

#[test]
fn two_gateways_cannot_open_one_store() {
    let dir = tempfile::tempdir().unwrap();
    let first = Gateway::start(dir.path(), unused_address(), "file:ledger", "");
    let line = refused(&mut gateway_command(dir.path(), unused_address(), "file:ledger", ""));
    assert!(line.contains(&first.process.child.id().to_string()), "{line}");
}

/// As with every other CA file. Here the system trusts the upstream's CA, and the file contains another one.
#[test]
fn an_upstream_ca_file_adds_to_the_system_cas() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_self_signed(dir.path());
    write_self_signed(other.path());
    let tls = "[meter]\ntls_cert_file = \"cert.pem\"\ntls_key_file = \"key.pem\"\n";
    std::fs::write(dir.path().join("ichido.toml"), tls).unwrap();
    let service = Meter::start(dir.path());
    let port = service.address.port();
    let settings =
        format!("[gateway]\nupstream = \"https://localhost:{port}\"\nupstream_ca_file = \"cert.pem\"\n");
    std::fs::write(other.path().join("gateway.toml"), settings).unwrap();
    let status = |system: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ichido"));
        command.args(["gateway", "--config", "gateway.toml", "--listen", "127.0.0.1:0", "--admin", "off"]);
        command.args(["--ledger", "memory:"]).current_dir(other.path());
        command.env("SSL_CERT_FILE", system).env_remove("SSL_CERT_DIR");
        let mut gateway = Process::start(&mut command).unwrap();
        get(gateway.wait_for_address("listening on ").unwrap(), "/v1/usage").status
    };
    assert_eq!(status(&dir.path().join("cert.pem")), 200);
    assert_eq!(status(&other.path().join("cert.pem")), 502, "no CA is known for the upstream");
}
