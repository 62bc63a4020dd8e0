//! The second act: the gateway before an orders API that loses answers and is killed. Its callers retry each
//! order until they know how it ended, some of them twice at once, and always with the same key.

pub(super) mod caller;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::process::Child;
use tokio::task::JoinSet;

use self::caller::{Caller, Told};
use super::effect_log::Effects;
use super::sandbox::{Started, address_in};
use super::{Row, Stage};
use crate::output;
use ichido_serve::Failure;

/// Callers at once, and how often each asks for its order before it gives up: long enough for the API to start again on
/// a busy machine.
const CALLERS: usize = 16;
const TRIES: u32 = 2_000;
const PAUSE: Duration = Duration::from_millis(25);
const ACT_LIMIT: Duration = Duration::from_secs(120);
/// Of so many orders, one loses its answer.
const LOSES: u32 = 3;
/// What the API does, and where the gateway remembers it.
pub(super) const ORDERS: &str = "orders.log";
pub(super) const LEDGER: &str = "file:gateway-ledger";
/// Wherever there is room.
const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// What the second act showed.
#[derive(Debug, Default, Serialize)]
pub(super) struct Verdict {
    orders: u32,
    requests: u32,
    effects: u32,
    first_answers: u32,
    replays: u32,
    conflicts: u32,
    unreachable: u32,
    answers_lost: u32,
    in_doubt: u32,
    ended_done: u32,
    broken: Vec<String>,
}

/// How a caller's order ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Done,
    InDoubt,
    GivenUp,
}

#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU32,
    first: AtomicU32,
    replays: AtomicU32,
    conflicts: AtomicU32,
    unreachable: AtomicU32,
    lost: AtomicU32,
}

/// Plays the act.
pub(super) async fn play(stage: &Stage<'_>) -> Result<Verdict, Failure> {
    stage.say("now over HTTP: the gateway before an orders API that loses every third answer and is killed with -9 in the middle.");
    tokio::time::timeout(ACT_LIMIT, act(stage, stage.args.keys))
        .await
        .map_err(|_| Failure::internal("the demo's second act did not end"))?
}

async fn act(stage: &Stage<'_>, orders: u32) -> Result<Verdict, Failure> {
    let log = stage.dir.join(ORDERS);
    let mut api = Api::start(stage, ANYWHERE, LOSES).await?;
    let gateway = start_gateway(stage, api.address).await?;
    let counts = Arc::new(Counts::default());
    let mut callers = JoinSet::new();
    let next = Arc::new(AtomicU32::new(0));
    let caller = Caller::new(gateway.address);
    for _ in 0..CALLERS {
        let caller = Customer { caller: caller.clone(), counts: counts.clone() };
        let next = next.clone();
        callers.spawn(async move {
            let mut ends = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= orders {
                    return ends;
                }
                ends.push((number, caller.order(number).await));
            }
        });
    }
    // In the middle of it the API dies, without a word, and comes back.
    while next.load(Ordering::Relaxed) < orders / 2 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    api = api.kill_and_start_again(stage).await?;
    let ends: Vec<(u32, End)> = callers.join_all().await.into_iter().flatten().collect();
    gateway.kill().await?;
    api.kill().await?;
    Ok(judge(orders, &ends, &Effects::read(&log)?, &counts))
}

pub(super) fn name(number: u32) -> String {
    format!("shop-{number:05}")
}

fn judge(orders: u32, ends: &[(u32, End)], effects: &Effects, counts: &Counts) -> Verdict {
    let read = |count: &AtomicU32| count.load(Ordering::Relaxed);
    let ended = |wanted: End| {
        u32::try_from(ends.iter().filter(|(_, end)| *end == wanted).count()).unwrap_or(u32::MAX)
    };
    let mut broken = Vec::new();
    for (number, end) in ends {
        let (name, times) = (name(*number), effects.count(&name(*number)));
        match end {
            _ if times > 1 => broken.push(format!("{name} was ordered {times} times")),
            End::Done if times == 0 => broken.push(format!("{name} was answered, but never ordered")),
            End::GivenUp => broken.push(format!("{name} got no answer in {TRIES} tries")),
            End::Done | End::InDoubt => {}
        }
    }
    Verdict {
        orders,
        requests: read(&counts.requests),
        effects: (0..orders).map(|number| effects.count(&name(number))).sum(),
        first_answers: read(&counts.first),
        replays: read(&counts.replays),
        conflicts: read(&counts.conflicts),
        unreachable: read(&counts.unreachable),
        answers_lost: read(&counts.lost),
        in_doubt: ended(End::InDoubt),
        ended_done: ended(End::Done),
        broken,
    }
}

/// A caller who counts what it is told.
struct Customer {
    caller: Caller,
    counts: Arc<Counts>,
}

impl Customer {
    /// Asks until the end is known. Every fourth order is asked for twice at once, as by an impatient hand.
    async fn order(&self, number: u32) -> End {
        for _ in 0..TRIES {
            let end = match number % 4 {
                0 => {
                    let (one, other) = tokio::join!(self.ask(number), self.ask(number));
                    one.or(other)
                }
                _ => self.ask(number).await,
            };
            match end {
                // Some callers lose what they were told, and ask once more.
                Some(End::Done) if number.is_multiple_of(5) => {
                    return self.ask(number).await.unwrap_or(End::GivenUp);
                }
                Some(end) => return end,
                None => tokio::time::sleep(PAUSE).await,
            }
        }
        End::GivenUp
    }

    async fn ask(&self, number: u32) -> Option<End> {
        let Counts { requests, first, replays, conflicts, unreachable, lost } = &*self.counts;
        requests.fetch_add(1, Ordering::Relaxed);
        let (count, end) = match self.caller.ask(&name(number), &name(number)).await? {
            Told::Made => (first, Some(End::Done)),
            Told::Replayed => (replays, Some(End::Done)),
            Told::InDoubt => return Some(End::InDoubt),
            Told::UnderWay => (conflicts, None),
            Told::Unreachable => (unreachable, None),
            Told::Reused | Told::Lost => (lost, None),
        };
        count.fetch_add(1, Ordering::Relaxed);
        end
    }
}

async fn start_gateway(stage: &Stage<'_>, upstream: SocketAddr) -> Result<Started, Failure> {
    let mut command = stage.myself()?;
    command.env("LOG_LEVEL", "error");
    command.args(["gateway", "--listen", "127.0.0.1:0", "--admin", "off", "--ledger", LEDGER]);
    command.args(["--upstream", &format!("http://{upstream}")]).stderr(Stdio::piped()).stdout(Stdio::null());
    Started::listening(&mut command, "the gateway").await
}

/// The orders API as a process of its own.
pub(super) struct Api {
    pub(super) address: SocketAddr,
    child: Child,
}

impl Api {
    /// One that loses no answer.
    pub(super) async fn honest(stage: &Stage<'_>) -> Result<Self, Failure> {
        Self::start(stage, ANYWHERE, 0).await
    }

    async fn start(stage: &Stage<'_>, listen: SocketAddr, loses: u32) -> Result<Self, Failure> {
        let mut command = stage.myself()?;
        command.arg("demo-orders").arg("--effects").arg(stage.dir.join(ORDERS));
        command.arg("--listen").arg(listen.to_string()).arg("--loses").arg(loses.to_string());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command
            .spawn()
            .map_err(|error| Failure::internal(format!("starting the orders API: {error}")))?;
        let stdout = child.stdout.take().ok_or_else(|| Failure::internal("the orders API has no output"))?;
        Ok(Self { address: address_in(stdout, "").await?.0, child })
    }

    async fn kill_and_start_again(self, stage: &Stage<'_>) -> Result<Self, Failure> {
        let address = self.address;
        self.kill().await?;
        Self::start(stage, address, LOSES).await
    }

    /// Kills it, and waits until it is gone.
    pub(super) async fn kill(mut self) -> Result<(), Failure> {
        self.child.kill().await.map_err(|error| Failure::internal(format!("kill -9: {error}")))
    }
}

impl super::Verdict for Verdict {
    const NAME: &'static str = "gateway";

    fn broken(&self) -> &[String] {
        &self.broken
    }

    fn row(&self) -> Row {
        Row {
            sent: format!(
                "{} orders in {} requests to an API that loses answers",
                self.orders, self.requests
            ),
            happened: format!("{} orders made, {} said to be in doubt", self.effects, self.in_doubt),
            without: format!(
                "{} orders made: one for each request that reached the API",
                self.requests - self.unreachable
            ),
        }
    }

    fn print(&self) {
        let mut table = output::table(&["at the gateway", "how many"]);
        for (what, count) in [
            ("orders asked for", self.orders),
            ("requests sent", self.requests),
            ("orders made (the log of the API)", self.effects),
            ("answered by the API", self.first_answers),
            ("repeats answered from the ledger", self.replays),
            ("repeats told that the first is under way", self.conflicts),
            ("told that the API was not there (nothing done)", self.unreachable),
            ("told that the answer was lost", self.answers_lost),
            ("orders that ended known", self.ended_done),
            ("orders in doubt: said so, not made again", self.in_doubt),
        ] {
            table.add_row([what.to_owned(), count.to_string()]);
        }
        outln!("{table}");
    }
}
