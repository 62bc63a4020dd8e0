//! Clients that do not read, upstreams that do not respond, and a standard error that nobody reads.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ichido_testkit::http_client::{connect, get, head, post, raw, read_head};
use ichido_testkit::orders::Orders;
use ichido_testkit::process::{Process, address_after};
use ichido_testkit::tcp_server::{self, RawRequest};
use ichido_testkit::wait::eventually;

use super::start;
use crate::support::{Gateway, gateway_command};

/// More than all socket buffers on the path, and far less than the gateway could buffer in a second.
const BUFFERED_MAX: u64 = 64 << 20;

/// An upstream with endless responses, and the number of bytes it has sent.
fn endless_upstream() -> (SocketAddr, Arc<AtomicU64>) {
    let sent = Arc::new(AtomicU64::new(0));
    let counted = sent.clone();
    (tcp_server::start(move |stream| send_endlessly(stream, &counted)), sent)
}

fn send_endlessly(mut stream: TcpStream, counted: &AtomicU64) {
    RawRequest::read(&mut BufReader::new(&stream)).unwrap();
    let mut piece = b"10000\r\n".to_vec();
    piece.extend([b'x'; 0x10000]);
    piece.extend(b"\r\n");
    let mut sent = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    // Bounded, in case the gateway reads everything.
    while sent.is_ok() && counted.load(Ordering::Relaxed) < 8 * BUFFERED_MAX {
        sent = stream.write_all(&piece);
        counted.fetch_add(piece.len() as u64, Ordering::Relaxed);
    }
}

#[test]
fn a_response_that_nobody_reads_is_not_buffered() {
    let requests = [
        head("GET", "/endless", &[], None),
        [&head("GET", "/endless", &[], None)[..], b"\r\n"].concat(),
        [&head("POST", "/endless", &[("Idempotency-Key", "\"k\"")], Some(2))[..], b"{}"].concat(),
    ];
    for request in requests {
        let (dir, (upstream, sent)) = (tempfile::tempdir().unwrap(), endless_upstream());
        let gateway = Gateway::start(dir.path(), upstream, "memory:", "");
        let mut client = connect(gateway.address).unwrap();
        client.write_all(&request).unwrap();
        let what = String::from_utf8_lossy(&request).into_owned();
        let buffered = eventually("full buffers", || {
            let before = sent.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(500));
            let after = sent.load(Ordering::Relaxed);
            (before > 0 && before == after).then_some(after)
        });
        assert!(buffered < BUFFERED_MAX, "{} MB were buffered for {what}", buffered >> 20);
        // The response arrives as soon as the client reads.
        let mut reader = BufReader::new(client);
        assert_eq!(read_head(&mut reader).unwrap().status, 200, "{what}");
        reader.read_exact(&mut vec![0; 32 << 20]).unwrap();
    }
}

#[test]
fn bytes_after_a_request_do_not_delay_its_response() {
    let (_dir, orders, gateway) = start("");
    for (key, behind) in ["\r\n", "G", "POST /orders HTTP/1.1\r\nHost: lo"].iter().enumerate() {
        let key = format!("\"{key}\"");
        let request = format!(
            "POST /orders HTTP/1.1\r\nHost: x\r\nIdempotency-Key: {key}\r\nContent-Length: 2\r\n\r\n{{}}{behind}"
        );
        let asked = Instant::now();
        assert_eq!(raw(gateway.address, request.as_bytes()).unwrap().status, 201, "{behind:?}");
        assert!(
            asked.elapsed() < Duration::from_secs(20),
            "the response came only with the close: {behind:?}"
        );
    }
    assert_eq!(orders.effects().len(), 3);
}

#[test]
fn a_gateway_whose_standard_error_is_closed_serves_and_exits_normally() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let mut command = gateway_command(dir.path(), orders.address, "file:ledger", "");
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let address = loop {
        let mut line = String::new();
        assert!(said.read_line(&mut line).unwrap() > 0, "no start line");
        if line.contains("ichido gateway: ") {
            break address_after(&line, "listening on ");
        }
    };
    drop(said);
    for key in ["\"a\"", "\"b\""] {
        assert_eq!(post(address, "/orders", key, "{}").status, 201);
    }
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let status = eventually("the exit", || child.try_wait().unwrap());
    assert!(status.success(), "{status}");
}

#[test]
fn an_upstream_that_hangs_in_the_tls_handshake_got_no_request() {
    let dir = tempfile::tempdir().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = format!("https://{}", silent.local_addr().unwrap());
    std::fs::write(dir.path().join("ichido.toml"), "[[gateway.routes]]\nupstream_timeout_ms = 1000\n")
        .unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ichido"));
    command.current_dir(dir.path()).args(["gateway", "--listen", "127.0.0.1:0", "--admin", "off"]);
    let mut process = Process::start(command.args(["--ledger", "memory:", "--upstream", &upstream])).unwrap();
    let address = process.wait_for_address("listening on ").unwrap();
    for _ in 0..2 {
        let answer = post(address, "/orders", "\"k\"", "{}");
        assert_eq!((answer.status, answer.problem().as_str()), (502, "upstream-unreachable"));
    }
    assert_eq!(get(address, "/orders").status, 502);
    drop(silent);
}
