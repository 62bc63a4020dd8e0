//! The `ichido` command: read the arguments, check the settings, run, say how it ended.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool prints")]

mod admin;
mod args;
mod commands;
mod console;
mod delivery;
mod demo;
mod exit;
mod front;
mod gateway;
mod log;
mod meter;
mod operator;
mod output;
mod settings;
mod shutdown;
mod upkeep;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command, FailedArgs, FailedVerb, SpoolArgs, SpoolVerb};
use crate::exit::Failure;
use crate::log::Reader;

/// A request makes some dozens of small allocations, and the writer of a ledger frees what other threads made.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("ichido: {failure}");
            failure.code().into()
        }
    }
}

fn run(args: &Args) -> Result<(), Failure> {
    let reader = match args.command {
        Command::Gateway(_) | Command::Claims(_) | Command::Meter(_) | Command::Run(_) => Reader::Machine,
        // A scheduler collects the lines of a delivery; at a terminal someone reads them.
        Command::Send(_)
        | Command::Spool(SpoolArgs { verb: SpoolVerb::Resend { .. }, .. })
        | Command::Failed(FailedArgs { verb: FailedVerb::Resend { .. }, .. })
            if !std::io::stderr().is_terminal() =>
        {
            Reader::Machine
        }
        Command::Demo(_)
        | Command::DemoWorker(_)
        | Command::DemoOrders(_)
        | Command::Send(_)
        | Command::Spool(_)
        | Command::Failed(_)
        | Command::Ledger(_)
        | Command::Check(_) => Reader::Person,
    };
    let _flush = log::start(reader)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("starting the runtime: {error}")))?;
    runtime.block_on(async {
        match &args.command {
            Command::Demo(demo) => demo::run(demo).await,
            Command::DemoWorker(worker) => demo::worker::run(worker).await,
            Command::DemoOrders(orders) => demo::orders::run(orders).await,
            Command::Gateway(gateway) => commands::gateway::run(gateway).await,
            Command::Send(send) => commands::send::run(send).await,
            Command::Run(run) => commands::run::run(run).await,
            Command::Spool(spool) => commands::spool::run(spool).await,
            Command::Failed(failed) => commands::failed::run(failed).await,
            Command::Ledger(ledger) => commands::ledger::run(ledger).await,
            Command::Claims(claims) => commands::claims::run(claims).await,
            Command::Meter(meter) => commands::meter::run(meter).await,
            Command::Check(check) => commands::check::run(check).await,
        }
    })
}
