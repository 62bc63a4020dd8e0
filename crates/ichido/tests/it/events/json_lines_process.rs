//! A process that reads requests and writes responses as lines of JSON.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

pub(super) struct JsonLinesProcess {
    child: Child,
    requests: ChildStdin,
    responses: BufReader<ChildStdout>,
}

impl JsonLinesProcess {
    pub(super) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let requests = child.stdin.take().unwrap();
        let responses = BufReader::new(child.stdout.take().unwrap());
        Self { child, requests, responses }
    }

    pub(super) fn call(&mut self, request: &Value) -> Value {
        writeln!(self.requests, "{request}").unwrap();
        let mut line = String::new();
        self.responses.read_line(&mut line).unwrap();
        serde_json::from_str(&line)
            .unwrap_or_else(|_| panic!("{request}: the response is not JSON: {line:?}"))
    }
}

impl Drop for JsonLinesProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
