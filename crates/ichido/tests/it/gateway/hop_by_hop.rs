//! What belongs to one connection is not forwarded: framing, upgrades, hop-by-hop headers. And the rules for `Host`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;

use crate::support::http::{get, post, raw, send};
use crate::support::{Gateway, Orders};

/// An upstream that sends the same bytes to every request, then closes the connection.
fn upstream(response: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                let header = line.to_ascii_lowercase();
                length = header
                    .strip_prefix("content-length:")
                    .map_or(length, |value| value.trim().parse().unwrap());
                line.clear();
            }
            // Unread bytes would make the close a reset.
            let _ = reader.read_exact(&mut vec![0; length]);
            let _ = reader.into_inner().write_all(response);
        }
    });
    address
}

fn field(seen: &serde_json::Value, name: &str) -> Option<String> {
    let mut fields = seen["headers"].as_object().unwrap().iter();
    let (_, value) = fields.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
    Some(value.as_str().unwrap().to_owned())
}

fn gateway_for(response: &'static [u8]) -> (tempfile::TempDir, Gateway) {
    let dir = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(dir.path(), upstream(response), "memory:", "");
    (dir, gateway)
}

#[test]
fn a_response_with_two_framings_is_read_by_its_chunks() {
    let (_dir, gateway) = gateway_for(
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    );
    assert_eq!(get(gateway.address, "/x").text(), "hello");
    for is_replay in [false, true] {
        let answer = post(gateway.address, "/orders", "\"k\"", "{}");
        assert_eq!((answer.text().as_str(), answer.is_replay()), ("hello", is_replay));
    }
}

#[test]
fn an_upgrade_to_http2_is_not_forwarded() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let gateway = Gateway::start(dir.path(), orders.address, "memory:", "");
    let head = "GET /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n";
    for upgrade in
        ["Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n", "Upgrade: H2C\r\nUpgrade: TLS/1.2\r\n\r\n"]
    {
        let answer = raw(gateway.address, format!("{head}{upgrade}").as_bytes()).unwrap();
        assert_eq!(answer.status, 200);
        let seen = answer.json();
        for name in ["upgrade", "http2-settings", "connection"] {
            assert_eq!(field(&seen, name), None, "{upgrade}: {seen}");
        }
    }
}

/// The cookies that the upstream gets from a client that uses this HTTP version.
fn cookies_over(version: &str, gateway: &Gateway) -> Option<String> {
    let curl = Command::new("curl")
        .args(["-sS", version, "-H", "Cookie: a=1", "-H", "Cookie: b=2; c=3"])
        .arg(format!("http://{}/x", gateway.address))
        .output()
        .unwrap();
    let seen = serde_json::from_slice(&curl.stdout);
    field(&seen.unwrap_or_else(|error| panic!("{error}: {curl:?}")), "cookie")
}

#[test]
fn separate_cookie_headers_are_joined() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let gateway = Gateway::start(dir.path(), orders.address, "memory:", "");
    for version in ["--http2-prior-knowledge", "--http1.1"] {
        assert_eq!(cookies_over(version, &gateway).as_deref(), Some("a=1; b=2; c=3"), "{version}");
    }
}

#[test]
fn the_target_overrides_the_host_header_and_an_ambiguous_host_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let gateway = Gateway::start(dir.path(), orders.address, "memory:", "");
    let ask = |target: &str, hosts: &str| {
        raw(gateway.address, format!("GET {target} HTTP/1.1\r\n{hosts}\r\n").as_bytes()).unwrap()
    };
    for (target, host) in [("http://true.example/x", "true.example"), ("/x", "field.example")] {
        let seen = ask(target, "Host: field.example\r\n").json();
        assert_eq!(seen["path"], "/x");
        for name in ["host", "x-forwarded-host"] {
            assert_eq!(field(&seen, name).as_deref(), Some(host), "{target}");
        }
    }
    for (target, hosts) in [
        ("/x", "Host: a.example\r\nHost: b.example\r\n"),
        ("/x", "Host: a.example\r\nHost: a.example\r\n"),
        ("/x", "Host: hunter2@a.example\r\n"),
        ("http://u:hunter2@a.example/x", "Host: a.example\r\n"),
    ] {
        let answer = ask(target, hosts);
        assert_eq!((answer.status, answer.problem().as_str()), (400, "request-refused"), "{target} {hosts}");
        assert!(!answer.text().contains("hunter2"), "{answer:?}");
    }
}

#[test]
fn an_unrequested_upgrade_is_a_lost_response_and_keyed_requests_request_none() {
    let (_dir, gateway) =
        gateway_for(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    let answer = get(gateway.address, "/x");
    assert_eq!((answer.status, answer.problem().as_str()), (502, "answer-lost"));
    let headers = [("Idempotency-Key", "\"k\""), ("Connection", "Upgrade"), ("Upgrade", "echo")];
    for (status, problem) in [(502, "answer-lost"), (409, "in-doubt")] {
        let answer = send(gateway.address, "POST", "/orders", &headers, b"{}");
        assert_eq!((answer.status, answer.problem().as_str()), (status, problem));
    }
}

#[test]
fn trailers_of_a_keyed_request_reach_the_upstream() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let service = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"0\r\nx-sum: 42\r\n\r\n") {
            let mut piece = [0; 1000];
            let read = stream.read(&mut piece).unwrap();
            assert!(read > 0, "the request has no trailers: {}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&piece[..read]);
        }
        stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n").unwrap();
    });
    let dir = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(dir.path(), address, "memory:", "");
    let request =
        b"POST /orders HTTP/1.1\r\nHost: x\r\nIdempotency-Key: \"k\"\r\nTransfer-Encoding: chunked\r\n\
        Trailer: X-Sum\r\n\r\n2\r\n{}\r\n0\r\nX-Sum: 42\r\n\r\n";
    assert_eq!(raw(gateway.address, request).unwrap().status, 201);
    service.join().unwrap();
}

#[test]
fn grpc_is_refused_with_a_message_that_grpc_clients_show() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let gateway = Gateway::start(dir.path(), orders.address, "memory:", "");
    let ask = |kind: &str| {
        let headers = [("Content-Type", kind), ("Idempotency-Key", "\"k\"")];
        send(gateway.address, "POST", "/orders.Orders/Place", &headers, b"x")
    };
    for kind in ["application/grpc", "application/grpc+proto", "Application/gRPC; charset=utf-8"] {
        let answer = ask(kind);
        assert_eq!((answer.status, answer.problem().as_str()), (400, "request-refused"), "{kind}");
        assert_eq!(answer.header("grpc-status"), Some("12"), "{kind}");
        assert!(answer.header("grpc-message").unwrap().contains("does not support gRPC"), "{answer:?}");
    }
    assert_eq!(ask("application/grpc-web+proto").status, 201, "gRPC-Web works over HTTP/1.1");
}
