//! Child processes.

use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::wait::eventually;

/// How much of standard error is kept. A process that writes more loses the oldest half.
const STDERR_MAX_BYTES: usize = 32 << 20;
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A child process with piped output. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    /// The child. Its standard output can be taken; its standard error is read by [`Process::stderr`].
    pub child: Child,
    stderr: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts a command with empty standard input.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let written = Arc::new(Mutex::new(String::new()));
        let output = child.stderr.take().ok_or_else(|| io::Error::other("standard error is not piped"))?;
        let text = written.clone();
        let reader = std::thread::spawn(move || keep(output, &text));
        Ok(Self { child, stderr: written, reader: Some(reader) })
    }

    /// What the process has written to standard error so far, with failures as a terminal shows them.
    pub fn stderr(&self) -> String {
        plain_failures(&self.stderr.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The address after `text` in a complete line on standard error, if the process has printed one.
    pub fn find_address(&self, text: &str) -> Option<SocketAddr> {
        self.stderr().lines().find_map(|line| find_address(line, text))
    }

    /// Waits until the process has printed a complete line with an address after `text` on standard error. Fails if the
    /// process exits first.
    pub fn wait_for_address(&mut self, text: &str) -> io::Result<SocketAddr> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let exited = self.child.try_wait()?;
            if let Some(address) = self.find_address(text) {
                return Ok(address);
            }
            if let Some(status) = exited {
                return Err(io::Error::other(format!("the process exited ({status}): {}", self.stderr())));
            }
            if Instant::now() >= deadline {
                let printed = self.stderr();
                return Err(io::Error::other(format!(
                    "the process printed no address after {text:?}: {printed}"
                )));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the process has written this to standard error.
    #[track_caller]
    pub fn wait_for_stderr(&self, text: &str) {
        eventually(text, || self.stderr().contains(text).then_some(()));
    }

    /// The rest of its standard output. Waits until the process closes it.
    pub fn read_stdout(&mut self) -> io::Result<String> {
        let mut text = String::new();
        let output = self.child.stdout.take().ok_or_else(|| io::Error::other("standard output is taken"))?;
        BufReader::new(output).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Kills the process with SIGKILL, and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal, such as `TERM`.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Waits for the exit and for the rest of standard error, and returns the exit code: -1 after a signal.
    #[track_caller]
    pub fn exit_code(&mut self) -> i32 {
        let status = eventually("the exit of the process", || self.child.try_wait().unwrap());
        self.reader.take().into_iter().for_each(|reader| reader.join().unwrap());
        status.code().unwrap_or(-1)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn keep(output: impl Read, kept: &Mutex<String>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() > STDERR_MAX_BYTES {
            let end = kept[kept.len() / 2..].find('\n').map_or(0, |end| kept.len() / 2 + end + 1);
            kept.drain(..end);
        }
        kept.push_str(&line);
        kept.push('\n');
    }
}

/// Replaces the JSON line of a failure with the line that a terminal shows, so that tests see the text without escapes.
pub fn plain_failures(stderr: &str) -> String {
    let plain = |line: &str| match serde_json::from_str::<serde_json::Value>(line) {
        Ok(json) if json["message"] == "failed" => match json["error"].as_str() {
            Some(error) => format!("ichido: {error}\n"),
            None => format!("{line}\n"),
        },
        _ => format!("{line}\n"),
    };
    stderr.lines().map(plain).collect()
}

/// The address that follows `text` in a line. A scheme in front of the address is skipped.
#[track_caller]
pub fn address_after(line: &str, text: &str) -> SocketAddr {
    find_address(line, text).unwrap_or_else(|| panic!("no address after {text:?} in {line:?}"))
}

fn find_address(line: &str, text: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once(text)?;
    let address = rest.split([' ', ',', '"']).next()?;
    address.trim_start_matches("https://").trim_start_matches("http://").parse().ok()
}
