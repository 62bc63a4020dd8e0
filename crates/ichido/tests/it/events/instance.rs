//! An `ichido claims` process.

use std::net::SocketAddr;
use std::process::Command;

use super::caller::Caller;
use ichido_testkit::process::Process;

pub(super) struct Instance {
    pub(super) process: Process,
    pub(super) address: SocketAddr,
    /// Where it keeps its files, such as the audit log.
    _dir: tempfile::TempDir,
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
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ichido"));
        command.current_dir(dir.path()).args(["claims", "--listen", listen, "--ledger", ledger]);
        crate::without_settings(|name| {
            command.env_remove(name);
        });
        command.envs(environment.iter().copied());
        let mut process = Process::start(&mut command).unwrap();
        let address = process.wait_for_address("listening on ").unwrap();
        Self { process, address, _dir: dir }
    }

    pub(super) fn caller(&self) -> Caller {
        Caller::new(self.address)
    }
}
