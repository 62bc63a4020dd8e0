//! A process that is asked by a line of JSON and answers with one.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

pub(super) struct Lines {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Lines {
    pub(super) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let requests = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, requests, answers }
    }

    pub(super) fn ask(&mut self, request: &Value) -> Value {
        writeln!(self.requests, "{request}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{request}: no answer but {line:?}"))
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
