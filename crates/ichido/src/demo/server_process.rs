//! A child process that prints the address it listens on.

use std::io;
use std::net::SocketAddr;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use ichido_testkit::process::Process;
use rustix::process::{Pid, Signal, kill_process};

use ichido_serve::Failure;

const START_MAX: Duration = Duration::from_secs(60);
const STOP_MAX: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The text that every server prints in front of its address.
pub(super) const LISTENING: &str = "listening on http://";

/// A running server. It is killed when this is dropped.
pub(super) struct ServerProcess {
    pub(super) address: SocketAddr,
    process: Process,
}

impl ServerProcess {
    /// Starts a command, and waits until it listens.
    pub(super) async fn start(mut command: Command, name: &str) -> Result<Self, Failure> {
        let mut process = Process::start(&mut command)
            .map_err(|error| Failure::internal(format!("cannot start {name}: {error}")))?;
        let starting = async {
            loop {
                let exited = process.child.try_wait().is_ok_and(|status| status.is_some());
                if let Some(address) = process.find_address(LISTENING) {
                    return Some(address);
                }
                if exited {
                    return None;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let address = tokio::time::timeout(START_MAX, starting).await.ok().flatten();
        let address = address
            .ok_or_else(|| Failure::internal(format!("{name} did not start: {}", process.stderr())))?;
        Ok(Self { address, process })
    }

    /// The address that follows this text in what the process has printed.
    pub(super) fn address_after(&self, text: &str) -> Result<SocketAddr, Failure> {
        let address = self.process.find_address(text);
        address.ok_or_else(|| {
            Failure::internal(format!("no address after {text:?} in {:?}", self.process.stderr()))
        })
    }

    /// Kills the process with SIGKILL, which gives it no chance to clean up.
    pub(super) fn kill(mut self) {
        self.process.kill();
    }

    /// Waits for an exit that nobody asked for.
    pub(super) async fn unexpected_exit(&mut self) -> Failure {
        let status = self.exit().await.map(|status| status.to_string());
        Failure::internal(format!("a child process of the demo exited: {}", status.unwrap_or_default()))
    }

    /// Sends SIGTERM and waits for the exit; kills the process if that takes too long.
    pub(super) async fn stop(mut self) -> Result<(), Failure> {
        if let Ok(None) = self.process.child.try_wait() {
            let pid = i32::try_from(self.process.child.id()).ok().and_then(Pid::from_raw);
            pid.and_then(|pid| kill_process(pid, Signal::TERM).ok());
        }
        match tokio::time::timeout(STOP_MAX, self.exit()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(Failure::internal(format!("a child process of the demo failed: {status}"))),
            Ok(Err(error)) => {
                Err(Failure::internal(format!("cannot wait for a child process of the demo: {error}")))
            }
            Err(_) => {
                self.kill();
                Ok(())
            }
        }
    }

    async fn exit(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.process.child.try_wait()? {
                return Ok(status);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
