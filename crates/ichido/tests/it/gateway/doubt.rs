//! Claims in doubt that settle themselves: the gateway asks the service, and believes it as far as that is safe.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Method;
use ichido_testkit::http_client::{Response, get, send};
use ichido_testkit::http_server::{HttpServer, Reply};
use ichido_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::support::Gateway;

/// How the service answers questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answers {
    Truth,
    /// As if nothing had ever happened: it is slow to show effects, or something else answers in its place.
    NotFound,
    Lie,
    Error,
    Redirect,
    Hangs,
    TooLarge,
}

/// What the service does with an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Orders {
    Respond,
    /// The order is created, and the response is lost.
    LoseResponse,
    /// Nothing is created, and the connection is lost.
    LoseRequest,
    /// Nothing has happened yet, and the service is still working.
    Hang,
}

#[derive(Debug)]
struct State {
    created: BTreeSet<String>,
    runs: usize,
    /// Keys that were asked about, with the authorization of the question.
    asked: Vec<(String, Option<String>)>,
    answers: Answers,
    orders: Orders,
}

/// A service that creates orders, and can be asked about them.
struct Service {
    server: HttpServer,
    state: Arc<Mutex<State>>,
}

impl Service {
    fn start(answers: Answers) -> Self {
        let state = State {
            created: BTreeSet::new(),
            runs: 0,
            asked: Vec::new(),
            answers,
            orders: Orders::LoseResponse,
        };
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        let server = HttpServer::start(move |request| {
            let reply = handle(&request, &mut shared.lock().unwrap());
            async move { reply }
        });
        Self { server: server.unwrap(), state }
    }

    fn address(&self) -> SocketAddr {
        self.server.address()
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    fn asked(&self, key: &str) -> usize {
        self.state.lock().unwrap().asked.iter().filter(|(asked, _)| asked == key).count()
    }

    fn runs(&self) -> usize {
        self.state.lock().unwrap().runs
    }
}

fn handle(request: &http::Request<Bytes>, state: &mut State) -> Reply {
    if request.method() == Method::GET {
        return answer(request, state);
    }
    let key = request.headers()["idempotency-key"].to_str().unwrap().trim_matches('"').to_owned();
    state.runs += 1;
    if matches!(state.orders, Orders::Respond | Orders::LoseResponse) {
        state.created.insert(key);
    }
    match state.orders {
        Orders::Respond => Reply::json(201, &json!({ "created": true })),
        Orders::LoseResponse | Orders::LoseRequest => Reply::Disconnect,
        Orders::Hang => Reply::NeverRespond,
    }
}

fn answer(request: &http::Request<Bytes>, state: &mut State) -> Reply {
    let key = request.uri().query().unwrap().strip_prefix("key=").unwrap().replace("%2D", "-");
    let authorization =
        request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
    let exists = state.created.contains(&key);
    state.asked.push((key.clone(), authorization));
    match state.answers {
        Answers::Truth if exists => Reply::json(200, &json!({ "order": key })),
        Answers::Truth | Answers::NotFound => Reply::status(404, "no such order"),
        Answers::Lie => Reply::json(200, &json!({ "order": "another one" })),
        Answers::Error => Reply::status(500, "broken"),
        Answers::Redirect => {
            let mut response = ichido_testkit::http_server::response(302, "");
            response.headers_mut().insert("location", "/orders/found".parse().unwrap());
            Reply::Response(response)
        }
        Answers::Hangs => Reply::NeverRespond,
        Answers::TooLarge => Reply::status(200, vec![b'x'; 100_000]),
    }
}

/// A route that asks, with these further fields.
fn route(more: &str) -> String {
    format!(
        "[gateway]\nanswer_max_bytes = 50000\n[[gateway.routes]]\nmatch = \"POST /orders\"\nlease_ms = 1000\nupstream_timeout_ms = 1000\n\
         resolve = {{ get = \"/orders?key={{key}}\", done = 200, absent = 404, after_seconds = 0, timeout_ms = 2000{more} }}\n"
    )
}

fn start(dir: &Path, service: &Service, settings: &str) -> Gateway {
    Gateway::start(dir, service.address(), "file:ledger", settings)
}

fn order(gateway: &Gateway, key: &str) -> Response {
    send(gateway.address, "POST", "/orders", &[("Idempotency-Key", key)], b"{}")
}

fn in_doubt(gateway: &Gateway, key: &str) {
    assert_eq!(order(gateway, key).problem(), "answer-lost");
}

fn metric(gateway: &Gateway, series: &str) -> u64 {
    let text = get(gateway.admin, "/metrics").text();
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse::<f64>().ok());
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
    value.map(|value| value as u64).unwrap_or_else(|| panic!("{series} is not in {text}"))
}

/// Waits until something was counted: that comes after the resolution, once its result is in the audit log.
#[track_caller]
fn counts_one(gateway: &Gateway, series: &str) {
    eventually(series, || (metric(gateway, series) == 1).then_some(()));
}

/// Waits until retries get this status.
#[track_caller]
fn becomes(gateway: &Gateway, key: &str, status: u16) -> Response {
    eventually(&format!("{status} for {key}"), || {
        Some(order(gateway, key)).filter(|response| response.status == status)
    })
}

/// The results in the audit log, as its entries say.
fn audited(dir: &Path) -> Vec<Value> {
    let listed = crate::json(dir, &["audit", "list", "--json"]);
    let entries = listed.as_array().cloned().or_else(|| listed["entries"].as_array().cloned());
    entries.unwrap_or_else(|| panic!("{listed}"))
}

#[test]
fn effect_that_the_service_confirms_is_done_without_a_person() {
    let (dir, service) = (tempfile::tempdir().unwrap(), Service::start(Answers::Truth));
    let settings = route(", answer = \"response\"");
    let gateway = Gateway::start_with(dir.path(), service.address(), "file:ledger", &settings, |command| {
        command.env("ICHIDO_RESOLVE_AUTHORIZATION", "Bearer read-orders");
    });
    in_doubt(&gateway, "lost");
    let settled = becomes(&gateway, "lost", 200);
    assert!(settled.is_replay(), "{settled:?}");
    assert_eq!(settled.json(), json!({ "order": "lost" }));
    assert_eq!(service.runs(), 1);
    assert_eq!(service.state.lock().unwrap().asked[0].1.as_deref(), Some("Bearer read-orders"));
    counts_one(&gateway, "ichido_doubts_settled_total{as=\"done\"}");
    assert!(metric(&gateway, "ichido_doubt_questions_total{answer=\"done\"}") >= 1);
    gateway.process.wait_for_stderr("settled a claim in doubt by asking the service");

    let timeline = eventually("the resolution in the history", || {
        let timeline = get(gateway.admin, "/v1/history/timeline?find=lost").json();
        let entries = timeline["timeline"].as_array()?.clone();
        entries.into_iter().find(|entry| entry["result"] == "resolved-as-done")
    });
    let detail = timeline["detail"].as_str().unwrap();
    assert!(detail.starts_with("by ichido: the service says that it happened (status 200)"), "{detail}");
    let entry = audited(dir.path()).into_iter().find(|entry| entry["action"] == "resolve as done").unwrap();
    assert_eq!((&entry["who"], &entry["via"]), (&"ichido".into(), &"process".into()), "{entry}");
    assert!(entry["reason"].as_str().unwrap().contains("the service says"), "{entry}");
}

#[test]
fn effect_that_shows_late_is_not_run_again() {
    let (dir, service) = (tempfile::tempdir().unwrap(), Service::start(Answers::NotFound));
    let gateway = start(dir.path(), &service, &route(", automatic = \"both\", settle_seconds = 3600"));
    in_doubt(&gateway, "late");
    eventually("two questions", || (service.asked("late") >= 2).then_some(()));
    assert_eq!(order(&gateway, "late").problem(), "in-doubt");
    service.set(|state| state.answers = Answers::Truth);
    eventually("the answer", || (order(&gateway, "late").problem() == "answer-not-kept").then_some(()));
    assert_eq!(service.runs(), 1);
}

#[test]
fn absent_frees_the_key_only_with_consent_and_with_a_control() {
    let (dir, service) = (tempfile::tempdir().unwrap(), Service::start(Answers::NotFound));
    let gateway = start(dir.path(), &service, &route(", automatic = \"both\", settle_seconds = 1"));
    service.set(|state| state.orders = Orders::Respond);
    assert_eq!(order(&gateway, "known").status, 201);

    // Everything is missing, even an order that is known to exist: the answer is worth nothing.
    service.set(|state| state.orders = Orders::LoseRequest);
    in_doubt(&gateway, "missing");
    eventually("a control question", || (service.asked("known") >= 1).then_some(()));
    assert_eq!(order(&gateway, "missing").problem(), "in-doubt");
    assert_eq!(service.runs(), 2);

    service.set(|state| (state.answers, state.orders) = (Answers::Truth, Orders::Respond));
    let ran = becomes(&gateway, "missing", 201);
    assert!(!ran.is_replay(), "{ran:?}");
    assert_eq!(service.runs(), 3);
    counts_one(&gateway, "ichido_doubts_settled_total{as=\"absent\"}");
}

#[test]
fn absent_is_left_to_a_person_by_default() {
    let (dir, service) = (tempfile::tempdir().unwrap(), Service::start(Answers::Truth));
    let gateway = start(dir.path(), &service, &route(""));
    service.set(|state| state.orders = Orders::LoseRequest);
    in_doubt(&gateway, "k");
    eventually("three questions", || (service.asked("k") >= 3).then_some(()));
    assert_eq!(order(&gateway, "k").problem(), "in-doubt");
    assert_eq!(metric(&gateway, "ichido_doubts_settled_total{as=\"absent\"}"), 0);
}

#[test]
fn whatever_is_no_answer_decides_nothing() {
    let (dir, service) = (tempfile::tempdir().unwrap(), Service::start(Answers::Error));
    let gateway = start(dir.path(), &service, &route(", automatic = \"both\", settle_seconds = 1"));
    let key = |answers: Answers| format!("{answers:?}").to_lowercase();
    for answers in [Answers::Error, Answers::Redirect, Answers::TooLarge, Answers::Hangs] {
        service.set(|state| state.answers = answers);
        in_doubt(&gateway, &key(answers));
        eventually("two questions", || (service.asked(&key(answers)) >= 2).then_some(()));
    }
    service.server.go_down().unwrap();
    let before = metric(&gateway, "ichido_doubt_questions_total{answer=\"undecided\"}");
    eventually("a question that cannot be asked", || {
        (metric(&gateway, "ichido_doubt_questions_total{answer=\"undecided\"}") > before).then_some(())
    });
    assert_eq!(get(gateway.admin, "/v1/claims/triage").json()["matched"], 4);
    service.set(|state| state.answers = Answers::Truth);
    service.server.come_back().unwrap();
    eventually("the truth", || {
        (get(gateway.admin, "/v1/claims/triage").json()["matched"] == 0).then_some(())
    });
    assert_eq!(service.runs(), 4);
}

#[test]
fn lie_of_the_service_is_recorded_as_its_word() {
    let (dir, service) = (tempfile::tempdir().unwrap(), Service::start(Answers::Lie));
    let gateway = start(dir.path(), &service, &route(""));
    service.set(|state| state.orders = Orders::LoseRequest);
    in_doubt(&gateway, "k");
    eventually("the answer", || (order(&gateway, "k").problem() == "answer-not-kept").then_some(()));
    assert_eq!(service.runs(), 1);
    let entry = audited(dir.path()).into_iter().find(|entry| entry["action"] == "resolve as done").unwrap();
    assert_eq!(entry["reason"], "the service says that it happened (status 200)", "{entry}");
}

#[test]
fn claim_of_a_gateway_that_was_killed_is_settled_by_the_next_one() {
    let (dir, service) = (tempfile::tempdir().unwrap(), Service::start(Answers::Truth));
    service.set(|state| state.orders = Orders::Hang);
    let mut gateway = start(dir.path(), &service, &route(""));
    let address = gateway.address;
    let waiting = std::thread::spawn(move || {
        std::panic::catch_unwind(|| send(address, "POST", "/orders", &[("Idempotency-Key", "k")], b"{}"))
    });
    eventually("the request", || (service.runs() == 1).then_some(()));
    gateway.process.kill();
    let _ = waiting.join();
    // The service was still working, and finishes only now.
    service.set(|state| state.created.extend(["k".to_owned()]));
    let gateway = start(dir.path(), &service, &route(", answer = \"response\""));
    let settled = becomes(&gateway, "k", 200);
    assert_eq!((settled.json(), service.runs()), (json!({ "order": "k" }), 1));
}

#[test]
fn reload_begins_to_ask_and_run_asks_too() {
    let (dir, service) = (tempfile::tempdir().unwrap(), Service::start(Answers::Truth));
    let plain = "[[gateway.routes]]\nmatch = \"POST /orders\"\n";
    let file = dir.path().join("run.toml");
    let base = format!("[gateway]\nlisten = \"127.0.0.1:0\"\nupstream = \"http://{}\"\n", service.address());
    std::fs::write(&file, format!("{base}{plain}")).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ichido"));
    command.current_dir(dir.path());
    crate::without_settings(|name| {
        command.env_remove(name);
    });
    command.args(["run", "--config", "run.toml", "--admin", "127.0.0.1:0", "--ledger", "file:ledger"]);
    let mut process = ichido_testkit::process::Process::start(&mut command).unwrap();
    let address = process.wait_for_address("gateway listening on ").unwrap();
    let admin = process.wait_for_address("admin on ").unwrap();
    let gateway = Gateway { process, address, admin };
    in_doubt(&gateway, "k");
    assert_eq!(order(&gateway, "k").problem(), "in-doubt");
    assert_eq!(service.asked("k"), 0);
    let asking = route("").replace("[gateway]\nanswer_max_bytes = 50000\n", "");
    std::fs::write(&file, format!("{base}{asking}")).unwrap();
    gateway.process.signal("HUP");
    eventually("the answer", || (order(&gateway, "k").problem() == "answer-not-kept").then_some(()));
    gateway.process.signal("TERM");
    let mut process = gateway.process;
    assert_eq!(process.exit_code(), 0);
}

#[test]
fn operator_asks_and_confirms() {
    let (dir, service) = (tempfile::tempdir().unwrap(), Service::start(Answers::Truth));
    let gateway = start(dir.path(), &service, &route(", automatic = \"off\", settle_seconds = 1"));
    fn ledger<'a>(args: &[&'a str]) -> Vec<&'a str> {
        [&["ledger"][..], args, &["--ledger", "file:ledger"]].concat()
    }
    in_doubt(&gateway, "lost-1");
    let args = ["ask", "lost-1"];
    let shown = crate::ok(dir.path(), &ledger(&args));
    assert!(shown.contains("the service says that it happened (status 200)"), "{shown}");
    assert!(shown.contains("it would be resolved as done; --resolve does that"), "{shown}");
    assert_eq!(order(&gateway, "lost-1").problem(), "in-doubt");
    let refused = crate::refused(dir.path(), &ledger(&["ask", "lost-1", "--resolve"]), 2);
    assert!(refused.contains("--yes"), "{refused}");
    let asked = crate::json(dir.path(), &ledger(&["ask", "lost-1", "--resolve", "--yes", "--json"]));
    assert_eq!((&asked["answer"], &asked["resolved"]), (&"done".into(), &"done".into()), "{asked}");
    assert_eq!(order(&gateway, "lost-1").problem(), "answer-not-kept");

    // Nothing happened. There is no completed request that shows that the question works, and the operator is told so.
    service.set(|state| state.orders = Orders::LoseRequest);
    in_doubt(&gateway, "missing");
    let asked = eventually("the end of the settle time", || {
        let asked = crate::json(dir.path(), &ledger(&["ask", "missing", "--json"]));
        Some(asked).filter(|asked| asked["follows"] == "absent")
    });
    assert_eq!(asked["control"], "nothing", "{asked}");
    assert!(asked["means"].as_str().unwrap().contains("Careful"), "{asked}");
    crate::ok(dir.path(), &ledger(&["ask", "missing", "--resolve", "--yes"]));
    service.set(|state| state.orders = Orders::Respond);
    assert_eq!(order(&gateway, "missing").status, 201);

    // A completed key shows that the question works; nothing follows.
    let known = crate::json(dir.path(), &ledger(&["ask", "missing", "--json"]));
    assert_eq!((&known["answer"], &known["follows"]), (&"done".into(), &Value::Null), "{known}");

    // An answer about an older version settles nothing.
    service.set(|state| state.orders = Orders::LoseResponse);
    in_doubt(&gateway, "other");
    let body = json!({ "key": "other", "confirmed": { "resolve": "done", "version": asked["version"] } });
    let json = [("content-type", "application/json")];
    let refused = send(gateway.admin, "POST", "/v1/claims/ask", &json, body.to_string().as_bytes());
    assert_eq!((refused.status, refused.problem().as_str()), (409, "claim-changed"));
}
