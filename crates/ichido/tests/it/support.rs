//! The gateway as a process.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use ichido_testkit::process::Process;

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
        let mut process = Process::start(&mut command).unwrap();
        let address = process.wait_for_address("ichido gateway: listening on ").unwrap();
        let admin = process.wait_for_address("admin on ").unwrap();
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
    command.current_dir(dir);
    crate::without_settings(|name| {
        command.env_remove(name);
    });
    command.args(["gateway", "--config", "gateway.toml", "--listen", listen, "--admin", admin]);
    command.args(["--upstream", &format!("http://{upstream}"), "--ledger", ledger]);
    command
}
