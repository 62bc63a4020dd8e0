//! A proxy in front of a real server that breaks connections on demand.
//!
//! It works on TCP: a *request* is one burst of bytes from the client, as one read returns it. That is exact enough
//! for clients that write a request and wait for its reply. Only [`Fault::Answer`] knows HTTP/1.1: it reads the
//! whole request before it answers in place of the server.
//!
//! A fault applies from [`TcpProxy::set`] on, to open connections as well as to new ones. Faults with a count wear off
//! by themselves. The proxy runs on a thread of its own, so that a test may pause its time.

use std::future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const BUFFER_BYTES: usize = 64 * 1024;
/// How long a change may take. After a refusal the port must be bound again, and another process may have taken it.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: bytes pass in both directions.
    None,
    /// The next requests reach the server; when it replies, the connection is cut.
    LoseReply {
        /// Only requests that contain this.
        to: &'static str,
        /// How many requests.
        times: usize,
    },
    /// The next requests are dropped and their connections cut: the server never sees them.
    LoseRequest {
        /// Only requests that contain this.
        to: &'static str,
        /// How many requests.
        times: usize,
    },
    /// The next HTTP requests get this response, and the server never sees them.
    Answer {
        /// Only requests that contain this.
        to: &'static str,
        /// How many requests.
        times: usize,
        /// The status of the response.
        status: u16,
        /// The body of the response.
        body: String,
    },
    /// Connections are accepted and stay open, but all bytes are dropped and nothing comes back.
    BlackHole,
    /// Connections are refused, and open ones are cut.
    Refuse,
    /// The proxy ends for good.
    End,
}

/// A listener in front of a server.
#[derive(Debug)]
pub struct TcpProxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    fault: Mutex<Fault>,
    /// Counts the calls of `set`, so that connections notice them.
    version: watch::Sender<u64>,
    /// The version that new connections see.
    in_force: AtomicU64,
    /// Set to true to stall the connections that are open. Each call of `stall` replaces it.
    stalled: Mutex<Arc<AtomicBool>>,
    connections: AtomicUsize,
    requests: AtomicUsize,
    posts: AtomicUsize,
    faults: AtomicUsize,
}

impl TcpProxy {
    /// Listens on a free loopback port and forwards to `upstream`.
    pub fn start(upstream: SocketAddr) -> TcpProxy {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a listener that does not block");
        let addr = listener.local_addr().expect("the address of the proxy");
        let shared = Arc::new(Shared {
            upstream,
            fault: Mutex::new(Fault::None),
            version: watch::Sender::new(0),
            in_force: AtomicU64::new(0),
            stalled: Mutex::default(),
            connections: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            posts: AtomicUsize::new(0),
            faults: AtomicUsize::new(0),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let accepting = shared.clone();
        thread::spawn(move || {
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("a listener");
                accept(listener, addr, accepting).await;
            });
        });
        TcpProxy { addr, shared }
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.addr
    }

    /// Sets what goes wrong from now on. When this returns, connections are refused or accepted accordingly.
    pub fn set(&self, fault: Fault) {
        let version = self.announce(fault);
        let looks = PATIENCE.as_millis() / LOOK_AGAIN.as_millis();
        for _ in 0..looks {
            if self.shared.in_force.load(Ordering::SeqCst) >= version {
                return;
            }
            thread::sleep(LOOK_AGAIN);
        }
        panic!("the proxy did not follow; perhaps its port was taken by another process");
    }

    fn announce(&self, fault: Fault) -> u64 {
        *self.shared.fault.lock().expect("no panic under the lock") = fault;
        self.shared.version.send_modify(|version| *version += 1);
        *self.shared.version.borrow()
    }

    /// Stalls all open connections for good: they stay open, and all bytes are dropped. New connections work.
    pub fn stall(&self) {
        let current = std::mem::take(&mut *self.shared.stalled.lock().expect("no panic under the lock"));
        current.store(true, Ordering::SeqCst);
    }

    /// How many connections were accepted.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// How many bursts of bytes came from clients.
    pub fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// How many HTTP requests with the method POST began. Exact also for a client that writes head and body separately.
    pub fn posts(&self) -> usize {
        self.shared.posts.load(Ordering::SeqCst)
    }

    /// How many requests hit a fault with a count.
    pub fn faults(&self) -> usize {
        self.shared.faults.load(Ordering::SeqCst)
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.announce(Fault::End);
    }
}

/// What to do with one request.
enum Verdict {
    Forward,
    ForwardAndCut,
    Cut,
    Answer(Vec<u8>),
    Vanish,
}

impl Shared {
    fn is(&self, fault: &Fault) -> bool {
        *self.fault.lock().expect("no panic under the lock") == *fault
    }

    fn judge(&self, request: &[u8]) -> Verdict {
        self.requests.fetch_add(1, Ordering::SeqCst);
        if request.starts_with(b"POST ") {
            self.posts.fetch_add(1, Ordering::SeqCst);
        }
        let mut fault = self.fault.lock().expect("no panic under the lock");
        let (to, times, verdict) = match &mut *fault {
            Fault::None => return Verdict::Forward,
            Fault::Refuse | Fault::End => return Verdict::Cut,
            Fault::BlackHole => return Verdict::Vanish,
            Fault::LoseReply { to, times } => (to, times, Verdict::ForwardAndCut),
            Fault::LoseRequest { to, times } => (to, times, Verdict::Cut),
            Fault::Answer { to, times, status, body } => (to, times, Verdict::Answer(http(*status, body))),
        };
        if *times == 0 || !contains(request, to.as_bytes()) {
            return Verdict::Forward;
        }
        *times -= 1;
        self.faults.fetch_add(1, Ordering::SeqCst);
        verdict
    }

    /// Returns when another fault is set.
    async fn changed(&self, seen: &mut watch::Receiver<u64>) {
        if seen.changed().await.is_err() {
            future::pending::<()>().await;
        }
    }
}

async fn accept(listener: TcpListener, addr: SocketAddr, shared: Arc<Shared>) {
    let mut listener = Some(listener);
    let mut version = shared.version.subscribe();
    while !shared.is(&Fault::End) {
        let current = *version.borrow_and_update();
        if shared.is(&Fault::Refuse) {
            listener = None;
            shared.in_force.store(current, Ordering::SeqCst);
            shared.changed(&mut version).await;
            continue;
        }
        let open = match listener.take() {
            Some(open) => open,
            None => rebind(addr).await,
        };
        shared.in_force.store(current, Ordering::SeqCst);
        tokio::select! {
            () = shared.changed(&mut version) => {}
            accepted = open.accept() => {
                if let Ok((client, _)) = accepted {
                    shared.connections.fetch_add(1, Ordering::SeqCst);
                    tokio::spawn(carry(client, shared.clone()));
                }
            }
        }
        listener = Some(open);
    }
}

async fn rebind(addr: SocketAddr) -> TcpListener {
    let tries = async {
        loop {
            match TcpListener::bind(addr).await {
                Ok(listener) => return listener,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, tries).await.expect("the proxy's port is free again")
}

/// Forwards one connection until either side or a fault ends it.
async fn carry(client: TcpStream, shared: Arc<Shared>) {
    let mut version = shared.version.subscribe();
    if shared.is(&Fault::BlackHole) {
        return shared.changed(&mut version).await;
    }
    let Ok(server) = TcpStream::connect(shared.upstream).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, mut to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let stalled = shared.stalled.lock().expect("no panic under the lock").clone();
    let (losing, lost) = watch::channel(false);
    let answer = tokio::select! {
        answer = upward(from_client, to_server, &shared, &losing, &stalled) => answer,
        () = downward(from_server, &mut to_client, &shared, &lost, &stalled) => None,
        () = refused(&shared) => None,
    };
    if let Some(answer) = answer {
        let _ = to_client.write_all(&answer).await;
        let _ = to_client.shutdown().await;
    }
}

async fn refused(shared: &Shared) {
    let mut version = shared.version.subscribe();
    while !shared.is(&Fault::Refuse) {
        shared.changed(&mut version).await;
    }
}

/// Client to server. Returns a response to send in place of the server.
async fn upward(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    shared: &Shared,
    losing: &watch::Sender<bool>,
    stalled: &AtomicBool,
) -> Option<Vec<u8>> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut version = shared.version.subscribe();
    loop {
        let count = client.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        if stalled.load(Ordering::SeqCst) {
            continue;
        }
        let burst = &buffer[..count];
        match shared.judge(burst) {
            Verdict::Forward => server.write_all(burst).await.ok()?,
            Verdict::ForwardAndCut => {
                losing.send_replace(true);
                server.write_all(burst).await.ok()?;
            }
            Verdict::Cut => return None,
            Verdict::Answer(answer) => {
                finish_request(&mut client, burst.to_vec()).await?;
                return Some(answer);
            }
            Verdict::Vanish => {
                shared.changed(&mut version).await;
                return None;
            }
        }
    }
}

/// Server to client, until a reply is to be lost.
async fn downward(
    mut server: OwnedReadHalf,
    client: &mut OwnedWriteHalf,
    shared: &Shared,
    lost: &watch::Receiver<bool>,
    stalled: &AtomicBool,
) {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut version = shared.version.subscribe();
    while let Ok(count) = server.read(&mut buffer).await {
        if count == 0 || *lost.borrow() {
            return;
        }
        if stalled.load(Ordering::SeqCst) {
            continue;
        }
        if shared.is(&Fault::BlackHole) {
            return shared.changed(&mut version).await;
        }
        if client.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

/// Reads the rest of an HTTP request: closing a socket with unread bytes would reset the connection.
async fn finish_request(client: &mut OwnedReadHalf, mut request: Vec<u8>) -> Option<()> {
    while !is_whole(&request) {
        if client.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
    }
    Some(())
}

fn is_whole(request: &[u8]) -> bool {
    let Some(end) = request.windows(4).position(|window| window == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&request[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
    request.len() >= end + 4 + length
}

fn http(status: u16, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} Injected\r\ncontent-length: {length}\r\nconnection: close\r\n");
    format!("{head}content-type: application/x-amz-json-1.0\r\n\r\n{body}").into_bytes()
}

fn contains(request: &[u8], part: &[u8]) -> bool {
    part.is_empty() || request.windows(part.len()).any(|window| window == part)
}
