//! A receiver of batches: it recognises a batch by its idempotency key, counts the records it accepts, and otherwise does
//! what its script says.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};

use crate::http_server::{self, HttpServer, response};

/// What the receiver does with a batch.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Counts the batch and responds 201, or 409 if its key is already known.
    Accept,
    /// Counts the batch, then disconnects before it responds.
    AcceptAndDisconnect,
    /// Counts the batch, then sends an endless body.
    AcceptWithEndlessBody,
    /// Counts the batch, then sends an endless body one byte at a time.
    AcceptWithTrickledBody,
    /// Counts the batch, then responds after a delay.
    AcceptAndDelay(Duration),
    /// Responds with this status and body, and counts nothing.
    Status(u16, String),
    /// Responds with this status and header, and counts nothing.
    StatusWithHeader(u16, &'static str, String),
    /// Keeps the connection open without responding, and counts nothing.
    NeverRespond,
    /// Disconnects, and counts nothing.
    Disconnect,
}

/// A batch as the receiver got it.
#[derive(Clone, Debug)]
pub struct ReceivedBatch {
    /// When it arrived.
    pub at: Instant,
    /// The headers of the request.
    pub headers: HeaderMap,
    /// The body of the request.
    pub bytes: Bytes,
    /// The batch's idempotency key.
    pub key: String,
    /// The event ids of its records.
    pub ids: Vec<String>,
    /// Whether the receiver has accepted a batch with this key before.
    pub is_known: bool,
}

type Script = Box<dyn FnMut(&ReceivedBatch) -> Reply + Send>;

struct State {
    script: Script,
    batches: Vec<ReceivedBatch>,
    keys: HashSet<String>,
    counts: BTreeMap<String, u32>,
}

/// A running receiver. It stops when this is dropped.
pub struct Receiver {
    server: HttpServer,
    state: Arc<Mutex<State>>,
}

impl Receiver {
    /// Starts a receiver that accepts every batch.
    pub fn start() -> io::Result<Self> {
        Self::with(|handler| HttpServer::start(move |request| receive(request, handler.clone())))
    }

    /// Starts a receiver with TLS.
    #[cfg(feature = "tls")]
    pub fn start_tls(config: Arc<rustls::ServerConfig>) -> io::Result<Self> {
        Self::with(|handler| HttpServer::start_tls(config, move |request| receive(request, handler.clone())))
    }

    fn with(start: impl FnOnce(Arc<Mutex<State>>) -> io::Result<HttpServer>) -> io::Result<Self> {
        let state = State {
            script: Box::new(|_| Reply::Accept),
            batches: Vec::new(),
            keys: HashSet::new(),
            counts: BTreeMap::new(),
        };
        let state = Arc::new(Mutex::new(state));
        Ok(Self { server: start(state.clone())?, state })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Handles all further batches with this script.
    pub fn on_batch(&self, script: impl FnMut(&ReceivedBatch) -> Reply + Send + 'static) {
        lock(&self.state).script = Box::new(script);
    }

    /// Sends these replies in order, then accepts every batch.
    pub fn reply_in_order(&self, replies: impl IntoIterator<Item = Reply>) {
        let mut replies = replies.into_iter().collect::<VecDeque<_>>();
        self.on_batch(move |_| replies.pop_front().unwrap_or(Reply::Accept));
    }

    /// All batches so far, accepted or not.
    pub fn batches(&self) -> Vec<ReceivedBatch> {
        lock(&self.state).batches.clone()
    }

    /// The number of batches so far, without copying them.
    pub fn batch_count(&self) -> usize {
        lock(&self.state).batches.len()
    }

    /// How often each record was counted, by event id.
    pub fn counts(&self) -> BTreeMap<String, u32> {
        lock(&self.state).counts.clone()
    }

    /// The number of different records that were counted.
    pub fn record_count(&self) -> usize {
        lock(&self.state).counts.len()
    }

    /// Asserts that exactly this number of records was counted, each once.
    #[track_caller]
    pub fn assert_each_record_once(&self, records: usize) {
        let counts = self.counts();
        assert_eq!(counts.len(), records);
        assert!(counts.values().all(|count| *count == 1), "{counts:?}");
    }

    /// Cuts every connection and refuses new ones.
    pub fn go_down(&self) -> io::Result<()> {
        self.server.go_down()
    }

    /// Listens again, on the same port.
    pub fn come_back(&self) -> io::Result<()> {
        self.server.come_back()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn receive(request: Request<Bytes>, state: Arc<Mutex<State>>) -> http_server::Reply {
    let (head, bytes) = request.into_parts();
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let id = |record: &Value| record["source_event_id"].as_str().unwrap_or_default().to_owned();
    let ids = body["records"].as_array().map(|records| records.iter().map(id).collect()).unwrap_or_default();
    let key = body["batchIdempotencyKey"].as_str().unwrap_or_default().to_owned();
    let reply = {
        let mut state = lock(&state);
        let is_known = state.keys.contains(&key);
        let batch = ReceivedBatch { at: Instant::now(), headers: head.headers, bytes, key, ids, is_known };
        let reply = (state.script)(&batch);
        let accepted = reply.accepts().then(|| state.count(&batch));
        state.batches.push(batch);
        (reply, accepted)
    };
    match reply {
        (Reply::AcceptAndDelay(delay), Some(accepted)) => {
            tokio::time::sleep(delay).await;
            http_server::Reply::Response(accepted)
        }
        (Reply::Accept, Some(accepted)) => http_server::Reply::Response(accepted),
        (Reply::AcceptWithEndlessBody, _) => http_server::Reply::Response(Response::new(endless_body())),
        (Reply::AcceptWithTrickledBody, _) => http_server::Reply::Response(Response::new(trickled_body())),
        (Reply::Status(status, text), _) => http_server::Reply::status(status, text),
        (Reply::StatusWithHeader(status, name, value), _) => {
            let mut response = response(status, "");
            response.headers_mut().insert(name, value.parse().expect("a header value"));
            http_server::Reply::Response(response)
        }
        (Reply::NeverRespond, _) => http_server::Reply::NeverRespond,
        (Reply::Accept | Reply::AcceptAndDelay(_) | Reply::AcceptAndDisconnect | Reply::Disconnect, _) => {
            http_server::Reply::Disconnect
        }
    }
}

impl Reply {
    fn accepts(&self) -> bool {
        match self {
            Self::Accept
            | Self::AcceptAndDisconnect
            | Self::AcceptWithEndlessBody
            | Self::AcceptWithTrickledBody
            | Self::AcceptAndDelay(_) => true,
            Self::Status(..) | Self::StatusWithHeader(..) | Self::NeverRespond | Self::Disconnect => false,
        }
    }
}

impl State {
    fn count(&mut self, batch: &ReceivedBatch) -> Response<http_server::Body> {
        if !self.keys.insert(batch.key.clone()) {
            return response(409, json!({"error": "duplicate batch detected"}).to_string());
        }
        for id in &batch.ids {
            *self.counts.entry(id.clone()).or_default() += 1;
        }
        response(201, json!({"inserted": batch.ids.len()}).to_string())
    }
}

fn endless_body() -> http_server::Body {
    let piece = || Ok(Frame::data(Bytes::from_static(&[b' '; 4096])));
    BodyExt::boxed(StreamBody::new(futures_util::stream::repeat_with(piece)))
}

fn trickled_body() -> http_server::Body {
    let bytes = futures_util::stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        Some((Ok(Frame::data(Bytes::from_static(b" "))), ()))
    });
    BodyExt::boxed(StreamBody::new(Box::pin(bytes)))
}
