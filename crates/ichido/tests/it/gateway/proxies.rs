//! A TLS-terminating proxy in front of the gateway: what the upstream learns about the client.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::http::send;
use crate::support::{Gateway, Orders, Process, certificate, eventually};

/// Starts nginx with TLS on a Unix socket, in front of the gateway.
fn nginx(dir: &Path, gateway: &Gateway) -> Process {
    certificate(dir);
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
        Process::start(Command::new("nginx").args(["-e", "stderr", "-c"]).arg(dir.join("nginx.conf")));
    eventually("the nginx socket", || dir.join("socket").exists().then_some(()));
    process
}

/// Finds a header of a request as the upstream saw it.
fn field(seen: Value) -> impl Fn(&str) -> String {
    move |name| {
        let mut fields = seen["headers"].as_object().unwrap().iter();
        let found = fields.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str().unwrap().to_owned()).unwrap_or_default()
    }
}

#[test]
fn an_upstream_behind_a_tls_proxy_sees_https() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let gateway = Gateway::start(dir.path(), orders.address, "memory:", "");
    let nginx = nginx(dir.path(), &gateway);
    let curl = Command::new("curl")
        .args(["-sS", "--retry", "5", "--retry-all-errors", "--unix-socket"])
        .arg(dir.path().join("socket"))
        .arg("--cacert")
        .arg(dir.path().join("cert.pem"))
        .arg("https://localhost/x")
        .output()
        .unwrap();
    let seen = serde_json::from_slice(&curl.stdout);
    let seen = field(seen.unwrap_or_else(|error| panic!("{error}: {curl:?} {}", nginx.stderr())));
    assert_eq!((seen("x-forwarded-proto"), seen("x-forwarded-host")), ("https".into(), "localhost".into()));
    assert_eq!(seen("x-forwarded-for"), "203.0.113.7, 127.0.0.1");
}

#[test]
fn an_untrusted_peer_cannot_set_forwarded_headers() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let settings = "[gateway]\ntrusted_proxies = [\"10.0.0.0/8\"]\n";
    let gateway = Gateway::start(dir.path(), orders.address, "memory:", settings);
    let forged = [
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "bank.example"),
        ("X-Forwarded-For", "10.0.0.1"),
        ("Forwarded", "for=10.0.0.1;proto=https"),
    ];
    let seen = field(send(gateway.address, "GET", "/x", &forged, b"").json());
    assert_eq!((seen("x-forwarded-proto"), seen("x-forwarded-host")), ("http".into(), "localhost".into()));
    assert_eq!(seen("x-forwarded-for"), "127.0.0.1");
    assert_eq!(seen("forwarded"), "for=127.0.0.1;proto=http;host=\"localhost\"");
}
