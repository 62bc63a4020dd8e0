//! A way to the meter that carries every request there and loses some of the answers: of a batch the first one at most, so
//! that whether an export comes through does not hang on how its retries fall.

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

/// Of so many batches, one loses its first answer.
pub(super) const LOSES: u32 = 3;

#[derive(Debug, Default)]
struct Counts {
    /// The keys of batches that came.
    seen: Mutex<HashSet<String>>,
    requests: AtomicU32,
    lost: AtomicU32,
    records: AtomicU32,
}

impl Counts {
    fn is_lost(&self, key: String) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(key) && u32::try_from(seen.len()).is_ok_and(|batches| batches.is_multiple_of(LOSES))
    }
}

pub(super) struct Way {
    address: SocketAddr,
    counts: Arc<Counts>,
    carrying: JoinHandle<()>,
}

impl Way {
    pub(super) async fn to(meter: SocketAddr) -> Result<Self, Failure> {
        let fail = |error: std::io::Error| Failure::internal(format!("the demo's way to the meter: {error}"));
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        let counts = Arc::new(Counts::default());
        let carrying = tokio::spawn(carry(listener, meter, counts.clone()));
        Ok(Self { address, counts, carrying })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn requests(&self) -> u32 {
        self.counts.requests.load(Ordering::Relaxed)
    }

    pub(super) fn lost(&self) -> u32 {
        self.counts.lost.load(Ordering::Relaxed)
    }

    /// Records in all requests, repeats included.
    pub(super) fn records(&self) -> u32 {
        self.counts.records.load(Ordering::Relaxed)
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.carrying.abort();
    }
}

async fn carry(listener: TcpListener, meter: SocketAddr, counts: Arc<Counts>) {
    let client = Client::builder(TokioExecutor::new()).build_http();
    while let Ok((stream, _)) = listener.accept().await {
        let (client, counts) = (client.clone(), counts.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| one(request, meter, client.clone(), counts.clone()));
            // A lost answer ends its connection; that is the point.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// An error cuts the connection: the sender never learns what the meter said.
async fn one(
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
    let answer = client.request(Request::from_parts(head, Full::from(body))).await;
    let (head, body) = answer.map_err(|error| error.to_string())?.into_parts();
    let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
    counts.requests.fetch_add(1, Ordering::Relaxed);
    if counts.is_lost(key) {
        counts.lost.fetch_add(1, Ordering::Relaxed);
        return Err("the answer is lost".to_owned());
    }
    Ok(Response::from_parts(head, Full::from(body)))
}
