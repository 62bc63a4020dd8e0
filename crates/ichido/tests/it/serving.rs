//! A server process with an admin port, and a plain HTTP client for it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{Process, eventually};

/// A running process with an admin port; it is killed when the test ends.
pub(crate) struct Serving {
    process: Process,
    /// The address of the admin port.
    pub(crate) address: String,
}

impl Serving {
    /// Starts `ichido claims` on a free port, and waits until it listens.
    pub(crate) fn claims(dir: &Path, ledger: &str, token: Option<&str>) -> Self {
        let token = token.map(|token| ("ICHIDO_ADMIN_TOKEN", token));
        Self::claims_with(dir, ledger, token.as_slice())
    }

    /// Like [`Serving::claims`], with these environment variables.
    pub(crate) fn claims_with(dir: &Path, ledger: &str, variables: &[(&str, &str)]) -> Self {
        Self::start(
            dir,
            &["claims", "--listen", "127.0.0.1:0", "--ledger", ledger],
            "listening on http://",
            variables,
        )
    }

    /// Starts `ichido run` with the settings in the directory.
    pub(crate) fn daemon(dir: &Path, ledger: &str, variables: &[(&str, &str)]) -> Self {
        Self::start(
            dir,
            &["run", "--admin", "127.0.0.1:0", "--ledger", ledger],
            "admin on http://",
            variables,
        )
    }

    fn start(dir: &Path, arguments: &[&str], before_address: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ichido"));
        command.args(arguments).current_dir(dir);
        crate::without_settings(|name| {
            command.env_remove(name);
        });
        command.envs(variables.iter().copied());
        let process = Process::start(&mut command);
        let address = eventually("the start line", || {
            let said = process.stderr();
            let line = said.split_once(before_address)?.1;
            line.split_once([',', '\n']).map(|(address, _)| address.to_owned())
        });
        Self { process, address }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.child.id()
    }

    /// What the process has written to standard error so far.
    pub(crate) fn stderr(&self) -> String {
        self.process.stderr()
    }

    /// Waits until the process has written this to standard error.
    pub(crate) fn says(&self, text: &str) {
        eventually(text, || self.stderr().contains(text).then_some(()));
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    pub(crate) fn signal(&self) {
        self.process.signal("TERM");
    }

    /// Waits for the exit, and returns the exit code.
    pub(crate) fn exit_code(&mut self) -> i32 {
        self.process.exit_code()
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.call("GET", path, &[], "")
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Response {
        self.call("POST", path, &[("content-type", "application/json")], body)
    }

    /// One request on its own connection. A `host` among the headers replaces the real one.
    pub(crate) fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "host") {
            head += &format!("host: {}\r\n", self.address);
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        // The server may reject the request and close before it has read all of the body.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        Response::read(&String::from_utf8(answer).unwrap())
    }
}

/// An HTTP response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Response {
    fn read(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {text:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        Self { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// The code of a problem response, after its form has been checked.
    pub(crate) fn problem(&self) -> String {
        assert!(self.head.contains("content-type: application/problem+json"), "{self:?}");
        let body = self.json();
        assert_eq!(body["status"], self.status, "{body}");
        assert!(body["title"].is_string() && body["detail"].is_string(), "{body}");
        let code = body["type"].as_str().unwrap().strip_prefix("/problems/").unwrap().to_owned();
        assert_eq!(
            (&body["error"]["code"], &body["error"]["message"]),
            (&code.as_str().into(), &body["detail"])
        );
        let should_retry = self.head.contains("stripe-should-retry: true");
        assert_eq!(should_retry, self.head.contains("retry-after: ") || self.status == 408, "{self:?}");
        code
    }
}
