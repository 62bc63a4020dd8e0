use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;

use http_body_util::BodyExt;
use socket2::SockRef;

use super::*;

/// An upstream on its own thread. It serves one request on each connection, and closes the connection on command.
struct ClosingUpstream {
    address: SocketAddr,
    command: mpsc::Sender<()>,
    closed: mpsc::Receiver<()>,
}

impl ClosingUpstream {
    fn start(close: fn(TcpStream)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (command, commands) = mpsc::channel();
        let (done, closed) = mpsc::channel();
        std::thread::spawn(move || {
            for number in 1.. {
                let (mut stream, peer) = listener.accept().unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    assert_eq!(stream.read(&mut byte).unwrap(), 1, "request {number} is cut off");
                    head.extend(byte);
                }
                write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{number}").unwrap();
                let Ok(()) = commands.recv() else { return };
                close(stream);
                wait_until_not_established(peer);
                done.send(()).unwrap();
            }
        });
        Self { address, command, closed }
    }

    /// Closes the connection. Blocks the caller's thread, so that its runtime does not poll the socket meanwhile.
    fn close(&self) {
        self.command.send(()).unwrap();
        self.closed.recv().unwrap();
    }
}

/// Waits until the other end of a connection is no longer established.
fn wait_until_not_established(peer: SocketAddr) {
    let established = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let local =
            fields.next().and_then(|address| address.split_once(':')).map(|(_, port)| port.to_owned());
        local == Some(format!("{:04X}", peer.port())) && fields.nth(1) == Some("01")
    };
    while std::fs::read_to_string("/proc/net/tcp").unwrap().lines().any(established) {
        std::thread::yield_now();
    }
}

fn pool(address: SocketAddr) -> Arc<Pool> {
    let upstream = Upstream::check(&format!("http://{address}"), None).unwrap();
    Arc::new(Pool::new(&upstream, std::iter::empty(), 10).unwrap())
}

async fn send(pool: &Arc<Pool>) -> Result<Bytes, Failure> {
    let request = Request::post("/").header("host", "h").body(Body::from(Bytes::new())).unwrap();
    Ok(pool.send(request).await?.into_body().collect().await.unwrap().to_bytes())
}

async fn send_after_close(close: fn(TcpStream)) {
    let upstream = ClosingUpstream::start(close);
    let pool = pool(upstream.address);
    assert_eq!(send(&pool).await.unwrap(), "1");
    while pool.lock().connections.is_empty() {
        tokio::task::yield_now().await;
    }
    // Without an await between the two: the runtime has not polled the socket since it was closed.
    upstream.close();
    assert_eq!(send(&pool).await.unwrap(), "2");
}

#[tokio::test]
async fn a_request_on_a_closed_connection_is_sent_on_another() {
    send_after_close(drop).await;
}

#[tokio::test]
async fn a_request_on_a_reset_connection_is_sent_on_another() {
    send_after_close(|stream| SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap()).await;
}

/// Some servers send 408 when they close an idle connection.
#[tokio::test]
async fn a_408_on_close_is_not_the_response_to_the_next_request() {
    send_after_close(|mut stream| {
        stream
            .write_all(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .unwrap();
    })
    .await;
}

#[test]
fn an_idle_connection_is_closed_before_the_upstream_closes_it() {
    let keep_alive_ms = |line: &'static str| {
        let headers = HeaderMap::from_iter([(KEEP_ALIVE, http::HeaderValue::from_static(line))]);
        keep_alive(&headers).map(|time| time.as_millis())
    };
    assert_eq!(keep_alive_ms("timeout=5"), Some(4000));
    assert_eq!(keep_alive_ms("max=100, timeout=2"), Some(1000));
    assert_eq!(keep_alive_ms("timeout=1"), Some(500));
    assert_eq!(keep_alive_ms("timeout=0"), Some(0));
    assert_eq!((keep_alive_ms("max=100"), keep_alive_ms("timeout=soon")), (None, None));
}
