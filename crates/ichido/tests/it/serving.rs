//! A process that serves, and plain HTTP to talk to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// A running `ichido …`; it is killed when the test ends.
pub(crate) struct Serving {
    child: Child,
    /// Where it listens.
    pub(crate) address: String,
    said: Arc<Mutex<String>>,
    listener: Option<JoinHandle<()>>,
}

impl Serving {
    /// Starts `ichido claims` on a free port and waits for the line that tells the address.
    pub(crate) fn claims(dir: &Path, ledger: &str, token: Option<&str>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ichido"));
        command.args(["claims", "--listen", "127.0.0.1:0", "--ledger", ledger]).current_dir(dir);
        crate::without_settings(|name| {
            command.env_remove(name);
        });
        if let Some(token) = token {
            command.env("ICHIDO_ADMIN_TOKEN", token);
        }
        Self::start(command)
    }

    /// Starts a command that tells its address in its first line.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).and_then(|rest| rest.split(' ').next());
        let address = address.unwrap_or_else(|| panic!("no address in {line:?}")).to_owned();
        let said = Arc::new(Mutex::new(line));
        let hears = said.clone();
        let listener = std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                *hears.lock().unwrap() += &(line + "\n");
            }
        });
        Self { child, address, said, listener: Some(listener) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it wrote to standard error so far.
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub(crate) fn signal(&self) {
        let kill = Command::new("sh").args(["-c", &format!("kill -TERM {}", self.pid())]).status();
        assert!(kill.unwrap().success());
    }

    /// Waits for its end: the exit code, and everything it said.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().unwrap();
        self.listener.take().unwrap().join().unwrap();
        (status.code(), self.said())
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &[], "")
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Answer {
        self.call("POST", path, &[("content-type", "application/json")], body)
    }

    /// One call on a connection of its own. `host` among the fields replaces the true one.
    pub(crate) fn call(&self, method: &str, path: &str, fields: &[(&str, &str)], body: &str) -> Answer {
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        if !fields.iter().any(|(name, _)| *name == "host") {
            head += &format!("host: {}\r\n", self.address);
        }
        for (name, value) in fields {
            head += &format!("{name}: {value}\r\n");
        }
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        // A body that is refused may be cut off before it is all sent.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        Answer::read(&String::from_utf8(answer).unwrap())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An HTTP answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    fn read(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        Self { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// The word of a problem, whose form is checked.
    pub(crate) fn problem(&self) -> String {
        assert!(self.head.contains("content-type: application/problem+json"), "{self:?}");
        let body = self.json();
        assert_eq!(body["status"], self.status, "{body}");
        assert!(body["title"].is_string() && body["detail"].is_string(), "{body}");
        body["type"].as_str().unwrap().strip_prefix("/problems/").unwrap().to_owned()
    }
}
