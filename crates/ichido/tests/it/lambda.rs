//! `ichido claims --lambda-extension` in a simulated Lambda sandbox, which is frozen between invocations.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use ichido_core::{Claim, Key, Scope, Settled};
use ichido_ledger::Ledger;
use ichido_testkit::http_client::{Response, connect, get, send};
use ichido_testkit::http_server::{HttpServer, Reply, response};
use ichido_testkit::ledger_server::LedgerServer;
use ichido_testkit::process::Process;
use ichido_testkit::tcp_proxy::{Fault, TcpProxy};
use ichido_testkit::wait::{TIMEOUT, eventually, until};
use lambda_simulator::{EventType, FreezeMode, InvocationStatus, ShutdownReason, Simulator};
use serde_json::{Value, json};

/// A sandbox with the extension and a function that is played by the test.
struct Sandbox {
    simulator: Simulator,
    extension: Process,
    claims: SocketAddr,
}

impl Sandbox {
    async fn start(ledger: &str) -> Self {
        let simulator = Simulator::builder().freeze_mode(FreezeMode::Process).build().await.unwrap();
        let mut extension = Process::start(&mut command(simulator.addr(), ledger)).unwrap();
        simulator.register_freeze_pid(extension.child.id());
        let claims = extension.wait_for_address("listening on ").unwrap();
        simulator.wait_for(|| async { simulator.extension_count().await == 1 }, TIMEOUT).await.unwrap();
        Self { simulator, extension, claims }
    }

    /// Invokes the function, which calls the extension, and waits until the sandbox is frozen.
    async fn invoke<T>(&self, function: impl FnOnce(&Self) -> T) -> T {
        let request = self.simulator.enqueue_payload(json!({})).await;
        let api = self.simulator.addr();
        let result = tokio::task::block_in_place(|| {
            let next = get(api, "/2018-06-01/runtime/invocation/next");
            assert_eq!(next.header("lambda-runtime-aws-request-id"), Some(request.as_str()), "{next:?}");
            let result = function(self);
            let path = format!("/2018-06-01/runtime/invocation/{request}/response");
            assert_eq!(send(api, "POST", &path, &[], b"{}").status, 202);
            result
        });
        let state = self.simulator.wait_for_invocation_complete(&request, TIMEOUT).await.unwrap();
        assert_eq!(state.status, InvocationStatus::Success);
        self.simulator.wait_for_frozen(TIMEOUT).await.unwrap();
        result
    }

    fn post(&self, path: &str, body: &Value) -> Response {
        let host = self.claims.to_string();
        let headers = [("host", host.as_str()), ("content-type", "application/json")];
        send(self.claims, "POST", path, &headers, body.to_string().as_bytes())
    }

    /// Checks an event: whether it is new, and whether the fallback answered.
    fn check(&self, key: &str) -> (bool, bool) {
        let response = self.post("/v1/events/check", &json!({ "events": [{ "key": key }] }));
        assert_eq!(response.status, 200, "{response:?}");
        let result = response.json()["results"][0].clone();
        (result["is_new"].as_bool().unwrap(), result["degraded"].as_bool().unwrap())
    }

    fn claim(&self, key: &str) -> Response {
        self.post("/v1/claims", &json!({ "key": key, "lease_ms": LEASE_MS }))
    }
}

const LEASE_MS: u64 = 1_000;
const NEW: (bool, bool) = (true, false);
const DUPLICATE: (bool, bool) = (false, false);

fn command(api: SocketAddr, ledger: &str) -> Command {
    command_at(api, ledger, "127.0.0.1:0")
}

fn command_at(api: SocketAddr, ledger: &str, listen: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ichido"));
    crate::without_settings(|name| {
        command.env_remove(name);
    });
    command.args(["claims", "--lambda-extension", "--listen", listen]);
    command
        .env("AWS_LAMBDA_RUNTIME_API", api.to_string())
        .env("ICHIDO_LEDGER_URL", ledger)
        .env("ICHIDO_EMF", "true");
    command
}

async fn dynamodb() -> (LedgerServer, TcpProxy) {
    let server = LedgerServer::dynamodb("ICHIDO_TEST_DYNAMODB_URL").await;
    let proxy = server.proxy();
    (server, proxy)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_sandbox_continues_where_it_was() {
    let (server, proxy) = dynamodb().await;
    let mut sandbox = Sandbox::start(&server.url_through(&proxy)).await;
    let registered = sandbox.simulator.get_registered_extensions().await;
    assert_eq!((registered.len(), registered[0].name.as_str()), (1, "ichido"));
    assert!(
        [EventType::Invoke, EventType::Shutdown].iter().all(|event| registered[0].events.contains(event))
    );
    assert_eq!(sandbox.invoke(|sandbox| sandbox.check("Ev1")).await, NEW);
    // The ledger closes its connections during the freeze.
    proxy.set(Fault::Refuse);
    proxy.set(Fault::None);
    assert_eq!(
        sandbox.invoke(|sandbox| (sandbox.check("Ev1"), sandbox.check("Ev2"))).await,
        (DUPLICATE, NEW)
    );
    // Its connections are dead, and nobody says so.
    proxy.stall();
    assert_eq!(
        sandbox.invoke(|sandbox| (sandbox.check("Ev3"), sandbox.check("Ev2"))).await,
        (NEW, DUPLICATE)
    );
    let closed = sandbox.invoke(|sandbox| get(sandbox.claims, "/healthz")).await;
    assert_eq!(closed.header("connection"), Some("close"), "no connection of the function outlives a freeze");
    sandbox.simulator.graceful_shutdown(ShutdownReason::Spindown).await;
    assert_eq!(sandbox.extension.exit_code(), 0, "{}", sandbox.extension.stderr());
    assert!(!sandbox.extension.stderr().contains("\"level\":\"ERROR\""), "{}", sandbox.extension.stderr());
    // CloudWatch gets what an invocation counted when the next one begins, or at the end.
    let written = sandbox.extension.read_stdout().unwrap();
    let lines = written.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let lines: Vec<_> = lines.filter(|line| line["Route"] == "events/check").collect();
    let sum = |name: &str| lines.iter().map(|line| line[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("Requests"), sum("Duplicates")), (5, 2), "{written}");
}

fn key(text: &str) -> Key {
    // The scope of claims that are made through the API.
    Key::new(Scope::new(String::new(), "/v1/claims".to_owned()), text.to_owned()).unwrap()
}

async fn claim(ledger: &Ledger, text: &str) -> Claim {
    let request = ichido_core::ClaimRequest { lease_ms: LEASE_MS, ..ledger.request(key(text)) };
    ledger.claim(&request).await.unwrap().claim
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_are_judged_by_the_ledger_after_a_freeze() {
    let (server, _) = dynamodb().await;
    let (sandbox, other) = (Sandbox::start(&server.url()).await, server.instance().await);
    // A claim that its holder does not renew lapses, although the sandbox is frozen.
    let granted = sandbox.invoke(|sandbox| sandbox.claim("abandoned")).await;
    assert_eq!(granted.status, 201, "{granted:?}");
    until("the claim is in doubt", || async {
        matches!(claim(&other, "abandoned").await, Claim::InDoubt(_))
    })
    .await;
    let late = granted.json()["token"].as_str().unwrap().to_owned();
    let (again, completed) = sandbox
        .invoke(|sandbox| {
            let complete = json!({ "key": "abandoned", "token": late, "outcome": { "id": 1 } });
            (sandbox.claim("abandoned").problem(), sandbox.post("/v1/claims/complete", &complete).status)
        })
        .await;
    assert_eq!((again.as_str(), completed), ("in-doubt", 200), "the holder still knows what happened");
    // A claim that another sandbox renews does not lapse, however long this one is frozen.
    let Claim::Granted(grant) = claim(&other, "renewed").await else { panic!("not granted") };
    assert_eq!(sandbox.invoke(|sandbox| sandbox.claim("renewed").problem()).await, "in-flight");
    let frozen = Instant::now();
    while frozen.elapsed() < Duration::from_millis(2 * LEASE_MS) {
        let renewed = other.renew(&key("renewed"), grant.token, LEASE_MS).await.unwrap();
        assert_eq!(renewed, Settled::Applied);
        tokio::time::sleep(Duration::from_millis(LEASE_MS / 10)).await;
    }
    assert_eq!(sandbox.invoke(|sandbox| sandbox.claim("renewed").problem()).await, "in-flight");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_noticed_and_handed_over_across_freezes() {
    let (server, proxy) = dynamodb().await;
    let mut sandbox = Sandbox::start(&server.url_through(&proxy)).await;
    assert_eq!(sandbox.invoke(|sandbox| sandbox.check("before")).await, NEW);
    proxy.set(Fault::Refuse);
    assert_eq!(sandbox.invoke(|sandbox| sandbox.check("during")).await, (true, true), "the fallback answers");
    proxy.set(Fault::None);
    // SHUTDOWN is the last chance to hand over what the fallback granted.
    sandbox.simulator.graceful_shutdown(ShutdownReason::Spindown).await;
    assert_eq!(sandbox.extension.exit_code(), 0, "{}", sandbox.extension.stderr());
    let other = Sandbox::start(&server.url()).await;
    assert_eq!(other.invoke(|sandbox| sandbox.check("during")).await, DUPLICATE);
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_does_not_wait_for_a_ledger_that_is_silent() {
    let (server, proxy) = dynamodb().await;
    let mut sandbox = Sandbox::start(&server.url_through(&proxy)).await;
    assert_eq!(sandbox.invoke(|sandbox| sandbox.check("before")).await, NEW);
    sandbox.simulator.enqueue_payload(json!({})).await;
    proxy.set(Fault::BlackHole);
    let mut waiting = connect(sandbox.claims).unwrap();
    let body = json!({ "key": "hanging" }).to_string();
    let head = format!(
        "POST /v1/claims HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        sandbox.claims,
        body.len()
    );
    std::io::Write::write_all(&mut waiting, head.as_bytes()).unwrap();
    eventually("the request at the ledger", || (proxy.requests() > 1).then_some(()));
    let asked = Instant::now();
    let shutdown = tokio::spawn(sandbox.simulator.graceful_shutdown(ShutdownReason::Spindown));
    let code = tokio::task::block_in_place(|| sandbox.extension.exit_code());
    // Lambda allows 2 s. The stuck request alone would take a minute.
    assert!(asked.elapsed() < Duration::from_secs(30), "{:?}", asked.elapsed());
    assert_eq!(code, 0, "{}", sandbox.extension.stderr());
    assert!(sandbox.extension.stderr().contains("did not finish in time"), "{}", sandbox.extension.stderr());
    shutdown.await.unwrap();
}

/// The path, headers and body of each request.
type Requests = Arc<Mutex<Vec<(String, Value, Value)>>>;

/// An Extensions API that registers extensions, fails at the next event, and remembers its requests.
fn failing_api() -> (HttpServer, Requests) {
    let requests = Requests::default();
    let remembered = requests.clone();
    let server = HttpServer::start(move |request: http::Request<bytes::Bytes>| {
        let path = request.uri().path().trim_start_matches("/2020-01-01/extension/").to_owned();
        let headers = request.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
        let headers = json!(headers.collect::<std::collections::BTreeMap<_, _>>());
        let body = serde_json::from_slice(request.body()).unwrap_or_default();
        let is_registration = path == "register";
        let is_report = path.ends_with("error");
        remembered.lock().unwrap().push((path, headers, body));
        async move {
            let status = match (is_registration, is_report) {
                (true, _) => 200,
                (false, true) => 202,
                (false, false) => 500,
            };
            let mut reply = response(status, "{}");
            if is_registration {
                reply.headers_mut().insert("lambda-extension-identifier", "id-17".parse().unwrap());
            }
            Reply::Response(reply)
        }
    });
    (server.unwrap(), requests)
}

#[test]
fn a_failed_start_is_reported_to_lambda() {
    let (api, requests) = failing_api();
    let dir = tempfile::tempdir().unwrap();
    let extensions = dir.path().join("extensions");
    std::fs::create_dir(&extensions).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ichido"), extensions.join("claims-for-bots")).unwrap();
    // Lambda starts the file in /opt/extensions without arguments.
    let mut command = Command::new(extensions.join("claims-for-bots"));
    crate::without_settings(|name| {
        command.env_remove(name);
    });
    command.env("AWS_LAMBDA_RUNTIME_API", api.address().to_string()).current_dir(dir.path());
    let mut process = Process::start(&mut command).unwrap();
    assert_eq!(process.exit_code(), 2, "{}", process.stderr());
    assert!(process.stderr().contains("ICHIDO_LEDGER_URL"), "{}", process.stderr());
    let requests = requests.lock().unwrap();
    let [(register, headers, events), (report, of_report, error)] = &requests[..] else {
        panic!("{requests:?}")
    };
    assert_eq!((register.as_str(), report.as_str()), ("register", "init/error"));
    assert_eq!(headers["lambda-extension-name"], "claims-for-bots");
    assert_eq!(events, &json!({ "events": ["INVOKE", "SHUTDOWN"] }));
    assert_eq!(of_report["lambda-extension-identifier"], "id-17");
    assert_eq!(of_report["lambda-extension-function-error-type"], error["errorType"]);
    assert!(error["errorMessage"].as_str().unwrap().contains("ICHIDO_LEDGER_URL"), "{error}");
    assert!(!Path::new(dir.path()).join("data").exists(), "nothing is written to the sandbox");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_after_the_start_is_reported_to_lambda() {
    let (server, _) = dynamodb().await;
    let (api, requests) = failing_api();
    let mut process = Process::start(&mut command(api.address(), &server.url())).unwrap();
    assert_eq!(tokio::task::block_in_place(|| process.exit_code()), 1, "{}", process.stderr());
    let requests = requests.lock().unwrap();
    let paths: Vec<_> = requests.iter().map(|(path, ..)| path.as_str()).collect();
    assert_eq!(paths, ["register", "event/next", "exit/error"], "{requests:?}");
    assert!(requests[2].2["errorMessage"].as_str().unwrap().contains("next event"), "{requests:?}");
}

#[test]
fn outside_lambda_the_flag_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let line = crate::refused(dir.path(), &["claims", "--lambda-extension"], 2);
    assert!(line.contains("only inside AWS Lambda: AWS_LAMBDA_RUNTIME_API is not set"), "{line}");
    let nowhere = format!("127.0.0.1:{}", ichido_testkit::free_port());
    let mut command = command(nowhere.parse().unwrap(), "dynamodb:");
    let mut process = Process::start(command.arg0("ichido")).unwrap();
    assert_eq!(process.exit_code(), 1);
    let line = process.stderr();
    assert!(line.contains("cannot register \"ichido\" with the Lambda Extensions API"), "{line}");
}

/// Prints how long a cold start takes, from the start of the process until it is registered and listens, and how much
/// memory it then uses. Only figures of a release build mean anything; the aim is 30 ms and 25 MB.
#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stdout, reason = "the figures are the result")]
async fn cold_start_and_memory() {
    const STARTS: usize = 9;
    let (server, _) = dynamodb().await;
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        let simulator = Simulator::builder().build().await.unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], ichido_testkit::free_port()));
        let mut command = command_at(simulator.addr(), &server.url(), &address.to_string());
        let started = SystemTime::now();
        let extension = Process::start(&mut command).unwrap();
        let waits_since = || async {
            let registered = simulator.get_registered_extensions().await;
            simulator.first_next_poll_at(&registered.first()?.id).await
        };
        until("the extension waits for events", || async { waits_since().await.is_some() }).await;
        let took = SystemTime::from(waits_since().await.unwrap()).duration_since(started).unwrap();
        assert_eq!(get(address, "/healthz").status, 200);
        let status = std::fs::read_to_string(format!("/proc/{}/status", extension.child.id())).unwrap();
        let mb = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() as f64 / 1024.0
        };
        let (resident, anonymous) = (mb("VmRSS:"), mb("RssAnon:"));
        // The rest are pages of the binary, which the system can drop.
        assert!(anonymous < 25.0, "{anonymous} MB");
        starts.push((took, resident, anonymous));
    }
    starts.sort_by_key(|(took, ..)| *took);
    let ms = |start: usize| starts[start].0.as_secs_f64() * 1e3;
    let (_, resident, anonymous) = starts[STARTS / 2];
    println!(
        "lambda extension: cold start {:.1} ms (median of {STARTS}; slowest {:.1} ms), {resident:.1} MB resident, \
         {anonymous:.1} MB of them anonymous",
        ms(STARTS / 2),
        ms(STARTS - 1)
    );
}
