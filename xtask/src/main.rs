//! The development tasks of this workspace: `cargo xtask test` and others.
//!
//! The tests need real servers, and should run with one command. This tool finds or fetches the servers, starts them on
//! free loopback ports, and passes their addresses to cargo in environment variables. However it exits, it leaves no
//! process and no temporary file behind.
//!
//! It has few dependencies (no async runtime, no argument parser), because it is compiled before anything else can run.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool prints to the terminal")]

mod args;
mod browser;
mod certificates;
mod commands;
mod fetch;
mod install;
mod lint;
mod node;
mod packages;
mod peers;
mod phase;
mod process;
mod python;
mod scratch;
mod servers;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;

use crate::args::{Invocation, Refusal};

fn main() -> ExitCode {
    match Invocation::parse(std::env::args().skip(1)).and_then(run) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(if error.is::<Refusal>() { 2 } else { 1 })
        }
    }
}

fn run(invocation: Invocation) -> Result<u8> {
    match invocation {
        Invocation::Help { text } => {
            print!("{text}");
            Ok(0)
        }
        Invocation::Test { extra } => commands::test::run(&extra),
        Invocation::Servers { command } => commands::servers::run(&command),
        Invocation::Bench { bench, extra } => commands::bench::run(bench, &extra),
        Invocation::Simulate { options } => commands::simulate::run(&options),
        Invocation::Ci => commands::ci::run(),
        Invocation::Lint => commands::lint::run(),
        Invocation::Deny => commands::deny::run(),
        Invocation::Package { profile, program, out } => {
            commands::package::run(profile, program.as_deref(), out.as_deref())
        }
        Invocation::Release => commands::release::run(),
        Invocation::Nightly => commands::nightly::run(),
    }
}
