//! The npm packages: one with the program for each platform, and the library with the command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{Program, copy_licences, copy_sources, library, npm_version, pack_tarball};
use crate::phase::Phase;
use crate::process::run_quietly;
use crate::scratch::Temporary;
use crate::workspace;

/// Builds the packages into `out`.
pub(super) fn build(programs: &[Program], out: &Path) -> Result<()> {
    fetch()?;
    let phase = Phase::begin("built npm packages");
    let version = npm_version()?;
    for program in programs {
        platform_package(program, &version, out)?;
    }
    main_package(programs, &version, out)?;
    phase.end();
    Ok(())
}

fn platform_package(program: &Program, version: &str, out: &Path) -> Result<()> {
    let stage = Temporary::directory(&workspace::cache())?;
    let package = stage.path().join("package");
    fs::create_dir_all(package.join("bin"))?;
    fs::copy(&program.path, package.join("bin/ichido"))
        .with_context(|| format!("cannot copy {}", program.path.display()))?;
    let name = program.target.npm_package();
    let (os, cpu) = program.target.node;
    let manifest = json!({
        "name": name,
        "version": version,
        "description": format!("The program of ichido for {os}-{cpu}"),
        "license": "MIT OR Apache-2.0",
        "os": [os],
        "cpu": [cpu],
        "libc": ["glibc"],
        // Some installers keep packages zipped, and a zipped program cannot run.
        "preferUnplugged": true,
    });
    fs::write(package.join("package.json"), serde_json::to_string_pretty(&manifest)? + "\n")?;
    fs::copy(sources().join("platform.md"), package.join("README.md"))?;
    copy_licences(&package)?;
    pack_tarball(stage.path(), &out.join(format!("{name}-{version}.tgz")))
}

/// What `npm pack` makes of the library, with the command added.
fn main_package(programs: &[Program], version: &str, out: &Path) -> Result<()> {
    let home = library_home();
    remove_sources(&home)?;
    copy_sources(&library("typescript")?, &home)?;
    run_quietly(Command::new("npm").args(["run", "--silent", "build"]).current_dir(&home))?;
    let stage = Temporary::directory(&workspace::cache())?;
    let pack = ["pack", "--silent", "--ignore-scripts", "--pack-destination"];
    let archive = run_quietly(Command::new("npm").args(pack).arg(stage.path()).current_dir(&home))?;
    let unpack = ["-xzf", archive.trim(), "--no-same-owner"];
    run_quietly(Command::new("tar").args(unpack).current_dir(stage.path()))?;
    let package = stage.path().join("package");
    // npm keeps the order of the fields, on which `exports` depends.
    let mut set = Command::new("npm");
    set.args(["pkg", "set", "bin.ichido=bin/ichido.js"]);
    set.args(
        programs.iter().map(|one| format!("optionalDependencies.{}={version}", one.target.npm_package())),
    );
    run_quietly(set.current_dir(&package))?;
    fs::create_dir_all(package.join("bin"))?;
    fs::copy(sources().join("bin/ichido.js"), package.join("bin/ichido.js"))?;
    copy_licences(&package)?;
    pack_tarball(stage.path(), &out.join(format!("ichido-{version}.tgz")))
}

/// A file that the library no longer has must not be packed.
fn remove_sources(home: &Path) -> Result<()> {
    for entry in fs::read_dir(home)? {
        let path = entry?.path();
        match (path.ends_with("node_modules"), path.is_dir()) {
            (true, _) => {}
            (false, true) => fs::remove_dir_all(path)?,
            (false, false) => fs::remove_file(path)?,
        }
    }
    Ok(())
}

fn sources() -> PathBuf {
    workspace::root().join("packages/npm-binary")
}

/// A copy of the library, with its compiler installed. The path contains the lock file's hash, so that versions do not mix.
pub(crate) fn library_home() -> PathBuf {
    let lock = fs::read(workspace::root().join("packages/typescript/package-lock.json")).unwrap_or_default();
    workspace::cache().join(format!("npm-library-{}", hex::encode(&Sha256::digest(lock)[..6])))
}

/// Installs the compiler of the library unless it is cached.
pub(super) fn fetch() -> Result<()> {
    let home = library_home();
    if home.join("node_modules").exists() {
        return Ok(());
    }
    let phase = Phase::begin("fetched the compiler of the npm library");
    let source = library("typescript")?;
    let download = Temporary::directory(&workspace::cache())?;
    for name in ["package.json", "package-lock.json"] {
        fs::copy(source.join(name), download.path().join(name))?;
    }
    let install = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"];
    run_quietly(Command::new("npm").args(install).current_dir(download.path()))
        .context("cannot install the compiler of packages/typescript")?;
    match fs::rename(download.path(), &home) {
        // A concurrent run has just fetched it.
        Err(_) if home.join("node_modules").exists() => {}
        renamed => renamed.with_context(|| format!("cannot create {}", home.display()))?,
    }
    phase.end();
    Ok(())
}
