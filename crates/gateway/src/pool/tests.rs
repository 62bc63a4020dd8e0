use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;

use http_body_util::BodyExt;
use socket2::SockRef;

use super::*;

/// A service on a thread of its own. It answers one request on each connection, and closes the connection when told to.
struct Closing {
    address: SocketAddr,
    tell: mpsc::Sender<()>,
    closed: mpsc::Receiver<()>,
}

impl Closing {
    fn start(close: fn(TcpStream)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, told) = mpsc::channel();
        let (closes, closed) = mpsc::channel();
        std::thread::spawn(move || {
            for number in 1.. {
                let (mut stream, peer) = listener.accept().unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    assert_eq!(stream.read(&mut byte).unwrap(), 1, "the end of request {number}");
                    head.extend(byte);
                }
                write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{number}").unwrap();
                let Ok(()) = told.recv() else { return };
                close(stream);
                until_the_kernel_knows(peer);
                closes.send(()).unwrap();
            }
        });
        Self { address, tell, closed }
    }

    /// Closes the connection. Blocks the caller's thread, so that its runtime hears of nothing meanwhile.
    fn close(&self) {
        self.tell.send(()).unwrap();
        self.closed.recv().unwrap();
    }
}

/// Waits until the other end of a connection is no longer established.
fn until_the_kernel_knows(peer: SocketAddr) {
    let established = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().and_then(|place| place.split_once(':')).map(|(_, port)| port.to_owned());
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

async fn ask(pool: &Arc<Pool>) -> Result<Bytes, Failure> {
    let request = Request::post("/").header("host", "h").body(Body::from(Bytes::new())).unwrap();
    Ok(pool.send(request).await?.into_body().collect().await.unwrap().to_bytes())
}

async fn ask_after_the_close(close: fn(TcpStream)) {
    let service = Closing::start(close);
    let pool = pool(service.address);
    assert_eq!(ask(&pool).await.unwrap(), "1");
    while pool.lock().connections.is_empty() {
        tokio::task::yield_now().await;
    }
    // Without an await between the two: the runtime has not polled the socket since it was closed.
    service.close();
    assert_eq!(ask(&pool).await.unwrap(), "2");
}

#[tokio::test]
async fn a_request_that_finds_its_connection_closed_is_sent_on_another() {
    ask_after_the_close(drop).await;
}

#[tokio::test]
async fn a_request_that_finds_its_connection_reset_is_sent_on_another() {
    ask_after_the_close(|stream| SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap()).await;
}

/// Some services send 408 as they close an idle connection.
#[tokio::test]
async fn a_408_at_the_close_is_not_taken_for_the_next_answer() {
    ask_after_the_close(|mut stream| {
        stream
            .write_all(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .unwrap();
    })
    .await;
}

#[test]
fn a_connection_is_let_go_before_the_service_closes_it() {
    let kept_for = |line: &'static str| {
        let headers = HeaderMap::from_iter([(KEEP_ALIVE, http::HeaderValue::from_static(line))]);
        kept_for(&headers).map(|time| time.as_millis())
    };
    assert_eq!(kept_for("timeout=5"), Some(4000));
    assert_eq!(kept_for("max=100, timeout=2"), Some(1000));
    assert_eq!(kept_for("timeout=1"), Some(500));
    assert_eq!(kept_for("timeout=0"), Some(0));
    assert_eq!((kept_for("max=100"), kept_for("timeout=soon")), (None, None));
}
