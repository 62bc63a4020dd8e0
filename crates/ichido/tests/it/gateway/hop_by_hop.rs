//! What belongs to one connection is not forwarded: framing, upgrades, hop-by-hop headers. And the rules for `Host`.

use std::io::{BufReader, Read, Write};
use std::process::Command;

use ichido_testkit::http_client::{get, post, raw, send};
use ichido_testkit::tcp_server::{self, RawRequest};

use super::{received_header, start};
use crate::support::Gateway;

/// A gateway whose upstream sends the same bytes to every request. It does not close connections: a request that is sent
/// while the close is on its way is lost, and rightly so.
fn gateway_for(response: &'static [u8]) -> (tempfile::TempDir, Gateway) {
    let upstream = tcp_server::start(move |mut stream| {
        let mut requests = BufReader::new(stream.try_clone().unwrap());
        while RawRequest::read(&mut requests).is_some() {
            stream.write_all(response).unwrap();
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(dir.path(), upstream, "memory:", "");
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
    let (_dir, _orders, gateway) = start("");
    let head = "GET /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n";
    for upgrade in
        ["Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n", "Upgrade: H2C\r\nUpgrade: TLS/1.2\r\n\r\n"]
    {
        let answer = raw(gateway.address, format!("{head}{upgrade}").as_bytes()).unwrap();
        assert_eq!(answer.status, 200);
        let seen = answer.json();
        for name in ["upgrade", "http2-settings", "connection"] {
            assert_eq!(received_header(&seen, name), None, "{upgrade}: {seen}");
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
    received_header(&seen.unwrap_or_else(|error| panic!("{error}: {curl:?}")), "cookie")
}

#[test]
fn separate_cookie_headers_are_joined() {
    let (_dir, _orders, gateway) = start("");
    for version in ["--http2-prior-knowledge", "--http1.1"] {
        assert_eq!(cookies_over(version, &gateway).as_deref(), Some("a=1; b=2; c=3"), "{version}");
    }
}

#[test]
fn the_target_overrides_the_host_header_and_an_ambiguous_host_is_refused() {
    let (_dir, _orders, gateway) = start("");
    let ask = |target: &str, hosts: &str| {
        raw(gateway.address, format!("GET {target} HTTP/1.1\r\n{hosts}\r\n").as_bytes()).unwrap()
    };
    for (target, host) in [("http://true.example/x", "true.example"), ("/x", "field.example")] {
        let seen = ask(target, "Host: field.example\r\n").json();
        assert_eq!(seen["path"], "/x");
        for name in ["host", "x-forwarded-host"] {
            assert_eq!(received_header(&seen, name).as_deref(), Some(host), "{target}");
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
    let upstream = tcp_server::start(|mut stream| {
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
    let gateway = Gateway::start(dir.path(), upstream, "memory:", "");
    let request =
        b"POST /orders HTTP/1.1\r\nHost: x\r\nIdempotency-Key: \"k\"\r\nTransfer-Encoding: chunked\r\n\
        Trailer: X-Sum\r\n\r\n2\r\n{}\r\n0\r\nX-Sum: 42\r\n\r\n";
    assert_eq!(raw(gateway.address, request).unwrap().status, 201);
}

#[test]
fn grpc_is_refused_with_a_message_that_grpc_clients_show() {
    let (_dir, _orders, gateway) = start("");
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
