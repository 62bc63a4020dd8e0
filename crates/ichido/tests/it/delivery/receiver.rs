//! A scripted receiver over TLS that counts the records it accepts.

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;

pub(super) const TOKEN: &str = "tok-3n-hunter2";

/// How the receiver handles a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
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

/// A request as the receiver got it.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(super) at: Instant,
    pub(super) headers: http::HeaderMap,
    pub(super) bytes: Bytes,
    pub(super) key: String,
    pub(super) ids: Vec<String>,
}

type Script = Box<dyn FnMut(&ReceivedRequest) -> Reply + Send>;

#[derive(Default)]
struct Ledger {
    requests: Vec<ReceivedRequest>,
    keys: HashSet<String>,
    counts: BTreeMap<String, u32>,
}

pub(crate) struct Receiver {
    pub(super) address: SocketAddr,
    pub(super) ca: PathBuf,
    identity: (String, String),
    ledger: Arc<Mutex<Ledger>>,
    script: Arc<Mutex<Script>>,
    stop: tokio_util::sync::CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// The certificate that the receiver presents.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Identity {
    Good,
    WrongHost,
    Expired,
    UntrustedAuthority,
}

impl Receiver {
    pub(super) fn start(dir: &Path) -> Self {
        Self::start_as(dir, Identity::Good)
    }

    pub(super) fn start_as(dir: &Path, identity: Identity) -> Self {
        let (config, ca_pem, identity) = certificates(identity);
        let ca = dir.join("ca.pem");
        std::fs::write(&ca, ca_pem).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let script: Arc<Mutex<Script>> = Arc::new(Mutex::new(Box::new(|_| Reply::Accept)));
        let stop = tokio_util::sync::CancellationToken::new();
        let (shared_ledger, shared_script, stopped) = (ledger.clone(), script.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let acceptor = TlsAcceptor::from(config);
                loop {
                    let stream = tokio::select! {
                        accepted = listener.accept() => accepted.unwrap().0,
                        () = stopped.cancelled() => return,
                    };
                    let (acceptor, shared_ledger, shared_script) =
                        (acceptor.clone(), shared_ledger.clone(), shared_script.clone());
                    tokio::spawn(async move {
                        let Ok(stream) = acceptor.accept(stream).await else { return };
                        let service = service_fn(move |request| {
                            serve(request, shared_ledger.clone(), shared_script.clone())
                        });
                        let connection = auto::Builder::new(TokioExecutor::new());
                        let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                    });
                }
            });
        });
        Self { address, ca, identity, ledger, script, stop, thread: Some(thread) }
    }

    /// Handles all further requests with this script.
    pub(crate) fn on_request(&self, script: impl FnMut(&ReceivedRequest) -> Reply + Send + 'static) {
        *self.script.lock().unwrap() = Box::new(script);
    }

    /// Sends these replies in order, then accepts every request.
    pub(super) fn reply_in_order(&self, replies: impl IntoIterator<Item = Reply>) {
        let mut replies = replies.into_iter().collect::<std::collections::VecDeque<_>>();
        self.on_request(move |_| replies.pop_front().unwrap_or(Reply::Accept));
    }

    pub(super) fn requests(&self) -> Vec<ReceivedRequest> {
        self.ledger.lock().unwrap().requests.clone()
    }

    /// The number of requests so far, without copying them.
    pub(super) fn request_count(&self) -> usize {
        self.ledger.lock().unwrap().requests.len()
    }

    /// The certificate and key as PEM, for a second server with the same identity.
    pub(super) fn identity(&self) -> (&str, &str) {
        (&self.identity.0, &self.identity.1)
    }

    /// How often each record was counted, by id.
    pub(crate) fn counts(&self) -> BTreeMap<String, u32> {
        self.ledger.lock().unwrap().counts.clone()
    }

    /// Asserts that exactly this number of records was counted, each once.
    pub(crate) fn assert_each_record_once(&self, records: usize) {
        let counts = self.counts();
        assert_eq!(counts.len(), records);
        assert!(counts.values().all(|count| *count == 1), "{counts:?}");
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop.cancel();
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

type Body = BoxBody<Bytes, Infallible>;

async fn serve(
    request: Request<Incoming>,
    ledger: Arc<Mutex<Ledger>>,
    script: Arc<Mutex<Script>>,
) -> Result<Response<Body>, std::io::Error> {
    let headers = request.headers().clone();
    let bytes = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let id = |record: &Value| record["source_event_id"].as_str().unwrap_or_default().to_owned();
    let ids = body["records"].as_array().map(|records| records.iter().map(id).collect()).unwrap_or_default();
    let key = body["batchIdempotencyKey"].as_str().unwrap_or_default().to_owned();
    let received = ReceivedRequest { at: Instant::now(), headers, bytes, key, ids };
    let reply = (script.lock().unwrap())(&received);
    ledger.lock().unwrap().requests.push(received.clone());
    let disconnect = || std::io::Error::other("the script disconnects");
    match reply {
        Reply::Accept => Ok(accept(&ledger, &received)),
        Reply::AcceptAndDelay(pause) => {
            let response = accept(&ledger, &received);
            tokio::time::sleep(pause).await;
            Ok(response)
        }
        Reply::AcceptAndDisconnect => {
            accept(&ledger, &received);
            Err(disconnect())
        }
        Reply::AcceptWithEndlessBody => {
            accept(&ledger, &received);
            let endless =
                futures_util::stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(&[b' '; 4096]))));
            Ok(Response::new(BodyExt::boxed(StreamBody::new(endless))))
        }
        Reply::AcceptWithTrickledBody => {
            accept(&ledger, &received);
            let trickle = futures_util::stream::unfold((), |()| async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Some((Ok(Frame::data(Bytes::from_static(b" "))), ()))
            });
            Ok(Response::new(BodyExt::boxed(StreamBody::new(Box::pin(trickle)))))
        }
        Reply::Status(status, text) => Ok(response(status, text)),
        Reply::StatusWithHeader(status, header, value) => {
            let mut response = response(status, String::new());
            response.headers_mut().insert(header, value.parse().unwrap());
            Ok(response)
        }
        Reply::NeverRespond => std::future::pending().await,
        Reply::Disconnect => Err(disconnect()),
    }
}

fn accept(ledger: &Mutex<Ledger>, received: &ReceivedRequest) -> Response<Body> {
    let mut ledger = ledger.lock().unwrap();
    if !ledger.keys.insert(received.key.clone()) {
        return response(409, json!({"error": "duplicate batch detected"}).to_string());
    }
    for id in &received.ids {
        *ledger.counts.entry(id.clone()).or_default() += 1;
    }
    response(201, json!({"inserted": received.ids.len()}).to_string())
}

fn response(status: u16, text: String) -> Response<Body> {
    Response::builder().status(status).body(Full::new(Bytes::from(text)).boxed()).unwrap()
}

pub(crate) fn certificates(identity: Identity) -> (Arc<rustls::ServerConfig>, String, (String, String)) {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
    let authority = || {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        (Issuer::new(params, key), pem)
    };
    let (issuer, pem) = authority();
    let name = if identity == Identity::WrongHost { "other.example" } else { "localhost" };
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    if identity == Identity::Expired {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    }
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let trusted = if identity == Identity::UntrustedAuthority { authority().1 } else { pem };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        )
        .unwrap();
    (Arc::new(config), trusted, (certificate.pem(), key.serialize_pem()))
}
