//! `cargo xtask test`: everything, against real servers.
//!
//! The build and the start of the servers run side by side. Tests and demo share a profile, so that most crates are
//! compiled once.

use std::process::{Child, Command};

use anyhow::{Context, Result};

use crate::phase::Phase;
use crate::process::exit_code;
use crate::servers::{Plan, Servers};
use crate::workspace::{self, cargo};

/// Runs the tests with `extra` arguments for cargo; its exit code is ours.
pub(crate) fn run(extra: &[String]) -> Result<u8> {
    let plan = Plan::from_environment();
    let missing = plan.missing();
    missing.require_installable()?;

    let building = Phase::begin("tests are built, servers are ready");
    let build = start_build(extra)?;
    missing.install()?;
    plan.fetch()?;
    let servers = Servers::start(&plan)?;

    let mut code = finish_build(build)?;
    if code == 0 {
        building.end();
        let testing = Phase::begin("tests have run");
        let environment = servers.environment().iter().map(|(name, value)| (name, value));
        code = workspace::run(cargo_test(extra).envs(environment))?;
        testing.end();
    }
    servers.stop();
    Ok(code)
}

/// Cargo cannot build documentation tests ahead; when they are all that is wanted there is nothing to start.
fn start_build(extra: &[String]) -> Result<Option<Child>> {
    let for_cargo: Vec<String> = extra.iter().take_while(|word| *word != "--").cloned().collect();
    if for_cargo.iter().any(|word| word == "--doc") {
        return Ok(None);
    }
    cargo_test(&for_cargo).arg("--no-run").spawn().context("cannot start cargo").map(Some)
}

fn finish_build(build: Option<Child>) -> Result<u8> {
    match build {
        Some(mut build) => Ok(exit_code(build.wait().context("cannot wait for cargo")?)),
        None => Ok(0),
    }
}

fn cargo_test(extra: &[String]) -> Command {
    let mut command = cargo(&["test", "--release", "--all-features", "--no-fail-fast"]);
    // `--workspace` would win over the packages that were asked for.
    if !extra.iter().take_while(|word| *word != "--").any(|word| selects_packages(word)) {
        command.arg("--workspace");
    }
    command.args(extra);
    command
}

fn selects_packages(word: &str) -> bool {
    word == "--package"
        || word.starts_with("--package=")
        || (word.starts_with("-p") && !word.starts_with("--"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(String::from).collect()
    }

    fn is_whole_workspace(line: &str) -> bool {
        cargo_test(&words(line)).get_args().any(|word| word == "--workspace")
    }

    #[test]
    fn the_whole_workspace_is_tested_unless_packages_are_named() {
        assert!(is_whole_workspace(""));
        assert!(is_whole_workspace("lapsed_lease -- -p"));
        for line in ["-p ichido-core", "-pichido-core", "--package ichido-core", "--package=ichido-core"] {
            assert!(!is_whole_workspace(line), "{line}");
        }
    }
}
