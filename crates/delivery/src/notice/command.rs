//! A program that gets each message as JSON ([`Message::to_json`]) on standard input. Exit code 0 means delivered.
//!
//! It runs without a shell, in a process group of its own, and with only the variables in [`KEPT_VARIABLES`]: settings
//! of ichido may be secrets. A program that does not end in time is killed with everything that it started.

use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::ChildStderr;

use super::channel::{Channel, Failure};
use super::message::Message;
use super::settings::CommandSettings;

/// How long the program may run.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait for the rest of its standard error after it has exited.
const STDERR_GRACE: Duration = Duration::from_millis(100);
/// The most bytes of its standard error that are kept. The rest is discarded.
const STDERR_BYTES_MAX: usize = 1_024;
/// The environment of the program, as far as it is set here.
const KEPT_VARIABLES: [&str; 8] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// A program.
#[derive(Debug)]
pub struct Command {
    settings: CommandSettings,
    timeout: Duration,
}

impl Command {
    /// Creates a channel through the configured program.
    pub fn new(settings: CommandSettings) -> Self {
        Self { settings, timeout: TIMEOUT }
    }

    async fn run(&self, input: &[u8]) -> Result<(), Failure> {
        let CommandSettings { program, args } = &self.settings;
        let kept = KEPT_VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        let mut child = tokio::process::Command::new(program)
            .args(args)
            .env_clear()
            .envs(kept)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Failure::Refused { reason: format!("cannot run {program}: {error}") })?;
        let group = ProcessGroup::of(&child);
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        let said = Mutex::default();
        let talking = async {
            let write = async {
                if let Some(mut stdin) = stdin {
                    // A program may exit without reading everything.
                    let _ = stdin.write_all(input).await;
                }
            };
            tokio::join!(write, read(stderr, &said));
        };
        tokio::pin!(talking);
        let mut is_talking = true;
        // The exit decides, even if a child of the program still has its standard input or error.
        let ended = loop {
            tokio::select! {
                ended = child.wait() => break ended,
                () = &mut talking, if is_talking => is_talking = false,
            }
        };
        group.leave();
        let ended = ended.map_err(|error| retryable(format!("cannot wait for {program}: {error}")))?;
        if ended.success() {
            return Ok(());
        }
        if is_talking {
            let _ = tokio::time::timeout(STDERR_GRACE, talking).await;
        }
        let said = String::from_utf8_lossy(&said.lock().unwrap_or_else(PoisonError::into_inner)).into_owned();
        let said: String = said.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
        Err(retryable(format!("{} {}", describe(ended), said.trim()).trim_end().to_owned()))
    }
}

#[async_trait::async_trait]
impl Channel for Command {
    fn name(&self) -> &'static str {
        "command"
    }

    fn describe(&self) -> String {
        format!("command {}", self.settings.program)
    }

    async fn send(&self, message: &Message) -> Result<(), Failure> {
        let input = message.to_json().to_string();
        let ran = tokio::time::timeout(self.timeout, self.run(input.as_bytes())).await;
        ran.unwrap_or_else(|_| {
            Err(retryable(format!("no exit within {} s; it was killed", self.timeout.as_secs())))
        })
    }
}

fn retryable(reason: String) -> Failure {
    Failure::Retryable { reason, retry_after: None }
}

fn describe(ended: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (ended.code(), ended.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended abnormally".to_owned(),
    }
}

/// Reads standard error to its end, and keeps the beginning.
async fn read(stderr: Option<ChildStderr>, kept: &Mutex<Vec<u8>>) {
    let Some(mut stderr) = stderr else { return };
    let mut buffer = [0; 1_024];
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let room = STDERR_BYTES_MAX - kept.len();
        kept.extend_from_slice(&buffer[..count.min(room)]);
    }
}

/// The program and everything that it started. They are killed if the program has not exited when this is dropped.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn of(child: &tokio::process::Child) -> Self {
        Self(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)))
    }

    fn leave(mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}
