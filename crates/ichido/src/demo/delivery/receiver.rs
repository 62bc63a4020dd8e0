//! The receiver of the demo. It counts each record by a line in a log, knows a batch again by its key, acts and then
//! loses every fifth answer, refuses what cannot be, and can go down.

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

/// Of so many batches, one loses its answer.
pub(super) const LOSES: u32 = 5;
/// What it says of a record that cannot be.
pub(in crate::demo) const REFUSAL: &str = "{\"error\":\"total_tokens must not be negative\"}";

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

pub(in crate::demo) struct Receiver {
    address: SocketAddr,
    books: Arc<Mutex<Books>>,
    /// None while it is down.
    serving: Option<JoinHandle<()>>,
    /// Keeps the port while it is down: bound, so that no other process gets it, but not listening.
    reserved: Option<TcpSocket>,
}

/// What it knows; this survives its outage.
#[derive(Debug)]
struct Books {
    log: File,
    known: HashSet<String>,
    records: u32,
    requests: u32,
    lost: u32,
    duplicates: u32,
}

impl Receiver {
    pub(in crate::demo) async fn start(log: &Path) -> Result<Self, Failure> {
        let log = File::options().create(true).append(true).open(log).map_err(fail)?;
        let books = Books { log, known: HashSet::new(), records: 0, requests: 0, lost: 0, duplicates: 0 };
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut receiver =
            Self { address, books: Arc::new(Mutex::new(books)), serving: None, reserved: None };
        receiver.comes_back().await?;
        Ok(receiver)
    }

    /// Listens, at the same address as before.
    pub(in crate::demo) async fn comes_back(&mut self) -> Result<(), Failure> {
        let listener = match self.reserved.take() {
            Some(port) => port.listen(BACKLOG),
            None => TcpListener::bind(self.address).await,
        };
        let listener = listener.map_err(fail)?;
        self.address = listener.local_addr().map_err(fail)?;
        self.serving = Some(tokio::spawn(serve(listener, self.books.clone())));
        Ok(())
    }

    /// Cuts every connection, and refuses new ones.
    pub(in crate::demo) async fn goes_down(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            let _ = serving.await;
            // If this fails, listening again says why.
            self.reserved = reserve(self.address).ok();
        }
    }

    /// Waits until so many records were counted.
    pub(super) async fn has_seen(&self, records: u32) {
        while self.records() < records {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/v1/usage", self.address)
    }

    pub(in crate::demo) fn records(&self) -> u32 {
        lock(&self.books).records
    }

    pub(super) fn requests(&self) -> u32 {
        lock(&self.books).requests
    }

    pub(super) fn lost(&self) -> u32 {
        lock(&self.books).lost
    }

    pub(super) fn duplicates(&self) -> u32 {
        lock(&self.books).duplicates
    }
}

fn fail(error: std::io::Error) -> Failure {
    Failure::internal(format!("the demo's receiver: {error}"))
}

fn lock(books: &Mutex<Books>) -> MutexGuard<'_, Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

fn reserve(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn serve(listener: TcpListener, books: Arc<Mutex<Books>>) {
    // Dropped with this task, and every connection with it.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let books = books.clone();
        connections.spawn(async move {
            let service = service_fn(move |request| take(request, books.clone()));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// An error of the service cuts the connection: the sender never learns that its batch was taken.
async fn take(request: Request<Incoming>, books: Arc<Mutex<Books>>) -> Result<Response<Full<Bytes>>, String> {
    let body = request.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    lock(&books).count(&body)
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

impl Books {
    fn count(&mut self, body: &[u8]) -> Result<Response<Full<Bytes>>, String> {
        self.requests += 1;
        let batch: Batch = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let answer = |status, words: &'static str| {
            let mut response = Response::new(Full::from(words));
            *response.status_mut() = status;
            Ok(response)
        };
        if batch.records.iter().any(|usage| usage.total_tokens < 0) {
            return answer(StatusCode::UNPROCESSABLE_ENTITY, REFUSAL);
        }
        if !self.known.insert(batch.batch_idempotency_key) {
            self.duplicates += 1;
            return answer(StatusCode::CONFLICT, "{}");
        }
        let lines: String =
            batch.records.iter().map(|usage| format!("{}\n", usage.source_event_id)).collect();
        self.log.write_all(lines.as_bytes()).map_err(|error| error.to_string())?;
        self.records += u32::try_from(batch.records.len()).unwrap_or(u32::MAX);
        if self.requests.is_multiple_of(LOSES) {
            self.lost += 1;
            return Err("the answer is lost".to_owned());
        }
        answer(StatusCode::CREATED, "{}")
    }
}
