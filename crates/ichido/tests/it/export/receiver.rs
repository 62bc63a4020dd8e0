//! A receiver of usage records over real TLS: counts each event id by its profile, and does what it is told.

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

use super::dify::{Books, Sum};
use crate::delivery::receiver::{Identity, certificates};

pub(super) const TOKEN: &str = "tok-usage-hunter2";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Habit {
    FirstWins,
    Upsert,
    UpsertByModelDay,
    /// A front before a real meter.
    Meter(SocketAddr),
}

/// What the receiver does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Count,
    /// Counts, and breaks the connection before the answer.
    CountAndHangUp,
    /// Counts, and never answers.
    CountAndKeepSilent,
    Say(u16),
    HangUp,
}

/// What is counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    /// By id, or by what replaces: the record as it came.
    pub(super) records: BTreeMap<String, Box<RawValue>>,
    pub(super) bodies: Vec<Value>,
    pub(super) duplicates: usize,
    pub(super) updated: usize,
}

type Script = Box<dyn FnMut(usize) -> Act + Send>;

pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    pub(super) ca: PathBuf,
    counted: Arc<Mutex<Counted>>,
    script: Arc<Mutex<(usize, Script)>>,
    _runtime: tokio::runtime::Runtime,
}

impl Receiver {
    pub(super) fn start(dir: &Path, habit: Habit) -> Self {
        let (config, ca_pem, _) = certificates(Identity::Good);
        let ca = dir.join("ca.pem");
        std::fs::write(&ca, ca_pem).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let counted = Arc::new(Mutex::new(Counted::default()));
        let script: Arc<Mutex<(usize, Script)>> = Arc::new(Mutex::new((0, Box::new(|_| Act::Count))));
        let (books, play) = (counted.clone(), script.clone());
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move {
            let acceptor = TlsAcceptor::from(config);
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, books, play) = (acceptor.clone(), books.clone(), play.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service =
                        service_fn(move |request| serve(request, habit, books.clone(), play.clone()));
                    let connection = auto::Builder::new(TokioExecutor::new());
                    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { address, ca, counted, script, _runtime: runtime }
    }

    /// From now on it does this; the number is that of the request.
    pub(super) fn does(&self, script: impl FnMut(usize) -> Act + Send + 'static) {
        self.script.lock().unwrap().1 = Box::new(script);
    }

    /// Changes what is counted, as nobody should.
    pub(super) fn tamper(&self, change: impl FnOnce(&mut BTreeMap<String, Box<RawValue>>)) {
        change(&mut self.counted.lock().unwrap().records);
    }

    pub(super) fn counted(&self) -> Counted {
        self.counted.lock().unwrap().clone()
    }

    /// Sums by day and model.
    pub(super) fn books(&self) -> Books {
        let mut books = Books::new();
        for record in self.counted().records.values() {
            let record: ichido_usage::Record = serde_json::from_str(record.get()).unwrap();
            let sum: &mut Sum =
                books.entry((record.usage_date.to_string(), record.provider, record.model)).or_default();
            sum.requests += record.request_count;
            sum.input += record.input_tokens;
            sum.output += record.output_tokens;
            sum.cost += record.cost_actual;
        }
        books
    }

    pub(super) fn cost(&self) -> Decimal {
        self.books().values().map(|sum| sum.cost).sum()
    }
}

#[derive(serde::Deserialize)]
struct Body {
    tenant_id: String,
    records: Vec<Box<RawValue>>,
}

async fn serve(
    request: Request<Incoming>,
    habit: Habit,
    counted: Arc<Mutex<Counted>>,
    script: Arc<Mutex<(usize, Script)>>,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let authorized =
        request.headers().get("authorization").is_some_and(|value| value == &format!("Bearer {TOKEN}"));
    if request.method() == hyper::Method::GET {
        return match habit {
            Habit::Meter(meter) => forward(meter, "GET", request.uri().to_string(), Bytes::new()).await,
            Habit::FirstWins | Habit::Upsert | Habit::UpsertByModelDay => {
                Ok(tell(&counted.lock().unwrap(), request.uri()))
            }
        };
    }
    let bytes = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
    let act = {
        let mut script = script.lock().unwrap();
        script.0 += 1;
        let turn = script.0;
        (script.1)(turn)
    };
    let broken = || std::io::Error::other("as the script says");
    match act {
        _ if !authorized => Ok(say(401, json!({}))),
        Act::Count | Act::CountAndHangUp if matches!(habit, Habit::Meter(_)) => {
            let Habit::Meter(meter) = habit else { return Err(broken()) };
            let answer = forward(meter, "POST", "/v1/usage".to_owned(), bytes).await;
            if act == Act::Count { answer } else { Err(broken()) }
        }
        Act::Count => Ok(count(habit, &mut counted.lock().unwrap(), &bytes)),
        Act::CountAndHangUp => {
            count(habit, &mut counted.lock().unwrap(), &bytes);
            Err(broken())
        }
        Act::CountAndKeepSilent => {
            count(habit, &mut counted.lock().unwrap(), &bytes);
            std::future::pending().await
        }
        Act::Say(status) => Ok(say(status, json!({"error": "as the script says"}))),
        Act::HangUp => Err(broken()),
    }
}

fn count(habit: Habit, counted: &mut Counted, bytes: &[u8]) -> Response<Full<Bytes>> {
    let Ok(body) = serde_json::from_slice::<Body>(bytes) else {
        return say(400, json!({"error": "no envelope"}));
    };
    assert_eq!(body.tenant_id, "acme");
    counted.bodies.push(serde_json::from_slice(bytes).unwrap());
    let (mut results, mut inserted) = (Vec::new(), 0);
    for raw in body.records {
        let record: ichido_usage::Record = serde_json::from_str(raw.get()).unwrap();
        record.check().unwrap();
        let id = record.metadata.source_event_id.clone();
        let place = match habit {
            Habit::FirstWins | Habit::Upsert => id.clone(),
            Habit::UpsertByModelDay => format!("{} {} {}", record.usage_date, record.provider, record.model),
            Habit::Meter(_) => unreachable!("a meter counts for itself"),
        };
        let known = counted.records.contains_key(&place);
        let status = match (habit, known) {
            (_, false) => "inserted",
            (Habit::FirstWins, true) => "duplicate",
            (Habit::Upsert | Habit::UpsertByModelDay | Habit::Meter(_), true) => "updated",
        };
        inserted += usize::from(!known);
        counted.duplicates += usize::from(status == "duplicate");
        counted.updated += usize::from(status == "updated");
        if status != "duplicate" {
            counted.records.insert(place, raw);
        }
        results.push(json!({"source_event_id": id, "status": status}));
    }
    let status = match habit {
        Habit::FirstWins if inserted == 0 => 409,
        Habit::FirstWins => 201,
        Habit::Upsert | Habit::UpsertByModelDay | Habit::Meter(_) => 200,
    };
    say(status, json!({"inserted": inserted, "results": results}))
}

/// Asks the meter itself.
async fn forward(
    meter: SocketAddr,
    method: &'static str,
    path: String,
    body: Bytes,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let asked = tokio::task::spawn_blocking(move || {
        let bearer = format!("Bearer {TOKEN}");
        let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
        crate::support::http::try_send(meter, method, &path, &headers, &body)
    });
    let answer = asked.await.map_err(std::io::Error::other)??;
    Ok(Response::builder().status(answer.status).body(Full::new(Bytes::from(answer.body))).unwrap())
}

/// What is counted, as the meter tells it: pages of two.
fn tell(counted: &Counted, uri: &hyper::Uri) -> Response<Full<Bytes>> {
    assert_eq!(uri.path(), "/v1/records");
    let asked: BTreeMap<String, String> =
        url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    let after = asked.get("after").cloned().unwrap_or_default();
    let mut lines: Vec<(String, Value)> = Vec::new();
    for (place, raw) in counted.records.iter().filter(|(place, _)| **place > after) {
        let record: ichido_usage::Record = serde_json::from_str(raw.get()).unwrap();
        if record.usage_date.to_string() == asked["from"] {
            let line = json!({"source_event_id": record.metadata.source_event_id, "request_count": record.request_count,
                "input_tokens": record.input_tokens, "output_tokens": record.output_tokens,
                "cost_actual": record.cost_actual.to_string(), "currency": record.currency});
            lines.push((place.clone(), line));
        }
    }
    let next = (lines.len() > 2).then(|| lines[1].0.clone());
    let page: Vec<Value> = lines.into_iter().take(2).map(|(_, line)| line).collect();
    say(200, json!({"records": page, "next": next}))
}

fn say(status: u16, body: Value) -> Response<Full<Bytes>> {
    Response::builder().status(status).body(Full::new(Bytes::from(body.to_string()))).unwrap()
}
