//! Runs the command that the arguments name.

mod audit;
mod batch_files;
mod claims;
mod config;
mod confirm;
mod events;
mod export;
mod failed;
mod gateway;
mod health;
mod history;
mod http1;
mod id;
mod ledger;
mod manual;
mod meter;
mod reconcile;
mod report;
mod run;
mod send;
mod spool;

use std::io::IsTerminal;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

use indicatif::MultiProgress;

use crate::args::{Args, Command, FailedArgs, FailedVerb, SpoolArgs, SpoolVerb};
use crate::log::{self, Reader};
use crate::{check, demo, output};
use ichido_serve::Failure;

/// How long to wait for blocking threads at the end. The system resolver, for example, waits very long for a name server
/// that does not respond.
const THREADS_MAX: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let is_server = matches!(
        args.command,
        Command::Gateway(_) | Command::Claims(_) | Command::Meter(_) | Command::Run(_)
    );
    let reader = if is_server || is_scheduled(&args.command) { Reader::Collector } else { Reader::Person };
    let progress = log::start(reader)?;
    if is_server {
        ichido_serve::descriptors::raise_limit();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("cannot start the async runtime: {error}")))?;
    let command = dispatch(&args.command, &progress);
    let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(command)));
    runtime.shutdown_timeout(THREADS_MAX);
    match ended {
        Ok(ended) => ended.map(|()| ExitCode::SUCCESS),
        Err(panic) => Ok(output::exit_code_after(panic)),
    }
}

/// Whether a scheduler, rather than a person at a terminal, runs a command that delivers.
fn is_scheduled(command: &Command) -> bool {
    let delivers = matches!(
        command,
        Command::Send(_)
            | Command::Export(_)
            | Command::Spool(SpoolArgs { verb: SpoolVerb::Resend { .. }, .. })
            | Command::Failed(FailedArgs { verb: FailedVerb::Resend { .. }, .. })
    );
    delivers && !std::io::stderr().is_terminal()
}

async fn dispatch(command: &Command, progress: &MultiProgress) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => demo::run(args).await,
        Command::DemoWorker(args) => demo::ledger_worker::run(args).await,
        Command::DemoOrders(args) => demo::orders_api::run(args).await,
        Command::Gateway(args) => gateway::run(args).await,
        Command::Send(args) => send::run(args, progress).await,
        Command::Export(args) => export::run(args).await,
        Command::Reconcile(args) => reconcile::run(args).await,
        Command::Run(args) => run::run(args).await,
        Command::Spool(args) => spool::run(args).await,
        Command::Failed(args) => failed::run(args).await,
        Command::Ledger(args) => ledger::run(args).await,
        Command::Events(args) => events::run(args).await,
        Command::Audit(args) => audit::run(args),
        Command::Claims(args) => claims::run(args).await,
        Command::Meter(args) => meter::run(args).await,
        Command::Report(args) => report::run(args).await,
        Command::Id(args) => id::run(args),
        Command::Check(args) => check::run(args).await,
        Command::Health(args) => health::run(args).await,
        Command::Config(args) => config::run(args),
        Command::Completions { shell } => manual::completions(*shell),
        Command::Man { dir } => manual::pages(dir),
    }
}
