//! `cargo xtask test`: runs all tests against real servers.
//!
//! The servers start while cargo builds. Tests and demo share a profile, so that most crates are compiled once.

use std::process::{Child, Command};

use anyhow::{Context, Result};

use crate::phase::Phase;
use crate::process::exit_code;
use crate::servers::{Plan, Servers};
use crate::workspace::{self, cargo};

/// Runs the tests with `extra` arguments for cargo, and returns cargo's exit code.
pub(crate) fn run(extra: &[String]) -> Result<u8> {
    let plan = Plan::from_environment();
    let missing = plan.missing();
    missing.require_installable()?;

    let building = Phase::begin("built tests and started servers");
    let build = start_build(extra)?;
    missing.install()?;
    plan.fetch()?;
    let servers = Servers::start(&plan)?;

    let mut code = finish_build(build)?;
    if code == 0 {
        building.end();
        let testing = Phase::begin("ran tests");
        let environment = servers.environment().iter().map(|(name, value)| (name, value));
        code = workspace::run(cargo_test(extra).envs(environment))?;
        testing.end();
    }
    servers.stop();
    Ok(code)
}

/// Returns `None` for `--doc`: cargo cannot build documentation tests ahead of time.
fn start_build(extra: &[String]) -> Result<Option<Child>> {
    let for_cargo: Vec<String> = extra.iter().take_while(|argument| *argument != "--").cloned().collect();
    if for_cargo.iter().any(|argument| argument == "--doc") {
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
    // `--workspace` would override the selected packages.
    if !extra.iter().take_while(|argument| *argument != "--").any(|argument| selects_packages(argument)) {
        command.arg("--workspace");
    }
    command.args(extra);
    command
}

fn selects_packages(argument: &str) -> bool {
    argument == "--package"
        || argument.starts_with("--package=")
        || (argument.starts_with("-p") && !argument.starts_with("--"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Vec<String> {
        line.split_whitespace().map(String::from).collect()
    }

    fn tests_whole_workspace(line: &str) -> bool {
        cargo_test(&arguments(line)).get_args().any(|argument| argument == "--workspace")
    }

    #[test]
    fn whole_workspace_is_tested_unless_packages_are_selected() {
        assert!(tests_whole_workspace(""));
        assert!(tests_whole_workspace("lapsed_lease -- -p"));
        for line in ["-p ichido-core", "-pichido-core", "--package ichido-core", "--package=ichido-core"] {
            assert!(!tests_whole_workspace(line), "{line}");
        }
    }
}
