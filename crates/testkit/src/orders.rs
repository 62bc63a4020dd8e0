//! An orders API in Python, which knows nothing about idempotency keys. Each request creates an order, which is a line in a
//! file. A request can ask for trouble in its `X-Trouble` header: see `orders.py`.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::process::Process;
use crate::wait::eventually;

/// A running orders API.
#[derive(Debug)]
pub struct Orders {
    /// Its process.
    pub process: Process,
    /// Where it listens.
    pub address: SocketAddr,
    /// The file with the orders it created.
    pub log: PathBuf,
}

impl Orders {
    /// Starts it on a free port. It writes its orders to a file in this directory.
    pub fn start(dir: &Path) -> Self {
        Self::start_at(dir, 0)
    }

    /// Starts it on this port.
    pub fn start_at(dir: &Path, port: u16) -> Self {
        Self::start_with(dir, port, "")
    }

    /// Starts it on this port, with this trouble for every request that does not name its own.
    pub fn start_with(dir: &Path, port: u16, trouble: &str) -> Self {
        let log = dir.join("effects.log");
        let mut command = Command::new("python3");
        command.args(["-c", include_str!("orders.py")]).arg(&log).arg(port.to_string()).arg(trouble);
        let mut process = Process::start(&mut command).unwrap();
        let mut line = String::new();
        BufReader::new(process.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port: u16 = line.trim().parse().unwrap_or_else(|_| panic!("orders.py: {}", process.stderr()));
        Self { process, address: SocketAddr::from(([127, 0, 0, 1], port)), log }
    }

    /// Waits until a request that sleeps has arrived with this key.
    #[track_caller]
    pub fn wait_for_start(&self, key: &str) {
        eventually("the start of a request", || {
            let text = std::fs::read_to_string(format!("{}.started", self.log.display())).unwrap_or_default();
            text.lines().any(|line| line == key).then_some(())
        });
    }

    /// The orders it created.
    pub fn effects(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
