//! The fourth act: every event reaches each instance of a bot, and some of them again, as from a sender that heard no
//! answer in time. The instances ask the claim API whether an event is new; the process that answers them is killed.

use std::io::Write;
use std::net::SocketAddr;
use std::process::Stdio;
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

use super::effect_log::Effects;
use super::sandbox::Started;
use super::{Row, Stage};
use crate::output;
use ichido_serve::Failure;

/// Instances of the bot. Every event reaches each of them.
const INSTANCES: u32 = 3;
/// Of so many events, one comes twice to each instance.
const REPEATED: u32 = 3;
/// How often an instance asks before it gives up, and its pause.
const TRIES: u32 = 2_000;
const PAUSE: Duration = Duration::from_millis(25);
const ACT_LIMIT: Duration = Duration::from_secs(120);

/// What the fourth act showed.
#[derive(Debug, Default, Serialize)]
pub(super) struct Verdict {
    events: u32,
    deliveries: u32,
    asked_again: u32,
    told_known: u32,
    handled_once: u32,
    handled_twice: u32,
    never_handled: u32,
    broken: Vec<String>,
}

#[derive(Debug, Default)]
struct Counts {
    deliveries: AtomicU32,
    asked_again: AtomicU32,
    known: AtomicU32,
    /// Cancelled when the process was killed. No instance finishes its events before that.
    killed: CancellationToken,
}

impl Counts {
    /// Waits until one of the counts has reached a number.
    async fn reached(&self, count: impl Fn(&Self) -> &AtomicU32, number: u32) {
        while count(self).load(Ordering::Relaxed) < number {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Plays the act.
pub(super) async fn play(stage: &Stage<'_>) -> Result<Verdict, Failure> {
    stage.say(&format!(
        "now events: each one reaches {INSTANCES} instances of a bot, every {REPEATED}rd one twice; the process that they ask is killed with -9."
    ));
    tokio::time::timeout(ACT_LIMIT, act(stage, stage.args.keys))
        .await
        .map_err(|_| Failure::internal("the demo's fourth act did not end"))?
}

async fn act(stage: &Stage<'_>, events: u32) -> Result<Verdict, Failure> {
    let log = stage.dir.join("handled.log");
    let claims = start(stage, SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let address = claims.address;
    let counts = Arc::new(Counts::default());
    let handled = std::fs::File::options()
        .create(true)
        .append(true)
        .open(&log)
        .map_err(|error| Failure::internal(format!("{}: {error}", log.display())))?;
    let handled = Arc::new(handled);
    let client = Client::builder(TokioExecutor::new()).build_http();
    let mut instances = JoinSet::new();
    for number in 0..INSTANCES {
        let instance = Instance {
            number,
            client: client.clone(),
            address,
            counts: counts.clone(),
            handled: handled.clone(),
        };
        instances.spawn(async move { instance.receive(events).await });
    }
    counts.reached(|counts| &counts.deliveries, (events - 1) * INSTANCES / 2).await;
    claims.kill().await?;
    counts.killed.cancel();
    counts.reached(|counts| &counts.asked_again, 1).await;
    let claims = start(stage, address).await?;
    let mut broken: Vec<String> = instances.join_all().await.into_iter().flatten().collect();
    drop(claims);
    let effects = Effects::read(&log)?;
    let read = |count: &AtomicU32| count.load(Ordering::Relaxed);
    let mut verdict = Verdict {
        events,
        deliveries: read(&counts.deliveries),
        asked_again: read(&counts.asked_again),
        told_known: read(&counts.known),
        ..Verdict::default()
    };
    for name in (0..events).map(name) {
        match effects.count(&name) {
            0 => {
                verdict.never_handled += 1;
                broken.push(format!("{name} was never handled"));
            }
            1 => verdict.handled_once += 1,
            times => {
                verdict.handled_twice += 1;
                broken.push(format!("{name} was handled {times} times"));
            }
        }
    }
    Ok(Verdict { broken, ..verdict })
}

fn name(number: u32) -> String {
    format!("Ev{number:06}")
}

async fn start(stage: &Stage<'_>, listen: SocketAddr) -> Result<Started, Failure> {
    let mut command = stage.myself()?;
    command.env("LOG_LEVEL", "error").args(["claims", "--ledger", "file:events-ledger", "--listen"]);
    command.arg(listen.to_string()).stderr(Stdio::piped()).stdout(Stdio::null());
    Started::listening(&mut command, "the claim API").await
}

struct Instance {
    number: u32,
    client: Client<HttpConnector, Full<Bytes>>,
    address: SocketAddr,
    counts: Arc<Counts>,
    handled: Arc<std::fs::File>,
}

impl Instance {
    /// Takes every event, and handles those that are new: what went wrong.
    async fn receive(&self, events: u32) -> Vec<String> {
        let mut wrong = Vec::new();
        for event in 0..events {
            if event + 1 == events {
                self.counts.killed.cancelled().await;
            }
            let times = if event.is_multiple_of(REPEATED) { 2 } else { 1 };
            for time in 0..times {
                self.counts.deliveries.fetch_add(1, Ordering::Relaxed);
                match self.is_new(&name(event), time).await {
                    Some(true) => {
                        if let Err(error) =
                            (&*self.handled).write_all(format!("{}\n", name(event)).as_bytes())
                        {
                            wrong.push(format!("{} could not be handled: {error}", name(event)));
                        }
                    }
                    Some(false) => {
                        self.counts.known.fetch_add(1, Ordering::Relaxed);
                    }
                    None => wrong.push(format!("{} got no answer in {TRIES} tries", name(event))),
                }
            }
        }
        wrong
    }

    /// Asks until there is an answer, with one nonce: who was told "new" and did not hear it is told again.
    async fn is_new(&self, event: &str, time: u32) -> Option<bool> {
        let nonce = format!("{event}-{}-{time}", self.number);
        let body = json!({ "events": [{ "key": event, "nonce": nonce }] }).to_string();
        for attempt in 0..TRIES {
            if attempt > 0 {
                self.counts.asked_again.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(PAUSE).await;
            }
            if let Some(answer) = self.ask(&body).await {
                return answer["results"][0]["is_new"].as_bool();
            }
        }
        None
    }

    async fn ask(&self, body: &str) -> Option<Value> {
        let request = Request::post(format!("http://{}/v1/events/check", self.address))
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

impl super::Verdict for Verdict {
    const NAME: &'static str = "events";

    fn broken(&self) -> &[String] {
        &self.broken
    }

    fn row(&self) -> Row {
        Row {
            sent: format!(
                "{} events in {} deliveries to {INSTANCES} instances",
                self.events, self.deliveries
            ),
            happened: format!(
                "{} handled once, {} twice, {} never",
                self.handled_once, self.handled_twice, self.never_handled
            ),
            without: format!("{} handled: one for each delivery", self.deliveries),
        }
    }

    fn print(&self) {
        let mut table = output::table(&["at the bot", "how many"]);
        for (what, count) in [
            ("events", self.events),
            ("deliveries of them", self.deliveries),
            ("questions asked again after the kill", self.asked_again),
            ("answers: known already", self.told_known),
            ("events handled once", self.handled_once),
            ("events handled twice", self.handled_twice),
            ("events never handled", self.never_handled),
        ] {
            table.add_row([what.to_owned(), count.to_string()]);
        }
        outln!("{table}");
    }
}
