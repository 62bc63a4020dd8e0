//! Scenario 1: many workers race for the same operations on an embedded ledger. The process that holds the ledger is
//! killed with SIGKILL and restarted, and an operator resolves the claims in doubt.

mod report;

use std::process::Stdio;
use std::time::Duration;

use ichido_core::{Key, Outcome, Resolution, Resolved};
use ichido_ledger::{Query, StateName};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use self::report::{Evidence, InDoubt, Report, Run};
use super::effect_log::EffectLog;
use super::ledger_worker::{self, CALLS_PER_OPERATION, EFFECTS};
use super::sandbox::{Sandbox, spawn};
use ichido_serve::Failure;

/// The longest that one run of the worker process may take.
const RUN_MAX: Duration = Duration::from_secs(120);
/// More claims than the demo can make: at most 100,000 keys.
const CLAIMS_MAX: usize = 100_000;

pub(super) async fn run(sandbox: &Sandbox<'_>) -> Result<Report, Failure> {
    Scenario { sandbox }.run().await
}

struct Scenario<'a> {
    sandbox: &'a Sandbox<'a>,
}

impl Scenario<'_> {
    async fn run(&self) -> Result<Report, Failure> {
        let (keys, workers) = (self.sandbox.args.keys, self.sandbox.args.workers);
        self.sandbox.introduce(
            "1. Ledger",
            &format!(
                "{workers} workers race for {keys} operations. Each run of their process calls every operation {CALLS_PER_OPERATION} times."
            ),
        );
        let first = self.run_workers(Some(keys / 2)).await?;
        self.sandbox.say(&format!(
            "kill -9 after {} completions. {} duplicate calls were answered without running anything.",
            first.completed.len(),
            first.duplicates
        ));
        let second = self.run_workers(None).await?;
        self.sandbox.say(&format!(
            "Restarted: {} more operations completed. Those that the crash interrupted are in doubt, and do not run again.",
            second.completed.len()
        ));
        let in_doubt = self.resolve_claims_in_doubt().await?;
        let third = self.run_workers(None).await?;
        self.sandbox.say(&format!(
            "Third run: the remaining {} operations ran and completed.",
            third.completed.len()
        ));
        let runs = [first, second, third];
        let done = self.list(StateName::Done).await?;
        Ok(Report::new(
            keys,
            in_doubt,
            Evidence { effects: &self.effects()?, runs: &runs, done: &done.into_iter().collect() },
        ))
    }

    /// Runs the worker process until it exits, or kills it once `kill_after` operations are complete and another one is
    /// running.
    async fn run_workers(&self, kill_after: Option<u32>) -> Result<Run, Failure> {
        let mut child = self.start(kill_after)?;
        let run = tokio::time::timeout(RUN_MAX, self.follow(&mut child, kill_after)).await;
        // Also after an error: no child outlives the demo.
        let _ = child.kill().await;
        run.map_err(|_| Failure::internal(format!("the worker process did not exit within {RUN_MAX:?}")))?
    }

    fn start(&self, hang_after: Option<u32>) -> Result<Child, Failure> {
        let mut command = self.sandbox.ichido()?;
        command.arg("demo-worker").arg("--dir").arg(self.sandbox.dir);
        command.arg("--keys").arg(self.sandbox.args.keys.to_string());
        command.arg("--workers").arg(self.sandbox.args.workers.to_string());
        if let Some(grants) = hang_after {
            command.arg("--hang-after").arg(grants.to_string());
        }
        command.stdout(Stdio::piped());
        spawn(command, "the worker process")
    }

    async fn follow(&self, child: &mut Child, kill_after: Option<u32>) -> Result<Run, Failure> {
        let stdout = child
            .stdout
            .take()
            .ok_or_else(|| Failure::internal("stdout of the worker process is not piped"))?;
        let mut lines = BufReader::new(stdout).lines();
        let (mut run, mut is_running) = (Run::default(), false);
        while let Some(line) =
            lines.next_line().await.map_err(|error| Failure::internal(error.to_string()))?
        {
            match line.split_once(' ') {
                Some(("done", name)) => {
                    run.completed.insert(name.to_owned());
                }
                Some(("duplicate", _)) => run.duplicates += 1,
                Some(("running", _)) => is_running = true,
                Some(_) | None => {}
            }
            if is_running && kill_after.is_some_and(|enough| run.completed.len() >= enough as usize) {
                // SIGKILL: the process cannot clean up. Completions that it has reported are still in the pipe, and
                // are read after this.
                child.start_kill().map_err(|error| Failure::internal(format!("kill -9 failed: {error}")))?;
            }
        }
        let status = child.wait().await.map_err(|error| Failure::internal(error.to_string()))?;
        if kill_after.is_none() && !status.success() {
            return Err(Failure::internal(format!("the worker process failed: {status}")));
        }
        Ok(run)
    }

    /// Does what an operator does: looks into the log of effects, and resolves each claim accordingly.
    async fn resolve_claims_in_doubt(&self) -> Result<Vec<InDoubt>, Failure> {
        let ledger = ledger_worker::open_ledger(self.sandbox.dir).await?;
        let effects = self.effects()?;
        let query = Query { state: Some(StateName::InDoubt), limit: CLAIMS_MAX, ..Query::default() };
        let mut in_doubt = Vec::new();
        for claim in ledger.list(&query).await?.claims {
            let key = Key::unscoped(claim.key.clone())?;
            let happened = effects.count(&claim.key) > 0;
            let resolution =
                if happened { Resolution::Done(Outcome::kept("resolved")) } else { Resolution::Absent };
            if ledger.resolve(&key, &resolution).await? != Resolved::Applied {
                return Err(Failure::internal(format!("cannot resolve the claim {}", claim.key)));
            }
            let reason = claim.doubt_reason.unwrap_or_default();
            in_doubt.push(InDoubt { key: claim.key, reason, happened });
        }
        ledger.close().await?;
        self.sandbox.say(&format!(
            "An operator looks up the {} claims in doubt in the log of effects, and resolves each as done or absent.",
            in_doubt.len()
        ));
        Ok(in_doubt)
    }

    /// The keys of all claims in this state.
    async fn list(&self, state: StateName) -> Result<Vec<String>, Failure> {
        let ledger = ledger_worker::open_ledger(self.sandbox.dir).await?;
        let query = Query { state: Some(state), limit: CLAIMS_MAX, ..Query::default() };
        let keys = ledger.list(&query).await?.claims.into_iter().map(|claim| claim.key).collect();
        ledger.close().await?;
        Ok(keys)
    }

    fn effects(&self) -> Result<EffectLog, Failure> {
        EffectLog::read(&self.sandbox.dir.join(EFFECTS))
    }
}
