//! Requests that need no key pass unchanged; streams, `100-continue` and upgrades work.

use std::io::{BufReader, Read, Write};

use ichido_testkit::http_client::{connect, get, head, raw, read_chunk, read_head, send};
use ichido_testkit::orders::Orders;
use ichido_testkit::wait::eventually;

use super::{received_header, start};
use crate::support::Gateway;

#[test]
fn safe_requests_pass_even_with_a_key() {
    let (_dir, _orders, gateway) = start("");
    let headers = [
        ("Idempotency-Key", "\"k\""),
        ("X-Forwarded-For", "10.0.0.1"),
        ("Connection", "X-Secret"),
        ("X-Secret", "hop"),
        ("X-Kept", "1"),
    ];
    let seen = send(gateway.address, "GET", "/a%20b?c=%2F&d", &headers, b"").json();
    assert_eq!(seen["path"], "/a%20b?c=%2F&d");
    for (name, value) in [
        ("x-forwarded-for", Some("10.0.0.1, 127.0.0.1")),
        ("x-forwarded-proto", Some("http")),
        ("x-forwarded-host", Some("localhost")),
        ("host", Some("localhost")),
        ("x-kept", Some("1")),
        // Hop-by-hop headers are not forwarded.
        ("x-secret", None),
        ("connection", None),
    ] {
        assert_eq!(received_header(&seen, name).as_deref(), value, "{name}");
    }
    let mut stream = connect(gateway.address).unwrap();
    stream.write_all(&head("HEAD", "/x", &[("Idempotency-Key", "\"k\"")], None)).unwrap();
    let answer = read_head(&mut BufReader::new(stream)).unwrap();
    assert_eq!(answer.status, 200);
}

#[test]
fn unprotected_traffic_is_counted_logged_and_shown() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let gateway = Gateway::start_with(dir.path(), orders.address, "memory:", "", |command| {
        command.arg("--optional-key").env("LOG_LEVEL", "debug");
    });
    assert_eq!(send(gateway.address, "POST", "/orders", &[], b"{}").status, 201);
    for _ in 0..2 {
        assert_eq!(send(gateway.address, "PUT", "/orders/1", &[], b"{}").status, 201);
    }
    assert_eq!(get(gateway.address, "/x").status, 200);
    for framing in ["Host: y\r\n\r\n", "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"] {
        let request = format!("POST /orders HTTP/1.1\r\nHost: x\r\n{framing}");
        let refused = raw(gateway.address, request.as_bytes()).unwrap();
        assert_eq!((refused.status, refused.problem().as_str()), (400, "request-refused"), "{framing}");
    }
    let metrics = get(gateway.admin, "/metrics").text();
    for line in [
        "ichido_requests_total{route=\"POST,PATCH /**\",outcome=\"unkeyed\"} 1",
        "ichido_requests_total{outcome=\"unmatched\"} 2",
        "ichido_requests_total{outcome=\"safe\"} 1",
        "ichido_requests_total{outcome=\"refused\"} 2",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    eventually("the number in the console", || {
        get(gateway.admin, "/").text().contains("data-live=\"unprotected\">3<").then_some(())
    });
    let said = gateway.process.stderr();
    let logged = |level: &str, outcome: &str| {
        let outcome = format!("\"outcome\":\"{outcome}\"");
        said.lines().filter(|line| line.contains(level) && line.contains(&outcome)).count()
    };
    let passes = ["unkeyed", "unmatched", "safe"].map(|outcome| logged("DEBUG", outcome));
    assert_eq!((passes, logged("WARN", "refused")), ([1, 2, 1], 2), "{said}");
}

#[test]
fn events_are_streamed_without_delay() {
    let (_dir, orders, gateway) = start("");
    let mut stream = connect(gateway.address).unwrap();
    stream.write_all(&head("GET", "/stream", &[], None)).unwrap();
    let mut reader = BufReader::new(stream);
    assert_eq!(read_head(&mut reader).unwrap().header("content-type"), Some("text/event-stream"));
    for number in 0..3 {
        let piece = read_chunk(&mut reader).unwrap().unwrap();
        assert_eq!(piece, format!("data: {number}\n\n").as_bytes());
        // The upstream sends the next event only after this one has arrived here.
        std::fs::write(format!("{}.seen{number}", orders.log.display()), "").unwrap();
    }
    assert_eq!(read_chunk(&mut reader).unwrap(), None);
}

#[test]
fn a_client_that_expects_100_continue_gets_it() {
    let (_dir, orders, gateway) = start("");
    for key in [&[][..], &[("Idempotency-Key", "\"k\"")]] {
        let mut stream = connect(gateway.address).unwrap();
        let headers = [key, &[("Expect", "100-continue")]].concat();
        let method = if key.is_empty() { "PUT" } else { "POST" };
        stream.write_all(&head(method, "/orders", &headers, Some(5))).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        assert_eq!(read_head(&mut reader).unwrap().status, 100);
        stream.write_all(b"hello").unwrap();
        assert_eq!(read_head(&mut reader).unwrap().status, 201);
    }
    assert!(orders.effects().iter().all(|effect| effect["bytes"] == 5));
}

#[test]
fn connections_are_upgraded_and_bytes_sent_with_the_request_are_not_lost() {
    let (_dir, _orders, gateway) = start("");
    let mut stream = connect(gateway.address).unwrap();
    let upgrade = "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: echo\r\n\r\n";
    stream.write_all(format!("{upgrade}early").as_bytes()).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let answer = read_head(&mut reader).unwrap();
    assert_eq!((answer.status, answer.header("upgrade")), (101, Some("echo")));
    let mut echoed = [0; 10];
    reader.read_exact(&mut echoed).unwrap();
    assert_eq!(&echoed, b"echo early");
    stream.write_all(b"later").unwrap();
    reader.read_exact(&mut echoed).unwrap();
    assert_eq!(&echoed, b"echo later");
}
