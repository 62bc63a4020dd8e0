//! A shell in an empty directory, with `ichido` on its `PATH`, that runs the commands of a block one after another.
//! Hosts, ports and paths in the text are replaced with real ones.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use ichido_testkit::process::Process;

use super::commands::{Action, action};
use super::markdown::{CommandLine, page};

pub(super) struct Shell {
    pub(super) dir: tempfile::TempDir,
    /// The commands that have run.
    pub(super) finished: Vec<Finished>,
    variables: Vec<(String, String)>,
    /// Texts of the page, each with its replacement.
    replacements: Vec<(String, String)>,
    running: Vec<(String, Process)>,
}

/// A command that has run.
pub(super) struct Finished {
    pub(super) comment: String,
    pub(super) stdout: String,
}

/// Makes curl print the status and the replay header after each body.
const CURL: &str = "silent\nwrite-out = \"\\n%{http_code} %header{idempotency-replayed}\"\n";

impl Finished {
    pub(super) fn body(&self) -> &str {
        self.stdout.rsplit_once('\n').unwrap().0
    }

    pub(super) fn status(&self) -> &str {
        self.stdout.rsplit_once('\n').unwrap().1.split(' ').next().unwrap()
    }

    pub(super) fn replayed(&self) -> &str {
        self.stdout.rsplit_once('\n').unwrap().1.split_once(' ').unwrap().1
    }
}

impl Shell {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(".curlrc"), CURL).unwrap();
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        let shell = Self {
            dir,
            finished: Vec::new(),
            variables: Vec::new(),
            replacements: vec![("cargo run --release --".to_owned(), "ichido".to_owned())],
            running: Vec::new(),
        };
        shell.program("ichido", env!("CARGO_BIN_EXE_ichido"));
        shell
    }

    /// Puts a program on the `PATH`.
    pub(super) fn program(&self, name: &str, target: &str) {
        std::os::unix::fs::symlink(target, self.dir.path().join("bin").join(name)).unwrap();
    }

    /// Writes a file into the directory.
    pub(super) fn file(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).unwrap();
    }

    pub(super) fn variable(&mut self, name: &str, value: impl Into<String>) {
        self.variables.push((name.to_owned(), value.into()));
    }

    pub(super) fn replace(&mut self, text: &str, with: impl Into<String>) {
        self.replacements.push((text.to_owned(), with.into()));
    }

    /// What a text of the page was replaced with.
    pub(super) fn replacement(&self, text: &str) -> String {
        let known = self.replacements.iter().find(|(known, _)| known == text);
        known.unwrap_or_else(|| panic!("{text} has no replacement")).1.clone()
    }

    /// The real address for an address of the page.
    pub(super) fn address(&self, text: &str) -> SocketAddr {
        self.replacement(text).parse().unwrap()
    }

    /// Asserts that a file exists and is not empty.
    pub(super) fn has(&self, file: &str) {
        let length = std::fs::metadata(self.dir.path().join(file)).map_or(0, |file| file.len());
        assert!(length > 0, "{file} is missing or empty");
    }

    fn with_replacements(&self, text: &str) -> String {
        self.replacements.iter().fold(text.to_owned(), |text, (known, with)| text.replace(known, with))
    }

    /// Runs a command and checks its result.
    pub(super) fn execute(&mut self, line: &CommandLine) {
        let CommandLine { command, comment, output } = line;
        match action(command).unwrap_or_else(|| panic!("unknown command: {command}")) {
            Action::Export => {
                for pair in command.strip_prefix("export ").unwrap().split_whitespace() {
                    let (name, value) = pair.split_once('=').unwrap();
                    self.variable(name, value);
                }
            }
            Action::Serve { flags, address, check } => {
                let real = self.serve(&format!("{} {flags}", command.trim_end_matches('&')));
                self.replace(address, real.to_string());
                check(self);
            }
            Action::Run(check) => {
                let finished = self.run(command, comment);
                check(self, &finished);
                for line in output {
                    assert_eq!(finished.body(), line, "{command}");
                }
                self.finished.push(finished);
            }
            Action::Prints(texts) => {
                let finished = self.run(command, comment);
                for text in *texts {
                    assert!(finished.stdout.contains(text), "{command}: {}", finished.stdout);
                }
                self.finished.push(finished);
            }
            Action::CoveredElsewhere(check) => check(),
        }
    }

    fn sh(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        crate::without_settings(|name| {
            command.env_remove(name);
        });
        let path = std::env::var("PATH").unwrap();
        let dir = self.dir.path();
        command
            .args(["-c", &self.with_replacements(line)])
            .current_dir(dir)
            .env("PATH", format!("{}:{path}", dir.join("bin").display()))
            .env("CURL_HOME", dir)
            .envs(self.variables.iter().map(|(name, value)| (name, self.with_replacements(value))));
        command
    }

    fn run(&self, command: &str, comment: &str) -> Finished {
        let output = self.sh(command).output().unwrap();
        let (stdout, error) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{command}: {} {stdout} {error}", output.status);
        Finished { comment: comment.to_owned(), stdout }
    }

    /// Starts a server and returns the address that it prints.
    pub(super) fn serve(&mut self, command: &str) -> SocketAddr {
        let mut process = Process::start(&mut self.sh(&format!("exec env {command} 1>&2"))).unwrap();
        let address = process.wait_for_address(" on http://");
        let address = address.unwrap_or_else(|error| panic!("{command}: {error}"));
        self.running.push((command.to_owned(), process));
        address
    }

    /// Stops every server. Those of ichido must shut down cleanly.
    pub(super) fn shut_down(mut self) {
        for (command, mut process) in std::mem::take(&mut self.running).into_iter().rev() {
            process.signal("TERM");
            let code = process.exit_code();
            let is_ours = self.with_replacements(&command).contains("ichido ");
            assert!(code == 0 || !is_ours, "{command}: {code} {}", process.stderr());
        }
    }
}

/// An example of the repository, as text.
pub(super) fn example(path: &str) -> String {
    page(Path::new("examples").join(path).to_str().unwrap())
}
