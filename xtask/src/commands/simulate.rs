//! `cargo xtask simulate`: the file ledger on a simulated disk.
//!
//! Only the file ledger is compiled, without the clients of the other stores.

use anyhow::Result;

use crate::workspace::{self, cargo};

/// Runs the simulation with these options, and returns its exit code.
pub(crate) fn run(options: &[String]) -> Result<u8> {
    let mut command = cargo(&["run", "--quiet", "--release", "--package", "ichido-ledger"]);
    command.args(["--no-default-features", "--features", "simulation", "--bin", "ledger-simulate", "--"]);
    workspace::run(command.args(options))
}
