//! The receiver: it appends a line to a log for each record, recognises a batch by its idempotency key, loses some
//! responses after it has counted the batch, rejects invalid records, and can go down.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::{JoinHandle, JoinSet};

use ichido_serve::Failure;

/// The receiver loses the response to every fifth request, if it counted that request's batch.
pub(super) const LOSE_EVERY: u32 = 5;
/// Why the receiver rejects an invalid record.
pub(in crate::demo) const REJECTION: &str = "total_tokens must not be negative";

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

pub(in crate::demo) struct Receiver {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    /// `None` while the receiver is down.
    serving: Option<JoinHandle<()>>,
    /// Keeps the port while the receiver is down: bound, so that no other process can take it, but not listening.
    reserved: Option<TcpSocket>,
}

/// What survives an outage.
#[derive(Debug)]
struct State {
    log: File,
    known_batches: HashSet<String>,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) records: u32,
    pub(super) requests: u32,
    pub(super) responses_lost: u32,
    pub(super) duplicates: u32,
}

impl Receiver {
    pub(in crate::demo) async fn start(log: &Path) -> Result<Self, Failure> {
        let log = File::options().create(true).append(true).open(log).map_err(fail)?;
        let state = State { log, known_batches: HashSet::new(), counts: Counts::default() };
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut receiver =
            Self { address, state: Arc::new(Mutex::new(state)), serving: None, reserved: None };
        receiver.come_back().await?;
        Ok(receiver)
    }

    /// Listens, on the same port as before.
    pub(in crate::demo) async fn come_back(&mut self) -> Result<(), Failure> {
        let listener = match self.reserved.take() {
            Some(port) => port.listen(BACKLOG),
            None => TcpListener::bind(self.address).await,
        };
        let listener = listener.map_err(fail)?;
        self.address = listener.local_addr().map_err(fail)?;
        self.serving = Some(tokio::spawn(serve(listener, self.state.clone())));
        Ok(())
    }

    /// Cuts every connection and refuses new ones.
    pub(in crate::demo) async fn go_down(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            let _ = serving.await;
            // If this fails, `come_back` binds again and reports the error.
            self.reserved = reserve(self.address).ok();
        }
    }

    /// Waits until this many records have been counted.
    pub(super) async fn wait_for_records(&self, records: u32) {
        while self.counts().records < records {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/v1/usage", self.address)
    }

    pub(super) fn counts(&self) -> Counts {
        lock(&self.state).counts
    }
}

fn fail(error: io::Error) -> Failure {
    Failure::internal(format!("receiver: {error}"))
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn reserve(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn serve(listener: TcpListener, state: Arc<Mutex<State>>) {
    // When this task is aborted, the set is dropped, and every connection with it.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let state = state.clone();
        connections.spawn(async move {
            let service = service_fn(move |request| receive(request, state.clone()));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// An error closes the connection: the sender never learns that its batch was counted.
async fn receive(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
) -> Result<Response<Full<Bytes>>, String> {
    let body = request.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    lock(&state).count(&body)
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Batch {
    batch_idempotency_key: String,
    records: Vec<Usage>,
}

#[derive(serde::Deserialize)]
struct Usage {
    source_event_id: String,
    total_tokens: i64,
}

impl State {
    fn count(&mut self, body: &[u8]) -> Result<Response<Full<Bytes>>, String> {
        self.counts.requests += 1;
        let batch: Batch = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        if batch.records.iter().any(|usage| usage.total_tokens < 0) {
            let problem = serde_json::json!({ "error": REJECTION }).to_string();
            return Ok(response(StatusCode::UNPROCESSABLE_ENTITY, problem));
        }
        if !self.known_batches.insert(batch.batch_idempotency_key) {
            self.counts.duplicates += 1;
            return Ok(response(StatusCode::CONFLICT, "{}".to_owned()));
        }
        let lines: String =
            batch.records.iter().map(|usage| format!("{}\n", usage.source_event_id)).collect();
        self.log.write_all(lines.as_bytes()).map_err(|error| error.to_string())?;
        self.counts.records += u32::try_from(batch.records.len()).unwrap_or(u32::MAX);
        if self.counts.requests.is_multiple_of(LOSE_EVERY) {
            self.counts.responses_lost += 1;
            return Err("response lost".to_owned());
        }
        Ok(response(StatusCode::CREATED, "{}".to_owned()))
    }
}

fn response(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response
}
