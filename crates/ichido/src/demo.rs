//! `ichido demo`: six scenarios on one machine, with crashes, outages and lost responses.
//!
//! 1. Ledger: workers race for the same operations, and the process that holds the ledger is killed.
//! 2. Gateway: an orders API behind the gateway loses responses and is killed.
//! 3. Delivery: a receiver goes down and comes back while records flow.
//! 4. Events: every event reaches each instance of a bot, and the claim API is killed.
//! 5. Usage: a month of usage is exported three times to the meter.
//! 6. All in one: everything runs in one process, with the console, on the data that the other scenarios left. With
//!    `--serve` it keeps running.
//!
//! Every effect is a line in a log that ichido does not know. The demo counts these lines: if an effect appears twice, or
//! an acknowledged one not at all, the demo reports a broken promise and exits with code 1.
//!
//! A scenario is a module whose `run` takes the [`Sandbox`] and returns a [`ScenarioReport`]. [`run_scenarios`] lists
//! them in order.

mod all_in_one;
mod delivery;
mod effect_log;
mod events;
mod gateway;
mod http_get;
mod ledger;
pub(crate) mod ledger_worker;
pub(crate) mod orders_api;
mod report;
mod sandbox;
mod server_process;
mod usage;

use std::pin::pin;
use std::time::Duration;

use tempfile::TempDir;

use self::all_in_one::{AllInOne, Earlier};
use self::report::{Comparison, ScenarioReport};
use self::sandbox::Sandbox;
use crate::args::DemoArgs;
use crate::output;
use ichido_serve::Failure;
use ichido_serve::shutdown;

const REMOVE_ATTEMPTS: u32 = 40;
const REMOVE_PAUSE: Duration = Duration::from_millis(50);

pub(crate) async fn run(args: &DemoArgs) -> Result<(), Failure> {
    let temporary = tempfile::tempdir()
        .map_err(|error| Failure::internal(format!("cannot create a temporary directory: {error}")))?;
    let dir = args.keep.clone().unwrap_or_else(|| temporary.path().to_owned());
    let dir = std::fs::create_dir_all(&dir)
        .and_then(|()| std::path::absolute(&dir))
        .map_err(|error| Failure::usage(format!("--keep {}: {error}", dir.display())))?;
    let result = run_in(&Sandbox { args, dir: &dir }).await;
    remove(temporary).await;
    result
}

async fn run_in(sandbox: &Sandbox<'_>) -> Result<(), Failure> {
    let mut interrupted = pin!(shutdown::first_signal()?);
    if !sandbox.args.json {
        outln!("Six scenarios with crashes, outages and lost responses. They take a few seconds.");
    }
    let (summary, mut all_in_one) = tokio::select! {
        scenarios = run_scenarios(sandbox) => scenarios?,
        () = &mut interrupted => return Err(Failure::internal("the demo was interrupted")),
    };
    let concluded = summary.conclude(sandbox, &all_in_one);
    let served = match concluded.is_ok() && sandbox.args.serve {
        true => all_in_one.serve_until(interrupted).await,
        false => Ok(()),
    };
    let stopped = all_in_one.stop().await;
    concluded.and(served).and(stopped)
}

async fn run_scenarios(sandbox: &Sandbox<'_>) -> Result<(Summary, AllInOne), Failure> {
    let mut summary = Summary::default();
    summary.add(sandbox, &ledger::run(sandbox).await?)?;
    summary.add(sandbox, &gateway::run(sandbox).await?)?;
    let delivery = delivery::run(sandbox).await?;
    summary.add(sandbox, &delivery)?;
    summary.add(sandbox, &events::run(sandbox).await?)?;
    let usage = usage::run(sandbox).await?;
    summary.add(sandbox, &usage)?;
    let earlier = Earlier { records: delivery.records, counted: &usage.counted };
    let (all_in_one, report) = all_in_one::run(sandbox, earlier).await?;
    summary.add(sandbox, &report)?;
    Ok((summary, all_in_one))
}

/// Removes the temporary directory. Retries, because a process that was just killed may still be writing to it.
async fn remove(temporary: TempDir) {
    let dir = temporary.keep();
    for _ in 0..REMOVE_ATTEMPTS {
        match std::fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tokio::time::sleep(REMOVE_PAUSE).await;
            }
            Ok(()) | Err(_) => return,
        }
    }
    tracing::warn!(directory = %dir.display(), "cannot remove the demo's temporary directory");
}

/// The reports of all scenarios.
#[derive(Default)]
struct Summary {
    reports: serde_json::Map<String, serde_json::Value>,
    broken: Vec<String>,
    comparisons: Vec<Comparison>,
}

impl Summary {
    fn add<R: ScenarioReport>(&mut self, sandbox: &Sandbox<'_>, report: &R) -> Result<(), Failure> {
        if !sandbox.args.json {
            report.print();
        }
        let json = serde_json::to_value(report)
            .map_err(|error| Failure::internal(format!("cannot write the report as JSON: {error}")))?;
        self.reports.insert(R::NAME.to_owned(), json);
        self.broken.extend(report.broken().iter().cloned());
        self.comparisons.push(report.comparison());
        Ok(())
    }

    fn conclude(mut self, sandbox: &Sandbox<'_>, all_in_one: &AllInOne) -> Result<(), Failure> {
        if sandbox.args.json {
            if sandbox.args.serve {
                self.reports.insert("serving".to_owned(), all_in_one.addresses());
            }
            output::json(&self.reports)?;
        } else {
            self.print();
            if self.broken.is_empty() && sandbox.args.serve {
                all_in_one.print_addresses(sandbox);
            }
        }
        match self.broken.is_empty() {
            true => Ok(()),
            false => Err(Failure::internal("the demo found a broken promise")),
        }
    }

    fn print(&self) {
        let mut table = output::table(&["scenario", "with ichido", "without ichido"]);
        for Comparison { scenario, with_ichido, without_ichido } in &self.comparisons {
            table.add_row([scenario, with_ichido, without_ichido]);
        }
        outln!("\nSummary\n{table}\n");
        match self.broken.is_empty() {
            true => outln!(
                "Every promise held: no effect ran twice, every record was counted once, and what nobody can know is in doubt."
            ),
            false => self.broken.iter().for_each(|line| outln!("BROKEN: {line}")),
        }
    }
}
