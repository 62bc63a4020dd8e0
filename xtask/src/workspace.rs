//! The directories of this workspace, and running cargo in it.

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

/// Cargo's target directory. It is on a real disk even if temporary files are not.
pub(crate) fn target() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(given) => env::current_dir().unwrap_or_default().join(given),
        None => root().join("target"),
    }
}

/// The directory that keeps downloads between runs.
pub(crate) fn cache() -> PathBuf {
    target().join("xtask-cache")
}

/// A cargo command at the root, which is stopped when this process exits.
///
/// `cargo run` describes the package xtask in `CARGO_*` variables. Build scripts watch some of them, so passing them on
/// would recompile crates each time a developer alternates between this tool and cargo.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command =
        TiedCommand::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), Signal::Term).command;
    command.args(args).current_dir(root());
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(describes_a_package) {
            command.env_remove(name);
        }
    }
    command
}

fn describes_a_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

/// Runs a command to its end and returns its exit code.
pub(crate) fn run(command: &mut Command) -> Result<u8> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    Ok(exit_code(status))
}
