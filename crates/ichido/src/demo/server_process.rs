//! A child process that prints the address it listens on.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};

use ichido_serve::Failure;

const START_MAX: Duration = Duration::from_secs(60);
const STOP_MAX: Duration = Duration::from_secs(10);
/// The text that every ichido server prints in front of its address.
const LISTENING: &str = "listening on http://";

/// A running ichido server. It is killed when this is dropped.
pub(super) struct ServerProcess {
    pub(super) address: SocketAddr,
    /// The line that announced the addresses.
    announcement: String,
    child: Child,
}

impl ServerProcess {
    /// Starts a command whose standard error is piped, and waits until it listens.
    pub(super) async fn start(command: &mut Command, name: &str) -> Result<Self, Failure> {
        let mut child =
            command.spawn().map_err(|error| Failure::internal(format!("cannot start {name}: {error}")))?;
        let stderr =
            child.stderr.take().ok_or_else(|| Failure::internal(format!("stderr of {name} is not piped")))?;
        let (address, announcement) = read_address(stderr, LISTENING).await?;
        Ok(Self { address, announcement, child })
    }

    /// The address that follows this text in the line that announced the addresses.
    pub(super) fn address_after(&self, text: &str) -> Result<SocketAddr, Failure> {
        address_after(&self.announcement, text)
            .ok_or_else(|| Failure::internal(format!("no address after {text:?} in {:?}", self.announcement)))
    }

    /// Kills the process with SIGKILL, which gives it no chance to clean up.
    pub(super) async fn kill(mut self) -> Result<(), Failure> {
        self.child.kill().await.map_err(|error| Failure::internal(format!("kill -9 failed: {error}")))
    }

    /// Waits for an exit that nobody asked for.
    pub(super) async fn unexpected_exit(&mut self) -> Failure {
        let status = self.child.wait().await.map(|status| status.to_string());
        Failure::internal(format!("a child process of the demo exited: {}", status.unwrap_or_default()))
    }

    /// Sends SIGTERM and waits for the exit; kills the process if that takes too long.
    pub(super) async fn stop(mut self) -> Result<(), Failure> {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        pid.and_then(|pid| kill_process(pid, Signal::TERM).ok());
        match tokio::time::timeout(STOP_MAX, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(Failure::internal(format!("a child process of the demo failed: {status}"))),
            Ok(Err(error)) => {
                Err(Failure::internal(format!("cannot wait for a child process of the demo: {error}")))
            }
            Err(_) => self.kill().await,
        }
    }
}

/// Reads lines until one has an address after `text`, and returns the address and the line.
///
/// A task reads and discards the rest, so that the child never blocks on a full pipe.
pub(super) async fn read_address(
    output: impl AsyncRead + Unpin + Send + 'static,
    text: &str,
) -> Result<(SocketAddr, String), Failure> {
    let mut lines = BufReader::new(output).lines();
    let reading = async {
        while let Ok(Some(line)) = lines.next_line().await {
            if let Some(address) = address_after(&line, text) {
                return Some((address, line));
            }
        }
        None
    };
    let found = tokio::time::timeout(START_MAX, reading).await.ok().flatten();
    let found = found.ok_or_else(|| Failure::internal("a child process of the demo did not start"))?;
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok(found)
}

fn address_after(line: &str, text: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once(text)?;
    rest.split([',', ' ']).next()?.parse().ok()
}
