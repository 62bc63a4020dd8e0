//! A TLS-terminating proxy in front of the gateway: what the upstream learns about the client.

use std::path::Path;
use std::process::Command;

use ichido_testkit::certificates::write_self_signed;
use ichido_testkit::http_client::send;
use ichido_testkit::process::Process;
use ichido_testkit::wait::eventually;
use serde_json::Value;

use super::{received_header, start};
use crate::support::Gateway;

/// Starts nginx with TLS on a Unix socket, in front of the gateway.
fn nginx(dir: &Path, gateway: &Gateway) -> Process {
    write_self_signed(dir);
    let home = dir.display();
    let settings = format!(
        "daemon off; master_process off; pid {home}/pid;
        events {{}}
        http {{
            access_log off; client_body_temp_path {home}/b; proxy_temp_path {home}/p; fastcgi_temp_path {home}/f;
            uwsgi_temp_path {home}/u; scgi_temp_path {home}/s;
            server {{
                listen unix:{home}/socket ssl;
                ssl_certificate {home}/cert.pem; ssl_certificate_key {home}/key.pem;
                location / {{
                    proxy_pass http://{};
                    proxy_set_header X-Forwarded-For 203.0.113.7;
                    proxy_set_header X-Forwarded-Proto $scheme;
                    proxy_set_header X-Forwarded-Host $host;
                }}
            }}
        }}",
        gateway.address
    );
    std::fs::write(dir.join("nginx.conf"), settings).unwrap();
    let process =
        Process::start(Command::new("nginx").args(["-e", "stderr", "-c"]).arg(dir.join("nginx.conf")))
            .unwrap();
    eventually("the nginx socket", || dir.join("socket").exists().then_some(()));
    process
}

#[track_caller]
fn assert_received(seen: &Value, headers: &[(&str, &str)]) {
    for (name, value) in headers {
        assert_eq!(received_header(seen, name).as_deref(), Some(*value), "{name}");
    }
}

#[test]
fn an_upstream_behind_a_tls_proxy_sees_https() {
    let (dir, _orders, gateway) = start("");
    let nginx = nginx(dir.path(), &gateway);
    let curl = Command::new("curl")
        .args(["-sS", "--retry", "5", "--retry-all-errors", "--unix-socket"])
        .arg(dir.path().join("socket"))
        .arg("--cacert")
        .arg(dir.path().join("cert.pem"))
        .arg("https://localhost/x")
        .output()
        .unwrap();
    let seen = serde_json::from_slice::<Value>(&curl.stdout);
    let seen = seen.unwrap_or_else(|error| panic!("{error}: {curl:?} {}", nginx.stderr()));
    assert_received(
        &seen,
        &[
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "localhost"),
            ("x-forwarded-for", "203.0.113.7, 127.0.0.1"),
        ],
    );
}

#[test]
fn an_untrusted_peer_cannot_set_forwarded_headers() {
    let (_dir, _orders, gateway) = start("[gateway]\ntrusted_proxies = [\"10.0.0.0/8\"]\n");
    let forged = [
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "bank.example"),
        ("X-Forwarded-For", "10.0.0.1"),
        ("Forwarded", "for=10.0.0.1;proto=https"),
    ];
    let seen = send(gateway.address, "GET", "/x", &forged, b"").json();
    assert_received(
        &seen,
        &[
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "localhost"),
            ("x-forwarded-for", "127.0.0.1"),
            ("forwarded", "for=127.0.0.1;proto=http;host=\"localhost\""),
        ],
    );
}
