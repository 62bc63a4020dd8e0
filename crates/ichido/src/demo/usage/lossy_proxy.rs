//! A proxy in front of the meter. It forwards every request and loses some responses, but only the first response to a
//! batch: however the retries fall, an export gets through.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use ichido_serve::Failure;

/// The first response to every third batch is lost.
const LOSE_EVERY: usize = 3;

#[derive(Debug, Default)]
struct Counts {
    /// The idempotency keys of the batches so far.
    batches: Mutex<HashSet<String>>,
    requests: AtomicU32,
    responses_lost: AtomicU32,
    records: AtomicU32,
}

impl Counts {
    fn loses_response(&self, key: String) -> bool {
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        batches.insert(key) && batches.len().is_multiple_of(LOSE_EVERY)
    }
}

pub(super) struct LossyProxy {
    address: SocketAddr,
    counts: Arc<Counts>,
    serving: JoinHandle<()>,
}

impl LossyProxy {
    pub(super) async fn start(meter: SocketAddr) -> Result<Self, Failure> {
        let fail = |error: std::io::Error| Failure::internal(format!("proxy in front of the meter: {error}"));
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        let counts = Arc::new(Counts::default());
        let serving = tokio::spawn(serve(listener, meter, counts.clone()));
        Ok(Self { address, counts, serving })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn requests(&self) -> u32 {
        self.counts.requests.load(Ordering::Relaxed)
    }

    pub(super) fn responses_lost(&self) -> u32 {
        self.counts.responses_lost.load(Ordering::Relaxed)
    }

    /// Records in all requests, duplicates included.
    pub(super) fn records(&self) -> u32 {
        self.counts.records.load(Ordering::Relaxed)
    }
}

impl Drop for LossyProxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, meter: SocketAddr, counts: Arc<Counts>) {
    let client = Client::builder(TokioExecutor::new()).build_http();
    while let Ok((stream, _)) = listener.accept().await {
        let (client, counts) = (client.clone(), counts.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| forward(request, meter, client.clone(), counts.clone()));
            // Losing a response closes the connection with an error, on purpose.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// An error closes the connection: the sender never sees the response of the meter.
async fn forward(
    request: Request<Incoming>,
    meter: SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
    counts: Arc<Counts>,
) -> Result<Response<Full<Bytes>>, String> {
    let (mut head, body) = request.into_parts();
    let key =
        head.headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default().to_owned();
    let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    head.uri = format!("http://{meter}{path}").parse::<Uri>().map_err(|error| error.to_string())?;
    let value: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let records = value["records"].as_array().map_or(0, Vec::len);
    counts.records.fetch_add(u32::try_from(records).unwrap_or(u32::MAX), Ordering::Relaxed);
    let response = client.request(Request::from_parts(head, Full::from(body))).await;
    let (head, body) = response.map_err(|error| error.to_string())?.into_parts();
    let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
    counts.requests.fetch_add(1, Ordering::Relaxed);
    if counts.loses_response(key) {
        counts.responses_lost.fetch_add(1, Ordering::Relaxed);
        return Err("response lost".to_owned());
    }
    Ok(Response::from_parts(head, Full::from(body)))
}
