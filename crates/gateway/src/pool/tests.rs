use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use futures_util::future::join_all;
use http_body_util::BodyExt;
use ichido_testkit::tcp_server::{self, RawRequest};
use socket2::SockRef;

use super::*;

/// An upstream that serves one request on each connection, and closes the connections on command.
struct ClosingUpstream {
    address: SocketAddr,
    command: mpsc::Sender<()>,
    closed: mpsc::Receiver<()>,
}

impl ClosingUpstream {
    fn start(close: fn(TcpStream)) -> Self {
        let (command, commands) = mpsc::channel();
        let (done, closed) = mpsc::channel();
        let (commands, requests) = (Mutex::new(commands), AtomicUsize::new(0));
        let address = tcp_server::start(move |mut stream| {
            let peer = stream.peer_addr().unwrap();
            RawRequest::read(&mut BufReader::new(&stream)).unwrap();
            let number = requests.fetch_add(1, Ordering::SeqCst) + 1;
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{number}").unwrap();
            let Ok(()) = commands.lock().unwrap().recv() else { return };
            close(stream);
            wait_until_not_established(peer);
            done.send(()).unwrap();
        });
        Self { address, command, closed }
    }

    /// Closes its connections. Blocks the caller's thread, so that its runtime does not poll the sockets meanwhile.
    fn close(&self, connections: usize) {
        (0..connections).for_each(|_| self.command.send(()).unwrap());
        (0..connections).for_each(|_| self.closed.recv().unwrap());
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
    Arc::new(Pool::new(&upstream, std::iter::empty(), Arc::new(Semaphore::new(10))).unwrap())
}

async fn send(pool: &Arc<Pool>) -> Result<Bytes, Failure> {
    let request = Request::post("/").header("host", "h").body(Body::from(Bytes::new())).unwrap();
    Ok(pool.send(request).await?.into_body().collect().await.unwrap().to_bytes())
}

/// Sends this many requests at once, which takes as many connections, and returns the responses in order.
async fn send_at_once(pool: &Arc<Pool>, requests: usize) -> Vec<Bytes> {
    let responses = join_all((0..requests).map(|_| send(pool))).await;
    let mut responses: Vec<_> = responses.into_iter().map(Result::unwrap).collect();
    responses.sort();
    responses
}

async fn send_after_close(connections: usize, close: fn(TcpStream)) {
    let upstream = ClosingUpstream::start(close);
    let pool = pool(upstream.address);
    let numbers = |first: usize| (first..first + connections).map(|number| number.to_string());
    assert_eq!(send_at_once(&pool, connections).await, numbers(1).collect::<Vec<_>>());
    while pool.lock().connections.len() < connections {
        tokio::task::yield_now().await;
    }
    // Without an await between the two: the runtime has not polled the sockets since they were closed.
    upstream.close(connections);
    assert_eq!(send_at_once(&pool, connections).await, numbers(1 + connections).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_request_on_a_closed_connection_is_sent_on_another() {
    send_after_close(1, drop).await;
}

#[tokio::test]
async fn requests_that_find_all_connections_closed_open_new_ones() {
    send_after_close(4, drop).await;
}

#[tokio::test]
async fn a_request_on_a_reset_connection_is_sent_on_another() {
    send_after_close(1, |stream| SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap()).await;
}

/// Some servers send 408 when they close an idle connection.
#[tokio::test]
async fn a_408_on_close_is_not_the_response_to_the_next_request() {
    send_after_close(1, |mut stream| {
        stream
            .write_all(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_pool_that_was_replaced_keeps_no_connection() {
    let upstream = ClosingUpstream::start(drop);
    let pool = pool(upstream.address);
    send(&pool).await.unwrap();
    while pool.lock().connections.is_empty() {
        tokio::task::yield_now().await;
    }
    pool.retire();
    assert_eq!(pool.permits.available_permits(), 10, "the idle connection is closed");
    let request = Request::post("/").header("host", "h").body(Body::from(Bytes::new())).unwrap();
    let late = pool.send(request).await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(late.to_bytes(), "2", "a request that is late is still sent");
    while pool.permits.available_permits() < 10 {
        tokio::task::yield_now().await;
    }
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
