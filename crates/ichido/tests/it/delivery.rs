//! End-to-end tests of delivery: real processes, and a receiver over TLS.

mod components;
mod conflicts;
mod crashes;
mod daemon;
mod disk;
mod invalid_input;
mod misbehaving_receiver;
mod network;
mod notices;
mod operator_commands;
mod resending;
mod sending;
mod settings;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ichido_testkit::certificates::{Authority, Identity};
use ichido_testkit::process::plain_failures;
use ichido_testkit::receiver::Receiver;
use serde_json::{Value, json};

/// The token that commands send to the receiver.
const TOKEN: &str = "tok-3n-hunter2";

/// A working directory and a receiver. Commands run in the directory and send to the receiver.
pub(crate) struct Fixture {
    dir: tempfile::TempDir,
    pub(crate) receiver: Receiver,
    /// The certificate of the authority that commands trust.
    pub(crate) ca: PathBuf,
    /// What the receiver presents.
    identity: Identity,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let authority = Authority::new();
        let identity = authority.localhost();
        Self::with_certificate(&authority, identity)
    }

    /// A receiver that presents this certificate to commands that trust this authority.
    fn with_certificate(trusted: &Authority, identity: Identity) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ca = dir.path().join("ca.pem");
        std::fs::write(&ca, trusted.pem()).unwrap();
        let receiver = Receiver::start_tls(identity.config.clone()).unwrap();
        Self { dir, receiver, ca, identity }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A URL of the receiver.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.receiver.address().port())
    }

    /// An `ichido` command with a short retry backoff.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ichido"));
        command.current_dir(self.path()).args(args);
        crate::without_settings(|name| {
            command.env_remove(name);
        });
        command
            .env("EXTERNAL_API_ENDPOINT", self.url("/v1/usage"))
            .env("EXTERNAL_API_TOKEN", TOKEN)
            .env("EXTERNAL_API_CA_FILE", &self.ca)
            .env("RETRY_BACKOFF_MS", "20")
            .env("LOG_LEVEL", "info");
        command
    }

    pub(crate) fn run(&self, args: &[&str], settings: &[(&str, &str)]) -> Run {
        let output = self.command(args).envs(settings.iter().copied()).output().unwrap();
        Run::of(output)
    }

    /// Writes this number of records to a file and sends it.
    pub(crate) fn send(&self, records: usize, settings: &[(&str, &str)]) -> Run {
        let file = self.input(0..records);
        self.run(&["send", "--json", file.to_str().unwrap()], settings)
    }

    /// Writes a JSON Lines file with one record per id.
    fn input(&self, ids: impl Iterator<Item = usize>) -> PathBuf {
        let path = self.path().join("input.jsonl");
        let lines: String =
            ids.map(|id| json!({"source_event_id": format!("e{id}")}).to_string() + "\n").collect();
        std::fs::write(&path, lines).unwrap();
        path
    }

    /// The files in a directory below `data`, as JSON, oldest first. A file that is not JSON is null.
    pub(crate) fn files(&self, directory: &str) -> Vec<(PathBuf, Value)> {
        let dir = self.path().join("data").join(directory);
        let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> =
            entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
        paths.sort();
        let read = |path: &PathBuf| serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap_or_default();
        paths.iter().map(|path| (path.clone(), read(path))).collect()
    }

    /// The names of the files in a directory below `data`.
    fn file_names(&self, directory: &str) -> Vec<String> {
        let entries =
            std::fs::read_dir(self.path().join("data").join(directory)).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Asserts that no file below `data` contains the token.
    fn assert_token_not_stored(&self) {
        let mut dirs = vec![self.path().join("data")];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap().flatten() {
                if entry.path().is_dir() {
                    dirs.push(entry.path());
                } else {
                    let text = String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap()).into_owned();
                    assert!(!text.contains(TOKEN), "{}", entry.path().display());
                }
            }
        }
    }
}

/// The exit code and output of a command.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    pub(crate) fn of(output: Output) -> Self {
        let stderr = plain_failures(&String::from_utf8(output.stderr).unwrap());
        assert!(!stderr.contains("hunter2"), "{stderr}");
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr,
        }
    }

    /// The metrics, from the last line of standard output.
    pub(crate) fn metrics(&self) -> Value {
        serde_json::from_str(self.stdout.lines().last().unwrap_or_default())
            .unwrap_or_else(|_| panic!("{} {}", self.stdout, self.stderr))
    }

    /// The log lines with this message.
    pub(crate) fn log(&self, message: &str) -> Vec<Value> {
        let lines = self.stderr.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["message"] == message).collect()
    }

    #[track_caller]
    pub(crate) fn exits_with(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "{} {}", self.stdout, self.stderr);
        self
    }
}
