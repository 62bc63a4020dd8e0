//! No client can take more than its share.

use std::io::{BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::Command;

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;
use ichido_testkit::http_client::{connect, get, head, post, read_head, read_response, send};
use ichido_testkit::orders::Orders;

use super::start;
use crate::support::Gateway;

/// The peak memory of the gateway, in bytes.
#[cfg(target_os = "linux")]
fn peak_memory(gateway: &Gateway) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.process.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// A document of `len` bytes that starts with its id.
fn document(id: usize, len: usize) -> Vec<u8> {
    let mut text = format!("{{\"id\":\"E{id}\",\"numbers\":[0").into_bytes();
    text.extend(b",1".iter().cycle().take(len));
    text.extend(b"]}");
    text
}

#[cfg(target_os = "linux")]
#[test]
fn the_key_of_a_large_document_is_found_without_buffering_it_in_memory() {
    const LEN: usize = 30_000_000;
    let (_dir, orders, gateway) = start("[[gateway.routes]]\nkey = \"json:/id\"\n");
    let before = peak_memory(&gateway);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|id| scope.spawn(move || send(gateway.address, "POST", "/orders", &[], &document(id, LEN))))
            .collect();
        for client in clients {
            assert_eq!(client.join().unwrap().status, 201);
        }
    });
    assert!(send(gateway.address, "POST", "/orders", &[], &document(0, LEN)).is_replay());
    assert_eq!(orders.effects().len(), 3);
    let grown = (peak_memory(&gateway) - before) >> 20;
    assert!(grown < 100, "three documents of {} MB took {grown} MB", LEN / 1_000_000);
}

/// With few descriptors, only as many clients are accepted as leave some for the ledger. Others wait.
#[test]
fn clients_leave_descriptors_for_the_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let gateway = Gateway::start_with(dir.path(), orders.address, "file:ledger", "", |command| {
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -Sn 128; ulimit -Hn 256; exec \"$0\" \"$@\""]);
        limited.arg(command.get_program()).args(command.get_args());
        limited.current_dir(dir.path());
        *command = limited;
    });
    let said = gateway.process.stderr();
    assert!(said.contains("raised the open file limit") && said.contains("256"), "{said}");
    let mut first = connect(gateway.address).unwrap();
    let idle: Vec<_> = (0..150)
        .map(|_| {
            let mut stream = connect(gateway.address).unwrap();
            stream.write_all(b"POST /or").unwrap();
            stream
        })
        .collect();
    gateway.process.wait_for_stderr("connection limit reached");
    first.write_all(&head("POST", "/orders", &[("Idempotency-Key", "\"k\"")], Some(2))).unwrap();
    first.write_all(b"{}").unwrap();
    assert_eq!(read_response(&mut BufReader::new(first)).unwrap().status, 201);
    assert_eq!(get(gateway.admin, "/readyz").status, 200);
    drop(idle);
    assert!(post(gateway.address, "/orders", "\"k\"", "{}").is_replay(), "waiting clients are served");
}

async fn h2(to: SocketAddr) -> (SendRequest<Bytes>, tokio::task::JoinHandle<Result<(), h2::Error>>) {
    let stream = tokio::net::TcpStream::connect(to).await.unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    (sender, tokio::spawn(connection))
}

fn order(key: usize) -> Request<()> {
    let request = Request::post("http://localhost/orders").header("x-trouble", "sleep=50");
    request.header("idempotency-key", format!("\"rude-{key}\"")).body(()).unwrap()
}

/// A request continues after its client resets it, and keeps its slot until it is done: a slot of its own connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reset_requests_take_slots_of_their_own_connection_only() {
    let (_dir, orders, gateway) = start("[gateway]\ninflight_max = 6\ninflight_max_per_connection = 4\n");
    let (mut sender, _connection) = h2(gateway.address).await;
    for key in 0..4 {
        sender = sender.ready().await.unwrap();
        let (_, mut stream) = sender.send_request(order(key), true).unwrap();
        orders.wait_for_start(&format!("\"rude-{key}\""));
        stream.send_reset(h2::Reason::CANCEL);
    }
    for key in 4..10 {
        sender = sender.ready().await.unwrap();
        let (answer, _) = sender.send_request(order(key), true).unwrap();
        assert_eq!(answer.await.unwrap().status(), 503);
    }
    assert_eq!(post(gateway.address, "/orders", "\"polite\"", "{}").status, 201);
}

/// One connection opens requests and resets them at once, as often as it can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_resets_its_streams_is_disconnected_and_others_are_served() {
    let (_dir, orders, gateway) = start("[gateway]\ninflight_max = 300\n");
    let (mut sender, connection) = h2(gateway.address).await;
    let mut opened = 0;
    // Enough to take every slot, if each took one.
    while opened < 20_000 {
        let Ok(ready) = sender.clone().ready().await else { break };
        sender = ready;
        let Ok((_, mut stream)) = sender.send_request(order(opened), true) else { break };
        stream.send_reset(h2::Reason::CANCEL);
        opened += 1;
    }
    drop(sender);
    let ended = connection.await.unwrap();
    assert!(opened < 20_000, "never disconnected: {ended:?}");
    let (address, admin) = (gateway.address, gateway.admin);
    tokio::task::spawn_blocking(move || {
        assert_eq!(post(address, "/orders", "\"polite\"", "{}").status, 201);
        assert_eq!(get(admin, "/readyz").status, 200);
    })
    .await
    .unwrap();
    assert!(orders.effects().iter().any(|effect| effect["key"] == "\"polite\""));
}

/// An endless head: HEADERS without END_HEADERS, then an endless series of CONTINUATION frames.
#[test]
fn an_endless_head_closes_its_own_connection_only() {
    let (_dir, _orders, gateway) = start("");
    let frame = |kind: u8, stream: u8, payload: &[u8]| {
        let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&len[1..], &[kind, 0, 0, 0, 0, stream], payload].concat()
    };
    let mut client = connect(gateway.address).unwrap();
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    client.write_all(&frame(4, 0, &[])).unwrap();
    // A literal field of 1,000 bytes without indexing: HPACK encodes lengths from 127 on with more bytes.
    let field = [&b"\x00\x03abc\x7f\xe9\x06"[..], &[b'x'; 1000]].concat();
    client.write_all(&frame(1, 1, &field)).unwrap();
    let flood = frame(9, 1, &field);
    let sent = (0..200_000).take_while(|_| client.write_all(&flood).is_ok()).count();
    assert!(sent < 200_000, "{sent} frames were accepted");
    let mut rest = Vec::new();
    let _ = client.read_to_end(&mut rest);
    assert_eq!(post(gateway.address, "/orders", "\"k\"", "{}").status, 201);
}

/// A slow client keeps its slot while its body arrives, and is served.
#[test]
fn an_unfinished_body_holds_a_slot_until_it_is_complete() {
    let (_dir, _orders, gateway) = start("[gateway]\ninflight_max = 1\n");
    let mut slow = connect(gateway.address).unwrap();
    let headers = [("Idempotency-Key", "\"slow\""), ("Expect", "100-continue")];
    slow.write_all(&head("POST", "/orders", &headers, Some(2))).unwrap();
    let mut reader = BufReader::new(slow.try_clone().unwrap());
    // The gateway takes the slot before it reads the body.
    assert_eq!(read_head(&mut reader).unwrap().status, 100);
    slow.write_all(b"{").unwrap();
    let refused = post(gateway.address, "/orders", "\"quick\"", "{}");
    assert_eq!((refused.status, refused.problem().as_str()), (503, "overloaded"));
    slow.write_all(b"}").unwrap();
    assert_eq!(read_response(&mut reader).unwrap().status, 201);
}
