//! The systems that `cargo xtask bench peers` compares the gateway with: installed by name and version from npm and
//! PyPI into the cache, and never part of the repository.
//!
//! Unlike what the tests use, they are not pinned by hash. Package scripts do not run.

use std::env::consts::{ARCH, OS};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::node;
use crate::phase::Phase;
use crate::process::run_quietly;
use crate::workspace;

const NPM_PACKAGES: [&str; 4] = [
    "@restatedev/restate-server@1.7.12",
    "@restatedev/restate-sdk@1.17.2",
    "@node-idempotency/core@1.0.11",
    "@node-idempotency/storage-adapter-redis@1.0.2",
];
const PYTHON_PACKAGES: [&str; 2] = ["aws-lambda-powertools==3.37.0", "boto3==1.44.3"];

/// Installs what is missing. Returns variables with the paths of what could be installed; the benchmark reports the
/// others as not measured.
pub(crate) fn fetch() -> Vec<(&'static str, OsString)> {
    let mut variables = Vec::new();
    let mut add = |variable, installed: Result<PathBuf>| match installed {
        Ok(path) => variables.push((variable, path.into_os_string())),
        Err(error) => eprintln!("xtask: {variable} stays unset: {error:#}"),
    };
    // The SDK of Restate needs Node 22, which may be newer than the one on the `PATH`.
    add("ICHIDO_BENCH_NODE", node::fetch_pinned());
    add("ICHIDO_BENCH_NODE_PEERS", install("peers-npm", install_npm));
    add("ICHIDO_BENCH_PYTHON", install("peers-python", install_python).map(|home| home.join("bin/python")));
    variables
}

/// Installs into a directory of the cache. A file marks it as complete and names the versions in it.
fn install(name: &str, install: fn(&Path) -> Result<()>) -> Result<PathBuf> {
    let (home, versions) =
        (workspace::cache().join(name), [&NPM_PACKAGES[..], &PYTHON_PACKAGES].concat().join("\n"));
    let complete = home.join("versions");
    if fs::read_to_string(&complete).is_ok_and(|found| found == versions) {
        return Ok(home);
    }
    let phase = Phase::begin(format!("installed {name}"));
    if home.exists() {
        fs::remove_dir_all(&home)?;
    }
    fs::create_dir_all(&home)?;
    install(&home)?;
    fs::write(complete, versions)?;
    phase.end();
    Ok(home)
}

fn install_npm(home: &Path) -> Result<()> {
    if (OS, ARCH) != ("linux", "x86_64") {
        bail!("the benchmark runs Restate on x86-64 Linux only");
    }
    let options = ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", "--prefix"];
    run_quietly(Command::new("npm").args(options).arg(home).args(NPM_PACKAGES))?;
    Ok(())
}

fn install_python(home: &Path) -> Result<()> {
    run_quietly(Command::new("python3").args(["-m", "venv"]).arg(home))?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"];
    run_quietly(Command::new(home.join("bin/python")).args(pip).args(PYTHON_PACKAGES))?;
    Ok(())
}
