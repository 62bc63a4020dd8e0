//! What every act plays on: the arguments, a directory, and this very program as other processes.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use http::{StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};

use crate::args::DemoArgs;
use ichido_serve::Failure;

/// No child may take longer to start.
const START: Duration = Duration::from_secs(60);
/// Nor longer to end.
const END: Duration = Duration::from_secs(10);
/// What parts that serve say before their address.
const LISTENING: &str = "listening on http://";

pub(super) struct Stage<'a> {
    pub(super) args: &'a DemoArgs,
    pub(super) dir: &'a Path,
}

impl Stage<'_> {
    /// Tells people what happens.
    pub(super) fn say(&self, line: &str) {
        if !self.args.json {
            outln!("· {line}");
        }
    }

    /// This program again, in the directory of the demo, without any settings; it ends with the demo. A Ctrl-C reaches the
    /// demo alone, which ends its processes in good order.
    pub(super) fn myself(&self) -> Result<Command, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::internal(format!("finding this program: {error}")))?;
        let mut command = Command::new(program);
        command.current_dir(self.dir).env_clear().stdin(Stdio::null()).kill_on_drop(true);
        command.process_group(0);
        Ok(command)
    }
}

/// A part of ichido that serves, with what it said at its start. It ends with this.
pub(super) struct Started {
    pub(super) address: SocketAddr,
    said: String,
    child: Child,
}

impl Started {
    pub(super) async fn listening(command: &mut Command, what: &str) -> Result<Self, Failure> {
        let mut child =
            command.spawn().map_err(|error| Failure::internal(format!("starting {what}: {error}")))?;
        let stderr = child.stderr.take().ok_or_else(|| Failure::internal(format!("{what} has no output")))?;
        let (address, said) = address_in(stderr, LISTENING).await?;
        Ok(Self { address, said, child })
    }

    /// The address that it told behind these words.
    pub(super) fn address_of(&self, words: &str) -> Result<SocketAddr, Failure> {
        address_after(&self.said, words).ok_or_else(|| Failure::internal(format!("no {words:?} was told")))
    }

    /// Kills it with SIGKILL: it gets no chance to tidy up.
    pub(super) async fn kill(mut self) -> Result<(), Failure> {
        self.child.kill().await.map_err(|error| Failure::internal(format!("kill -9: {error}")))
    }

    /// Waits for an end that nobody asked for.
    pub(super) async fn ended(&mut self) -> Failure {
        let status = self.child.wait().await.map(|status| status.to_string());
        Failure::internal(format!("a process of the demo ended: {}", status.unwrap_or_default()))
    }

    /// Asks it to end, and waits until it has.
    pub(super) async fn end(mut self) -> Result<(), Failure> {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        pid.and_then(|pid| kill_process(pid, Signal::TERM).ok());
        match tokio::time::timeout(END, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(Failure::internal(format!("a process of the demo ended with {status}"))),
            Ok(Err(error)) => Err(Failure::internal(format!("waiting for a process of the demo: {error}"))),
            Err(_) => self.kill().await,
        }
    }
}

/// Reads lines until one has the words and an address behind them: the address, and the line. What comes after is read
/// and dropped.
pub(super) async fn address_in(
    output: impl AsyncRead + Unpin + Send + 'static,
    words: &str,
) -> Result<(SocketAddr, String), Failure> {
    let mut lines = BufReader::new(output).lines();
    let reading = async {
        while let Ok(Some(line)) = lines.next_line().await {
            if let Some(address) = address_after(&line, words) {
                return Some((address, line));
            }
        }
        None
    };
    let found = tokio::time::timeout(START, reading).await.ok().flatten();
    let found = found.ok_or_else(|| Failure::internal("a process of the demo did not start"))?;
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok(found)
}

fn address_after(line: &str, words: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once(words)?;
    rest.split([',', ' ']).next()?.parse().ok()
}

/// Asks one of our own parts something: its status, and what it said.
pub(super) async fn get(address: SocketAddr, path: &str) -> Result<(StatusCode, String), Failure> {
    let fail = |why: String| Failure::internal(format!("asking http://{address}{path}: {why}"));
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let uri: Uri = format!("http://{address}{path}").parse().map_err(|_| fail("no address".to_owned()))?;
    let answer = client.get(uri).await.map_err(|error| fail(error.to_string()))?;
    let status = answer.status();
    let body = answer.into_body().collect().await.map_err(|error| fail(error.to_string()))?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
