//! Clients that do not read, upstreams that do not respond, and shutdown deadlines.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::http::{connect, get, head, post, raw, read_head};
use crate::support::{Gateway, Orders, Process, address_after, eventually, gateway_command};

/// More than all socket buffers on the path, and far less than the gateway could buffer in a second.
const BUFFERED_MAX: u64 = 64 << 20;

/// An upstream with endless responses, and the number of bytes it has sent.
fn endless_upstream() -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, sent) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
    let counted = sent.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let counted = counted.clone();
            std::thread::spawn(move || send_endlessly(stream, &counted));
        }
    });
    (address, sent)
}

fn send_endlessly(mut stream: TcpStream, counted: &AtomicU64) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        line.clear();
    }
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
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let gateway = Gateway::start(dir.path(), orders.address, "memory:", "");
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
fn malformed_requests_get_a_4xx_response() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let gateway = Gateway::start(dir.path(), orders.address, "memory:", "");
    let fields: String = (0..200).map(|number| format!("X-{number}: x\r\n")).collect();
    for (request, status) in [
        ("\u{16}garbage\r\n\r\n".to_owned(), 400),
        ("POST /orders HTTP/1.1\r\nHost: x\r\nContent-Length: +2\r\n\r\n{}".to_owned(), 400),
        (format!("GET /orders HTTP/1.1\r\nHost: x\r\n{fields}\r\n"), 431),
    ] {
        assert_eq!(raw(gateway.address, request.as_bytes()).unwrap().status, status, "{request:.40}");
    }
    assert!(orders.effects().is_empty());
}

#[test]
fn shutdown_takes_no_longer_than_shutdown_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let settings = "[gateway]\nshutdown_seconds = 1\n";
    let mut gateway = Gateway::start(dir.path(), orders.address, "file:ledger", settings);
    let mut client = connect(gateway.address).unwrap();
    let hanging = [("Idempotency-Key", "\"k\""), ("X-Trouble", "sleep=50")];
    client.write_all(&head("POST", "/orders", &hanging, Some(2))).unwrap();
    client.write_all(b"{}").unwrap();
    orders.started("\"k\"");
    // By now the lease has been renewed.
    std::thread::sleep(Duration::from_secs(6));
    let asked = Instant::now();
    gateway.process.signal("TERM");
    assert_eq!(gateway.process.exit_code(), 0, "{}", gateway.process.stderr());
    assert!(asked.elapsed() < Duration::from_secs(8), "{:?}", asked.elapsed());
    assert!(gateway.process.stderr().contains("did not finish in time"), "{}", gateway.process.stderr());
    let gateway = Gateway::start(dir.path(), orders.address, "file:ledger", settings);
    assert_eq!(post(gateway.address, "/orders", "\"k\"", "{}").problem(), "in-doubt");
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
    let process = Process::start(command.args(["--ledger", "memory:", "--upstream", &upstream]));
    let address = eventually("the start line", || {
        let said = process.stderr();
        said.lines()
            .find(|line| line.contains("ichido gateway: "))
            .map(|line| address_after(line, "listening on "))
    });
    for _ in 0..2 {
        let answer = post(address, "/orders", "\"k\"", "{}");
        assert_eq!((answer.status, answer.problem().as_str()), (502, "upstream-unreachable"));
    }
    assert_eq!(get(address, "/orders").status, 502);
    drop(silent);
}
