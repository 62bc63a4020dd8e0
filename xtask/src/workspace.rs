//! Where things are in this workspace, and how cargo is called in it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::{Signal, TiedCommand, exit_code};

/// The directory of the workspace's Cargo.toml.
pub(crate) fn root() -> PathBuf {
    let manifest = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let manifest = PathBuf::from(manifest);
    manifest.parent().map(Path::to_path_buf).unwrap_or(manifest)
}

/// Where cargo puts what it builds. It is on a real disk even where temporary files are not.
pub(crate) fn target() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(given) => env::current_dir().unwrap_or_default().join(given),
        None => root().join("target"),
    }
}

/// Where downloads are kept between runs.
pub(crate) fn cache() -> PathBuf {
    target().join("xtask-cache")
}

/// A call of cargo at the root, which ends when we end.
///
/// `cargo run` has told us about the package xtask in `CARGO_*` variables. Build scripts watch some of them, so that
/// passing them on would compile their crates again each time a developer goes from this tool to cargo and back.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command =
        TiedCommand::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), Signal::Term).command;
    command.args(args).current_dir(root());
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_about_one_package) {
            command.env_remove(name);
        }
    }
    command
}

fn is_about_one_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

/// Runs a command to its end and returns its exit code.
pub(crate) fn run(command: &mut Command) -> Result<u8> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    Ok(exit_code(status))
}
