//! A receiver that accepts and counts everything.

use std::collections::HashSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::time::Instant;

/// A receiver on its own thread, which runs as long as the benchmark.
#[derive(Clone)]
pub struct Receiver {
    address: SocketAddr,
    delay: Duration,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    first: Option<Instant>,
    bytes: u64,
    keys: HashSet<String>,
}

impl Receiver {
    pub fn start() -> Self {
        Self::with_delay(Duration::ZERO)
    }

    /// A receiver that is so far away: a response takes this much longer.
    pub fn with_delay(delay: Duration) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let receiver = Self { address: listener.local_addr().unwrap(), delay, seen: Arc::default() };
        let serving = receiver.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serving.serve(listener));
        });
        receiver
    }

    pub fn url(&self) -> String {
        format!("http://{}/v1/usage", self.address)
    }

    /// Resets all counts.
    pub fn clear(&self) {
        *self.seen.lock().unwrap() = Seen::default();
    }

    /// The number of distinct keys, and the bytes of all bodies.
    pub fn seen(&self) -> (u64, u64) {
        let seen = self.seen.lock().unwrap();
        (seen.keys.len() as u64, seen.bytes)
    }

    /// When the first request arrived.
    pub fn first(&self) -> Option<Instant> {
        self.seen.lock().unwrap().first
    }

    async fn serve(self, listener: std::net::TcpListener) {
        let listener = TcpListener::from_std(listener).unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let _ = stream.set_nodelay(true);
            let receiver = self.clone();
            tokio::spawn(async move {
                let service = service_fn(|request| receiver.take(request));
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    }

    async fn take(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let arrived = Instant::now();
        let key = request.headers()["idempotency-key"].to_str().unwrap().to_owned();
        let (mut body, mut bytes) = (request.into_body(), 0);
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
        }
        {
            let mut seen = self.seen.lock().unwrap();
            seen.first.get_or_insert(arrived);
            seen.bytes += bytes;
            seen.keys.insert(key);
        }
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        Ok(Response::new(Full::from("{\"status\":\"ok\"}")))
    }
}
