//! A receiver of usage records behind TLS. It stores records as its kind demands and fails as its script demands.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Uri};
use ichido_testkit::certificates::Authority;
use ichido_testkit::http_client;
use ichido_testkit::http_server::{HttpServer, Reply};
use rust_decimal::Decimal;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::dify::{Sum, Totals};

pub(super) const TOKEN: &str = "tok-usage-hunter2";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiverKind {
    FirstWins,
    Upsert,
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
    /// The records as received, by event id.
    pub(super) records: BTreeMap<String, Box<RawValue>>,
    pub(super) bodies: Vec<Value>,
    pub(super) duplicates: usize,
}

type Script = Box<dyn FnMut(usize) -> Action + Send>;

pub(super) struct Receiver {
    /// The certificate of the authority to trust.
    pub(super) ca: PathBuf,
    server: HttpServer,
    counted: Arc<Mutex<Counted>>,
    script: Arc<Mutex<(usize, Script)>>,
}

impl Receiver {
    pub(super) fn start(dir: &Path, kind: ReceiverKind) -> Self {
        let authority = Authority::new();
        let ca = dir.join("ca.pem");
        std::fs::write(&ca, authority.pem()).unwrap();
        let counted = Arc::new(Mutex::new(Counted::default()));
        let script: Arc<Mutex<(usize, Script)>> = Arc::new(Mutex::new((0, Box::new(|_| Action::Count))));
        let (shared_counted, shared_script) = (counted.clone(), script.clone());
        let server = HttpServer::start_tls(authority.localhost().config, move |request| {
            serve(request, kind, shared_counted.clone(), shared_script.clone())
        });
        Self { ca, server: server.unwrap(), counted, script }
    }

    /// The URL to which records are sent.
    pub(super) fn endpoint(&self) -> String {
        format!("https://localhost:{}/v1/usage", self.server.address().port())
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
    request: Request<Bytes>,
    kind: ReceiverKind,
    counted: Arc<Mutex<Counted>>,
    script: Arc<Mutex<(usize, Script)>>,
) -> Reply {
    if request.method() == Method::GET {
        return match kind {
            ReceiverKind::Meter(meter) => forward(meter, request).await,
            ReceiverKind::FirstWins | ReceiverKind::Upsert => {
                list_records(&counted.lock().unwrap(), request.uri())
            }
        };
    }
    let action = {
        let mut script = script.lock().unwrap();
        script.0 += 1;
        let request_number = script.0;
        (script.1)(request_number)
    };
    if request.headers().get("authorization").is_none_or(|value| value != &format!("Bearer {TOKEN}")) {
        return Reply::json(401, &json!({}));
    }
    let after_counting = match action {
        Action::Count => None,
        Action::CountAndHangUp => Some(Reply::Disconnect),
        Action::CountAndNeverRespond => Some(Reply::NeverRespond),
        Action::Respond(status) => return Reply::json(status, &json!({"error": "scripted response"})),
        Action::HangUp => return Reply::Disconnect,
    };
    let response = match kind {
        ReceiverKind::Meter(meter) => forward(meter, request).await,
        ReceiverKind::FirstWins | ReceiverKind::Upsert => {
            count(kind, &mut counted.lock().unwrap(), request.body())
        }
    };
    after_counting.unwrap_or(response)
}

fn count(kind: ReceiverKind, counted: &mut Counted, bytes: &[u8]) -> Reply {
    let Ok(body) = serde_json::from_slice::<Body>(bytes) else {
        return Reply::json(400, &json!({"error": "invalid envelope"}));
    };
    assert_eq!(body.tenant_id, "acme");
    counted.bodies.push(serde_json::from_slice(bytes).unwrap());
    let (mut results, mut inserted) = (Vec::new(), 0);
    for raw in body.records {
        let record: ichido_usage::Record = serde_json::from_str(raw.get()).unwrap();
        record.check().unwrap();
        let id = record.metadata.source_event_id;
        let known = counted.records.contains_key(&id);
        let status = match (kind, known) {
            (_, false) => "inserted",
            (ReceiverKind::FirstWins, true) => "duplicate",
            (ReceiverKind::Upsert | ReceiverKind::Meter(_), true) => "updated",
        };
        inserted += usize::from(!known);
        counted.duplicates += usize::from(status == "duplicate");
        results.push(json!({"source_event_id": id, "status": status}));
        if status != "duplicate" {
            counted.records.insert(id, raw);
        }
    }
    let status = match kind {
        ReceiverKind::FirstWins if inserted == 0 => 409,
        ReceiverKind::FirstWins => 201,
        ReceiverKind::Upsert | ReceiverKind::Meter(_) => 200,
    };
    Reply::json(status, &json!({"inserted": inserted, "results": results}))
}

/// Forwards a request to the meter.
async fn forward(meter: SocketAddr, request: Request<Bytes>) -> Reply {
    let call = tokio::task::spawn_blocking(move || {
        let bearer = format!("Bearer {TOKEN}");
        let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
        let (method, path) = (request.method().as_str(), request.uri().to_string());
        http_client::try_send(meter, method, &path, &headers, request.body())
    });
    match call.await.unwrap() {
        Ok(response) => Reply::status(response.status, response.body),
        Err(_) => Reply::Disconnect,
    }
}

/// Lists the stored records as the meter does, in pages of two.
fn list_records(counted: &Counted, uri: &Uri) -> Reply {
    assert_eq!(uri.path(), "/v1/records");
    let query: BTreeMap<String, String> =
        url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    let after = query.get("after").cloned().unwrap_or_default();
    let mut lines: Vec<(String, Value)> = Vec::new();
    for (id, raw) in counted.records.iter().filter(|(id, _)| **id > after) {
        let record: ichido_usage::Record = serde_json::from_str(raw.get()).unwrap();
        if record.usage_date.to_string() == query["from"] {
            let line = json!({"source_event_id": record.metadata.source_event_id, "request_count": record.request_count,
                "input_tokens": record.input_tokens, "output_tokens": record.output_tokens,
                "cost_actual": record.cost_actual.to_string(), "currency": record.currency});
            lines.push((id.clone(), line));
        }
    }
    let next = (lines.len() > 2).then(|| lines[1].0.clone());
    let page: Vec<Value> = lines.into_iter().take(2).map(|(_, line)| line).collect();
    Reply::json(200, &json!({"records": page, "next": next}))
}
