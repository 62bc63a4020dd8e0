//! The `ichido` command: read the arguments, check the settings, run, say how it ended.

// First: its macros print for all others.
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
mod stderr;

use std::io::IsTerminal;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::args::{Args, Command, FailedArgs, FailedVerb, SpoolArgs, SpoolVerb};
use crate::log::Reader;
use crate::stderr::FlushOnDrop;
use ichido_serve::Failure;

/// A request makes some dozens of small allocations, and the writer of a ledger frees what other threads made.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long threads that still do something may take when everything is over.
const LAST_THREADS: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let args = Args::parse();
    let _flush = FlushOnDrop;
    match run(&args) {
        Ok(code) => code,
        Err(failure) => {
            errln!("ichido: {failure}");
            ExitCode::from(failure.class())
        }
    }
}

fn run(args: &Args) -> Result<ExitCode, Failure> {
    let serves = matches!(
        args.command,
        Command::Gateway(_) | Command::Claims(_) | Command::Meter(_) | Command::Run(_)
    );
    let reader = match args.command {
        Command::Gateway(_) | Command::Claims(_) | Command::Meter(_) | Command::Run(_) => Reader::Collector,
        // A scheduler collects the lines of a delivery; at a terminal someone reads them.
        Command::Send(_)
        | Command::Export(_)
        | Command::Spool(SpoolArgs { verb: SpoolVerb::Resend { .. }, .. })
        | Command::Failed(FailedArgs { verb: FailedVerb::Resend { .. }, .. })
            if !std::io::stderr().is_terminal() =>
        {
            Reader::Collector
        }
        Command::Demo(_)
        | Command::DemoWorker(_)
        | Command::DemoOrders(_)
        | Command::Send(_)
        | Command::Export(_)
        | Command::Reconcile(_)
        | Command::Spool(_)
        | Command::Failed(_)
        | Command::Ledger(_)
        | Command::Id(_)
        | Command::Check(_)
        | Command::Completions { .. }
        | Command::Man { .. } => Reader::Person,
    };
    let progress = log::start(reader)?;
    if serves {
        ichido_serve::descriptors::raise_limit();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("starting the runtime: {error}")))?;
    let command = async {
        match &args.command {
            Command::Demo(demo) => demo::run(demo).await,
            Command::DemoWorker(worker) => demo::ledger_worker::run(worker).await,
            Command::DemoOrders(orders) => demo::orders_api::run(orders).await,
            Command::Gateway(gateway) => cli::gateway::run(gateway).await,
            Command::Send(send) => cli::send::run(send, &progress).await,
            Command::Export(export) => cli::export::run(export).await,
            Command::Reconcile(reconcile) => cli::reconcile::run(reconcile).await,
            Command::Run(run) => cli::run::run(run).await,
            Command::Spool(spool) => cli::spool::run(spool).await,
            Command::Failed(failed) => cli::failed::run(failed).await,
            Command::Ledger(ledger) => cli::ledger::run(ledger).await,
            Command::Claims(claims) => cli::claims::run(claims).await,
            Command::Meter(meter) => cli::meter::run(meter).await,
            Command::Id(id) => cli::id::run(id),
            Command::Check(check) => check::run(check).await,
            Command::Completions { shell } => cli::manual::completions(*shell),
            Command::Man { dir } => cli::manual::pages(dir),
        }
    };
    let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(command)));
    // A name server that does not answer holds a thread for as long as the system's resolver has patience.
    runtime.shutdown_timeout(LAST_THREADS);
    match ended {
        Ok(ended) => ended.map(|()| ExitCode::SUCCESS),
        Err(panic) => Ok(output::unread(panic)),
    }
}
