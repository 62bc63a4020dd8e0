//! `cargo xtask nightly`: tests and builds that are too slow or too special for every change.
//!
//! The simulation of the file ledger runs until a million crashes are simulated, with other seeds for each commit.
//!
//! The image is built and run, as root.
//!
//! The program is built for each platform that has packages, if this machine has the compilers. No compiler is fetched here: what cannot
//! be built is named, with the commands that would make it possible.

use std::process::Command;

use anyhow::Result;

use crate::commands::package::{BUILDAH, install_tools};
use crate::commands::{simulate, test};
use crate::install::find_on_path;
use crate::packages::{self, Program, TARGETS, Target};
use crate::phase::Phase;
use crate::process::run_quietly;
use crate::workspace::{self, cargo};

/// Crashes that are simulated.
const CRASHES: &str = "1000000";
/// Runs the test of the image, which needs root and buildah.
const IMAGE_TEST: [&str; 7] = ["-p", "ichido", "--test", "it", "image_runs", "--", "--ignored"];

/// Simulates crashes, tests the image, and builds the packages of every platform that this machine can build.
pub(crate) fn run() -> Result<u8> {
    let phase = Phase::begin(format!("simulated {CRASHES} crashes"));
    let commit = run_quietly(Command::new("git").args(["rev-parse", "HEAD"])).unwrap_or_default();
    let options = ["--crashes", CRASHES, "--from", &first_seed(&commit).to_string()].map(String::from);
    let code = simulate::run(&options)?;
    if code != 0 {
        return Ok(code);
    }
    phase.end();
    install_tools(&[BUILDAH])?;
    let code = test::run(&IMAGE_TEST.map(String::from))?;
    if code != 0 {
        return Ok(code);
    }
    let installed =
        run_quietly(Command::new("rustup").args(["target", "list", "--installed"])).unwrap_or_default();
    let mut programs = Vec::new();
    for target in TARGETS {
        if let Some(advice) = obstacle(target, &installed, |program| find_on_path(program).is_some()) {
            eprintln!("xtask: skipped {}: {advice}", target.triple);
            continue;
        }
        let phase = Phase::begin(format!("built ichido for {}", target.triple));
        let build =
            ["build", "--locked", "--profile", "dist", "--package", "ichido", "--target", target.triple];
        let variable = target.triple.replace('-', "_");
        let mut build = cargo(&build);
        build.env(format!("CC_{variable}"), target.compiler);
        build.env(format!("CARGO_TARGET_{}_LINKER", variable.to_uppercase()), target.compiler);
        let code = workspace::run(&mut build)?;
        if code != 0 {
            return Ok(code);
        }
        phase.end();
        let path = workspace::target().join(target.triple).join("dist/ichido");
        programs.push(Program { target, path });
    }
    let out = workspace::target().join("nightly");
    packages::build(&programs, &out)?;
    eprintln!(
        "xtask: packages for {} of {} platforms are in {}",
        programs.len(),
        TARGETS.len(),
        out.display()
    );
    Ok(0)
}

/// Where the seeds of a commit start. They are the same if the campaign is repeated.
fn first_seed(commit: &str) -> u64 {
    commit.get(..8).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0)
}

/// Why a platform cannot be built here, as the command that would change it.
fn obstacle(target: &Target, installed: &str, has: impl Fn(&str) -> bool) -> Option<String> {
    if !installed.lines().any(|line| line == target.triple) {
        return Some(format!("run: rustup target add {}", target.triple));
    }
    (!has(target.compiler)).then(|| format!("run: apt-get install {}", target.compiler_package))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_have_their_own_seeds() {
        assert_eq!(first_seed("00000010aaaa\n"), 16);
        assert_eq!(first_seed(""), 0);
    }

    #[test]
    fn missing_compilers_are_named_with_the_command_that_installs_them() {
        let arm = &TARGETS[1];
        let installed = "x86_64-unknown-linux-gnu\naarch64-unknown-linux-gnu\n";
        assert_eq!(obstacle(arm, installed, |_| true), None);
        let advice = obstacle(arm, "x86_64-unknown-linux-gnu\n", |_| true).unwrap();
        assert_eq!(advice, "run: rustup target add aarch64-unknown-linux-gnu");
        let advice = obstacle(arm, installed, |program| program != "aarch64-linux-gnu-gcc").unwrap();
        assert_eq!(advice, "run: apt-get install gcc-aarch64-linux-gnu");
    }
}
