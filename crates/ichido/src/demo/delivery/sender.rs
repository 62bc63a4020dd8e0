//! A run of `ichido send` that reads its records from a pipe, so that an outage can happen in the middle of it.

use std::ops::Range;
use std::process::{Command, Stdio};

use ichido_testkit::receiver::Receiver;
use tokio::io::AsyncWriteExt;
use tokio::process::Child;

use super::{BATCH, record_name};
use crate::demo::sandbox::{Sandbox, spawn};
use ichido_serve::Failure;

/// Exit codes of `ichido send`.
pub(in crate::demo) const EXIT_SPOOLED: i32 = 3;
pub(in crate::demo) const EXIT_FAILED: i32 = 4;

pub(in crate::demo) struct Sender {
    child: Child,
}

impl Sender {
    pub(in crate::demo) fn start(sandbox: &Sandbox<'_>, receiver: &Receiver) -> Result<Self, Failure> {
        let mut command = sandbox.ichido()?;
        delivery_settings(&mut command, sandbox, receiver)
            .args(["send", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(Self { child: spawn(command, "the sender")? })
    }

    /// Writes these records to the sender.
    pub(in crate::demo) async fn write(&mut self, numbers: Range<u32>) -> Result<(), Failure> {
        let lines: String = numbers.map(|number| line(number, i64::from(number))).collect();
        self.write_lines(&lines).await
    }

    /// Writes a record that the receiver rejects.
    pub(in crate::demo) async fn write_invalid(&mut self, number: u32) -> Result<(), Failure> {
        self.write_lines(&line(number, -1)).await
    }

    async fn write_lines(&mut self, lines: &str) -> Result<(), Failure> {
        let stdin =
            self.child.stdin.as_mut().ok_or_else(|| Failure::internal("stdin of the sender is not piped"))?;
        let written = async {
            stdin.write_all(lines.as_bytes()).await?;
            stdin.flush().await
        };
        written.await.map_err(|error| Failure::internal(format!("cannot write to the sender: {error}")))
    }

    /// Closes the pipe, waits for the sender, and returns its exit code.
    pub(in crate::demo) async fn finish(mut self) -> Result<i32, Failure> {
        drop(self.child.stdin.take());
        let status = self.child.wait().await;
        let status =
            status.map_err(|error| Failure::internal(format!("cannot wait for the sender: {error}")))?;
        Ok(status.code().unwrap_or(-1))
    }
}

/// Sets what a command needs to deliver to this receiver.
pub(in crate::demo) fn delivery_settings<'a>(
    command: &'a mut Command,
    sandbox: &Sandbox<'_>,
    receiver: &Receiver,
) -> &'a mut Command {
    command
        .env("DATA_DIR", sandbox.dir.join("delivery"))
        .env("EXTERNAL_API_ENDPOINT", format!("http://{}/v1/usage", receiver.address()))
        .env("EXTERNAL_API_TOKEN", "demo")
        .env("EXTERNAL_API_ALLOW_HTTP_LOOPBACK", "true")
        .env("BATCH_SIZE", BATCH.to_string())
        .env("RETRY_BACKOFF_MS", "20")
}

fn line(number: u32, tokens: i64) -> String {
    format!("{{\"source_event_id\":\"{}\",\"total_tokens\":{tokens}}}\n", record_name(number))
}
