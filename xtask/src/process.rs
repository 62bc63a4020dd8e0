//! Child processes that cannot outlive us.
//!
//! Every long-lived child is started through `setpriv --pdeathsig`: the kernel signals it when the thread that started
//! it ends, be it by return, panic, Ctrl-C or `kill -9`. That thread must therefore be the main one, which is why
//! nothing in this tool starts a server from a thread of its own. When we end in good order, [`Server`]'s drop stops
//! the child and waits for it, so that its files can be removed next.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::phase;

/// How long a server may take to answer for the first time, on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(90);
/// How long a server may take to stop before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// How much of a log an error shows.
const TAIL_LINES: usize = 25;

/// How a child is asked to stop, by us or by the kernel.
#[derive(Clone, Copy)]
pub(crate) enum Signal {
    /// The usual request.
    Term,
    /// PostgreSQL's fast shutdown; on TERM it would wait for its clients.
    Int,
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Self::Term => "TERM",
            Self::Int => "INT",
        }
    }
}

/// A command whose process is signalled when we end.
pub(crate) struct TiedCommand {
    pub(crate) command: Command,
    stop: Signal,
}

impl TiedCommand {
    pub(crate) fn new(program: impl AsRef<OsStr>, stop: Signal) -> Self {
        Self::as_user(None, program, stop)
    }

    /// The same, run as another user. A change of user clears the death signal, so one setpriv has to do both.
    pub(crate) fn as_user(user: Option<&str>, program: impl AsRef<OsStr>, stop: Signal) -> Self {
        let mut command = Command::new("setpriv");
        if let Some(user) = user {
            command.args(["--reuid", user, "--regid", user, "--init-groups"]);
        }
        command.args(["--pdeathsig", stop.name(), "--"]).arg(program);
        Self { command, stop }
    }

    /// Starts it with its output in `NAME.log` under `directory`.
    pub(crate) fn start(mut self, name: &'static str, directory: &Path) -> Result<Server> {
        let log = directory.join(format!("{name}.log"));
        let output = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        self.command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child =
            self.command.spawn().with_context(|| format!("cannot start {name}: {:?}", self.command))?;
        Ok(Server { name, child, log, stop: self.stop })
    }
}

/// A running child with a log; dropping it stops it.
pub(crate) struct Server {
    name: &'static str,
    child: Child,
    log: PathBuf,
    stop: Signal,
}

impl Server {
    /// Waits until `ready` says yes. A child that ends first, or takes too long, is an error that shows its log.
    pub(crate) fn wait_until(&mut self, mut ready: impl FnMut() -> bool) -> Result<()> {
        let answered = phase::poll(START_LIMIT, || {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended while it started: {status}\n{}", self.name, self.log_tail());
            }
            Ok(ready())
        })?;
        if !answered {
            let seconds = START_LIMIT.as_secs();
            bail!("{} did not answer within {seconds} s\n{}", self.name, self.log_tail());
        }
        Ok(())
    }

    /// Why the child is not running any more; `None` while it is.
    pub(crate) fn exit_report(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(format!("{} ended by itself: {status}\n{}", self.name, self.log_tail()))
    }

    fn log_tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        format!("--- end of {}.log\n{}---", self.name, tail(&String::from_utf8_lossy(&text)))
    }

    /// The child may be another user's, and std can only kill: the shell's own `kill` sends the kinder signal.
    fn ask_to_stop(&self) {
        let request = format!("kill -s {} {}", self.stop.name(), self.child.id());
        // If it cannot be asked it is killed below, or it is gone already.
        let _ = Command::new("sh").args(["-c", &request]).stderr(Stdio::null()).status();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        self.ask_to_stop();
        let stopped = phase::poll(STOP_LIMIT, || self.child.try_wait().map(|status| status.is_some()));
        if !matches!(stopped, Ok(true)) {
            // Nothing more can be done in a drop than to try.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The code a shell would report: the child's own, or 128 and the signal that ended it.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Runs a short command run_quietly; its output is shown only if it fails.
pub(crate) fn run_quietly(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?} failed: {}\n{}{}", output.status, tail(&said), tail(&complaint));
    }
    Ok(said)
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let skipped = lines.len().saturating_sub(TAIL_LINES);
    lines[skipped..].iter().map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_the_last_lines_only() {
        let text: String = (0..100).map(|n| format!("line {n}\n")).collect();
        assert_eq!(tail(&text).lines().count(), TAIL_LINES);
        assert!(tail(&text).ends_with("line 99\n"));
        assert_eq!(tail("one"), "one\n");
    }

    #[test]
    fn a_signal_is_reported_as_a_shell_would() {
        assert_eq!(exit_code(ExitStatus::from_raw(15)), 143);
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
    }
}
