//! Processes that tests start: the gateway, and an orders API in Python behind it.

pub(crate) mod http;

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A child process that is killed when the test ends.
pub(crate) struct Process {
    pub(crate) child: Child,
    /// What the process has written to standard error so far.
    stderr: Arc<Mutex<String>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let written = Arc::new(Mutex::new(String::new()));
        let (stderr, text) = (child.stderr.take().unwrap(), written.clone());
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut text = text.lock().unwrap();
                text.push_str(&line);
                text.push('\n');
            }
        });
        Self { child, stderr: written, reader: Some(reader) }
    }

    pub(crate) fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Waits for the exit and for the rest of standard error, and returns the exit code.
    pub(crate) fn exit_code(&mut self) -> i32 {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                self.reader.take().into_iter().for_each(|reader| reader.join().unwrap());
                return status.code().unwrap_or(-1);
            }
            assert!(Instant::now() < deadline, "the process does not exit: {}", self.stderr());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Polls until there is a result. Panics after a minute.
pub(crate) fn eventually<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(Instant::now() < deadline, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The orders API, in Python.
pub(crate) struct Orders {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
    pub(crate) log: PathBuf,
}

impl Orders {
    pub(crate) fn start(dir: &Path) -> Self {
        Self::start_at(dir, 0)
    }

    pub(crate) fn start_at(dir: &Path, port: u16) -> Self {
        Self::start_with(dir, port, "")
    }

    /// With this trouble for every request that does not name its own.
    pub(crate) fn start_with(dir: &Path, port: u16, trouble: &str) -> Self {
        let log = dir.join("effects.log");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/orders.py");
        let mut process =
            Process::start(Command::new("python3").arg(script).arg(&log).arg(port.to_string()).arg(trouble));
        let mut line = String::new();
        BufReader::new(process.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port: u16 = line.trim().parse().unwrap_or_else(|_| panic!("orders.py: {}", process.stderr()));
        Self { process, address: SocketAddr::from(([127, 0, 0, 1], port)), log }
    }

    /// Waits until a request that sleeps has arrived with this key.
    pub(crate) fn started(&self, key: &str) {
        eventually("the start of a request", || {
            let text = std::fs::read_to_string(format!("{}.started", self.log.display())).unwrap_or_default();
            text.lines().any(|line| line == key).then_some(())
        });
    }

    pub(crate) fn effects(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A running `ichido gateway`.
pub(crate) struct Gateway {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Gateway {
    /// Starts a gateway in a directory, with these settings.
    pub(crate) fn start(dir: &Path, upstream: SocketAddr, ledger: &str, settings: &str) -> Self {
        Self::start_with(dir, upstream, ledger, settings, |_| {})
    }

    pub(crate) fn start_with(
        dir: &Path,
        upstream: SocketAddr,
        ledger: &str,
        settings: &str,
        change: impl FnOnce(&mut Command),
    ) -> Self {
        let mut command = gateway_command(dir, upstream, ledger, settings);
        change(&mut command);
        let process = Process::start(&mut command);
        let (address, admin) = eventually("the gateway's start line", || {
            let said = process.stderr();
            let line = said.lines().find(|line| line.contains("ichido gateway: "))?;
            Some((address_after(line, "listening on "), address_after(line, "admin on ")))
        });
        Self { process, address, admin }
    }
}

/// A gateway on free ports.
pub(crate) fn gateway_command(dir: &Path, upstream: SocketAddr, ledger: &str, settings: &str) -> Command {
    gateway_command_on(dir, upstream, ledger, settings, "127.0.0.1:0", "127.0.0.1:0")
}

pub(crate) fn gateway_command_on(
    dir: &Path,
    upstream: SocketAddr,
    ledger: &str,
    settings: &str,
    listen: &str,
    admin: &str,
) -> Command {
    std::fs::write(dir.join("gateway.toml"), settings).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ichido"));
    command.current_dir(dir).env_remove("LOG_LEVEL").env_remove("ICHIDO_ADMIN_TOKEN");
    command.env_remove("SLACK_SIGNING_SECRET").env_remove("GITHUB_WEBHOOK_SECRET");
    command.env_remove("STRIPE_WEBHOOK_SECRET");
    command.args(["gateway", "--config", "gateway.toml", "--listen", listen, "--admin", admin]);
    command.args(["--upstream", &format!("http://{upstream}"), "--ledger", ledger]);
    command
}

/// The address that follows `text` in a line.
pub(crate) fn address_after(line: &str, text: &str) -> SocketAddr {
    let rest = line.split_once(text).unwrap_or_else(|| panic!("{text:?} is not in {line:?}")).1;
    let address = rest.split([' ', ',']).next().unwrap();
    address
        .trim_start_matches("https://")
        .trim_start_matches("http://")
        .parse()
        .unwrap_or_else(|_| panic!("{line:?}"))
}

/// The standard output of a process.
#[allow(dead_code, reason = "used by some of the tests")]
pub(crate) fn stdout_of(process: &mut Process) -> String {
    let mut text = String::new();
    process.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    text
}

/// Writes a self-signed certificate for localhost to `cert.pem`, and its key to `key.pem`.
pub(crate) fn certificate(dir: &Path) {
    let certified =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    std::fs::write(dir.join("cert.pem"), certified.cert.pem()).unwrap();
    std::fs::write(dir.join("key.pem"), certified.signing_key.serialize_pem()).unwrap();
}
