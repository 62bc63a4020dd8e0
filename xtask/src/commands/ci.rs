//! `cargo xtask ci`: the checks that every change must pass. Stops at the first failure.
//!
//! Documentation uses the same profile as clippy, which has checked all dependencies already, so that only our own crates are
//! documented. Crates are packed without compiling them again. What clippy resolved is enough for that, so it needs no network.

use anyhow::{Result, bail};

use crate::args::Refusal;
use crate::commands::test;
use crate::packages::crates;
use crate::phase::Phase;
use crate::process::run_quietly;
use crate::workspace::{self, cargo};

/// Checks formatting, lints, documentation, packages and tests.
pub(crate) fn run() -> Result<u8> {
    let whole = Phase::begin("all checks passed");
    require_component("fmt", "rustfmt")?;
    require_component("clippy", "clippy")?;
    let mut package = crates::package_arguments()?;
    package.extend(["--no-verify", "--allow-dirty", "--offline"].map(String::from));
    let package: Vec<&str> = package.iter().map(String::as_str).collect();
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
        (
            "checked documentation",
            &["doc", "--release", "--no-deps", "--workspace", "--all-features", "--quiet"],
        ),
        ("checked that crates can be packed", &package[..]),
    ] {
        let phase = Phase::begin(name);
        // Only rustdoc reads the variable.
        let code = workspace::run(cargo(args).env("RUSTDOCFLAGS", "-D warnings"))?;
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
