//! A server for tests that care about bytes and connections.

use std::io::BufRead;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

/// Runs `serve` on a thread of its own for each connection, and returns the address. The server runs until the process
/// exits.
pub fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// A request as it was received.
#[derive(Clone, Debug)]
pub struct RawRequest {
    /// The request line and the headers.
    pub head: String,
    /// The body, if it has a `Content-Length`.
    pub body: Vec<u8>,
}

impl RawRequest {
    /// Reads a request. `None`: the client has closed the connection.
    pub fn read(reader: &mut impl BufRead) -> Option<Self> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body).ok()?;
        Some(Self { head, body })
    }

    /// The path.
    pub fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }
}
