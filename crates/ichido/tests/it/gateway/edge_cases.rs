//! Large bodies, ambiguous framing and idle connections.

use std::io::{BufReader, Read, Write};
use std::time::Duration;

use ichido_testkit::http_client::{connect, head, post, raw, read_head, send, try_send};
use ichido_testkit::wait::eventually;

use super::start;

#[test]
fn a_large_response_is_streamed_and_not_stored() {
    let (_dir, orders, gateway) = start("");
    let headers = [("Idempotency-Key", "\"k\""), ("X-Trouble", "large=3000000")];
    let first = send(gateway.address, "POST", "/orders", &headers, b"{}");
    assert_eq!((first.status, first.body.len()), (201, 3_000_000));
    let again = send(gateway.address, "POST", "/orders", &headers, b"{}");
    assert_eq!((again.status, again.problem().as_str()), (409, "answer-not-kept"));
    let headers = [("Idempotency-Key", "\"cut\""), ("X-Trouble", "large=3000000,half")];
    let cut = try_send(gateway.address, "POST", "/orders", &headers, b"{}");
    assert!(cut.is_err(), "an interrupted response is an error for the client");
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
    assert_eq!(orders.effects()[0]["bytes"], 4_000_000);

    // Refused because of its length: the body is not read.
    let mut stream = connect(gateway.address).unwrap();
    let headers = [("Idempotency-Key", "\"large\""), ("Expect", "100-continue")];
    stream.write_all(&head("POST", "/orders", &headers, Some(6_000_000))).unwrap();
    assert_eq!(read_head(&mut BufReader::new(stream)).unwrap().status, 413);
    let headers = [("Idempotency-Key", "\"chunks\""), ("Transfer-Encoding", "chunked")];
    let chunked = [&head("POST", "/orders", &headers, None)[..], b"2\r\n{}\r\n0\r\n\r\n"].concat();
    assert_eq!(raw(gateway.address, &chunked).unwrap().status, 201);
    assert_eq!(orders.effects().len(), 2);
}

#[test]
fn ambiguous_or_malformed_requests_are_not_forwarded() {
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
    let fields: String = (0..200).map(|number| format!("X-{number}: x\r\n")).collect();
    let many = format!("GET /orders HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
    assert_eq!(raw(gateway.address, many.as_bytes()).unwrap().status, 431);
    // Unread bytes make the close a reset, which may overtake the response.
    let huge = format!("POST /orders HTTP/1.1\r\nHost: x\r\nX-Huge: {}\r\n\r\n", "h".repeat(200_000));
    assert_eq!(raw(gateway.address, huge.as_bytes()).map_or(431, |answer| answer.status), 431);
    assert_eq!(post(gateway.address, "/orders", "\"after\"", "{}").status, 201, "the gateway still works");
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
