//! `ichido demo`: many workers race for the same operations on an embedded ledger; the process that holds it is killed
//! with -9 and started again; an operator resolves what is in doubt; and a table shows that each effect ran once.
//!
//! Then the same over HTTP: the gateway before an orders API that loses answers and is killed.
//!
//! The effects are lines in a log that the ledger knows nothing about. That log is the judge: if it shows an effect
//! twice, or an acknowledged one not at all, the demo says so and exits with 1.

mod act_two;
mod judge;
pub(crate) mod orders;
pub(crate) mod worker;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ichido_core::{Key, Outcome, Resolution, Resolved};
use ichido_ledger::{Ledger, Query, StateName};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use self::judge::{Effects, Verdict};
use crate::args::DemoArgs;
use crate::exit::Failure;
use crate::output;

/// The longest that one round may take.
const ROUND_LIMIT: Duration = Duration::from_secs(120);

/// What a round of the worker process acknowledged.
#[derive(Debug, Default)]
struct Round {
    /// Operations whose completion was acknowledged.
    done: BTreeSet<String>,
    /// Calls that were answered without running anything.
    repeats: u64,
}

pub(crate) async fn run(args: &DemoArgs) -> Result<(), Failure> {
    let temporary =
        tempfile::tempdir().map_err(|error| Failure::internal(format!("temporary directory: {error}")))?;
    let dir = args.keep.clone().unwrap_or_else(|| temporary.path().to_owned());
    std::fs::create_dir_all(&dir)
        .map_err(|error| Failure::usage(format!("--keep {}: {error}", dir.display())))?;
    let story = Story { args, dir: &dir, quiet: args.json };
    let mut verdict = story.tell().await?;
    if !args.json {
        verdict.print();
    }
    story.say("now over HTTP: the gateway before an orders API that loses every third answer and is killed with -9 in the middle.");
    let act_two = act_two::play(&dir, args.keys).await?;
    verdict.broken.extend(act_two.broken.iter().cloned());
    if args.json {
        output::json(&serde_json::json!({ "ledger": verdict, "gateway": act_two }))?;
    } else {
        act_two.print();
        verdict.conclude();
    }
    if verdict.broken.is_empty() { Ok(()) } else { Err(Failure::internal("the demo found a broken promise")) }
}

struct Story<'a> {
    args: &'a DemoArgs,
    dir: &'a Path,
    quiet: bool,
}

impl Story<'_> {
    async fn tell(&self) -> Result<Verdict, Failure> {
        let (keys, workers) = (self.args.keys, self.args.workers);
        self.say(&format!("{workers} workers race for {keys} operations on an embedded ledger; each operation is asked for several times."));
        let first = self.round(Some(keys / 2)).await?;
        self.say(&format!(
            "kill -9: the process died after {} completions; {} repeats were answered without running anything.",
            first.done.len(),
            first.repeats
        ));
        let second = self.round(None).await?;
        self.say(&format!(
            "started again: {} more completed, {} repeats answered. What the dead process held is in doubt, and was not run again.",
            second.done.len(),
            second.repeats
        ));
        let in_doubt = self.resolve_doubts().await?;
        let third = self.round(None).await?;
        self.say(&format!("and the rest: {} more completed.", third.done.len()));
        let rounds = [first, second, third];
        judge::judge(self.args.keys, &self.effects()?, &rounds, in_doubt, &self.done().await?)
    }

    /// Runs the worker process to its end, or kills it after so many completions.
    async fn round(&self, kill_after: Option<u32>) -> Result<Round, Failure> {
        let mut child = self.start()?;
        let running = self.follow(&mut child, kill_after);
        let round = tokio::time::timeout(ROUND_LIMIT, running).await;
        // Also after an error: nothing that the demo started outlives it.
        let _ = child.kill().await;
        round.map_err(|_| Failure::internal("the demo's worker process did not end"))?
    }

    fn start(&self) -> Result<Child, Failure> {
        let fail =
            |error: std::io::Error| Failure::internal(format!("starting the demo's worker process: {error}"));
        let program = std::env::current_exe().map_err(fail)?;
        let mut command = Command::new(program);
        command.arg("demo-worker").arg("--dir").arg(self.dir);
        command
            .arg("--keys")
            .arg(self.args.keys.to_string())
            .arg("--workers")
            .arg(self.args.workers.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        command.spawn().map_err(fail)
    }

    async fn follow(&self, child: &mut Child, kill_after: Option<u32>) -> Result<Round, Failure> {
        let stdout =
            child.stdout.take().ok_or_else(|| Failure::internal("the worker process has no output"))?;
        let mut lines = BufReader::new(stdout).lines();
        let mut round = Round::default();
        while let Some(line) =
            lines.next_line().await.map_err(|error| Failure::internal(error.to_string()))?
        {
            match line.split_once(' ') {
                Some(("done", key)) => {
                    round.done.insert(key.to_owned());
                }
                Some(("repeat", _)) => round.repeats += 1,
                Some(_) | None => {}
            }
            if kill_after.is_some_and(|enough| round.done.len() >= enough as usize) {
                // SIGKILL: the process gets no chance to tidy up. What it had acknowledged is still in the pipe.
                child.start_kill().map_err(|error| Failure::internal(format!("kill -9: {error}")))?;
            }
        }
        let status = child.wait().await.map_err(|error| Failure::internal(error.to_string()))?;
        if kill_after.is_none() && !status.success() {
            return Err(Failure::internal(format!("the demo's worker process failed: {status}")));
        }
        Ok(round)
    }

    /// The operator's part: looks into the log of effects, and says of each doubt how it ended.
    async fn resolve_doubts(&self) -> Result<Vec<judge::InDoubt>, Failure> {
        let ledger = worker::open(self.dir).await?;
        let effects = self.effects()?;
        let query = Query { state: Some(StateName::InDoubt), limit: 100_000, ..Query::default() };
        let mut doubts = Vec::new();
        for claim in ledger.list(&query).await?.claims {
            let key = Key::unscoped(claim.key.clone())?;
            let happened = effects.count(&claim.key) > 0;
            let word =
                if happened { Resolution::Done(Outcome::kept("resolved")) } else { Resolution::Absent };
            if ledger.resolve(&key, &word).await? != Resolved::Applied {
                return Err(Failure::internal(format!(
                    "the doubt about {} could not be resolved",
                    claim.key
                )));
            }
            let reason = claim.doubt_reason.unwrap_or_default();
            doubts.push(judge::InDoubt { key: claim.key, reason, happened });
        }
        ledger.close().await?;
        self.say(&format!(
            "an operator looks at the {} in doubt, and resolves each as done or absent.",
            doubts.len()
        ));
        Ok(doubts)
    }

    async fn done(&self) -> Result<BTreeSet<String>, Failure> {
        let ledger: Ledger = worker::open(self.dir).await?;
        let query = Query { state: Some(StateName::Done), limit: 100_000, ..Query::default() };
        let done = ledger.list(&query).await?.claims.into_iter().map(|claim| claim.key).collect();
        ledger.close().await?;
        Ok(done)
    }

    fn effects(&self) -> Result<Effects, Failure> {
        Effects::read(&self.dir.join(worker::EFFECTS))
    }

    fn say(&self, line: &str) {
        if !self.quiet {
            println!("· {line}");
        }
    }
}
