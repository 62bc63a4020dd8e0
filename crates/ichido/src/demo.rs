//! `ichido demo`: the whole story on one machine, act by act, with faults injected.
//!
//! First many workers race for the same operations on an embedded ledger, and the process that holds it is killed. Then
//! the same over HTTP: the gateway before an orders API that loses answers and is killed. Then delivery: a receiver goes
//! down and comes back while records flow. Then events that reach every instance of a bot. Then
//! a month of usage, exported three times to the meter.
//!
//! The effects are lines in logs that ichido knows nothing about. These logs are the judges: if one shows an effect
//! twice, or an acknowledged one not at all, the demo says so and exits with 1.
//!
//! An act is a module: `play` takes the [`Stage`] and gives a [`Verdict`]; a line in [`run`] puts it on the bill.

mod delivery;
mod events;
mod gateway;
mod judge;
mod ledger;
pub(crate) mod orders;
mod stage;
mod usage;
pub(crate) mod worker;

use serde::Serialize;

use self::stage::Stage;
use crate::args::DemoArgs;
use crate::exit::Failure;
use crate::output;

/// What an act showed: a table for people, JSON for scripts, and every promise that it found broken.
trait Verdict: Serialize {
    /// What scripts know it by.
    const NAME: &'static str;

    /// Prints what people read.
    fn print(&self);

    /// What must not be.
    fn broken(&self) -> &[String];

    /// The act in one line of the last table.
    fn row(&self) -> Row;
}

/// What was sent, what happened, and what the same would have done without ichido: all from what the act counted.
struct Row {
    sent: String,
    happened: String,
    without: String,
}

pub(crate) async fn run(args: &DemoArgs) -> Result<(), Failure> {
    let temporary =
        tempfile::tempdir().map_err(|error| Failure::internal(format!("temporary directory: {error}")))?;
    let dir = args.keep.clone().unwrap_or_else(|| temporary.path().to_owned());
    let dir = std::fs::create_dir_all(&dir)
        .and_then(|()| std::path::absolute(&dir))
        .map_err(|error| Failure::usage(format!("--keep {}: {error}", dir.display())))?;
    let stage = Stage { args, dir: &dir };
    let mut shown = Shown::default();
    shown.add(&stage, &ledger::play(&stage).await?)?;
    shown.add(&stage, &gateway::play(&stage).await?)?;
    shown.add(&stage, &delivery::play(&stage).await?)?;
    shown.add(&stage, &events::play(&stage).await?)?;
    shown.add(&stage, &usage::play(&stage).await?)?;
    shown.conclude(&stage)
}

/// What the acts showed so far.
#[derive(Default)]
struct Shown {
    acts: serde_json::Map<String, serde_json::Value>,
    broken: Vec<String>,
    rows: Vec<Row>,
}

impl Shown {
    fn add<V: Verdict>(&mut self, stage: &Stage<'_>, verdict: &V) -> Result<(), Failure> {
        if !stage.args.json {
            verdict.print();
        }
        let json = serde_json::to_value(verdict)
            .map_err(|error| Failure::internal(format!("writing JSON: {error}")))?;
        self.acts.insert(V::NAME.to_owned(), json);
        self.broken.extend(verdict.broken().iter().cloned());
        self.rows.push(verdict.row());
        Ok(())
    }

    fn conclude(self, stage: &Stage<'_>) -> Result<(), Failure> {
        if !stage.args.json {
            let mut table = output::table(&["what was sent", "what happened", "without ichido"]);
            for row in self.rows {
                table.add_row([row.sent, row.happened, row.without]);
            }
            println!("\n{table}");
        }
        if stage.args.json {
            output::json(&self.acts)?;
        } else if self.broken.is_empty() {
            println!(
                "\nNo effect ran twice, what nobody can know was said to be in doubt, and every record arrived once."
            );
        } else {
            println!();
            self.broken.iter().for_each(|line| println!("BROKEN: {line}"));
        }
        match self.broken.is_empty() {
            true => Ok(()),
            false => Err(Failure::internal("the demo found a broken promise")),
        }
    }
}
