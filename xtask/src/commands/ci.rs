//! `cargo xtask ci`: the checks that every change must pass. Stops at the first failure.

use anyhow::{Result, bail};

use crate::args::Refusal;
use crate::commands::test;
use crate::phase::Phase;
use crate::process::run_quietly;
use crate::workspace::{self, cargo};

/// Checks formatting, lints and tests.
pub(crate) fn run() -> Result<u8> {
    let whole = Phase::begin("all checks passed");
    require_component("fmt", "rustfmt")?;
    require_component("clippy", "clippy")?;
    for (name, args) in [
        ("checked formatting", &["fmt", "--all", "--check"][..]),
        ("checked crates and modules", &["xtask", "lint"]),
        (
            "checked lints",
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
            "`cargo {subcommand}` is missing; install it with: rustup component add {component}"
        )));
    }
    Ok(())
}
