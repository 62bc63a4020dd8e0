//! `cargo xtask deny`: checks dependencies against `deny.toml`. Requires cargo-deny.

use anyhow::{Result, bail};

use crate::args::Refusal;
use crate::process::run_quietly;
use crate::workspace::{self, cargo};

/// Checks licences, bans, sources and advisories.
pub(crate) fn run() -> Result<u8> {
    if run_quietly(&mut cargo(&["deny", "--version"])).is_err() {
        bail!(Refusal("`cargo deny` is missing; install it with: cargo install --locked cargo-deny".into()));
    }
    workspace::run(&mut cargo(&["deny", "--workspace", "check"]))
}
