//! The packages that carry the program to users of npm and PyPI.
//!
//! Each library is built from a copy of its directory, and the command is added to what came out. So the working tree stays clean, and the
//! libraries need not know about the command.

pub(crate) mod crates;
mod npm;
mod python;
mod target;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

pub(crate) use self::npm::library_home as npm_library_home;
pub(crate) use self::target::{TARGETS, Target};
use crate::args::Refusal;
use crate::process::run_quietly;
use crate::workspace;

/// A program, and the platform it runs on.
pub(crate) struct Program {
    pub(crate) target: &'static Target,
    pub(crate) path: PathBuf,
}

/// Builds the packages for npm and PyPI into `out`. Replaces files of the same names.
pub(crate) fn build(programs: &[Program], out: &Path) -> Result<()> {
    fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    npm::build(programs, out)?;
    python::build(programs, out)
}

/// The directory of a library. It exists.
fn library(name: &str) -> Result<PathBuf> {
    let path = workspace::root().join("packages").join(name);
    if !path.is_dir() {
        bail!(Refusal(format!("packages/{name} is missing")));
    }
    Ok(path)
}

/// The version in `packages/typescript/package.json`.
pub(crate) fn npm_version() -> Result<String> {
    let manifest = library("typescript")?.join("package.json");
    let manifest: Value = serde_json::from_slice(&fs::read(manifest)?).context("package.json is not JSON")?;
    manifest["version"].as_str().map(String::from).context("package.json has no version")
}

/// The version in `packages/python/pyproject.toml`.
pub(crate) fn python_version() -> Result<String> {
    let manifest = fs::read_to_string(library("python")?.join("pyproject.toml"))?;
    let version = manifest.lines().find_map(|line| line.strip_prefix("version = "));
    version.map(|quoted| quoted.trim().trim_matches('"').to_owned()).context("pyproject.toml has no version")
}

/// Copies the contents of a directory, except for what was built or installed there.
fn copy_sources(from: &Path, to: &Path) -> Result<()> {
    let skipped = ["node_modules", "dist", ".venv", ".pytest_cache", ".mypy_cache", "__pycache__"];
    let mut tar = Command::new("tar");
    tar.args(skipped.map(|name| format!("--exclude=./{name}"))).args(["-cf", "-", "."]).current_dir(from);
    let mut tar = tar.stdout(Stdio::piped()).spawn().context("cannot start tar")?;
    let archive = tar.stdout.take().context("tar has no output")?;
    let unpacked = Command::new("tar").args(["-xf", "-"]).current_dir(to).stdin(archive).status()?;
    if !tar.wait()?.success() || !unpacked.success() {
        bail!("cannot copy {} to {}", from.display(), to.display());
    }
    Ok(())
}

/// The licences require that every copy contains them.
fn copy_licences(to: &Path) -> Result<()> {
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        fs::copy(workspace::root().join(name), to.join(name))?;
    }
    Ok(())
}

/// Packs the directory `package` of `stage`. The same files give the same bytes.
fn pack_tarball(stage: &Path, archive: &Path) -> Result<()> {
    let same = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@499162500"];
    // gzip would store the time.
    let compress = ["--use-compress-program=gzip -n", "-cf"];
    run_quietly(
        Command::new("tar").args(same).args(compress).arg(archive).arg("package").current_dir(stage),
    )?;
    Ok(())
}

/// Fetches the tools that build the libraries, unless they are cached.
pub(crate) fn fetch() -> Result<()> {
    npm::fetch()?;
    crate::python::fetch_package()
}
