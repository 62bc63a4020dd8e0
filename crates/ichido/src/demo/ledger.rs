//! The first act: many workers race for the same operations on an embedded ledger; the process that holds it is killed
//! with -9 and started again; an operator resolves what is in doubt.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use ichido_core::{Key, Outcome, Resolution, Resolved};
use ichido_ledger::{Ledger, Query, StateName};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use super::effect_log::{self as judge, Effects, Verdict};
use super::{Stage, ledger_worker as worker};
use ichido_serve::Failure;

/// The longest that one round may take.
const ROUND_LIMIT: Duration = Duration::from_secs(120);

/// What a round of the worker process acknowledged.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Operations whose completion was acknowledged.
    pub(super) done: BTreeSet<String>,
    /// Calls that were answered without running anything.
    pub(super) repeats: u64,
}

/// Plays the act.
pub(super) async fn play(stage: &Stage<'_>) -> Result<Verdict, Failure> {
    Act { stage }.tell().await
}

struct Act<'a> {
    stage: &'a Stage<'a>,
}

impl Act<'_> {
    async fn tell(&self) -> Result<Verdict, Failure> {
        let (keys, workers) = (self.stage.args.keys, self.stage.args.workers);
        self.stage.say(&format!("{workers} workers race for {keys} operations on an embedded ledger; each operation is asked for several times."));
        let first = self.round(Some(keys / 2)).await?;
        self.stage.say(&format!(
            "kill -9: the process died after {} completions; {} repeats were answered without running anything.",
            first.done.len(),
            first.repeats
        ));
        let second = self.round(None).await?;
        self.stage.say(&format!(
            "started again: {} more completed, {} repeats answered. What the dead process held is in doubt, and was not run again.",
            second.done.len(),
            second.repeats
        ));
        let in_doubt = self.resolve_doubts().await?;
        let third = self.round(None).await?;
        self.stage.say(&format!("and the rest: {} more completed.", third.done.len()));
        let rounds = [first, second, third];
        judge::judge(self.stage.args.keys, &self.effects()?, &rounds, in_doubt, &self.done().await?)
    }

    /// Runs the worker process to its end; or kills it once this many operations are complete and another one is running.
    async fn round(&self, kill_after: Option<u32>) -> Result<Round, Failure> {
        let mut child = self.start(kill_after)?;
        let running = self.follow(&mut child, kill_after);
        let round = tokio::time::timeout(ROUND_LIMIT, running).await;
        // Also after an error: nothing that the demo started outlives it.
        let _ = child.kill().await;
        round.map_err(|_| Failure::internal("the demo's worker process did not end"))?
    }

    fn start(&self, kill_after: Option<u32>) -> Result<Child, Failure> {
        let mut command = self.stage.myself()?;
        command.arg("demo-worker").arg("--dir").arg(self.stage.dir);
        command
            .arg("--keys")
            .arg(self.stage.args.keys.to_string())
            .arg("--workers")
            .arg(self.stage.args.workers.to_string());
        if let Some(completions) = kill_after {
            command.arg("--hang-after").arg(completions.to_string());
        }
        command
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::internal(format!("starting the demo's worker process: {error}")))
    }

    async fn follow(&self, child: &mut Child, kill_after: Option<u32>) -> Result<Round, Failure> {
        let stdout =
            child.stdout.take().ok_or_else(|| Failure::internal("the worker process has no output"))?;
        let mut lines = BufReader::new(stdout).lines();
        let (mut round, mut is_running) = (Round::default(), false);
        while let Some(line) =
            lines.next_line().await.map_err(|error| Failure::internal(error.to_string()))?
        {
            match line.split_once(' ') {
                Some(("done", key)) => {
                    round.done.insert(key.to_owned());
                }
                Some(("repeat", _)) => round.repeats += 1,
                Some(("running", _)) => is_running = true,
                Some(_) | None => {}
            }
            if is_running && kill_after.is_some_and(|enough| round.done.len() >= enough as usize) {
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
        let ledger = worker::open(self.stage.dir).await?;
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
        self.stage.say(&format!(
            "an operator looks at the {} in doubt, and resolves each as done or absent.",
            doubts.len()
        ));
        Ok(doubts)
    }

    async fn done(&self) -> Result<BTreeSet<String>, Failure> {
        let ledger: Ledger = worker::open(self.stage.dir).await?;
        let query = Query { state: Some(StateName::Done), limit: 100_000, ..Query::default() };
        let done = ledger.list(&query).await?.claims.into_iter().map(|claim| claim.key).collect();
        ledger.close().await?;
        Ok(done)
    }

    fn effects(&self) -> Result<Effects, Failure> {
        Effects::read(&self.stage.dir.join(worker::EFFECTS))
    }
}
