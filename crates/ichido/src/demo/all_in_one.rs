//! Scenario 6: gateway, meter, sender and console in one process, on the data that the other scenarios left.
//!
//! Every order and the export are repeated. A rejected record and an outage leave work for an operator, and the pages of
//! the console must show it. With `--serve` the process keeps running.

mod server;

use std::collections::BTreeMap;
use std::time::Duration;

use ichido_testkit::receiver::Receiver;
use serde::Serialize;

pub(super) use self::server::AllInOne;
use super::delivery::receiver::REJECTION;
use super::delivery::sender::{EXIT_FAILED, EXIT_SPOOLED, Sender};
use super::delivery::{self, ARRIVALS, BATCH};
use super::effect_log::EffectLog;
use super::gateway;
use super::gateway::caller::{Caller, Reply};
use super::gateway::orders_process::ORDERS;
use super::http_get::http_get;
use super::report::{Comparison, ScenarioReport, print_counts};
use super::sandbox::Sandbox;
use super::usage;
use ichido_serve::Failure;

/// Earlier orders that are sent again, at most.
const RETRIED_MAX: u32 = 1_000;
/// New orders. Each one is sent twice.
const NEW_ORDERS: u32 = 20;
/// Keys that are used again for a different order.
const REUSED_KEYS: u32 = 10;
/// Batches that stay in the spool because the receiver is down.
const SPOOLED_BATCHES: u32 = 3;
const SCENARIO_MAX: Duration = Duration::from_secs(120);
/// The longest that a page of the console may take to show what happened.
const PAGE_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    orders_retried: u32,
    replayed: u32,
    created_twice: u32,
    in_doubt: u32,
    new_orders: u32,
    reused_keys_rejected: u32,
    claims_in_doubt: u64,
    batches_in_spool: u32,
    batches_in_failed: u32,
    usage_counted_again: bool,
    console_pages: u32,
    broken: Vec<String>,
}

/// What the earlier scenarios left.
pub(super) struct Earlier<'a> {
    /// The number of records that were delivered.
    pub(super) records: u32,
    /// What the meter counted.
    pub(super) counted: &'a usage::Totals,
}

/// Runs the scenario, and returns the process that is still running at its end.
pub(super) async fn run(sandbox: &Sandbox<'_>, earlier: Earlier<'_>) -> Result<(AllInOne, Report), Failure> {
    sandbox.introduce(
        "6. All in one",
        "Gateway, meter, sender and console run in one process, on the same data. Orders and export are repeated.",
    );
    tokio::time::timeout(SCENARIO_MAX, run_in(sandbox, earlier))
        .await
        .map_err(|_| Failure::internal(format!("the last scenario took more than {SCENARIO_MAX:?}")))?
}

async fn run_in(sandbox: &Sandbox<'_>, earlier: Earlier<'_>) -> Result<(AllInOne, Report), Failure> {
    let mut report = Report::default();
    let receiver = delivery::receiver::start(&sandbox.dir.join(ARRIVALS))?;
    leave_undelivered_batches(sandbox, &receiver, earlier.records, &mut report).await?;
    let all_in_one = AllInOne::start(sandbox, receiver).await?;
    repeat_orders(sandbox, &all_in_one, &mut report).await?;
    let code = usage::export(sandbox, all_in_one.meter, "usage-again").await?;
    if code != 0 {
        report.broken.push(format!("the fourth export exited with code {code}"));
    }
    report.usage_counted_again = usage::query_meter(all_in_one.meter).await? != *earlier.counted;
    if report.usage_counted_again {
        report.broken.push("the meter counted the fourth export again".to_owned());
    }
    // Once this metric exists, the sender has tried the spooled batches and failed. It tries them again only when the
    // schedule or an operator says so, even though the receiver is back.
    wait_for_page(&all_in_one, "/metrics", "ichido_delivery_spool_files").await?;
    all_in_one.receiver.come_back().map_err(delivery::receiver::failure)?;
    report.batches_in_spool = delivery::count_files(sandbox.dir, "spool")?;
    report.batches_in_failed = delivery::count_files(sandbox.dir, "failed")?;
    if (report.batches_in_spool, report.batches_in_failed) != (SPOOLED_BATCHES, 1) {
        report.broken.push(format!(
            "{} batches are in the spool and {} in failed, not {SPOOLED_BATCHES} and 1",
            report.batches_in_spool, report.batches_in_failed
        ));
    }
    check_console(&all_in_one, &mut report).await?;
    Ok((all_in_one, report))
}

/// Sends a batch that the receiver rejects, which goes to failed, and others while it is down, which stay in the spool.
async fn leave_undelivered_batches(
    sandbox: &Sandbox<'_>,
    receiver: &Receiver,
    first: u32,
    report: &mut Report,
) -> Result<(), Failure> {
    let mut sender = Sender::start(sandbox, receiver)?;
    sender.write(first..first + BATCH - 1).await?;
    sender.write_invalid(first + BATCH - 1).await?;
    let rejected = sender.finish().await?;
    receiver.go_down().map_err(delivery::receiver::failure)?;
    let mut sender = Sender::start(sandbox, receiver)?;
    sender.write(first + BATCH..first + BATCH * (SPOOLED_BATCHES + 1)).await?;
    let spooled = sender.finish().await?;
    if (rejected, spooled) != (EXIT_FAILED, EXIT_SPOOLED) {
        report.broken.push(format!(
            "the sender exited with codes {rejected} and {spooled}, not {EXIT_FAILED} and {EXIT_SPOOLED}"
        ));
    }
    Ok(())
}

/// Sends every order of the gateway scenario again, then new ones, then different orders with keys that are taken.
async fn repeat_orders(
    sandbox: &Sandbox<'_>,
    all_in_one: &AllInOne,
    report: &mut Report,
) -> Result<(), Failure> {
    let caller = Caller::new(all_in_one.gateway);
    report.orders_retried = sandbox.args.keys.min(RETRIED_MAX);
    let mut replies = BTreeMap::new();
    for number in 0..report.orders_retried {
        let name = gateway::order_name(number);
        let reply = caller.order(&name, &name).await;
        replies.insert(name, reply);
    }
    let created = EffectLog::read(&sandbox.dir.join(ORDERS))?;
    for (name, reply) in &replies {
        let times = created.count(name);
        report.replayed += u32::from(*reply == Some(Reply::Replayed));
        report.in_doubt += u32::from(*reply == Some(Reply::InDoubt));
        report.created_twice += u32::from(times > 1);
        match reply {
            Some(Reply::Replayed) if times == 1 => {}
            Some(Reply::InDoubt) if times <= 1 => {}
            reply => report
                .broken
                .push(format!("{name} was created {times} times; the response to a retry was {reply:?}")),
        }
    }
    for number in 0..NEW_ORDERS {
        let name = format!("late-{number:05}");
        match (caller.order(&name, &name).await, caller.order(&name, &name).await) {
            (Some(Reply::Created), Some(Reply::Replayed)) => report.new_orders += 1,
            replies => report.broken.push(format!("{name} was sent twice; the responses were {replies:?}")),
        }
    }
    for number in 0..REUSED_KEYS.min(report.orders_retried) {
        let name = gateway::order_name(number);
        match caller.order(&name, "a different order").await {
            Some(Reply::KeyReused) => report.reused_keys_rejected += 1,
            reply => report
                .broken
                .push(format!("key {name} was used for a different order; the response was {reply:?}")),
        }
    }
    Ok(())
}

/// Opens every page of the console. Each one must show what happened.
async fn check_console(all_in_one: &AllInOne, report: &mut Report) -> Result<(), Failure> {
    let (_, stats) = http_get(all_in_one.console, "/v1/ledger/stats").await?;
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap_or_default();
    report.claims_in_doubt = stats["in_doubt"].as_u64().unwrap_or_default();
    if report.claims_in_doubt < u64::from(report.in_doubt) {
        report.broken.push(format!(
            "the ledger counts {} claims in doubt, but {} orders are",
            report.claims_in_doubt, report.in_doubt
        ));
    }
    let spooled = format!("<b>{SPOOLED_BATCHES}</b>");
    let in_doubt = if report.in_doubt > 0 { "shop-" } else { "ichido" };
    for (path, text) in [
        ("/", "ichido"),
        ("/claims?state=in-doubt", in_doubt),
        ("/delivery", spooled.as_str()),
        ("/delivery?dir=failed", REJECTION),
        ("/usage", "gpt-4o"),
    ] {
        match wait_for_page(all_in_one, path, text).await {
            Ok(()) => report.console_pages += 1,
            Err(failure) => report.broken.push(failure.to_string()),
        }
    }
    Ok(())
}

/// Waits until a page contains this text: some figures are gathered in the background.
async fn wait_for_page(all_in_one: &AllInOne, path: &str, text: &str) -> Result<(), Failure> {
    let polling = async {
        loop {
            let (status, page) = http_get(all_in_one.console, path).await?;
            if status.is_success() && page.contains(text) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let missing =
        |_| Err(Failure::internal(format!("the page {path} of the console does not show {text:?}")));
    tokio::time::timeout(PAGE_MAX, polling).await.unwrap_or_else(missing)
}

impl ScenarioReport for Report {
    const NAME: &'static str = "all_in_one";

    fn broken(&self) -> &[String] {
        &self.broken
    }

    fn comparison(&self) -> Comparison {
        Comparison {
            scenario: format!(
                "All in one: {} orders and the export repeated, {} keys reused",
                self.orders_retried + self.new_orders,
                self.reused_keys_rejected
            ),
            with_ichido: format!(
                "{} replayed, {} still in doubt, {} created twice; {} reused keys rejected",
                self.replayed + self.new_orders,
                self.in_doubt,
                self.created_twice,
                self.reused_keys_rejected
            ),
            without_ichido: format!(
                "{} orders too many, usage billed again",
                self.orders_retried + self.new_orders + self.reused_keys_rejected
            ),
        }
    }

    fn print(&self) {
        print_counts([
            ("earlier orders sent again", u64::from(self.orders_retried)),
            ("answered with the stored response", u64::from(self.replayed)),
            ("new orders, each sent twice and created once", u64::from(self.new_orders)),
            ("reused keys rejected (422)", u64::from(self.reused_keys_rejected)),
            ("claims in doubt, for an operator to resolve", self.claims_in_doubt),
            ("batches in the spool: the receiver was down", u64::from(self.batches_in_spool)),
            ("batches in failed: the receiver rejected a record", u64::from(self.batches_in_failed)),
            ("console pages that show all this", u64::from(self.console_pages)),
        ]);
    }
}
