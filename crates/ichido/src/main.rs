//! The `ichido` command.

// First, because its macros are used everywhere.
#[macro_use]
mod output;

mod args;
mod check;
mod cli;
mod components;
mod delivery;
mod demo;
mod log;
mod settings;

use std::process::ExitCode;

use crate::args::Args;
use ichido_serve::stderr::FlushOnDrop;

/// A request makes dozens of small allocations, and the writer of a ledger frees memory that other threads allocated.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = Args::from_command_line();
    let _flush = FlushOnDrop;
    match cli::run(&args) {
        Ok(code) => code,
        Err(failure) => {
            errln!("ichido: {failure}");
            ExitCode::from(failure.class())
        }
    }
}
