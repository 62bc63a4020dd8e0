//! The example clients: each does the right thing on each answer.

mod driver;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use self::driver::{COMPILED, Driver, examples};
use super::caller::Caller;
use super::http_proxy::{self, Verdict};
use super::instance::Instance;
use super::{DYNOXIDE, address, created, require_env, unique};
use crate::support::eventually;
use crate::support::http::Response;

/// The way from a client to an instance: it counts, and loses replies.
#[derive(Clone, Default)]
struct Way(Arc<Mutex<Passed>>);

#[derive(Default)]
struct Passed {
    asked: BTreeMap<String, usize>,
    to_lose: BTreeSet<&'static str>,
}

impl Way {
    fn to(instance: &Instance) -> (Self, SocketAddr) {
        let way = Self::default();
        let passing = way.clone();
        let address = http_proxy::start(instance.address, move |request| {
            let path = request.line.split(' ').nth(1).unwrap_or_default().to_owned();
            let mut passed = passing.0.lock().unwrap();
            let lost = passed.to_lose.remove(path.as_str());
            *passed.asked.entry(path).or_default() += 1;
            if lost { Verdict::LoseReply } else { Verdict::Pass }
        });
        (way, address)
    }

    fn lose(&self, paths: &[&'static str]) {
        self.0.lock().unwrap().to_lose.extend(paths);
    }

    fn all_lost(&self) -> bool {
        self.0.lock().unwrap().to_lose.is_empty()
    }

    fn asked(&self, path: &str) -> usize {
        self.0.lock().unwrap().asked.get(path).copied().unwrap_or_default()
    }
}

/// A client, an instance, and another caller of it.
struct Scene {
    client: Driver,
    way: Way,
    other: Caller,
    _instance: Instance,
}

impl Scene {
    fn with(start: fn(&str) -> Driver) -> Self {
        let instance = Instance::start("memory:");
        let (way, address) = Way::to(&instance);
        Self {
            client: start(&format!("http://{address}")),
            way,
            other: instance.caller(),
            _instance: instance,
        }
    }

    fn once(&mut self, key: &str, work: &str) -> Value {
        self.client.ask(&json!({ "once": key, "work": work }))
    }

    /// Another caller's claim: its token.
    fn held(&mut self, claim: &Value) -> Value {
        let answer = self.other.post("/v1/claims", claim).unwrap();
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()["token"].clone()
    }

    fn settle(&mut self, word: &str, body: &Value) {
        let answer = self.other.post(&format!("/v1/claims/{word}"), body).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// What the ledger says of a key.
    fn claim(&mut self, key: &str) -> Value {
        self.other.get(&format!("/v1/claims?prefix={key}")).unwrap().json()["claims"][0].clone()
    }
}

fn done_by_the_client(ran: usize) -> Value {
    json!({ "outcome": { "by": "the client" }, "ran": ran })
}

fn each_answer_is_understood(start: fn(&str) -> Driver) {
    let mut scene = Scene::with(start);
    events_are_new_once(&mut scene);
    an_outcome_is_reused(&mut scene);
    a_running_claim_is_waited_for(&mut scene);
    a_doubt_is_left_alone(&mut scene);
    a_key_for_something_else_is_a_bug(&mut scene);
    slow_work_is_renewed(&mut scene);
    what_did_not_happen_is_released(&mut scene);
    what_may_have_happened_is_in_doubt(&mut scene);
    lost_replies_change_nothing(&mut scene);
    degraded_answers_say_so(start);
}

fn events_are_new_once(scene: &mut Scene) {
    let events = json!({ "check": [{ "key": "E1", "metadata": { "file_id": "F1" } }, { "key": "E2" }, { "key": "E1" }] });
    let new = |answer: Value| -> Vec<Value> {
        let results = answer["results"].as_array().unwrap().clone();
        results.iter().map(|one| one["is_new"].clone()).collect()
    };
    assert_eq!(new(scene.client.ask(&events)), [true, true, false]);
    assert_eq!(new(scene.client.ask(&events)), [false, false, false]);
}

fn an_outcome_is_reused(scene: &mut Scene) {
    assert_eq!(scene.once("done", "ok"), done_by_the_client(1));
    assert_eq!(scene.once("done", "ok"), done_by_the_client(0));
}

fn a_running_claim_is_waited_for(scene: &mut Scene) {
    let token = scene.held(&json!({ "key": "busy", "lease_ms": 2_000 }));
    let (asked, way) = (scene.way.asked("/v1/claims"), scene.way.clone());
    let Scene { client, other, .. } = scene;
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| client.ask(&json!({ "once": "busy", "work": "ok" })));
        eventually("the client's question", || (way.asked("/v1/claims") > asked).then_some(()));
        let body = json!({ "key": "busy", "token": token, "outcome": "by another" });
        assert_eq!(other.post("/v1/claims/complete", &body).unwrap().status, 200);
        assert_eq!(waiting.join().unwrap(), json!({ "outcome": "by another", "ran": 0 }));
    });
}

fn a_doubt_is_left_alone(scene: &mut Scene) {
    let token = scene.held(&json!({ "key": "doubtful" }));
    scene.settle("doubt", &json!({ "key": "doubtful", "token": token, "reason": "a timeout" }));
    assert_eq!(scene.once("doubtful", "ok"), json!({ "error": "InDoubt", "ran": 0 }));
}

fn a_key_for_something_else_is_a_bug(scene: &mut Scene) {
    let fingerprint = |digit: &str| digit.repeat(64);
    scene.held(&json!({ "key": "reused", "fingerprint": fingerprint("a") }));
    let other = json!({ "once": "reused", "work": "ok", "fingerprint": fingerprint("b") });
    assert_eq!(scene.client.ask(&other), json!({ "error": "KeyReused", "ran": 0 }));
}

fn slow_work_is_renewed(scene: &mut Scene) {
    let slow = json!({ "once": "slow", "work": "slow", "lease_ms": 1_000 });
    assert_eq!(scene.client.ask(&slow), done_by_the_client(1));
    let claim = scene.claim("slow");
    assert_eq!(claim["state"], "done", "{claim}");
    assert!(claim["renewed_at"].as_u64() > claim["claimed_at"].as_u64(), "{claim}");
}

fn what_did_not_happen_is_released(scene: &mut Scene) {
    assert_eq!(scene.once("released", "nothing"), json!({ "error": "NothingHappened", "ran": 1 }));
    assert_eq!(scene.claim("released"), Value::Null);
    assert_eq!(scene.once("released", "ok"), done_by_the_client(1));
}

fn what_may_have_happened_is_in_doubt(scene: &mut Scene) {
    assert_eq!(scene.once("unknown", "unknown"), json!({ "error": "InDoubt", "ran": 1 }));
    let claim = scene.claim("unknown");
    assert_eq!(claim["state"], "in-doubt", "{claim}");
    assert!(claim["doubt_reason"].as_str().unwrap().contains("no answer"), "{claim}");
    assert_eq!(scene.once("unknown", "ok"), json!({ "error": "InDoubt", "ran": 0 }));
}

fn lost_replies_change_nothing(scene: &mut Scene) {
    scene.way.lose(&["/v1/events/check", "/v1/claims", "/v1/claims/complete", "/v1/claims/release"]);
    let event = json!({ "check": [{ "key": "lost" }] });
    assert_eq!(scene.client.ask(&event)["results"][0]["is_new"], true, "it was new when it was first asked");
    assert_eq!(scene.client.ask(&event)["results"][0]["is_new"], false);
    assert_eq!(scene.once("lost", "ok"), done_by_the_client(1));
    assert_eq!(scene.claim("lost")["attempt"], 1);
    assert_eq!(scene.once("let-go", "nothing"), json!({ "error": "NothingHappened", "ran": 1 }));
    assert_eq!(scene.claim("let-go"), Value::Null);
    assert!(scene.way.all_lost());
}

/// The table is out, and the instance answers from its memory.
fn degraded_answers_say_so(start: fn(&str) -> Driver) {
    let (table, server) = (format!("t-{}", unique()), require_env(DYNOXIDE));
    created(format!("dynamodb://{table}?endpoint={server}"));
    let out = Arc::new(AtomicBool::new(false));
    let is_out = out.clone();
    let proxy = http_proxy::start(address(&server), move |_| {
        if is_out.load(Ordering::SeqCst) {
            let body = br#"{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError"}"#.to_vec();
            return Verdict::Response(Response { status: 500, headers: Vec::new(), body });
        }
        Verdict::Pass
    });
    let ledger = format!("dynamodb://{table}?endpoint=http://{proxy}");
    // The check at the start has this deadline too, on a machine that may be busy.
    let deadline = [("ICHIDO_LEDGER_TIMEOUT_MS", "2000")];
    let instance = Instance::start_with(&ledger, "127.0.0.1:0", &deadline);
    out.store(true, Ordering::SeqCst);
    let mut client = start(&format!("http://{}", instance.address));
    let mut check = || {
        let result = client.ask(&json!({ "check": [{ "key": "E1" }] }))["results"][0].clone();
        (result["is_new"].clone(), result["degraded"].clone())
    };
    assert_eq!(check(), (json!(true), json!(true)));
    assert_eq!(check(), (json!(false), json!(true)), "one instance calls it new once");
}

#[test]
fn python_does_the_right_thing_on_each_answer() {
    each_answer_is_understood(Driver::python);
}

#[test]
fn typescript_does_the_right_thing_on_each_answer() {
    each_answer_is_understood(Driver::typescript);
}

#[test]
fn rust_does_the_right_thing_on_each_answer() {
    each_answer_is_understood(Driver::rust);
}

/// The consumer that each example comes with, given the same events twice.
fn a_consumer_handles_each_event_once(consumer: impl Fn() -> Command) {
    let instance = Instance::start("memory:");
    let run = || {
        let mut command = consumer();
        command.env("ICHIDO_URL", format!("http://{}", instance.address)).env_remove("ICHIDO_ADMIN_TOKEN");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"{\"id\":\"Ev1\"}\n{\"id\":\"Ev2\"}\n").unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap().replace(": ", ":")
    };
    let handled = "Ev1 {\"handled\":\"Ev1\"}\nEv2 {\"handled\":\"Ev2\"}\n";
    assert_eq!(run(), format!("seen:Ev1 new\nseen:Ev2 new\n{handled}"));
    assert_eq!(run(), format!("seen:Ev1 duplicate\nseen:Ev2 duplicate\n{handled}"));
}

#[test]
fn the_consumer_in_python_handles_each_event_once() {
    a_consumer_handles_each_event_once(|| {
        let mut python = Command::new(require_env("ICHIDO_TEST_PYTHON"));
        python.arg("-B").arg(examples().join("python/consumer.py"));
        python
    });
}

#[test]
fn the_consumer_in_typescript_handles_each_event_once() {
    a_consumer_handles_each_event_once(|| {
        let mut node = Command::new(require_env("ICHIDO_TEST_NODE"));
        node.arg(COMPILED.join("build/consumer.js"));
        node
    });
}
