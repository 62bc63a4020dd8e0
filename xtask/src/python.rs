//! Python packages for the tests, in an environment of their own: pinned, checked by hash, kept in the cache.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::install::Missing;
use crate::phase::Phase;
use crate::process::quietly;
use crate::scratch::Temporary;
use crate::workspace;

const LIST: &str = include_str!("../python.txt");

/// The interpreter that has the packages. Its place carries the list's hash, so that a new list does not meet the old.
pub(crate) fn interpreter() -> PathBuf {
    let name = format!("python-{}", hex::encode(&Sha256::digest(LIST)[..6]));
    workspace::cache().join(name).join("bin/python")
}

/// Asks for what Debian must give.
pub(crate) fn needs(missing: &mut Missing) {
    missing.program("python3", "python3");
    if !interpreter().exists() && !has_venv() {
        missing.package("python3-venv");
    }
}

/// Debian splits `venv` off its Python; others do not.
fn has_venv() -> bool {
    let asked = Command::new("python3").args(["-c", "import venv, ensurepip"]).output();
    asked.is_ok_and(|output| output.status.success())
}

/// Makes the environment unless it is there.
pub(crate) fn fetch() -> Result<()> {
    let (interpreter, cache) = (interpreter(), workspace::cache());
    if interpreter.exists() {
        return Ok(());
    }
    let phase = Phase::begin("fetched Python packages");
    let home = interpreter.ancestors().nth(2).context("the environment has no home")?;
    let list = Temporary::directory(&cache)?;
    let file = list.path().join("python.txt");
    fs::write(&file, LIST)?;
    // An environment cannot be moved, so a half-made one is removed rather than renamed.
    if home.exists() {
        fs::remove_dir_all(home)?;
    }
    let made = quietly(Command::new("python3").args(["-m", "venv"]).arg(home)).and_then(|_| {
        let pip = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--require-hashes",
            "--only-binary=:all:",
            "-r",
        ];
        quietly(Command::new(&interpreter).args(pip).arg(&file))
    });
    if made.is_err() {
        let _ = fs::remove_dir_all(home);
    }
    made.context("cannot install the Python packages of the tests")?;
    phase.end();
    Ok(())
}
