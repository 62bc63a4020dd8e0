//! A shell in an empty directory, with `ichido` on the path, in which the lines of a block are typed one after another.
//! Hosts, ports and paths of the text stand for real ones.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::commands::{Way, way};
use super::markdown::Typed;
use crate::support::{Process, eventually};

pub(super) struct Scene {
    pub(super) dir: tempfile::TempDir,
    /// Commands that were run, with what came of them.
    pub(super) ran: Vec<Ran>,
    variables: Vec<(String, String)>,
    /// Words of the text, and what they stand for.
    stands_for: Vec<(String, String)>,
    running: Vec<(String, Process)>,
}

/// A command that was run.
pub(super) struct Ran {
    pub(super) comment: String,
    pub(super) out: String,
}

/// What curl is told to print after an answer.
const CURL: &str = "silent\nwrite-out = \"\\n%{http_code} %header{idempotency-replayed}\"\n";

impl Ran {
    pub(super) fn body(&self) -> &str {
        self.out.rsplit_once('\n').unwrap().0
    }

    pub(super) fn status(&self) -> &str {
        self.out.rsplit_once('\n').unwrap().1.split(' ').next().unwrap()
    }

    pub(super) fn replayed(&self) -> &str {
        self.out.rsplit_once('\n').unwrap().1.split_once(' ').unwrap().1
    }
}

impl Scene {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(".curlrc"), CURL).unwrap();
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        let scene = Self {
            dir,
            ran: Vec::new(),
            variables: Vec::new(),
            stands_for: vec![("cargo run --release --".to_owned(), "ichido".to_owned())],
            running: Vec::new(),
        };
        scene.program("ichido", env!("CARGO_BIN_EXE_ichido"));
        scene
    }

    /// Puts a program on the path.
    pub(super) fn program(&self, name: &str, target: &str) {
        std::os::unix::fs::symlink(target, self.dir.path().join("bin").join(name)).unwrap();
    }

    /// Puts a file into the directory.
    pub(super) fn file(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).unwrap();
    }

    pub(super) fn variable(&mut self, name: &str, value: impl Into<String>) {
        self.variables.push((name.to_owned(), value.into()));
    }

    pub(super) fn stands(&mut self, word: &str, real: impl Into<String>) {
        self.stands_for.push((word.to_owned(), real.into()));
    }

    /// What a word of the text stands for.
    pub(super) fn stands_for(&self, word: &str) -> String {
        let known = self.stands_for.iter().find(|(known, _)| known == word);
        known.unwrap_or_else(|| panic!("{word} stands for nothing")).1.clone()
    }

    /// What an address of the text stands for.
    pub(super) fn address(&self, word: &str) -> SocketAddr {
        self.stands_for(word).parse().unwrap()
    }

    /// Looks whether a file was made, with something in it.
    pub(super) fn has(&self, file: &str) {
        let length = std::fs::metadata(self.dir.path().join(file)).map_or(0, |file| file.len());
        assert!(length > 0, "{file} is not there");
    }

    fn real(&self, text: &str) -> String {
        self.stands_for.iter().fold(text.to_owned(), |text, (word, real)| text.replace(word, real))
    }

    /// Types a line, and looks at what comes of it.
    pub(super) fn types(&mut self, typed: &Typed) {
        let Typed { command, comment, prints } = typed;
        match way(command).unwrap_or_else(|| panic!("no test knows this command: {command}")) {
            Way::Export => {
                for pair in command.strip_prefix("export ").unwrap().split_whitespace() {
                    let (name, value) = pair.split_once('=').unwrap();
                    self.variable(name, value);
                }
            }
            Way::Serve { flags, stands_for, check } => {
                let address = self.serve(&format!("{} {flags}", command.trim_end_matches('&')));
                self.stands(stands_for, address.to_string());
                check(self);
            }
            Way::Run(check) => {
                let ran = self.run(command, comment);
                check(self, &ran);
                for line in prints {
                    assert_eq!(ran.body(), line, "{command}");
                }
                self.ran.push(ran);
            }
            Way::Elsewhere(check) => check(),
        }
    }

    fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        crate::without_settings(|name| {
            command.env_remove(name);
        });
        let path = std::env::var("PATH").unwrap();
        let dir = self.dir.path();
        command
            .args(["-c", &self.real(line)])
            .current_dir(dir)
            .env("PATH", format!("{}:{path}", dir.join("bin").display()))
            .env("CURL_HOME", dir)
            .envs(self.variables.iter().map(|(name, value)| (name, self.real(value))));
        command
    }

    fn run(&self, command: &str, comment: &str) -> Ran {
        let output = self.shell(command).output().unwrap();
        let (out, error) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{command}: {} {out} {error}", output.status);
        Ran { comment: comment.to_owned(), out }
    }

    /// Starts something that stays: where it listens. Everything that it prints is looked at.
    pub(super) fn serve(&mut self, command: &str) -> SocketAddr {
        let mut process = Process::start(&mut self.shell(&format!("exec env {command} 1>&2")));
        let address = eventually(command, || {
            assert!(process.child.try_wait().unwrap().is_none(), "{command} ended: {}", process.said());
            let said = process.said();
            let rest = said.split_once(" on http://")?.1;
            rest.split(|c: char| c.is_whitespace() || c == ',').next()?.parse().ok()
        });
        self.running.push((command.to_owned(), process));
        address
    }

    /// Ends what still runs. Our own parts end in good order.
    pub(super) fn ends(mut self) {
        for (command, mut process) in self.running.drain(..).rev() {
            process.signal("TERM");
            let code = process.ended();
            assert!(code == 0 || !command.contains("ichido "), "{command}: {code} {}", process.said());
        }
    }
}

/// An example of the repository, as text.
pub(super) fn example(path: &str) -> String {
    super::markdown::page(Path::new("examples").join(path).to_str().unwrap())
}
