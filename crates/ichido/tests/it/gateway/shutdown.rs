//! SIGTERM: WebSockets and streams may finish within `shutdown_seconds`, and are closed then.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;

use crate::support::http::{connect, head, read_chunk, read_head};
use crate::support::{Gateway, Orders, eventually};

fn start(settings: &str) -> (tempfile::TempDir, Orders, Gateway) {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let gateway = Gateway::start(dir.path(), orders.address, "memory:", settings);
    (dir, orders, gateway)
}

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
