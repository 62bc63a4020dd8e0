//! A fake Dify console that behaves as Dify's source code does.
//!
//! It authenticates with cookies or tokens, requires a CSRF token even for reads, expires sessions, and locks accounts after
//! failed logins. Its lists are numbered by page and may be reordered while they are read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use ichido_testkit::certificates::Authority;
use ichido_testkit::http_server::{Body, HttpServer, Reply, response};
use serde_json::{Value, json};

pub(super) const EMAIL: &str = "owner@example.com";
pub(super) const PASSWORD: &str = "pass-hunter2";
/// Must not appear anywhere outside of requests.
pub(super) const SECRETS: [&str; 5] = [PASSWORD, "cGFzcy1odW50ZXIy", "access-", "refresh-", "csrf-"];

/// How a range of Dify versions authenticates console users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Generation {
    /// Tokens in the body; up to 1.9.1.
    Tokens,
    /// Cookies, and the password in plain text; from 1.9.2.
    Cookies,
    /// Cookies, and the password in Base64; from 1.11.2.
    Base64,
}

#[derive(Debug)]
pub(super) struct Config {
    pub(super) generation: Generation,
    /// A session expires after this many requests.
    pub(super) requests_per_session: usize,
    /// Whether an expired session can be refreshed.
    pub(super) allows_refresh: bool,
    /// The list of apps returns its first page for every page, and always claims to have more.
    pub(super) repeats_first_page: bool,
    /// Reorders the conversations once, after their first page has been read.
    pub(super) reorders_while_read: bool,
    /// This many of the next requests get a 503 response.
    pub(super) failing_requests: usize,
    pub(super) apps: Vec<Value>,
    /// By app: conversations, newest first.
    pub(super) conversations: BTreeMap<String, Vec<Value>>,
    /// By conversation: messages, oldest first.
    pub(super) messages: BTreeMap<String, Vec<Value>>,
    /// By app: the entries of workflow-app-logs.
    pub(super) logs: BTreeMap<String, Vec<Value>>,
    /// By run: node executions.
    pub(super) nodes: BTreeMap<String, Vec<Value>>,
}

#[derive(Debug)]
struct State {
    config: Config,
    tls: bool,
    logins: usize,
    bad_logins: usize,
    refreshes: usize,
    session_number: usize,
    requests_left: usize,
    requests: Vec<String>,
}

pub(super) struct FakeConsole {
    /// The certificate of the authority to trust.
    pub(super) ca: PathBuf,
    tls: bool,
    server: HttpServer,
    state: Arc<Mutex<State>>,
}

impl Config {
    pub(super) fn new(generation: Generation) -> Self {
        Self {
            generation,
            requests_per_session: usize::MAX,
            allows_refresh: true,
            repeats_first_page: false,
            reorders_while_read: false,
            failing_requests: 0,
            apps: Vec::new(),
            conversations: BTreeMap::new(),
            messages: BTreeMap::new(),
            logs: BTreeMap::new(),
            nodes: BTreeMap::new(),
        }
    }
}

impl FakeConsole {
    pub(super) fn start(dir: &Path, tls: bool, config: Config) -> Self {
        let authority = Authority::new();
        let ca = dir.join("dify-ca.pem");
        std::fs::write(&ca, authority.pem()).unwrap();
        let requests_left = config.requests_per_session;
        let state = State {
            config,
            tls,
            logins: 0,
            bad_logins: 0,
            refreshes: 0,
            session_number: 0,
            requests_left,
            requests: Vec::new(),
        };
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        let handler = move |request: Request<Bytes>| {
            std::future::ready(Reply::Response(shared.lock().unwrap().respond(&request)))
        };
        let server = match tls {
            true => HttpServer::start_tls(authority.localhost().config, handler),
            false => HttpServer::start(handler),
        };
        Self { ca, tls, server: server.unwrap(), state }
    }

    pub(super) fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://localhost:{}", self.server.address().port())
    }

    /// The numbers of logins, bad logins and refreshes.
    pub(super) fn login_counts(&self) -> (usize, usize, usize) {
        let state = self.state.lock().unwrap();
        (state.logins, state.bad_logins, state.refreshes)
    }

    /// Answers the next requests with 503.
    pub(super) fn fail_next(&self, requests: usize) {
        self.state.lock().unwrap().config.failing_requests = requests;
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.clone()
    }
}

impl State {
    fn respond(&mut self, request: &Request<Bytes>) -> Response<Body> {
        let (method, uri, headers) = (request.method(), request.uri(), request.headers());
        self.requests.push(format!("{method} {uri}"));
        if self.config.failing_requests > 0 {
            self.config.failing_requests -= 1;
            return json_response(503, &json!({}));
        }
        let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        match (method, uri.path().strip_prefix("/console/api").unwrap_or("")) {
            (&Method::POST, "/login") => self.login(&body),
            (&Method::POST, "/refresh-token") => self.refresh(headers, &body),
            (&Method::GET, path) if self.is_authorized(headers) => {
                let query = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
                let query: BTreeMap<String, String> = query.into_owned().collect();
                self.read(path, &query)
            }
            _ => json_response(401, &json!({"code": "unauthorized"})),
        }
    }

    fn login(&mut self, body: &Value) -> Response<Body> {
        let password = match self.config.generation {
            Generation::Base64 => "cGFzcy1odW50ZXIy",
            Generation::Tokens | Generation::Cookies => PASSWORD,
        };
        // Five bad logins lock the account for a day.
        if self.bad_logins >= 5 || body["email"] != EMAIL || body["password"] != password {
            self.bad_logins += 1;
            return json_response(
                401,
                &json!({"code": "authentication_failed", "message": "Invalid email or password."}),
            );
        }
        self.logins += 1;
        self.start_session()
    }

    fn refresh(&mut self, headers: &HeaderMap, body: &Value) -> Response<Body> {
        self.refreshes += 1;
        let known = match self.config.generation {
            Generation::Tokens => body["refresh_token"] == format!("refresh-{}", self.session_number),
            Generation::Cookies | Generation::Base64 => {
                cookie(headers, &self.cookie_name("refresh_token"))
                    == Some(format!("refresh-{}", self.session_number))
            }
        };
        match known && self.config.allows_refresh {
            true => self.start_session(),
            false => json_response(401, &json!({"code": "unauthorized"})),
        }
    }

    /// Starts a session and returns its tokens or cookies.
    fn start_session(&mut self) -> Response<Body> {
        self.session_number += 1;
        self.requests_left = self.config.requests_per_session;
        let session_number = self.session_number;
        if self.config.generation == Generation::Tokens {
            let data = json!({"access_token": format!("access-{session_number}"), "refresh_token": format!("refresh-{session_number}")});
            return json_response(200, &json!({"result": "success", "data": data}));
        }
        let mut response = json_response(200, &json!({"result": "success"}));
        for kind in ["access", "refresh", "csrf"] {
            let name = self.cookie_name(&format!("{kind}_token"));
            let set = format!("{name}={kind}-{session_number}; Path=/; HttpOnly; SameSite=Lax");
            response.headers_mut().append("set-cookie", set.parse().unwrap());
        }
        response
    }

    fn cookie_name(&self, name: &str) -> String {
        if self.tls { format!("__Host-{name}") } else { name.to_owned() }
    }

    fn is_authorized(&mut self, headers: &HeaderMap) -> bool {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        if header("authorization").as_deref() == Some("Bearer admin-hunter2") {
            return header("x-workspace-id").as_deref() == Some(super::dify::TENANT);
        }
        let session_number = self.session_number;
        let known = match self.config.generation {
            Generation::Tokens => header("authorization") == Some(format!("Bearer access-{session_number}")),
            Generation::Cookies | Generation::Base64 => {
                cookie(headers, &self.cookie_name("access_token")) == Some(format!("access-{session_number}"))
                    && header("x-csrf-token") == Some(format!("csrf-{session_number}"))
            }
        };
        if !known || session_number == 0 || self.requests_left == 0 {
            return false;
        }
        self.requests_left -= 1;
        true
    }

    fn read(&mut self, path: &str, query: &BTreeMap<String, String>) -> Response<Body> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        match parts.as_slice() {
            ["apps"] if self.config.repeats_first_page => {
                json_response(200, &json!({"data": self.config.apps, "has_more": true}))
            }
            ["apps"] => page(&self.config.apps, query),
            ["apps", app, "chat-conversations"] => {
                let mut list = self.config.conversations.get(*app).cloned().unwrap_or_default();
                if query.get("sort_by").map(String::as_str) == Some("created_at") {
                    list.reverse();
                }
                let response = page(&list, query);
                // Someone writes in the last conversation, so it moves to the front.
                if self.config.reorders_while_read && query["page"] == "1" {
                    self.config.reorders_while_read = false;
                    let list = self.config.conversations.get_mut(*app).unwrap();
                    match query.get("sort_by").map(String::as_str) {
                        Some("created_at") => list.rotate_left(1),
                        _ => list.rotate_right(1),
                    }
                }
                response
            }
            ["apps", _, "chat-messages"] => {
                let all = self.config.messages.get(&query["conversation_id"]).cloned().unwrap_or_default();
                let end = match query.get("first_id") {
                    Some(first) => all.iter().position(|message| message["id"] == first.as_str()).unwrap(),
                    None => all.len(),
                };
                let start = end.saturating_sub(query["limit"].parse().unwrap());
                json_response(200, &json!({"data": all[start..end], "has_more": start > 0, "limit": 100}))
            }
            ["apps", app, "workflow-app-logs"] => {
                let within = |log: &&Value| {
                    let at = jiff::Timestamp::from_second(log["created_at"].as_i64().unwrap()).unwrap();
                    at >= query["created_at__after"].parse().unwrap()
                        && at <= query["created_at__before"].parse().unwrap()
                };
                let logs = self.config.logs.get(*app).cloned().unwrap_or_default();
                page(&logs.iter().filter(within).cloned().collect::<Vec<_>>(), query)
            }
            ["apps", _, "workflow-runs", run, "node-executions"] => {
                json_response(200, &json!({"data": self.config.nodes.get(*run).cloned().unwrap_or_default()}))
            }
            _ => json_response(404, &json!({"code": "not_found"})),
        }
    }
}

fn page(list: &[Value], query: &BTreeMap<String, String>) -> Response<Body> {
    let (number, limit): (usize, usize) = (query["page"].parse().unwrap(), query["limit"].parse().unwrap());
    assert!(limit <= 100);
    let start = ((number - 1) * limit).min(list.len());
    let end = (start + limit).min(list.len());
    json_response(
        200,
        &json!({"data": list[start..end], "page": number, "has_more": end < list.len(), "total": list.len()}),
    )
}

fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let all = headers.get("cookie")?.to_str().ok()?;
    all.split("; ")
        .find_map(|pair| pair.split_once('=').filter(|(known, _)| *known == name))
        .map(|(_, value)| value.to_owned())
}

fn json_response(status: u16, body: &Value) -> Response<Body> {
    response(status, body.to_string())
}
