//! A receiver of usage records behind TLS. It stores records as its kind demands and fails as its script demands.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rust_decimal::Decimal;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;

use super::dify::{Sum, Totals};
use crate::delivery::receiver::{Identity, certificates};

pub(super) const TOKEN: &str = "tok-usage-hunter2";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiverKind {
    FirstWins,
    Upsert,
    UpsertByModelDay,
    /// Forwards requests to a real meter.
    Meter(SocketAddr),
}

/// What the receiver does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Count,
    /// Counts the records and closes the connection before responding.
    CountAndHangUp,
    /// Counts the records and never responds.
    CountAndNeverRespond,
    Respond(u16),
    HangUp,
}

/// What the receiver has counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    /// The records as received, by event id or by the key that the profile upserts on.
    pub(super) records: BTreeMap<String, Box<RawValue>>,
    pub(super) bodies: Vec<Value>,
    pub(super) duplicates: usize,
    pub(super) updated: usize,
}

type Script = Box<dyn FnMut(usize) -> Action + Send>;

pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    pub(super) ca: PathBuf,
    counted: Arc<Mutex<Counted>>,
    script: Arc<Mutex<(usize, Script)>>,
    _runtime: tokio::runtime::Runtime,
}

impl Receiver {
    pub(super) fn start(dir: &Path, kind: ReceiverKind) -> Self {
        let (config, ca_pem, _) = certificates(Identity::Good);
        let ca = dir.join("ca.pem");
        std::fs::write(&ca, ca_pem).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let counted = Arc::new(Mutex::new(Counted::default()));
        let script: Arc<Mutex<(usize, Script)>> = Arc::new(Mutex::new((0, Box::new(|_| Action::Count))));
        let (shared_counted, shared_script) = (counted.clone(), script.clone());
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move {
            let acceptor = TlsAcceptor::from(config);
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, shared_counted, shared_script) =
                    (acceptor.clone(), shared_counted.clone(), shared_script.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| {
                        serve(request, kind, shared_counted.clone(), shared_script.clone())
                    });
                    let connection = auto::Builder::new(TokioExecutor::new());
                    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { address, ca, counted, script, _runtime: runtime }
    }

    /// Sets what happens to POST requests from now on; the script gets the number of the request, from 1.
    pub(super) fn set_script(&self, script: impl FnMut(usize) -> Action + Send + 'static) {
        self.script.lock().unwrap().1 = Box::new(script);
    }

    /// Changes the stored records behind the export's back.
    pub(super) fn tamper(&self, change: impl FnOnce(&mut BTreeMap<String, Box<RawValue>>)) {
        change(&mut self.counted.lock().unwrap().records);
    }

    pub(super) fn counted(&self) -> Counted {
        self.counted.lock().unwrap().clone()
    }

    /// Totals by day and model.
    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::new();
        for record in self.counted().records.values() {
            let record: ichido_usage::Record = serde_json::from_str(record.get()).unwrap();
            let sum: &mut Sum =
                totals.entry((record.usage_date.to_string(), record.provider, record.model)).or_default();
            sum.requests += record.request_count;
            sum.input += record.input_tokens;
            sum.output += record.output_tokens;
            sum.cost += record.cost_actual;
        }
        totals
    }

    pub(super) fn cost(&self) -> Decimal {
        self.totals().values().map(|sum| sum.cost).sum()
    }
}

#[derive(serde::Deserialize)]
struct Body {
    tenant_id: String,
    records: Vec<Box<RawValue>>,
}

async fn serve(
    request: Request<Incoming>,
    kind: ReceiverKind,
    counted: Arc<Mutex<Counted>>,
    script: Arc<Mutex<(usize, Script)>>,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let authorized =
        request.headers().get("authorization").is_some_and(|value| value == &format!("Bearer {TOKEN}"));
    if request.method() == hyper::Method::GET {
        return match kind {
            ReceiverKind::Meter(meter) => {
                forward(meter, "GET", request.uri().to_string(), Bytes::new()).await
            }
            ReceiverKind::FirstWins | ReceiverKind::Upsert | ReceiverKind::UpsertByModelDay => {
                Ok(list_records(&counted.lock().unwrap(), request.uri()))
            }
        };
    }
    let bytes = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
    let action = {
        let mut script = script.lock().unwrap();
        script.0 += 1;
        let request_number = script.0;
        (script.1)(request_number)
    };
    let connection_error = || std::io::Error::other("closed by the script");
    match action {
        _ if !authorized => Ok(json_response(401, json!({}))),
        Action::Count | Action::CountAndHangUp if matches!(kind, ReceiverKind::Meter(_)) => {
            let ReceiverKind::Meter(meter) = kind else { return Err(connection_error()) };
            let response = forward(meter, "POST", "/v1/usage".to_owned(), bytes).await;
            if action == Action::Count { response } else { Err(connection_error()) }
        }
        Action::Count => Ok(count(kind, &mut counted.lock().unwrap(), &bytes)),
        Action::CountAndHangUp => {
            count(kind, &mut counted.lock().unwrap(), &bytes);
            Err(connection_error())
        }
        Action::CountAndNeverRespond => {
            count(kind, &mut counted.lock().unwrap(), &bytes);
            std::future::pending().await
        }
        Action::Respond(status) => Ok(json_response(status, json!({"error": "scripted response"}))),
        Action::HangUp => Err(connection_error()),
    }
}

fn count(kind: ReceiverKind, counted: &mut Counted, bytes: &[u8]) -> Response<Full<Bytes>> {
    let Ok(body) = serde_json::from_slice::<Body>(bytes) else {
        return json_response(400, json!({"error": "invalid envelope"}));
    };
    assert_eq!(body.tenant_id, "acme");
    counted.bodies.push(serde_json::from_slice(bytes).unwrap());
    let (mut results, mut inserted) = (Vec::new(), 0);
    for raw in body.records {
        let record: ichido_usage::Record = serde_json::from_str(raw.get()).unwrap();
        record.check().unwrap();
        let id = record.metadata.source_event_id.clone();
        let stored_key = match kind {
            ReceiverKind::FirstWins | ReceiverKind::Upsert => id.clone(),
            ReceiverKind::UpsertByModelDay => {
                format!("{} {} {}", record.usage_date, record.provider, record.model)
            }
            ReceiverKind::Meter(_) => unreachable!("the meter counts its own records"),
        };
        let known = counted.records.contains_key(&stored_key);
        let status = match (kind, known) {
            (_, false) => "inserted",
            (ReceiverKind::FirstWins, true) => "duplicate",
            (ReceiverKind::Upsert | ReceiverKind::UpsertByModelDay | ReceiverKind::Meter(_), true) => {
                "updated"
            }
        };
        inserted += usize::from(!known);
        counted.duplicates += usize::from(status == "duplicate");
        counted.updated += usize::from(status == "updated");
        if status != "duplicate" {
            counted.records.insert(stored_key, raw);
        }
        results.push(json!({"source_event_id": id, "status": status}));
    }
    let status = match kind {
        ReceiverKind::FirstWins if inserted == 0 => 409,
        ReceiverKind::FirstWins => 201,
        ReceiverKind::Upsert | ReceiverKind::UpsertByModelDay | ReceiverKind::Meter(_) => 200,
    };
    json_response(status, json!({"inserted": inserted, "results": results}))
}

/// Forwards a request to the meter.
async fn forward(
    meter: SocketAddr,
    method: &'static str,
    path: String,
    body: Bytes,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let call = tokio::task::spawn_blocking(move || {
        let bearer = format!("Bearer {TOKEN}");
        let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
        crate::support::http::try_send(meter, method, &path, &headers, &body)
    });
    let response = call.await.map_err(std::io::Error::other)??;
    Ok(Response::builder().status(response.status).body(Full::new(Bytes::from(response.body))).unwrap())
}

/// Lists the stored records as the meter does, in pages of two.
fn list_records(counted: &Counted, uri: &hyper::Uri) -> Response<Full<Bytes>> {
    assert_eq!(uri.path(), "/v1/records");
    let query: BTreeMap<String, String> =
        url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    let after = query.get("after").cloned().unwrap_or_default();
    let mut lines: Vec<(String, Value)> = Vec::new();
    for (stored_key, raw) in counted.records.iter().filter(|(stored_key, _)| **stored_key > after) {
        let record: ichido_usage::Record = serde_json::from_str(raw.get()).unwrap();
        if record.usage_date.to_string() == query["from"] {
            let line = json!({"source_event_id": record.metadata.source_event_id, "request_count": record.request_count,
                "input_tokens": record.input_tokens, "output_tokens": record.output_tokens,
                "cost_actual": record.cost_actual.to_string(), "currency": record.currency});
            lines.push((stored_key.clone(), line));
        }
    }
    let next = (lines.len() > 2).then(|| lines[1].0.clone());
    let page: Vec<Value> = lines.into_iter().take(2).map(|(_, line)| line).collect();
    json_response(200, json!({"records": page, "next": next}))
}

fn json_response(status: u16, body: Value) -> Response<Full<Bytes>> {
    Response::builder().status(status).body(Full::new(Bytes::from(body.to_string()))).unwrap()
}
