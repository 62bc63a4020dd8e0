//! One `ichido claims` of many.

use std::net::SocketAddr;
use std::process::Command;

use super::caller::Caller;
use crate::support::{Process, eventually};

pub(super) struct Instance {
    pub(super) process: Process,
    pub(super) address: SocketAddr,
}

impl Instance {
    /// Starts it on a free port. It does not take a busy server for one that is out: while the local ledger stands in, two
    /// instances may both call an event new.
    pub(super) fn start(ledger: &str) -> Self {
        let environment = [("ICHIDO_LEDGER_TIMEOUT_MS", "60000"), ("LOG_LEVEL", "warn")];
        Self::start_with(ledger, "127.0.0.1:0", &environment)
    }

    /// Starts it with words of the environment, and waits until it listens.
    pub(super) fn start_with(ledger: &str, listen: &str, environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ichido"));
        command.args(["claims", "--listen", listen, "--ledger", ledger]);
        crate::without_settings(|name| {
            command.env_remove(name);
        });
        command.env_remove("DEDUP_TABLE_NAME").envs(environment.iter().copied());
        let mut process = Process::start(&mut command);
        let address = eventually("the start line", || {
            if let Some(status) = process.child.try_wait().unwrap() {
                panic!("ichido claims ended ({status}): {}", process.stderr());
            }
            let said = process.stderr();
            let line = said.split_once("listening on http://")?.1;
            line.split_once(", ").map(|(address, _)| address.parse().unwrap())
        });
        Self { process, address }
    }

    pub(super) fn caller(&self) -> Caller {
        Caller::new(self.address)
    }
}
