//! An `ichido claims` process.

use std::net::SocketAddr;
use std::process::Command;

use super::caller::Caller;
use crate::support::{Process, eventually};

pub(super) struct Instance {
    pub(super) process: Process,
    pub(super) address: SocketAddr,
}

impl Instance {
    /// Starts an instance on a free port. Its long ledger timeout keeps a busy server from being treated as an outage:
    /// during a fallback, two instances may both report an event as new.
    pub(super) fn start(ledger: &str) -> Self {
        let environment = [("ICHIDO_LEDGER_TIMEOUT_MS", "60000"), ("LOG_LEVEL", "warn")];
        Self::start_with(ledger, "127.0.0.1:0", &environment)
    }

    /// Starts an instance with these environment variables, and waits until it listens.
    pub(super) fn start_with(ledger: &str, listen: &str, environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ichido"));
        command.args(["claims", "--listen", listen, "--ledger", ledger]);
        crate::without_settings(|name| {
            command.env_remove(name);
        });
        command.env_remove("DEDUP_TABLE_NAME").envs(environment.iter().copied());
        let mut process = Process::start(&mut command);
        let address = eventually("the listening address in the log", || {
            if let Some(status) = process.child.try_wait().unwrap() {
                panic!("ichido claims exited ({status}): {}", process.stderr());
            }
            let log = process.stderr();
            let line = log.split_once("listening on http://")?.1;
            line.split_once(", ").map(|(address, _)| address.parse().unwrap())
        });
        Self { process, address }
    }

    pub(super) fn caller(&self) -> Caller {
        Caller::new(self.address)
    }
}
