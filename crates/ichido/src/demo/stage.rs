//! What every act plays on: the arguments, a directory, and this very program as other processes.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};

use crate::args::DemoArgs;
use crate::exit::Failure;

/// No child may take longer to start.
const START: Duration = Duration::from_secs(20);

pub(super) struct Stage<'a> {
    pub(super) args: &'a DemoArgs,
    pub(super) dir: &'a Path,
}

impl Stage<'_> {
    /// Tells people what happens.
    pub(super) fn say(&self, line: &str) {
        if !self.args.json {
            println!("· {line}");
        }
    }

    /// This program again, in the directory of the demo, without any settings; it ends with the demo.
    pub(super) fn myself(&self) -> Result<Command, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::internal(format!("finding this program: {error}")))?;
        let mut command = Command::new(program);
        command.current_dir(self.dir).env_clear().stdin(Stdio::null()).kill_on_drop(true);
        Ok(command)
    }
}

/// A part of ichido that serves, with the address that it printed. It ends with this.
pub(super) struct Started {
    pub(super) address: SocketAddr,
    child: Child,
}

impl Started {
    pub(super) async fn listening(command: &mut Command, what: &str) -> Result<Self, Failure> {
        let mut child =
            command.spawn().map_err(|error| Failure::internal(format!("starting {what}: {error}")))?;
        let stderr = child.stderr.take().ok_or_else(|| Failure::internal(format!("{what} has no output")))?;
        Ok(Self { address: address_in(stderr, "listening on http://").await?, child })
    }

    /// Kills it with SIGKILL: it gets no chance to tidy up.
    pub(super) async fn kill(mut self) -> Result<(), Failure> {
        self.child.kill().await.map_err(|error| Failure::internal(format!("kill -9: {error}")))
    }
}

/// Reads lines until one has the words, and the address behind them. What comes after is read and dropped.
pub(super) async fn address_in(
    output: impl AsyncRead + Unpin + Send + 'static,
    words: &str,
) -> Result<SocketAddr, Failure> {
    let mut lines = BufReader::new(output).lines();
    let reading = async {
        while let Ok(Some(line)) = lines.next_line().await {
            let rest = line.split_once(words).map(|(_, rest)| rest);
            if let Some(address) = rest.and_then(|rest| rest.split([',', ' ']).next()?.parse().ok()) {
                return Some(address);
            }
        }
        None
    };
    let address = tokio::time::timeout(START, reading).await.ok().flatten();
    let address = address.ok_or_else(|| Failure::internal("a process of the demo did not start"))?;
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok(address)
}
