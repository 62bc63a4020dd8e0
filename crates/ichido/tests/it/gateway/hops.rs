//! What holds for one connection only stays there: framing, changes of protocol, the name of the host.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};

use crate::support::Gateway;
use crate::support::http::{get, post};

/// A service that gives every request the same bytes, then closes.
fn service(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                let said = line.to_ascii_lowercase();
                length =
                    said.strip_prefix("content-length:").map_or(length, |said| said.trim().parse().unwrap());
                line.clear();
            }
            // What is left unread would make the closing a reset.
            let _ = reader.read_exact(&mut vec![0; length]);
            let _ = reader.into_inner().write_all(answer);
        }
    });
    address
}

fn before(answer: &'static [u8]) -> (tempfile::TempDir, Gateway) {
    let dir = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(dir.path(), service(answer), "memory:", "");
    (dir, gateway)
}

#[test]
fn an_answer_with_two_framings_is_read_by_its_chunks_and_passed_on_whole() {
    let (_dir, gateway) = before(
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    );
    assert_eq!(get(gateway.address, "/x").text(), "hello");
    for is_replay in [false, true] {
        let answer = post(gateway.address, "/orders", "\"k\"", "{}");
        assert_eq!((answer.text().as_str(), answer.is_replay()), ("hello", is_replay));
    }
}
