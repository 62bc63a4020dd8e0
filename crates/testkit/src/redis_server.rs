//! A Redis server of the test's own: it can be killed, restarted and flushed.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use crate::process::Process;
use crate::wait::eventually;
use crate::{free_port, required_env};

/// Settings with which Redis loses nothing when it is killed.
pub const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

/// A running server, in a temporary directory. It is killed when this is dropped.
#[derive(Debug)]
pub struct RedisServer {
    process: Process,
    /// The port on which it listens.
    pub port: u16,
    home: tempfile::TempDir,
    settings: Vec<String>,
}

impl RedisServer {
    /// Starts a server with these settings, and waits until it responds. Without [`DURABLE`], it stores nothing on disk.
    pub fn start(settings: &[&str]) -> Self {
        let settings: Vec<_> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let (home, port) = (tempfile::tempdir().unwrap(), free_port());
        let process = spawn(home.path(), port, &settings);
        Self { process, port, home, settings }.ready()
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Sends it a signal, such as `STOP`.
    pub fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Kills it if it runs, starts it in the same directory and on the same port, and waits until it has loaded its data.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = spawn(self.home.path(), self.port, &self.settings);
        self.wait_until_ready();
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its directory.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Sends a command and returns the first line of its response.
    pub fn command(&self, command: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.write_all(format!("{command}\r\n").as_bytes()).ok()?;
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).ok()?;
            line.extend(byte);
        }
        String::from_utf8(line).ok().map(|line| line.trim_end().to_owned())
    }

    fn ready(self) -> Self {
        self.wait_until_ready();
        self
    }

    fn wait_until_ready(&self) {
        // A server with a password responds, but not with PONG.
        eventually("Redis", || {
            self.command("PING").filter(|response| response == "+PONG" || response.starts_with("-NOAUTH"))
        });
    }
}

fn spawn(home: &Path, port: u16, settings: &[String]) -> Process {
    let mut command = Command::new(required_env("ICHIDO_TEST_REDIS_SERVER"));
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--dir"]).arg(home);
    command.args(["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"]).args(settings);
    // Nobody reads its standard output: once the pipe is full, the server would hang.
    command.arg("--logfile").arg(home.join("redis.log"));
    Process::start(&mut command).unwrap()
}
