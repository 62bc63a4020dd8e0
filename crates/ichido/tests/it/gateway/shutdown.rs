//! SIGTERM: requests, WebSockets and streams may finish within `shutdown_seconds`.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ichido_testkit::http_client::{connect, get, head, post, read_chunk, read_head, send};
use ichido_testkit::wait::eventually;

use super::start;
use crate::support::Gateway;

/// An upgraded connection and its reader.
fn upgraded(gateway: &Gateway) -> (TcpStream, BufReader<TcpStream>) {
    let mut stream = connect(gateway.address).unwrap();
    stream.write_all(b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    assert_eq!(read_head(&mut reader).unwrap().status, 101);
    (stream, reader)
}

fn terminate(gateway: &Gateway) {
    gateway.process.signal("TERM");
    eventually("a closed port", || connect(gateway.address).is_err().then_some(()));
}

#[test]
fn an_upgraded_connection_may_finish_after_sigterm() {
    let (_dir, _orders, mut gateway) = start("");
    let (mut stream, mut reader) = upgraded(&gateway);
    terminate(&gateway);
    for _ in 0..20 {
        stream.write_all(b"late").unwrap();
        let mut echoed = [0; 9];
        reader.read_exact(&mut echoed).unwrap();
        assert_eq!(&echoed, b"echo late");
        assert!(gateway.process.child.try_wait().unwrap().is_none(), "the gateway waits for the connection");
    }
    drop((stream, reader));
    assert_eq!(gateway.process.exit_code(), 0, "{}", gateway.process.stderr());
    assert!(!gateway.process.stderr().contains("closing upgraded connections"));
}

#[test]
fn an_upgraded_connection_is_closed_after_shutdown_seconds() {
    let (_dir, _orders, mut gateway) = start("[gateway]\nshutdown_seconds = 1\n");
    let (_stream, mut reader) = upgraded(&gateway);
    terminate(&gateway);
    assert_eq!(gateway.process.exit_code(), 0, "{}", gateway.process.stderr());
    assert_eq!(reader.read(&mut [0; 1]).unwrap_or(0), 0, "closed");
    assert!(
        gateway.process.stderr().contains("closing upgraded connections"),
        "{}",
        gateway.process.stderr()
    );
}

#[test]
fn a_stream_may_finish_after_sigterm() {
    let (_dir, orders, mut gateway) = start("");
    let mut stream = connect(gateway.address).unwrap();
    stream.write_all(&head("GET", "/stream", &[], None)).unwrap();
    let mut reader = BufReader::new(stream);
    assert_eq!(read_head(&mut reader).unwrap().status, 200);
    terminate(&gateway);
    for number in 0..3 {
        let piece = read_chunk(&mut reader).unwrap().unwrap();
        assert_eq!(piece, format!("data: {number}\n\n").as_bytes());
        // The upstream sends the next event only after this one has arrived here.
        std::fs::write(format!("{}.seen{number}", orders.log.display()), "").unwrap();
    }
    assert_eq!(read_chunk(&mut reader).unwrap(), None);
    assert_eq!(gateway.process.exit_code(), 0, "{}", gateway.process.stderr());
}

#[test]
fn requests_in_progress_are_finished_at_shutdown() {
    let (dir, orders, mut gateway) = start("");
    let address = gateway.address;
    let slow = [("Idempotency-Key", "\"k\""), ("X-Trouble", "sleep=1")];
    let client = std::thread::spawn(move || send(address, "POST", "/orders", &slow, b"{}"));
    let mut gone = connect(address).unwrap();
    let headers = [("Idempotency-Key", "\"gone\""), ("X-Trouble", "sleep=1")];
    gone.write_all(&head("POST", "/orders", &headers, Some(2))).unwrap();
    gone.write_all(b"{}").unwrap();
    orders.wait_for_start("\"k\"");
    orders.wait_for_start("\"gone\"");
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
fn shutdown_takes_no_longer_than_shutdown_seconds() {
    let settings = "[gateway]\nshutdown_seconds = 1\n[[gateway.routes]]\nlease_ms = 1000\n";
    let (dir, orders, mut gateway) = start(settings);
    let mut client = connect(gateway.address).unwrap();
    let hanging = [("Idempotency-Key", "\"k\""), ("X-Trouble", "sleep=50")];
    client.write_all(&head("POST", "/orders", &hanging, Some(2))).unwrap();
    client.write_all(b"{}").unwrap();
    orders.wait_for_start("\"k\"");
    // A lease that is being renewed does not delay the exit.
    let settled = "ichido_ledger_seconds_count{backend=\"file\",verb=\"settle\"} ";
    eventually("a renewal", || {
        let metrics = get(gateway.admin, "/metrics").text();
        let count = metrics.lines().find_map(|line| line.strip_prefix(settled)?.parse::<u64>().ok());
        count.filter(|count| *count > 0)
    });
    let asked = Instant::now();
    gateway.process.signal("TERM");
    assert_eq!(gateway.process.exit_code(), 0, "{}", gateway.process.stderr());
    assert!(asked.elapsed() < Duration::from_secs(30), "{:?}", asked.elapsed());
    assert!(gateway.process.stderr().contains("did not finish in time"), "{}", gateway.process.stderr());
    let gateway = Gateway::start(dir.path(), orders.address, "file:ledger", settings);
    assert_eq!(post(gateway.address, "/orders", "\"k\"", "{}").problem(), "in-doubt");
}
