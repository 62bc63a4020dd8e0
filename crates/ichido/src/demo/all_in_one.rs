//! The last act: gateway, meter, sender and console in one process, over what the other acts left. Everything is asked
//! for again, a record that cannot be and an outage leave work for an operator, and the pages of the console must show it.
//! With `--serve` the house stays open.

mod server;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

pub(super) use self::server::House;
use super::delivery::receiver::{REFUSAL, Receiver};
use super::delivery::{self, ARRIVALS, BATCH, Flow, WAITING};
use super::effect_log::Effects;
use super::gateway::caller::{Caller, Told};
use super::gateway::{self, ORDERS};
use super::sandbox::get;
use super::{Row, Stage, usage};
use crate::output;
use ichido_serve::Failure;

/// Orders that are asked for again, at most; new ones, each twice; keys that are used for another order.
const AGAIN: u32 = 1_000;
const NEW: u32 = 20;
const REUSED: u32 = 10;
/// Batches that wait for the receiver.
const BATCHES: u32 = 3;
/// Exit code: something went to failed.
const FAILED: i32 = 4;
const ACT_LIMIT: Duration = Duration::from_secs(120);
/// How long a page may take to show what happened.
const SHOWN: Duration = Duration::from_secs(60);

/// What the last act showed.
#[derive(Debug, Default, Serialize)]
pub(super) struct Verdict {
    asked_again: u32,
    answered_from_the_ledger: u32,
    made_again: u32,
    told_in_doubt: u32,
    new_orders: u32,
    keys_refused: u32,
    in_doubt: u64,
    waiting_in_spool: u32,
    left_in_failed: u32,
    usage_counted_again: bool,
    pages: u32,
    broken: Vec<String>,
}

/// What the acts before left behind.
pub(super) struct Legacy<'a> {
    pub(super) delivery: &'a delivery::Verdict,
    pub(super) usage: &'a usage::Verdict,
}

/// Plays the act. The house is open at its end.
pub(super) async fn play(stage: &Stage<'_>, legacy: Legacy<'_>) -> Result<(House, Verdict), Failure> {
    stage.say(
        "and all of it in one process, with the console: every order again, the month of usage again, and work for an operator.",
    );
    tokio::time::timeout(ACT_LIMIT, act(stage, legacy))
        .await
        .map_err(|_| Failure::internal("the demo's last act did not end"))?
}

async fn act(stage: &Stage<'_>, legacy: Legacy<'_>) -> Result<(House, Verdict), Failure> {
    let mut verdict = Verdict::default();
    let mut receiver = Receiver::start(&stage.dir.join(ARRIVALS)).await?;
    leave_work(stage, &mut receiver, legacy.delivery.records, &mut verdict).await?;
    let mut house = House::open(stage, receiver).await?;
    ask_again(stage, &house, &mut verdict).await?;
    let exported = usage::export(stage, house.meter, "usage-again").await?;
    verdict.usage_counted_again = usage::ask(house.meter).await? != legacy.usage.counted;
    if exported != 0 || verdict.usage_counted_again {
        verdict.broken.push(format!("the fourth export ended with code {exported} and was counted again"));
    }
    // The sender has tried what waits by now, in vain. From here on an operator can send it again.
    shown(&house, "/metrics", "ichido_delivery_spool_files").await?;
    house.receiver.comes_back().await?;
    verdict.waiting_in_spool = delivery::files(stage.dir, "spool")?;
    verdict.left_in_failed = delivery::files(stage.dir, "failed")?;
    if (verdict.waiting_in_spool, verdict.left_in_failed) != (BATCHES, 1) {
        verdict.broken.push("what did not arrive is neither in the spool nor in failed".to_owned());
    }
    look_around(&house, &mut verdict).await?;
    Ok((house, verdict))
}

/// A batch with a record that cannot be goes to failed; some more wait for a receiver that is down.
async fn leave_work(
    stage: &Stage<'_>,
    receiver: &mut Receiver,
    first: u32,
    verdict: &mut Verdict,
) -> Result<(), Failure> {
    let mut flow = Flow::start(stage, receiver)?;
    flow.write(first..first + BATCH - 1).await?;
    flow.write_nonsense(first + BATCH - 1).await?;
    let refused = flow.end().await?;
    receiver.goes_down().await;
    let mut flow = Flow::start(stage, receiver)?;
    flow.write(first + BATCH..first + BATCH * (BATCHES + 1)).await?;
    let waiting = flow.end().await?;
    if (refused, waiting) != (FAILED, WAITING) {
        verdict.broken.push(format!("the sender ended with codes {refused} and {waiting}, not 4 and 3"));
    }
    Ok(())
}

/// Asks for every order of the second act again, for new ones, and for others under keys that are taken.
async fn ask_again(stage: &Stage<'_>, house: &House, verdict: &mut Verdict) -> Result<(), Failure> {
    let caller = Caller::new(house.gateway);
    let old = stage.args.keys.min(AGAIN);
    let mut told = BTreeMap::new();
    for number in 0..old {
        let name = gateway::name(number);
        told.insert(name.clone(), caller.ask(&name, &name).await);
    }
    let count = |wanted: Told| told.values().filter(|told| **told == Some(wanted)).count();
    let count = |wanted: Told| u32::try_from(count(wanted)).unwrap_or(u32::MAX);
    verdict.asked_again = old;
    verdict.answered_from_the_ledger = count(Told::Replayed);
    verdict.told_in_doubt = count(Told::InDoubt);
    let effects = Effects::read(&stage.dir.join(ORDERS))?;
    for (name, told) in &told {
        let times = effects.count(name);
        verdict.made_again += u32::from(times > 1);
        match told {
            Some(Told::Replayed) if times == 1 => {}
            Some(Told::InDoubt) if times <= 1 => {}
            told => verdict.broken.push(format!("{name} was asked for again: {told:?}, made {times} times")),
        }
    }
    for number in 0..NEW {
        let name = format!("late-{number:05}");
        let twice = (caller.ask(&name, &name).await, caller.ask(&name, &name).await);
        match twice {
            (Some(Told::Made), Some(Told::Replayed)) => verdict.new_orders += 1,
            other => verdict.broken.push(format!("{name} was ordered twice, and told {other:?}")),
        }
    }
    for number in 0..REUSED.min(old) {
        match caller.ask(&gateway::name(number), "something else").await {
            Some(Told::Reused) => verdict.keys_refused += 1,
            other => verdict.broken.push(format!("a key for another order was told {other:?}")),
        }
    }
    Ok(())
}

/// Opens every page of the console: each must show what happened.
async fn look_around(house: &House, verdict: &mut Verdict) -> Result<(), Failure> {
    let (_, stats) = get(house.console, "/v1/ledger/stats").await?;
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap_or_default();
    verdict.in_doubt = stats["in_doubt"].as_u64().unwrap_or_default();
    if verdict.in_doubt < u64::from(verdict.told_in_doubt) {
        verdict.broken.push(format!("the ledger lists {} in doubt", verdict.in_doubt));
    }
    let refused = REFUSAL.split('"').nth(3).unwrap_or_default();
    let waiting = format!("<b>{BATCHES}</b>");
    let doubtful = if verdict.told_in_doubt > 0 { "shop-" } else { "ichido" };
    for (path, words) in [
        ("/", "ichido"),
        ("/claims?state=in-doubt", doubtful),
        ("/delivery", waiting.as_str()),
        ("/delivery?dir=failed", refused),
        ("/usage", "gpt-4o"),
    ] {
        match shown(house, path, words).await {
            Ok(()) => verdict.pages += 1,
            Err(failure) => verdict.broken.push(failure.to_string()),
        }
    }
    Ok(())
}

/// Waits until a page shows these words: some of what it shows is gathered beside it.
async fn shown(house: &House, path: &str, words: &str) -> Result<(), Failure> {
    let looking = async {
        loop {
            let (status, page) = get(house.console, path).await?;
            if status.is_success() && page.contains(words) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let in_vain = |_| Err(Failure::internal(format!("the console's page {path} does not show {words:?}")));
    tokio::time::timeout(SHOWN, looking).await.unwrap_or_else(in_vain)
}

impl super::Verdict for Verdict {
    const NAME: &'static str = "house";

    fn broken(&self) -> &[String] {
        &self.broken
    }

    fn row(&self) -> Row {
        Row {
            sent: format!(
                "{} orders once more, {} keys for other orders, the month once more",
                self.asked_again, self.keys_refused
            ),
            happened: format!(
                "{} answered from the ledger, {} still in doubt, {} made again; {} keys refused",
                self.answered_from_the_ledger, self.told_in_doubt, self.made_again, self.keys_refused
            ),
            without: format!(
                "{} orders too many, and a bill that is higher again",
                self.asked_again + self.keys_refused
            ),
        }
    }

    fn print(&self) {
        let mut table = output::table(&["in the console", "how many"]);
        for (what, count) in [
            ("orders asked for again", u64::from(self.asked_again)),
            ("answered from the ledger", u64::from(self.answered_from_the_ledger)),
            ("new orders, each asked for twice", u64::from(self.new_orders)),
            ("keys refused that were used for another order", u64::from(self.keys_refused)),
            ("claims in doubt, for an operator", self.in_doubt),
            ("batches in the spool, for the receiver that was down", u64::from(self.waiting_in_spool)),
            ("batches in failed: a record that the receiver refuses", u64::from(self.left_in_failed)),
            ("pages that show it", u64::from(self.pages)),
        ] {
            table.add_row([what.to_owned(), count.to_string()]);
        }
        outln!("{table}");
    }
}
