//! `cargo xtask release`: every artefact of a release, with checksums, in `dist/`. Nothing is uploaded.
//!
//! A release can be repeated only from a commit, and only one version can be announced. So a dirty tree and versions that disagree are
//! refused before anything is built.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::args::{Profile, Refusal};
use crate::commands::package::{BUILDAH, Built, build_program, install_tools};
use crate::packages::{self, Program, Target, crates};
use crate::phase::Phase;
use crate::process::run_quietly;
use crate::workspace::{self, cargo};

/// Builds a Debian package: `build.sh PROGRAM DIRECTORY`.
const DEB: &str = "deploy/debian/build.sh";
/// Builds an image: `build.sh PROGRAM CRATES ARCHIVE`.
const IMAGE: &str = "deploy/image/build.sh";
/// Prints the bill of materials: `sbom.py CARGO_LOCK`, with the crates on standard input.
const SBOM: &str = "deploy/image/sbom.py";
/// Lists the crates that are linked into the program, as [`SBOM`] and [`IMAGE`] expect them.
const LINKED_CRATES: &[&str] = &[
    "tree",
    "--locked",
    "--package",
    "ichido",
    "--edges",
    "normal,no-proc-macro",
    "--prefix",
    "none",
    "--format",
    "{p}|{l}",
];

/// Builds everything into an empty `dist/`.
pub(crate) fn run() -> Result<u8> {
    let whole = Phase::begin("built the release");
    let root = workspace::root();
    refuse_dirty_tree(&root)?;
    let version = agreed_version(&versions(&root)?)?;
    install_tools(&[BUILDAH])?;
    let program = match build_program(Profile::Dist)? {
        Built::Program(path) => path,
        Built::Failed(code) => return Ok(code),
    };
    let dist = root.join("dist");
    if dist.exists() {
        fs::remove_dir_all(&dist)?;
    }
    fs::create_dir_all(&dist)?;
    if let code @ 1.. = package_crates(&version, &dist)? {
        return Ok(code);
    }
    packages::build(&[Program { target: Target::host()?, path: program.clone() }], &dist)?;
    build_for_systems(&root, &program, &version, &dist)?;
    write_checksums(&dist)?;
    whole.end();
    eprintln!("xtask: ichido {version} is in {}; docs/releasing.md says how to publish it", dist.display());
    Ok(0)
}

fn refuse_dirty_tree(root: &Path) -> Result<()> {
    let changes = run_quietly(Command::new("git").args(["status", "--porcelain"]).current_dir(root))?;
    if !changes.is_empty() {
        bail!(Refusal(format!(
            "the working tree has changes; commit or remove them first:\n{}",
            changes.trim_end()
        )));
    }
    Ok(())
}

/// A version, and where it is written.
type Written = (String, String);

/// Every place that states the version.
fn versions(root: &Path) -> Result<Vec<Written>> {
    let mut versions: Vec<Written> =
        crates::published()?.into_iter().map(|one| (format!("crate {}", one.name), one.version)).collect();
    versions.push(("packages/typescript/package.json".into(), packages::npm_version()?));
    versions.push(("packages/python/pyproject.toml".into(), packages::python_version()?));
    let changelog = fs::read_to_string(root.join("CHANGELOG.md")).context("cannot read CHANGELOG.md")?;
    versions.push(("CHANGELOG.md".into(), newest_in_changelog(&changelog)?));
    Ok(versions)
}

/// The version of the first section. A date may follow it.
fn newest_in_changelog(text: &str) -> Result<String> {
    let heading = text.lines().find_map(|line| line.strip_prefix("## "));
    let version = heading.and_then(|heading| heading.split_whitespace().next());
    Ok(version.context("CHANGELOG.md has no section")?.trim_matches(['[', ']']).to_owned())
}

fn agreed_version(versions: &[Written]) -> Result<String> {
    let (_, first) = versions.first().context("no crate is published")?;
    if versions.iter().all(|(_, version)| version == first) {
        return Ok(first.clone());
    }
    let lines: String = versions.iter().map(|(place, version)| format!("\n  {version}  {place}")).collect();
    bail!(Refusal(format!("the versions disagree; change them to the one to release:{lines}")))
}

/// Compiles and packs the crates.
fn package_crates(version: &str, dist: &Path) -> Result<u8> {
    let phase = Phase::begin("packed crates");
    let code = workspace::run(cargo(&[]).args(crates::package_arguments()?))?;
    if code != 0 {
        return Ok(code);
    }
    for published in crates::published()? {
        let name = format!("{}-{version}.crate", published.name);
        fs::copy(workspace::target().join("package").join(&name), dist.join(&name))
            .with_context(|| format!("cargo package made no {name}"))?;
    }
    phase.end();
    Ok(0)
}

/// The Debian package, the bill of materials and the image.
fn build_for_systems(root: &Path, program: &Path, version: &str, dist: &Path) -> Result<()> {
    let linked = run_quietly(&mut cargo(LINKED_CRATES))?;
    let crates = workspace::target().join("linked-crates");
    fs::write(&crates, linked)?;
    let phase = Phase::begin(format!("ran {DEB}"));
    run_quietly(Command::new(root.join(DEB)).arg(program).arg(dist))?;
    phase.end();
    let mut sbom = Command::new("python3");
    sbom.arg(root.join(SBOM)).arg(root.join("Cargo.lock")).stdin(fs::File::open(&crates)?);
    let output = sbom.output().with_context(|| format!("cannot start {sbom:?}"))?;
    if !output.status.success() {
        bail!("{SBOM} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    fs::write(dist.join(format!("ichido-{version}.cdx.json")), output.stdout)?;
    let phase = Phase::begin(format!("ran {IMAGE}"));
    let archive = dist.join(format!("ichido-{version}-image.tar"));
    run_quietly(Command::new(root.join(IMAGE)).args([program, &crates, &archive]))?;
    phase.end();
    Ok(())
}

/// Writes `SHA256SUMS`, which `sha256sum --check` reads.
fn write_checksums(dist: &Path) -> Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dist)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let mut sums = String::new();
    for name in names {
        let digest = Sha256::digest(fs::read(dist.join(&name))?);
        sums += &format!("{}  {name}\n", hex::encode(digest));
    }
    fs::write(dist.join("SHA256SUMS"), sums)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Temporary;

    fn written(versions: &[(&str, &str)]) -> Vec<Written> {
        versions.iter().map(|(place, version)| ((*place).to_owned(), (*version).to_owned())).collect()
    }

    #[test]
    fn one_version_is_released() {
        let same = written(&[("crate ichido", "1.2.3"), ("CHANGELOG.md", "1.2.3")]);
        assert_eq!(agreed_version(&same).unwrap(), "1.2.3");
        let mixed = written(&[("crate ichido", "1.2.3"), ("CHANGELOG.md", "1.2.2")]);
        let error = agreed_version(&mixed).unwrap_err();
        assert!(error.is::<Refusal>());
        assert!(error.to_string().contains("1.2.2  CHANGELOG.md"), "{error}");
    }

    #[test]
    fn versions_of_this_repository_agree() {
        agreed_version(&versions(&workspace::root()).unwrap()).unwrap();
    }

    #[test]
    fn newest_section_of_the_changelog_has_the_version() {
        for text in ["# Changelog\n\n## 1.2.3\n\n## 1.2.2\n", "## [1.2.3] - 2026-11-17\n"] {
            assert_eq!(newest_in_changelog(text).unwrap(), "1.2.3");
        }
        assert!(newest_in_changelog("# Changelog\n").is_err());
    }

    #[test]
    fn dirty_tree_is_refused() {
        let directory = Temporary::directory(&std::env::temp_dir()).unwrap();
        run_quietly(Command::new("git").args(["init", "--quiet"]).current_dir(directory.path())).unwrap();
        refuse_dirty_tree(directory.path()).unwrap();
        fs::write(directory.path().join("new.rs"), "").unwrap();
        let error = refuse_dirty_tree(directory.path()).unwrap_err();
        assert!(error.is::<Refusal>() && error.to_string().contains("new.rs"), "{error}");
    }

    #[test]
    fn checksums_are_what_sha256sum_checks() {
        let directory = Temporary::directory(&std::env::temp_dir()).unwrap();
        for name in ["one", "two"] {
            fs::write(directory.path().join(name), name).unwrap();
        }
        write_checksums(directory.path()).unwrap();
        let check = ["--check", "--strict", "SHA256SUMS"];
        let checked =
            run_quietly(Command::new("sha256sum").args(check).current_dir(directory.path())).unwrap();
        assert_eq!(checked, "one: OK\ntwo: OK\n");
    }
}
