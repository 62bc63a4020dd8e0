//! Scenario 2: an orders API behind the gateway loses responses and is killed. Clients retry each order, with the same
//! key, until they know how it ended. Some send the same order twice at once. The gateway asks the API about orders in doubt.

pub(super) mod caller;
pub(super) mod orders_process;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tokio::task::JoinSet;

use self::caller::{Caller, Reply};
use self::orders_process::{ORDERS, OrdersProcess};
use super::effect_log::EffectLog;
use super::http_get::http_get;
use super::orders_api::is_search_broken;
use super::report::{Comparison, ScenarioReport, print_counts};
use super::sandbox::Sandbox;
use super::server_process::ServerProcess;
use ichido_serve::Failure;

const CLIENTS: usize = 16;
/// Attempts for each order. With the pause, enough for the API to restart on a busy machine.
const ATTEMPTS_MAX: u32 = 2_000;
const RETRY_PAUSE: Duration = Duration::from_millis(25);
const SCENARIO_MAX: Duration = Duration::from_secs(120);
/// The API loses every third response.
const LOSE_EVERY: u32 = 3;
/// The settings of the gateway, in the demo's directory.
const SETTINGS: &str = "gateway.toml";
const ROUTES: &str = "[[gateway.routes]]\nmatch = \"POST /orders\"\n\
    resolve = { get = \"/orders/{key}\", done = 200, absent = 404, answer = \"response\", after_seconds = 0 }\n";
/// How often the demo looks whether the gateway has settled what it can.
const SETTLE_POLLS: u32 = 400;
/// The gateway's ledger, in the demo's directory.
pub(super) const LEDGER: &str = "file:gateway-ledger";

#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    orders: u32,
    requests: u32,
    orders_created: u32,
    first_responses: u32,
    replays: u32,
    conflicts: u32,
    unreachable: u32,
    responses_lost: u32,
    in_doubt: u32,
    completed: u32,
    settled_by_asking: u64,
    needed_a_person: u64,
    broken: Vec<String>,
}

/// What a client knows about its order at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Created,
    InDoubt,
    GaveUp,
}

#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU32,
    first_responses: AtomicU32,
    replays: AtomicU32,
    conflicts: AtomicU32,
    unreachable: AtomicU32,
    responses_lost: AtomicU32,
}

pub(super) async fn run(sandbox: &Sandbox<'_>) -> Result<Report, Failure> {
    sandbox.introduce(
        "2. Gateway",
        &format!(
            "{CLIENTS} clients place {} orders with an API behind the gateway. The API loses every third response, and is killed.",
            sandbox.args.keys
        ),
    );
    tokio::time::timeout(SCENARIO_MAX, run_in(sandbox, sandbox.args.keys))
        .await
        .map_err(|_| Failure::internal(format!("the gateway scenario took more than {SCENARIO_MAX:?}")))?
}

async fn run_in(sandbox: &Sandbox<'_>, orders: u32) -> Result<Report, Failure> {
    let mut api = OrdersProcess::start(sandbox, LOSE_EVERY).await?;
    let gateway = start_gateway(sandbox, api.address).await?;
    let counts = Arc::new(Counts::default());
    let next = Arc::new(AtomicU32::new(0));
    let caller = Caller::new(gateway.address);
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let client = RetryingClient { caller: caller.clone(), counts: counts.clone() };
        let next = next.clone();
        clients.spawn(async move {
            let mut endings = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= orders {
                    return endings;
                }
                endings.push((number, client.order(number).await));
            }
        });
    }
    while next.load(Ordering::Relaxed) < orders / 2 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    api = api.kill_and_restart(sandbox).await?;
    sandbox.say("kill -9: the API crashes halfway, and is restarted.");
    let endings: Vec<(u32, Ending)> = clients.join_all().await.into_iter().flatten().collect();
    let created = EffectLog::read(&sandbox.dir.join(ORDERS))?;
    let (settled_by_asking, needed_a_person) = settled(&gateway, &created).await?;
    gateway.kill();
    api.kill();
    Ok(Report { settled_by_asking, needed_a_person, ..Report::new(orders, &endings, &created, &counts) })
}

pub(super) fn order_name(number: u32) -> String {
    format!("shop-{number:05}")
}

impl Report {
    fn new(orders: u32, endings: &[(u32, Ending)], created: &EffectLog, counts: &Counts) -> Self {
        let read = |count: &AtomicU32| count.load(Ordering::Relaxed);
        let ended = |wanted: Ending| {
            u32::try_from(endings.iter().filter(|(_, ending)| *ending == wanted).count()).unwrap_or(u32::MAX)
        };
        let mut broken = Vec::new();
        for (number, ending) in endings {
            let name = order_name(*number);
            let times = created.count(&name);
            match ending {
                _ if times > 1 => broken.push(format!("{name} was created {times} times")),
                Ending::Created if times == 0 => {
                    broken.push(format!("{name} was acknowledged, but never created"));
                }
                Ending::GaveUp => {
                    broken.push(format!("{name} got no final response in {ATTEMPTS_MAX} attempts"));
                }
                Ending::Created | Ending::InDoubt => {}
            }
        }
        Self {
            orders,
            requests: read(&counts.requests),
            orders_created: (0..orders).map(|number| created.count(&order_name(number))).sum(),
            first_responses: read(&counts.first_responses),
            replays: read(&counts.replays),
            conflicts: read(&counts.conflicts),
            unreachable: read(&counts.unreachable),
            responses_lost: read(&counts.responses_lost),
            in_doubt: ended(Ending::InDoubt),
            completed: ended(Ending::Created),
            settled_by_asking: 0,
            needed_a_person: 0,
            broken,
        }
    }
}

/// A client that retries, and counts the responses.
struct RetryingClient {
    caller: Caller,
    counts: Arc<Counts>,
}

impl RetryingClient {
    /// Retries until the outcome is known. Every fourth order is sent twice at once, as by a double click.
    async fn order(&self, number: u32) -> Ending {
        for _ in 0..ATTEMPTS_MAX {
            let ending = match number % 4 {
                0 => {
                    let (one, other) = tokio::join!(self.attempt(number), self.attempt(number));
                    one.or(other)
                }
                _ => self.attempt(number).await,
            };
            match ending {
                // Some clients lose the response and send the order once more.
                Some(Ending::Created) if number.is_multiple_of(5) => {
                    return self.attempt(number).await.unwrap_or(Ending::GaveUp);
                }
                Some(ending) => return ending,
                None => tokio::time::sleep(RETRY_PAUSE).await,
            }
        }
        Ending::GaveUp
    }

    /// Sends the order once. `None` if the client must retry.
    async fn attempt(&self, number: u32) -> Option<Ending> {
        let counts = &*self.counts;
        counts.requests.fetch_add(1, Ordering::Relaxed);
        let (count, ending) = match self.caller.order(&order_name(number), &order_name(number)).await? {
            Reply::Created => (&counts.first_responses, Some(Ending::Created)),
            Reply::Replayed => (&counts.replays, Some(Ending::Created)),
            Reply::InDoubt => return Some(Ending::InDoubt),
            Reply::InProgress => (&counts.conflicts, None),
            Reply::Unreachable => (&counts.unreachable, None),
            Reply::KeyReused | Reply::ResponseLost => (&counts.responses_lost, None),
        };
        count.fetch_add(1, Ordering::Relaxed);
        ending
    }
}

/// Waits until the gateway has settled what the API can tell. Returns how many claims it settled, and how many are left.
async fn settled(gateway: &ServerProcess, created: &EffectLog) -> Result<(u64, u64), Failure> {
    let admin = gateway.address_after("admin on http://")?;
    let can_settle = |claim: &Value| {
        let name = claim["key"].as_str().unwrap_or_default();
        created.count(name) > 0 && !is_search_broken(name)
    };
    let mut left;
    let mut polls = 0;
    loop {
        let triage: Value =
            serde_json::from_str(&http_get(admin, "/v1/claims/triage?limit=1000").await?.1)
                .map_err(|error| Failure::internal(format!("cannot read the claims in doubt: {error}")))?;
        left = triage["matched"].as_u64().unwrap_or_default();
        polls += 1;
        if polls == SETTLE_POLLS
            || !triage["claims"].as_array().is_some_and(|claims| claims.iter().any(can_settle))
        {
            break;
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    let metrics = http_get(admin, "/metrics").await?.1;
    let series = "ichido_doubts_settled_total{as=\"done\"} ";
    let settled = metrics.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
    Ok((settled.unwrap_or_default(), left))
}

async fn start_gateway(sandbox: &Sandbox<'_>, upstream: SocketAddr) -> Result<ServerProcess, Failure> {
    std::fs::write(sandbox.dir.join(SETTINGS), ROUTES)
        .map_err(|error| Failure::internal(format!("cannot write {SETTINGS}: {error}")))?;
    let mut command = sandbox.ichido()?;
    command.env("LOG_LEVEL", "error");
    command.args(["gateway", "--config", SETTINGS, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    command.args(["--ledger", LEDGER]);
    command.args(["--upstream", &format!("http://{upstream}")]);
    ServerProcess::start(command, "the gateway").await
}

impl ScenarioReport for Report {
    const NAME: &'static str = "gateway";

    fn broken(&self) -> &[String] {
        &self.broken
    }

    fn comparison(&self) -> Comparison {
        Comparison {
            scenario: format!(
                "Gateway: {} orders in {} requests to an API that loses responses",
                self.orders, self.requests
            ),
            with_ichido: format!(
                "{} orders created; {} in doubt, of which {} needed a person",
                self.orders_created,
                self.settled_by_asking + self.needed_a_person,
                self.needed_a_person
            ),
            without_ichido: format!(
                "{} orders created: one per request that reaches the API",
                self.requests - self.unreachable
            ),
        }
    }

    fn print(&self) {
        let counts: [(&str, u32); 10] = [
            ("orders", self.orders),
            ("requests to the gateway", self.requests),
            ("orders that the API created", self.orders_created),
            ("responses from the API", self.first_responses),
            ("retries answered with the stored response", self.replays),
            ("retries answered \"still in progress\" (409)", self.conflicts),
            ("requests answered \"API unreachable\" (502): nothing happened", self.unreachable),
            ("requests answered \"response lost\" (502)", self.responses_lost),
            ("orders that the client knows to be created", self.completed),
            ("orders in doubt: reported as such (409), never sent to the API again", self.in_doubt),
        ];
        let counts = counts.map(|(what, count)| (what, u64::from(count)));
        let doubts = [
            ("claims in doubt that were settled by asking the API", self.settled_by_asking),
            ("claims in doubt that still need a person", self.needed_a_person),
        ];
        print_counts(counts.into_iter().chain(doubts));
    }
}
