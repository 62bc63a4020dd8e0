//! `cargo xtask ci`: what a change must pass. Stops at the first step that fails.

use anyhow::{Result, bail};

use crate::args::Refusal;
use crate::commands::test;
use crate::phase::Phase;
use crate::process::run_quietly;
use crate::workspace::{self, cargo};

/// Formatting, lints, tests.
pub(crate) fn run() -> Result<u8> {
    let whole = Phase::begin("all checks have passed");
    require_component("fmt", "rustfmt")?;
    require_component("clippy", "clippy")?;
    for (name, args) in [
        ("formatting is checked", &["fmt", "--all", "--check"][..]),
        ("crates and modules are checked", &["xtask", "lint"]),
        (
            "lints are checked",
            &[
                "clippy",
                "--release",
                "--workspace",
                "--all-targets",
                "--all-features",
                "--",
                "-D",
                "warnings",
            ],
        ),
    ] {
        let phase = Phase::begin(name);
        let code = workspace::run(&mut cargo(args))?;
        if code != 0 {
            eprintln!("xtask: failed: cargo {}", args.join(" "));
            return Ok(code);
        }
        phase.end();
    }
    let code = test::run(&[])?;
    if code == 0 {
        whole.end();
    }
    Ok(code)
}

fn require_component(subcommand: &str, component: &str) -> Result<()> {
    if run_quietly(cargo(&[subcommand]).arg("--version")).is_err() {
        bail!(Refusal(format!(
            "`cargo {subcommand}` is missing; add it with: rustup component add {component}"
        )));
    }
    Ok(())
}
