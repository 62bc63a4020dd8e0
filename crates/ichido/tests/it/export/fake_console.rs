//! A stand-in for Dify's console, as its source says that it behaves: cookies or tokens, CSRF also for reading, sessions that end,
//! logins that lock, lists numbered by page that move while they are read.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;

use crate::delivery::receiver::{Identity, certificates};

pub(super) const EMAIL: &str = "owner@example.com";
pub(super) const PASSWORD: &str = "pass-hunter2";
/// What is never to be seen outside of requests.
pub(super) const SECRETS: [&str; 5] = [PASSWORD, "cGFzcy1odW50ZXIy", "access-", "refresh-", "csrf-"];

/// How the console lets people in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Generation {
    /// Up to 1.9.1.
    Tokens,
    /// From 1.9.2 on: the password as it is.
    Cookies,
    /// From 1.11.2 on: the password as Base64.
    Base64,
}

#[derive(Debug)]
pub(super) struct Knobs {
    pub(super) generation: Generation,
    /// Requests after which a session is over.
    pub(super) session: usize,
    /// Whether refreshing works.
    pub(super) refreshes: bool,
    /// The list of apps is the same page for ever.
    pub(super) endless: bool,
    /// After the first page of conversations one is put in front.
    pub(super) drifts: bool,
    /// The next so many requests are answered 503.
    pub(super) outage: usize,
    pub(super) apps: Vec<Value>,
    /// By app: conversations, newest first.
    pub(super) conversations: BTreeMap<String, Vec<Value>>,
    /// By conversation: messages, oldest first.
    pub(super) messages: BTreeMap<String, Vec<Value>>,
    /// By app: what workflow-app-logs lists.
    pub(super) logs: BTreeMap<String, Vec<Value>>,
    /// By run.
    pub(super) nodes: BTreeMap<String, Vec<Value>>,
}

#[derive(Debug)]
struct State {
    knobs: Knobs,
    tls: bool,
    logins: usize,
    bad_logins: usize,
    refreshes: usize,
    turn: usize,
    left: usize,
    requests: Vec<String>,
}

pub(super) struct Console {
    pub(super) address: SocketAddr,
    pub(super) ca: PathBuf,
    tls: bool,
    state: Arc<Mutex<State>>,
    _runtime: tokio::runtime::Runtime,
}

impl Knobs {
    pub(super) fn new(generation: Generation) -> Self {
        Self {
            generation,
            session: usize::MAX,
            refreshes: true,
            endless: false,
            drifts: false,
            outage: 0,
            apps: Vec::new(),
            conversations: BTreeMap::new(),
            messages: BTreeMap::new(),
            logs: BTreeMap::new(),
            nodes: BTreeMap::new(),
        }
    }
}

impl Console {
    pub(super) fn start(dir: &Path, tls: bool, knobs: Knobs) -> Self {
        let (config, ca_pem, _) = certificates(Identity::Good);
        let ca = dir.join("dify-ca.pem");
        std::fs::write(&ca, ca_pem).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let left = knobs.session;
        let state =
            State { knobs, tls, logins: 0, bad_logins: 0, refreshes: 0, turn: 0, left, requests: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = state.clone();
        runtime.spawn(async move {
            let acceptor = TlsAcceptor::from(config);
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, shared) = (acceptor.clone(), shared.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request| serve(request, shared.clone()));
                    let connection = auto::Builder::new(TokioExecutor::new());
                    if tls {
                        let Ok(stream) = acceptor.accept(stream).await else { return };
                        let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                    } else {
                        let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                    }
                });
            }
        });
        Self { address, ca, tls, state, _runtime: runtime }
    }

    pub(super) fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://localhost:{}", self.address.port())
    }

    /// Logins, bad logins, refreshes.
    pub(super) fn entries(&self) -> (usize, usize, usize) {
        let state = self.state.lock().unwrap();
        (state.logins, state.bad_logins, state.refreshes)
    }

    /// The next so many requests are answered 503.
    pub(super) fn is_out(&self, requests: usize) {
        self.state.lock().unwrap().knobs.outage = requests;
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.clone()
    }
}

async fn serve(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let (head, body) = request.into_parts();
    let bytes = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let mut state = state.lock().unwrap();
    state.requests.push(format!("{} {}", head.method, head.uri));
    if state.knobs.outage > 0 {
        state.knobs.outage -= 1;
        return Ok(say(503, json!({})));
    }
    let path = head.uri.path().strip_prefix("/console/api").unwrap_or("").to_owned();
    Ok(match (head.method.clone(), path.as_str()) {
        (Method::POST, "/login") => state.login(&body),
        (Method::POST, "/refresh-token") => state.refresh(&head.headers, &body),
        (Method::GET, path) if state.lets_in(&head.headers) => {
            let query = url::form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes());
            let query: BTreeMap<String, String> = query.into_owned().collect();
            state.read(path, &query)
        }
        _ => say(401, json!({"code": "unauthorized"})),
    })
}

impl State {
    fn login(&mut self, body: &Value) -> Response<Full<Bytes>> {
        let password = match self.knobs.generation {
            Generation::Base64 => "cGFzcy1odW50ZXIy",
            Generation::Tokens | Generation::Cookies => PASSWORD,
        };
        // Five bad logins lock the account for a day.
        if self.bad_logins >= 5 || body["email"] != EMAIL || body["password"] != password {
            self.bad_logins += 1;
            return say(
                401,
                json!({"code": "authentication_failed", "message": "Invalid email or password."}),
            );
        }
        self.logins += 1;
        self.session()
    }

    fn refresh(&mut self, headers: &hyper::HeaderMap, body: &Value) -> Response<Full<Bytes>> {
        self.refreshes += 1;
        let known = match self.knobs.generation {
            Generation::Tokens => body["refresh_token"] == format!("refresh-{}", self.turn),
            Generation::Cookies | Generation::Base64 => {
                cookie(headers, &self.cookie_name("refresh_token")) == Some(format!("refresh-{}", self.turn))
            }
        };
        match known && self.knobs.refreshes {
            true => self.session(),
            false => say(401, json!({"code": "unauthorized"})),
        }
    }

    /// A new session, as this generation gives it.
    fn session(&mut self) -> Response<Full<Bytes>> {
        self.turn += 1;
        self.left = self.knobs.session;
        let turn = self.turn;
        if self.knobs.generation == Generation::Tokens {
            let data =
                json!({"access_token": format!("access-{turn}"), "refresh_token": format!("refresh-{turn}")});
            return say(200, json!({"result": "success", "data": data}));
        }
        let mut response = say(200, json!({"result": "success"}));
        for kind in ["access", "refresh", "csrf"] {
            let name = self.cookie_name(&format!("{kind}_token"));
            let set = format!("{name}={kind}-{turn}; Path=/; HttpOnly; SameSite=Lax");
            response.headers_mut().append("set-cookie", set.parse().unwrap());
        }
        response
    }

    fn cookie_name(&self, name: &str) -> String {
        if self.tls { format!("__Host-{name}") } else { name.to_owned() }
    }

    fn lets_in(&mut self, headers: &hyper::HeaderMap) -> bool {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        if header("authorization").as_deref() == Some("Bearer admin-hunter2") {
            return header("x-workspace-id").as_deref() == Some(super::dify::TENANT);
        }
        let turn = self.turn;
        let known = match self.knobs.generation {
            Generation::Tokens => header("authorization") == Some(format!("Bearer access-{turn}")),
            Generation::Cookies | Generation::Base64 => {
                cookie(headers, &self.cookie_name("access_token")) == Some(format!("access-{turn}"))
                    && header("x-csrf-token") == Some(format!("csrf-{turn}"))
            }
        };
        if !known || turn == 0 || self.left == 0 {
            return false;
        }
        self.left -= 1;
        true
    }

    fn read(&mut self, path: &str, query: &BTreeMap<String, String>) -> Response<Full<Bytes>> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        match parts.as_slice() {
            ["apps"] if self.knobs.endless => say(200, json!({"data": self.knobs.apps, "has_more": true})),
            ["apps"] => page(&self.knobs.apps, query),
            ["apps", app, "chat-conversations"] => {
                let mut list = self.knobs.conversations.get(*app).cloned().unwrap_or_default();
                if query.get("sort_by").map(String::as_str) == Some("created_at") {
                    list.reverse();
                }
                let answer = page(&list, query);
                // The last one of the list is talked in, and moves to the front.
                if self.knobs.drifts && query["page"] == "1" {
                    self.knobs.drifts = false;
                    let list = self.knobs.conversations.get_mut(*app).unwrap();
                    match query.get("sort_by").map(String::as_str) {
                        Some("created_at") => list.rotate_left(1),
                        _ => list.rotate_right(1),
                    }
                }
                answer
            }
            ["apps", _, "chat-messages"] => {
                let all = self.knobs.messages.get(&query["conversation_id"]).cloned().unwrap_or_default();
                let end = match query.get("first_id") {
                    Some(first) => all.iter().position(|message| message["id"] == first.as_str()).unwrap(),
                    None => all.len(),
                };
                let start = end.saturating_sub(query["limit"].parse().unwrap());
                say(200, json!({"data": all[start..end], "has_more": start > 0, "limit": 100}))
            }
            ["apps", app, "workflow-app-logs"] => {
                let within = |log: &&Value| {
                    let at = jiff::Timestamp::from_second(log["created_at"].as_i64().unwrap()).unwrap();
                    at >= query["created_at__after"].parse().unwrap()
                        && at <= query["created_at__before"].parse().unwrap()
                };
                let logs = self.knobs.logs.get(*app).cloned().unwrap_or_default();
                page(&logs.iter().filter(within).cloned().collect::<Vec<_>>(), query)
            }
            ["apps", _, "workflow-runs", run, "node-executions"] => {
                say(200, json!({"data": self.knobs.nodes.get(*run).cloned().unwrap_or_default()}))
            }
            _ => say(404, json!({"code": "not_found"})),
        }
    }
}

fn page(list: &[Value], query: &BTreeMap<String, String>) -> Response<Full<Bytes>> {
    let (number, limit): (usize, usize) = (query["page"].parse().unwrap(), query["limit"].parse().unwrap());
    assert!(limit <= 100);
    let start = ((number - 1) * limit).min(list.len());
    let end = (start + limit).min(list.len());
    say(
        200,
        json!({"data": list[start..end], "page": number, "has_more": end < list.len(), "total": list.len()}),
    )
}

fn cookie(headers: &hyper::HeaderMap, name: &str) -> Option<String> {
    let all = headers.get("cookie")?.to_str().ok()?;
    all.split("; ")
        .find_map(|pair| pair.split_once('=').filter(|(known, _)| *known == name))
        .map(|(_, value)| value.to_owned())
}

fn say(status: u16, body: Value) -> Response<Full<Bytes>> {
    Response::builder().status(status).body(Full::new(Bytes::from(body.to_string()))).unwrap()
}
