//! Child processes that cannot outlive this one.
//!
//! Every long-lived child is started through `setpriv --pdeathsig`: the kernel signals it when the thread that started
//! it exits, whether by return, panic, Ctrl-C or `kill -9`. That thread must therefore be the main thread, so nothing
//! in this tool starts a server from another thread. On a normal exit, dropping [`Server`] stops the child and waits
//! for it, so that its files can be removed afterwards.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::phase;

/// How long a server may take to become ready, on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(90);
/// How long a server may take to stop before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// How many lines of a log an error shows.
const TAIL_LINES: usize = 25;

/// The signal that stops a child, sent by this process or by the kernel.
#[derive(Clone, Copy)]
pub(crate) enum Signal {
    /// The default.
    Term,
    /// PostgreSQL's fast shutdown. On TERM it would wait for its clients.
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

/// A command whose process is signalled when this process exits.
pub(crate) struct TiedCommand {
    pub(crate) command: Command,
    stop: Signal,
}

impl TiedCommand {
    pub(crate) fn new(program: impl AsRef<OsStr>, stop: Signal) -> Self {
        Self::as_user(None, program, stop)
    }

    /// The same, run as another user. Changing the user clears the parent-death signal, so one `setpriv` must do both.
    pub(crate) fn as_user(user: Option<&str>, program: impl AsRef<OsStr>, stop: Signal) -> Self {
        let mut command = Command::new("setpriv");
        if let Some(user) = user {
            command.args(["--reuid", user, "--regid", user, "--init-groups"]);
        }
        command.args(["--pdeathsig", stop.name(), "--"]).arg(program);
        Self { command, stop }
    }

    /// Starts the process, with its output in `NAME.log` under `directory`.
    pub(crate) fn start(mut self, name: &'static str, directory: &Path) -> Result<Server> {
        let log = directory.join(format!("{name}.log"));
        let output = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        self.command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child =
            self.command.spawn().with_context(|| format!("cannot start {name}: {:?}", self.command))?;
        Ok(Server { name, child, log, stop: self.stop })
    }
}

/// A running child with a log. Dropping it stops the child.
pub(crate) struct Server {
    name: &'static str,
    child: Child,
    log: PathBuf,
    stop: Signal,
}

impl Server {
    /// Waits until `ready` returns true. If the child exits first or takes too long, the error shows its log.
    pub(crate) fn wait_until(&mut self, mut ready: impl FnMut() -> bool) -> Result<()> {
        let is_ready = phase::poll(START_LIMIT, || {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} exited during startup: {status}\n{}", self.name, self.log_tail());
            }
            Ok(ready())
        })?;
        if !is_ready {
            let seconds = START_LIMIT.as_secs();
            bail!("{} was not ready within {seconds} s\n{}", self.name, self.log_tail());
        }
        Ok(())
    }

    /// Describes how the child exited. `None` while it is running.
    pub(crate) fn exit_report(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(format!("{} exited unexpectedly: {status}\n{}", self.name, self.log_tail()))
    }

    fn log_tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        format!("--- end of {}.log\n{}---", self.name, tail(&String::from_utf8_lossy(&text)))
    }

    /// Sends the stop signal with the shell's `kill`, because std can send only SIGKILL.
    fn send_stop_signal(&self) {
        let request = format!("kill -s {} {}", self.stop.name(), self.child.id());
        // If this fails, the child has exited already, or is killed by `drop`.
        let _ = Command::new("sh").args(["-c", &request]).stderr(Stdio::null()).status();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        self.send_stop_signal();
        let stopped = phase::poll(STOP_LIMIT, || self.child.try_wait().map(|status| status.is_some()));
        if !matches!(stopped, Ok(true)) {
            // A drop cannot report errors.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The exit code that a shell reports: the child's own, or 128 plus the signal that terminated it.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Runs a short command and returns its standard output. If it fails, the error shows what it printed.
pub(crate) fn run_quietly(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {command:?}"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?} failed: {}\n{}{}", output.status, tail(&stdout), tail(&stderr));
    }
    Ok(stdout)
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
    fn tail_is_the_last_lines() {
        let text: String = (0..100).map(|n| format!("line {n}\n")).collect();
        assert_eq!(tail(&text).lines().count(), TAIL_LINES);
        assert!(tail(&text).ends_with("line 99\n"));
        assert_eq!(tail("one"), "one\n");
    }

    #[test]
    fn signal_is_reported_as_a_shell_does() {
        assert_eq!(exit_code(ExitStatus::from_raw(15)), 143);
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
    }
}
