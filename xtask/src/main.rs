//! The chores of this workspace: `cargo xtask test` and its relatives.
//!
//! The tests want real servers, and a reader wants one command. So this tool finds or fetches the servers, starts
//! them on free loopback ports, hands their addresses to cargo in the environment, and leaves nothing behind: no
//! process and no temporary file, whichever way it ends.
//!
//! It depends on little (no runtime, no argument parser), because it is compiled before anything else can be run.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool speaks to its terminal")]

mod args;
mod browser;
mod certificates;
mod commands;
mod fetch;
mod install;
mod lint;
mod node;
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
        Invocation::Ci => commands::ci::run(),
        Invocation::Lint => commands::lint::run(),
        Invocation::Deny => commands::deny::run(),
    }
}
