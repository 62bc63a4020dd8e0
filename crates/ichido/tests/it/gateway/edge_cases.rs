//! Large bodies, disconnects, ambiguous framing, shutdown under load, idle and closed connections.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use crate::support::http::{connect, get, head, post, raw, read_head, send};
use crate::support::{Gateway, Orders, eventually};

fn start(settings: &str) -> (tempfile::TempDir, Orders, Gateway) {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let gateway = Gateway::start(dir.path(), orders.address, "file:ledger", settings);
    (dir, orders, gateway)
}

#[test]
fn a_client_that_disconnects_gets_its_response_on_retry() {
    let (_dir, orders, gateway) = start("");
    let mut stream = connect(gateway.address).unwrap();
    let headers = [("Idempotency-Key", "\"k\""), ("X-Trouble", "sleep=0.5")];
    stream.write_all(&head("POST", "/orders", &headers, Some(2))).unwrap();
    stream.write_all(b"{}").unwrap();
    orders.started("\"k\"");
    drop(stream);
    let answer = eventually("the response", || {
        Some(post(gateway.address, "/orders", "\"k\"", "{}")).filter(|answer| answer.status == 201)
    });
    assert!(answer.is_replay());
    assert_eq!(orders.effects().len(), 1);
}

#[test]
fn an_interrupted_upload_claims_nothing() {
    let (_dir, orders, gateway) = start("");
    let mut stream = connect(gateway.address).unwrap();
    stream.write_all(&head("POST", "/orders", &[("Idempotency-Key", "\"k\"")], Some(100))).unwrap();
    stream.write_all(b"{\"half\":").unwrap();
    drop(stream);
    assert_eq!(post(gateway.address, "/orders", "\"k\"", "{}").status, 201);
    assert_eq!(orders.effects().len(), 1);
}

#[test]
fn a_large_response_is_streamed_and_not_stored() {
    let (_dir, orders, gateway) = start("");
    let headers = [("Idempotency-Key", "\"k\""), ("X-Trouble", "large=3000000")];
    let first = send(gateway.address, "POST", "/orders", &headers, b"{}");
    assert_eq!((first.status, first.body.len()), (201, 3_000_000));
    let again = send(gateway.address, "POST", "/orders", &headers, b"{}");
    assert_eq!((again.status, again.problem().as_str()), (409, "answer-not-kept"));
    let headers = [("Idempotency-Key", "\"cut\""), ("X-Trouble", "large=3000000,half")];
    assert!(
        crate::support::http::try_send(gateway.address, "POST", "/orders", &headers, b"{}").is_err(),
        "an interrupted response is an error for the client"
    );
    let again = eventually("the claim in doubt", || {
        Some(post(gateway.address, "/orders", "\"cut\"", "{}"))
            .filter(|answer| answer.problem() != "in-flight")
    });
    assert_eq!((again.status, again.problem().as_str()), (409, "in-doubt"));
    assert_eq!(orders.effects().len(), 2);
}

#[test]
fn a_large_request_is_spilled_to_disk_and_a_larger_one_is_refused() {
    let (_dir, orders, gateway) = start("[gateway]\nbody_memory_bytes = 1000\nbody_max_bytes = 5000000\n");
    let body = vec![b'x'; 4_000_000];
    let first = send(gateway.address, "POST", "/orders", &[("Idempotency-Key", "\"k\"")], &body);
    assert_eq!(first.status, 201);
    assert!(send(gateway.address, "POST", "/orders", &[("Idempotency-Key", "\"k\"")], &body).is_replay());
    let mut other = body;
    other[3_999_999] = b'y';
    assert_eq!(send(gateway.address, "POST", "/orders", &[("Idempotency-Key", "\"k\"")], &other).status, 422);
    assert_eq!(orders.effects()[0]["bytes"], 4_000_000);

    // Refused because of its length: the body is not read.
    let mut stream = connect(gateway.address).unwrap();
    stream
        .write_all(&head(
            "POST",
            "/orders",
            &[("Idempotency-Key", "\"large\""), ("Expect", "100-continue")],
            Some(6_000_000),
        ))
        .unwrap();
    let answer = read_head(&mut BufReader::new(stream)).unwrap();
    assert_eq!(answer.status, 413);
    let chunked = [
        &head(
            "POST",
            "/orders",
            &[("Idempotency-Key", "\"chunks\""), ("Transfer-Encoding", "chunked")],
            None,
        )[..],
        b"2\r\n{}\r\n0\r\n\r\n",
    ]
    .concat();
    assert_eq!(raw(gateway.address, &chunked).unwrap().status, 201);
    assert_eq!(orders.effects().len(), 2);
}

#[test]
fn ambiguous_framing_is_not_forwarded() {
    let (_dir, orders, gateway) = start("");
    let smuggled = b"POST /orders HTTP/1.1\r\nHost: x\r\nIdempotency-Key: \"k\"\r\n";
    for framing in [
        &b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x"[..],
        b"Transfer-Encoding: gzip\r\n\r\n{}",
        b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"Content-Length: +2\r\n\r\n{}",
        b"Content-Length : 2\r\n\r\n{}",
        b"Bad Name: 2\r\n\r\n{}",
    ] {
        let answer = raw(gateway.address, &[smuggled, framing].concat()).unwrap();
        assert_eq!(answer.status, 400, "{:?}: {answer:?}", String::from_utf8_lossy(framing));
    }
    assert!(orders.effects().is_empty(), "{:?}", orders.effects());
    // With both framings, the chunks count and the connection is closed after them: the rest never becomes a request.
    for both in [
        &b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"[..],
        b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
    ] {
        let mut stream = connect(gateway.address).unwrap();
        let hidden = b"\r\n0\r\n\r\nPOST /evil HTTP/1.1\r\nHost: x\r\nIdempotency-Key: \"evil\"\r\nContent-Length: 2\r\n\r\n{}";
        stream.write_all(&[smuggled, both, hidden].concat()).unwrap();
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        // Unread bytes make the close a reset, which may overtake the response.
        assert!(String::from_utf8_lossy(&all).matches("HTTP/1.1 ").count() <= 1, "at most one response");
    }
    assert!(
        orders.effects().iter().all(|effect| effect["path"] == "/orders" && effect["bytes"] == 0),
        "{:?}",
        orders.effects()
    );
    assert_eq!(raw(gateway.address, b"\x16\x03\x01garbage\r\n\r\n").unwrap().status, 400);
    // Unread bytes make the close a reset, which may overtake the response.
    let huge = format!("POST /orders HTTP/1.1\r\nHost: x\r\nX-Huge: {}\r\n\r\n", "h".repeat(200_000));
    assert_eq!(raw(gateway.address, huge.as_bytes()).map_or(431, |answer| answer.status), 431);
    assert_eq!(post(gateway.address, "/orders", "\"after\"", "{}").status, 201, "the gateway still works");
}

#[test]
fn requests_in_progress_are_finished_at_shutdown() {
    let (dir, orders, mut gateway) = start("");
    let address = gateway.address;
    let slow = [("Idempotency-Key", "\"k\""), ("X-Trouble", "sleep=1")];
    let client = std::thread::spawn(move || send(address, "POST", "/orders", &slow, b"{}"));
    let mut gone = connect(address).unwrap();
    gone.write_all(&head(
        "POST",
        "/orders",
        &[("Idempotency-Key", "\"gone\""), ("X-Trouble", "sleep=1")],
        Some(2),
    ))
    .unwrap();
    gone.write_all(b"{}").unwrap();
    orders.started("\"k\"");
    orders.started("\"gone\"");
    drop(gone);
    gateway.process.signal("TERM");
    assert_eq!(client.join().unwrap().status, 201);
    assert_eq!(gateway.process.exit_code(), 0, "{}", gateway.process.stderr());
    let gateway = Gateway::start(dir.path(), orders.address, "file:ledger", "");
    for key in ["\"k\"", "\"gone\""] {
        assert!(post(gateway.address, "/orders", key, "{}").is_replay(), "{key}");
    }
    assert_eq!(orders.effects().len(), 2);
}

#[test]
fn requests_beyond_inflight_max_get_503() {
    let (_dir, orders, gateway) = start("[gateway]\ninflight_max = 1\n");
    let address = gateway.address;
    let client = std::thread::spawn(move || {
        send(address, "POST", "/orders", &[("Idempotency-Key", "\"a\""), ("X-Trouble", "sleep=1")], b"{}")
    });
    orders.started("\"a\"");
    let refused = post(address, "/orders", "\"b\"", "{}");
    assert_eq!(refused.status, 503);
    assert_eq!((refused.problem().as_str(), refused.header("retry-after")), ("overloaded", Some("1")));
    assert_eq!(client.join().unwrap().status, 201);
    eventually("a free slot", || (post(address, "/orders", "\"b\"", "{}").status == 201).then_some(()));
}

#[test]
fn idle_connections_do_not_block_others() {
    let (_dir, _orders, gateway) = start("");
    let mut idle: Vec<_> = (0..200).map(|_| connect(gateway.address).unwrap()).collect();
    idle.iter_mut().for_each(|stream| stream.write_all(b"POST /or").unwrap());
    assert_eq!(post(gateway.address, "/orders", "\"k\"", "{}").status, 201);
    let mut one = idle.remove(0);
    one.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(one.read(&mut [0; 1]).is_err(), "neither a response nor a close yet");
}

/// An upstream whose connections stay open after a response, until the test closes them.
struct KeepAliveUpstream(TcpListener);

impl KeepAliveUpstream {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    /// Accepts a connection, if there is one, and reads the path of its request.
    fn accept(&self) -> Option<(TcpStream, String)> {
        let (stream, _) = match self.0.accept() {
            Ok(new) => new,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(error) => panic!("{error}"),
        };
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let (mut reader, mut head) = (BufReader::new(&stream), String::new());
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "incomplete head: {head}");
        }
        let length = if head.starts_with("POST") { "{}".len() } else { 0 };
        reader.read_exact(&mut vec![0; length]).unwrap();
        let path = head.split(' ').nth(1).unwrap().to_owned();
        drop(reader);
        Some((stream, path))
    }
}

#[test]
fn a_request_that_finds_its_connections_closed_opens_a_new_one() {
    let (dir, upstream) = (tempfile::tempdir().unwrap(), KeepAliveUpstream::start());
    let gateway = Gateway::start(dir.path(), upstream.0.local_addr().unwrap(), "memory:", "");
    let address = gateway.address;
    let rounds = [("POST", 1), ("POST", 1), ("GET", 1), ("POST", 4), ("POST", 1), ("POST", 4), ("GET", 1)];
    for (round, &(method, count)) in rounds.iter().cycle().take(3 * rounds.len()).enumerate() {
        let paths: Vec<String> = (0..count).map(|number| format!("/orders/{round}-{number}")).collect();
        let ask = |path: &String| {
            let (path, key) = (path.clone(), format!("\"{path}\""));
            std::thread::spawn(move || match method {
                "POST" => post(address, &path, &key, "{}"),
                _ => get(address, &path),
            })
        };
        let clients: Vec<_> = paths.iter().map(ask).collect();
        let mut taken = Vec::new();
        eventually("the requests", || {
            taken.extend(std::iter::from_fn(|| upstream.accept()));
            let is_early = clients.iter().any(std::thread::JoinHandle::is_finished);
            assert!(
                !is_early,
                "round {round}: a response did not come from the upstream: {}",
                gateway.process.stderr()
            );
            (taken.len() >= paths.len()).then_some(())
        });
        taken.sort_by(|(_, one), (_, other)| one.cmp(other));
        assert_eq!(taken.iter().map(|(_, path)| path).collect::<Vec<_>>(), paths.iter().collect::<Vec<_>>());
        for (stream, _) in &mut taken {
            stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}").unwrap();
        }
        for client in clients {
            let answer = client.join().unwrap();
            assert_eq!((answer.status, answer.is_replay()), (201, false), "round {round}: {answer:?}");
        }
        // These connections are idle now. The next round finds them closed.
        drop(taken);
    }
    assert!(upstream.accept().is_none(), "no request arrived twice");
}
