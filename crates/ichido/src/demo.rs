//! `ichido demo`: the whole story on one machine, act by act, with faults injected.
//!
//! First many workers race for the same operations on an embedded ledger, and the process that holds it is killed. Then
//! the same over HTTP: the gateway before an orders API that loses answers and is killed. Then delivery: a receiver goes
//! down and comes back while records flow. Then events that reach every instance of a bot. Then
//! a month of usage, exported three times to the meter. At last everything runs in one process, with the console, over what
//! the acts left; with `--serve` it stays up.
//!
//! The effects are lines in logs that ichido knows nothing about. These logs are the judges: if one shows an effect
//! twice, or an acknowledged one not at all, the demo says so and exits with 1.
//!
//! An act is a module: `play` takes the [`Stage`] and gives a [`Verdict`]; a line in [`run`] puts it on the bill.

mod all_in_one;
mod delivery;
mod effect_log;
mod events;
mod gateway;
mod ledger;
pub(crate) mod ledger_worker;
pub(crate) mod orders_api;
mod sandbox;
mod usage;

use std::pin::pin;
use std::time::Duration;

use serde::Serialize;
use tempfile::TempDir;

use self::all_in_one::House;
use self::sandbox::Stage;
use crate::args::DemoArgs;
use crate::output;
use ichido_serve::Failure;
use ichido_serve::shutdown;

/// How often the removal of the directory is tried.
const TRIES: u32 = 40;

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
    let ended = play(&Stage { args, dir: &dir }).await;
    tidy_up(temporary).await;
    ended
}

async fn play(stage: &Stage<'_>) -> Result<(), Failure> {
    let mut asked = pin!(shutdown::first_signal()?);
    let (shown, mut house) = tokio::select! {
        played = acts(stage) => played?,
        () = &mut asked => return Err(Failure::internal("the demo was asked to end in the middle")),
    };
    let concluded = shown.conclude(stage, &house);
    let stayed = match concluded.is_ok() && stage.args.serve {
        true => house.stay(asked).await,
        false => Ok(()),
    };
    let closed = house.close().await;
    concluded.and(stayed).and(closed)
}

async fn acts(stage: &Stage<'_>) -> Result<(Shown, House), Failure> {
    let mut shown = Shown::default();
    shown.add(stage, &ledger::play(stage).await?)?;
    shown.add(stage, &gateway::play(stage).await?)?;
    let delivery = delivery::play(stage).await?;
    shown.add(stage, &delivery)?;
    shown.add(stage, &events::play(stage).await?)?;
    let usage = usage::play(stage).await?;
    shown.add(stage, &usage)?;
    let (house, verdict) =
        all_in_one::play(stage, all_in_one::Legacy { delivery: &delivery, usage: &usage }).await?;
    shown.add(stage, &verdict)?;
    Ok((shown, house))
}

/// Removes the temporary directory. Processes that were killed a moment ago may still write to it.
async fn tidy_up(temporary: TempDir) {
    let dir = temporary.keep();
    for _ in 0..TRIES {
        match std::fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(()) | Err(_) => return,
        }
    }
    tracing::warn!(directory = %dir.display(), "the demo's directory could not be removed");
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

    fn conclude(mut self, stage: &Stage<'_>, house: &House) -> Result<(), Failure> {
        if !stage.args.json {
            let mut table = output::table(&["what was sent", "what happened", "without ichido"]);
            for row in self.rows {
                table.add_row([row.sent, row.happened, row.without]);
            }
            outln!("\n{table}");
        }
        if stage.args.json {
            if stage.args.serve {
                self.acts.insert("serving".to_owned(), house.addresses());
            }
            output::json(&self.acts)?;
        } else if self.broken.is_empty() {
            outln!(
                "\nNo effect ran twice, what nobody can know was said to be in doubt, and every record arrived once."
            );
            if stage.args.serve {
                house.tell(stage);
            }
        } else {
            outln!("");
            self.broken.iter().for_each(|line| outln!("BROKEN: {line}"));
        }
        match self.broken.is_empty() {
            true => Ok(()),
            false => Err(Failure::internal("the demo found a broken promise")),
        }
    }
}
