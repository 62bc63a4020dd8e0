//! Scenario 4: every event reaches each instance of a bot, and some events twice, as when a sender times out and retries.
//! The instances ask the claim API whether an event is new. The claim API is killed and restarted.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::effect_log::EffectLog;
use super::report::{Comparison, ScenarioReport, print_counts};
use super::sandbox::Sandbox;
use super::server_process::ServerProcess;
use ichido_serve::Failure;

/// Instances of the bot. Every event reaches each of them.
const INSTANCES: u32 = 3;
/// Every third event is delivered twice to each instance.
const DELIVER_TWICE_EVERY: u32 = 3;
const ATTEMPTS_MAX: u32 = 2_000;
const RETRY_PAUSE: Duration = Duration::from_millis(25);
const SCENARIO_MAX: Duration = Duration::from_secs(120);

#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    events: u32,
    deliveries: u32,
    retries: u32,
    duplicates_recognised: u32,
    handled_once: u32,
    handled_twice: u32,
    never_handled: u32,
    broken: Vec<String>,
}

#[derive(Debug, Default)]
struct Progress {
    deliveries: AtomicU32,
    retries: AtomicU32,
    duplicates: AtomicU32,
    /// Cancelled once the claim API has been killed. No instance takes its last event before that.
    killed: CancellationToken,
}

impl Progress {
    /// Waits until a count has reached this number.
    async fn reached(&self, count: impl Fn(&Self) -> &AtomicU32, number: u32) {
        while count(self).load(Ordering::Relaxed) < number {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

pub(super) async fn run(sandbox: &Sandbox<'_>) -> Result<Report, Failure> {
    sandbox.introduce(
        "4. Events",
        &format!(
            "Each of {} events reaches {INSTANCES} instances of a bot, every third one twice. They ask the claim API which are new.",
            sandbox.args.keys
        ),
    );
    tokio::time::timeout(SCENARIO_MAX, run_in(sandbox, sandbox.args.keys))
        .await
        .map_err(|_| Failure::internal(format!("the events scenario took more than {SCENARIO_MAX:?}")))?
}

async fn run_in(sandbox: &Sandbox<'_>, events: u32) -> Result<Report, Failure> {
    let log = sandbox.dir.join("handled.log");
    let claim_api = start_claim_api(sandbox, SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let address = claim_api.address;
    let progress = Arc::new(Progress::default());
    let handled = File::options()
        .create(true)
        .append(true)
        .open(&log)
        .map_err(|error| Failure::internal(format!("cannot open {}: {error}", log.display())))?;
    let handled = Arc::new(handled);
    let client = Client::builder(TokioExecutor::new()).build_http();
    let mut instances = JoinSet::new();
    for number in 0..INSTANCES {
        let instance = Instance {
            number,
            client: client.clone(),
            claim_api: address,
            progress: progress.clone(),
            handled: handled.clone(),
        };
        instances.spawn(async move { instance.receive(events).await });
    }
    progress.reached(|progress| &progress.deliveries, (events - 1) * INSTANCES / 2).await;
    claim_api.kill();
    progress.killed.cancel();
    progress.reached(|progress| &progress.retries, 1).await;
    let claim_api = start_claim_api(sandbox, address).await?;
    sandbox.say("kill -9: the claim API crashes halfway, and is restarted. The instances retry.");
    let mut broken: Vec<String> = instances.join_all().await.into_iter().flatten().collect();
    drop(claim_api);
    let tally = EffectLog::read(&log)?.tally((0..events).map(event_name), "handled");
    broken.extend(tally.broken);
    let read = |count: &AtomicU32| count.load(Ordering::Relaxed);
    Ok(Report {
        events,
        deliveries: read(&progress.deliveries),
        retries: read(&progress.retries),
        duplicates_recognised: read(&progress.duplicates),
        handled_once: tally.once,
        handled_twice: tally.more_than_once,
        never_handled: tally.never,
        broken,
    })
}

fn event_name(number: u32) -> String {
    format!("Ev{number:06}")
}

async fn start_claim_api(sandbox: &Sandbox<'_>, listen: SocketAddr) -> Result<ServerProcess, Failure> {
    let mut command = sandbox.ichido()?;
    command.env("LOG_LEVEL", "error").args(["claims", "--ledger", "file:events-ledger", "--listen"]);
    command.arg(listen.to_string());
    ServerProcess::start(command, "the claim API").await
}

/// An instance of the bot.
struct Instance {
    number: u32,
    client: Client<HttpConnector, Full<Bytes>>,
    claim_api: SocketAddr,
    progress: Arc<Progress>,
    handled: Arc<File>,
}

impl Instance {
    /// Receives every event, handles those that are new, and returns what went wrong.
    async fn receive(&self, events: u32) -> Vec<String> {
        let mut errors = Vec::new();
        for event in 0..events {
            if event + 1 == events {
                self.progress.killed.cancelled().await;
            }
            let deliveries = if event.is_multiple_of(DELIVER_TWICE_EVERY) { 2 } else { 1 };
            for delivery in 0..deliveries {
                self.progress.deliveries.fetch_add(1, Ordering::Relaxed);
                let name = event_name(event);
                match self.is_new(&name, delivery).await {
                    Some(true) => {
                        if let Err(error) = (&*self.handled).write_all(format!("{name}\n").as_bytes()) {
                            errors.push(format!("{name} could not be handled: {error}"));
                        }
                    }
                    Some(false) => {
                        self.progress.duplicates.fetch_add(1, Ordering::Relaxed);
                    }
                    None => errors.push(format!("{name} got no response in {ATTEMPTS_MAX} attempts")),
                }
            }
        }
        errors
    }

    /// Asks until there is a response. All attempts carry the same nonce: if the response "new" was lost, the retry gets
    /// it again.
    async fn is_new(&self, event: &str, delivery: u32) -> Option<bool> {
        let nonce = format!("{event}-{}-{delivery}", self.number);
        let body = json!({ "events": [{ "key": event, "nonce": nonce }] }).to_string();
        for attempt in 0..ATTEMPTS_MAX {
            if attempt > 0 {
                self.progress.retries.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            if let Some(response) = self.check(&body).await {
                return response["results"][0]["is_new"].as_bool();
            }
        }
        None
    }

    async fn check(&self, body: &str) -> Option<Value> {
        let request = Request::post(format!("http://{}/v1/events/check", self.claim_api))
            .header("content-type", "application/json")
            .body(Full::from(body.to_owned()))
            .ok()?;
        let response = self.client.request(request).await.ok()?;
        if response.status() != StatusCode::OK {
            return None;
        }
        serde_json::from_slice(&response.into_body().collect().await.ok()?.to_bytes()).ok()
    }
}

impl ScenarioReport for Report {
    const NAME: &'static str = "events";

    fn broken(&self) -> &[String] {
        &self.broken
    }

    fn comparison(&self) -> Comparison {
        Comparison {
            scenario: format!(
                "Events: {} events in {} deliveries to {INSTANCES} instances",
                self.events, self.deliveries
            ),
            with_ichido: format!(
                "{} events handled once, {} twice, {} never",
                self.handled_once, self.handled_twice, self.never_handled
            ),
            without_ichido: format!("events handled {} times: once per delivery", self.deliveries),
        }
    }

    fn print(&self) {
        let counts = [
            ("events", self.events),
            ("deliveries to the instances", self.deliveries),
            ("retries after kill -9", self.retries),
            ("deliveries recognised as duplicates", self.duplicates_recognised),
            ("events handled once", self.handled_once),
            ("events handled twice", self.handled_twice),
            ("events never handled", self.never_handled),
        ];
        print_counts(counts.map(|(what, count)| (what, u64::from(count))));
    }
}
