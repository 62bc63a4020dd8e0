//! The example clients handle every response of the claim API correctly.

mod driver;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use self::driver::{COMPILED, Driver, examples};
use super::caller::Caller;
use super::instance::Instance;
use super::{DYNOXIDE, address, create_ledger};
use ichido_testkit::http_proxy::{Decision, HttpProxy};
use ichido_testkit::http_server::response;
use ichido_testkit::ledger_server::unique;
use ichido_testkit::required_env;
use ichido_testkit::wait::eventually;

/// A proxy between a client and an instance that counts requests and can lose responses.
struct CountingProxy {
    proxy: HttpProxy,
    traffic: Arc<Mutex<Traffic>>,
}

#[derive(Default)]
struct Traffic {
    requests: BTreeMap<String, usize>,
    responses_to_lose: BTreeSet<&'static str>,
}

impl CountingProxy {
    fn start(instance: &Instance) -> Self {
        let traffic = Arc::new(Mutex::new(Traffic::default()));
        let shared = traffic.clone();
        let proxy = HttpProxy::start(instance.address, move |request| {
            let path = request.uri().path();
            let mut traffic = shared.lock().unwrap();
            *traffic.requests.entry(path.to_owned()).or_default() += 1;
            let loses_response = traffic.responses_to_lose.remove(path);
            if loses_response { Decision::LoseResponse } else { Decision::Forward }
        });
        Self { proxy: proxy.unwrap(), traffic }
    }

    fn lose_responses(&self, paths: &[&'static str]) {
        self.traffic.lock().unwrap().responses_to_lose.extend(paths);
    }

    fn all_lost(&self) -> bool {
        self.traffic.lock().unwrap().responses_to_lose.is_empty()
    }

    fn requests(&self, path: &str) -> usize {
        self.traffic.lock().unwrap().requests.get(path).copied().unwrap_or_default()
    }
}

/// A client, an instance, and another caller of that instance.
struct Scene {
    client: Driver,
    proxy: CountingProxy,
    other: Caller,
    _instance: Instance,
}

impl Scene {
    fn with(start: fn(&str) -> Driver) -> Self {
        let instance = Instance::start("memory:");
        let proxy = CountingProxy::start(&instance);
        Self {
            client: start(&format!("http://{}", proxy.proxy.address())),
            proxy,
            other: instance.caller(),
            _instance: instance,
        }
    }

    fn once(&mut self, key: &str, work: &str) -> Value {
        self.client.call(&json!({ "once": key, "work": work }))
    }

    /// Claims a key as the other caller and returns the token.
    fn claim_as_other(&mut self, claim: &Value) -> Value {
        let response = self.other.post("/v1/claims", claim).unwrap();
        assert_eq!(response.status, 201, "{}", response.text());
        response.json()["token"].clone()
    }

    fn settle(&mut self, verb: &str, body: &Value) {
        let response = self.other.post(&format!("/v1/claims/{verb}"), body).unwrap();
        assert_eq!(response.status, 200, "{}", response.text());
    }

    /// The claim of a key, as the instance lists it.
    fn claim(&mut self, key: &str) -> Value {
        self.other.get(&format!("/v1/claims?prefix={key}")).unwrap().json()["claims"][0].clone()
    }
}

fn done_by_the_client(ran: usize) -> Value {
    json!({ "outcome": { "by": "the client" }, "ran": ran })
}

fn assert_every_response_is_handled(start: fn(&str) -> Driver) {
    let mut scene = Scene::with(start);
    events_are_new_once(&mut scene);
    outcome_is_reused(&mut scene);
    running_claim_is_awaited(&mut scene);
    claim_in_doubt_is_not_retried(&mut scene);
    key_reuse_is_an_error(&mut scene);
    lease_is_renewed_during_slow_work(&mut scene);
    failure_without_effect_releases_the_claim(&mut scene);
    failure_with_unknown_effect_is_in_doubt(&mut scene);
    lost_responses_change_nothing(&mut scene);
    degraded_results_are_flagged(start);
}

fn events_are_new_once(scene: &mut Scene) {
    let events = json!({ "check": [{ "key": "E1", "metadata": { "file_id": "F1" } }, { "key": "E2" }, { "key": "E1" }] });
    let new = |response: Value| -> Vec<Value> {
        let results = response["results"].as_array().unwrap().clone();
        results.iter().map(|one| one["is_new"].clone()).collect()
    };
    assert_eq!(new(scene.client.call(&events)), [true, true, false]);
    assert_eq!(new(scene.client.call(&events)), [false, false, false]);
}

fn outcome_is_reused(scene: &mut Scene) {
    assert_eq!(scene.once("done", "ok"), done_by_the_client(1));
    assert_eq!(scene.once("done", "ok"), done_by_the_client(0));
}

fn running_claim_is_awaited(scene: &mut Scene) {
    let token = scene.claim_as_other(&json!({ "key": "busy", "lease_ms": 20_000 }));
    let Scene { client, other, proxy, .. } = scene;
    let requests = proxy.requests("/v1/claims");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| client.call(&json!({ "once": "busy", "work": "ok" })));
        eventually("the client's claim request", || (proxy.requests("/v1/claims") > requests).then_some(()));
        let body = json!({ "key": "busy", "token": token, "outcome": "by another" });
        assert_eq!(other.post("/v1/claims/complete", &body).unwrap().status, 200);
        assert_eq!(waiting.join().unwrap(), json!({ "outcome": "by another", "ran": 0 }));
    });
}

fn claim_in_doubt_is_not_retried(scene: &mut Scene) {
    let token = scene.claim_as_other(&json!({ "key": "doubtful" }));
    scene.settle("doubt", &json!({ "key": "doubtful", "token": token, "reason": "a timeout" }));
    assert_eq!(scene.once("doubtful", "ok"), json!({ "error": "InDoubt", "ran": 0 }));
}

fn key_reuse_is_an_error(scene: &mut Scene) {
    let fingerprint = |digit: &str| digit.repeat(64);
    scene.claim_as_other(&json!({ "key": "reused", "fingerprint": fingerprint("a") }));
    let other = json!({ "once": "reused", "work": "ok", "fingerprint": fingerprint("b") });
    assert_eq!(scene.client.call(&other), json!({ "error": "KeyReused", "ran": 0 }));
}

fn lease_is_renewed_during_slow_work(scene: &mut Scene) {
    let slow = json!({ "once": "slow", "work": "slow", "lease_ms": 6_000 });
    assert_eq!(scene.client.call(&slow), done_by_the_client(1));
    let claim = scene.claim("slow");
    assert_eq!(claim["state"], "done", "{claim}");
    assert!(claim["renewed_at"].as_u64() > claim["claimed_at"].as_u64(), "{claim}");
}

fn failure_without_effect_releases_the_claim(scene: &mut Scene) {
    assert_eq!(scene.once("released", "nothing"), json!({ "error": "NothingHappened", "ran": 1 }));
    assert_eq!(scene.claim("released"), Value::Null);
    assert_eq!(scene.once("released", "ok"), done_by_the_client(1));
}

fn failure_with_unknown_effect_is_in_doubt(scene: &mut Scene) {
    assert_eq!(scene.once("unknown", "unknown"), json!({ "error": "InDoubt", "ran": 1 }));
    let claim = scene.claim("unknown");
    assert_eq!(claim["state"], "in-doubt", "{claim}");
    assert!(claim["doubt_reason"].as_str().unwrap().contains("no response"), "{claim}");
    assert_eq!(scene.once("unknown", "ok"), json!({ "error": "InDoubt", "ran": 0 }));
}

fn lost_responses_change_nothing(scene: &mut Scene) {
    scene.proxy.lose_responses(&[
        "/v1/events/check",
        "/v1/claims",
        "/v1/claims/complete",
        "/v1/claims/release",
    ]);
    let event = json!({ "check": [{ "key": "lost" }] });
    assert_eq!(
        scene.client.call(&event)["results"][0]["is_new"],
        true,
        "a retry of the first check is still new"
    );
    assert_eq!(scene.client.call(&event)["results"][0]["is_new"], false);
    assert_eq!(scene.once("lost", "ok"), done_by_the_client(1));
    assert_eq!(scene.claim("lost")["attempt"], 1);
    assert_eq!(scene.once("let-go", "nothing"), json!({ "error": "NothingHappened", "ran": 1 }));
    assert_eq!(scene.claim("let-go"), Value::Null);
    assert!(scene.proxy.all_lost());
}

/// The table is unavailable, and the instance falls back to its local ledger.
fn degraded_results_are_flagged(start: fn(&str) -> Driver) {
    let (table, server) = (format!("t-{}", unique()), required_env(DYNOXIDE));
    create_ledger(format!("dynamodb://{table}?endpoint={server}"));
    let failing = Arc::new(AtomicBool::new(false));
    let fails = failing.clone();
    let proxy = HttpProxy::start(address(&server), move |_| match fails.load(Ordering::SeqCst) {
        true => {
            let error = r#"{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError"}"#;
            Decision::Respond(response(500, error))
        }
        false => Decision::Forward,
    });
    let proxy = proxy.unwrap();
    let ledger = format!("dynamodb://{table}?endpoint=http://{}", proxy.address());
    // The check at startup has this timeout too, so it must be long enough for a busy machine.
    let deadline = [("ICHIDO_LEDGER_TIMEOUT_MS", "2000")];
    let instance = Instance::start_with(&ledger, "127.0.0.1:0", &deadline);
    failing.store(true, Ordering::SeqCst);
    let mut client = start(&format!("http://{}", instance.address));
    let mut check = || {
        let result = client.call(&json!({ "check": [{ "key": "E1" }] }))["results"][0].clone();
        (result["is_new"].clone(), result["degraded"].clone())
    };
    assert_eq!(check(), (json!(true), json!(true)));
    assert_eq!(check(), (json!(false), json!(true)), "one instance reports an event as new once");
}

#[test]
fn python_client_handles_every_response() {
    assert_every_response_is_handled(Driver::python);
}

#[test]
fn typescript_client_handles_every_response() {
    assert_every_response_is_handled(Driver::typescript);
}

#[test]
fn rust_client_handles_every_response() {
    assert_every_response_is_handled(Driver::rust);
}

/// Sends the same events twice to the consumer that comes with an example.
fn assert_consumer_handles_each_event_once(consumer: impl Fn() -> Command) {
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
fn python_consumer_handles_each_event_once() {
    assert_consumer_handles_each_event_once(|| {
        let mut python = Command::new(required_env("ICHIDO_TEST_PYTHON"));
        python.arg("-B").arg(examples().join("python/consumer.py"));
        python
    });
}

#[test]
fn typescript_consumer_handles_each_event_once() {
    assert_consumer_handles_each_event_once(|| {
        let mut node = Command::new(required_env("ICHIDO_TEST_NODE"));
        node.arg(COMPILED.join("build/consumer.js"));
        node
    });
}
