//! Requests that need no key pass unchanged; streams, `100-continue` and upgrades work.

use std::io::{BufReader, Read, Write};

use crate::support::http::{connect, get, head, raw, read_chunk, read_head, send};
use crate::support::{Gateway, Orders, eventually};

fn start(settings: &str) -> (tempfile::TempDir, Orders, Gateway) {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let gateway = Gateway::start(dir.path(), orders.address, "memory:", settings);
    (dir, orders, gateway)
}

#[test]
fn safe_requests_pass_with_or_without_a_key() {
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
    let header = |name: &str| {
        seen["headers"]
            .as_object()
            .unwrap()
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.clone())
    };
    assert_eq!(header("x-forwarded-for").unwrap(), "10.0.0.1, 127.0.0.1");
    assert_eq!(
        (header("x-forwarded-proto").unwrap(), header("x-forwarded-host").unwrap()),
        ("http".into(), "localhost".into())
    );
    assert_eq!((header("host").unwrap(), header("x-kept").unwrap()), ("localhost".into(), "1".into()));
    assert_eq!(
        (header("x-secret"), header("connection")),
        (None, None),
        "hop-by-hop headers are not forwarded"
    );
    for method in ["GET", "OPTIONS"] {
        let answer = send(gateway.address, method, "/x", &[("Idempotency-Key", "\"k\"")], b"");
        assert!(answer.status == 200 && !answer.is_replay(), "{method}: {answer:?}");
    }
    let mut stream = connect(gateway.address).unwrap();
    stream.write_all(&head("HEAD", "/x", &[("Idempotency-Key", "\"k\"")], None)).unwrap();
    let answer = read_head(&mut BufReader::new(stream)).unwrap();
    assert_eq!(answer.status, 200);
}

#[test]
fn unkeyed_writes_pass_where_no_key_is_needed() {
    let (_dir, orders, gateway) = start("[[gateway.routes]]\nrequired = false\n");
    for _ in 0..2 {
        let answer = send(gateway.address, "POST", "/orders", &[], b"{}");
        assert!(answer.status == 201 && !answer.is_replay());
    }
    let put = send(gateway.address, "PUT", "/orders", &[("Idempotency-Key", "\"k\"")], b"{}");
    assert_eq!((put.status, put.is_replay()), (201, false), "no route matches PUT");
    assert_eq!(orders.effects().len(), 3);
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
fn connections_are_upgraded() {
    let (_dir, _orders, gateway) = start("");
    let mut stream = connect(gateway.address).unwrap();
    stream
        .write_all(b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: echo\r\n\r\n")
        .unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let answer = read_head(&mut reader).unwrap();
    assert_eq!((answer.status, answer.header("upgrade")), (101, Some("echo")));
    for word in ["one", "two"] {
        stream.write_all(word.as_bytes()).unwrap();
        let mut echoed = vec![0; 5 + word.len()];
        reader.read_exact(&mut echoed).unwrap();
        assert_eq!(echoed, format!("echo {word}").as_bytes());
    }
}

#[test]
fn bytes_sent_with_an_upgrade_request_reach_the_upgraded_connection() {
    let (_dir, _orders, gateway) = start("");
    let mut stream = connect(gateway.address).unwrap();
    stream
        .write_all(b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly")
        .unwrap();
    let mut reader = BufReader::new(stream);
    assert_eq!(read_head(&mut reader).unwrap().status, 101);
    let mut echoed = vec![0; 10];
    reader.read_exact(&mut echoed).unwrap();
    assert_eq!(echoed, b"echo early");
}

#[test]
fn an_observed_route_passes_everything_and_counts() {
    let (_dir, orders, gateway) = start("[[gateway.routes]]\nmode = \"observe\"\n");
    let with_key = [("Idempotency-Key", "\"k\"")];
    for (headers, body) in [
        (&with_key[..], "{}"),
        (&with_key, "{}"),
        (&with_key, "{\"other\":1}"),
        (&[], "{}"),
        (&[("Idempotency-Key", "a b")], "{}"),
    ] {
        let answer = send(gateway.address, "POST", "/orders", headers, body.as_bytes());
        assert!(answer.status == 201 && !answer.is_replay(), "{answer:?}");
        assert_eq!(answer.header("idempotency-key-lifetime"), None);
    }
    assert_eq!(orders.effects().len(), 5);
    let metrics = get(gateway.admin, "/metrics").text();
    for (outcome, count) in [("first", 1), ("replayed", 1), ("mismatch", 1), ("refused", 2)] {
        let line = format!(
            "ichido_observed_requests_total{{route=\"POST,PATCH /**\",outcome=\"{outcome}\"}} {count}"
        );
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
}

#[test]
fn an_unreachable_upstream_is_502_for_unkeyed_requests_too() {
    let (_dir, mut orders, gateway) = start("");
    orders.process.kill();
    let answer = get(gateway.address, "/x");
    assert_eq!((answer.status, answer.problem().as_str()), (502, "upstream-unreachable"));
}
