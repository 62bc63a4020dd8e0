//! Runs the command that the arguments name.

mod audit;
mod batch_files;
mod claims;
mod config;
mod confirm;
mod erase;
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
mod trace;

use std::io::IsTerminal;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

use indicatif::MultiProgress;

use crate::args::{Args, Command, FailedArgs, FailedVerb, SpoolArgs, SpoolVerb};
use crate::log::{self, Reader};
use crate::{check, demo, output};
use ichido_serve::Failure;
use ichido_serve::shutdown::{self, LIFECYCLE};

/// How long to wait for blocking threads at the end. The system resolver, for example, waits very long for a name server
/// that does not respond.
const THREADS_MAX: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let is_server = matches!(
        args.command,
        Command::Gateway(_) | Command::Claims(_) | Command::Meter(_) | Command::Run(_)
    );
    let reader = match std::io::stderr().is_terminal() {
        true if is_server => Reader::Watcher,
        false if is_server || delivers(&args.command) => Reader::Collector,
        true | false => Reader::Person,
    };
    let progress = log::start(reader)?;
    if is_server {
        ichido_serve::descriptors::raise_limit();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("cannot start the async runtime: {error}")))?;
    let command = dispatch(&args.command, &progress, reader);
    let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(command)));
    runtime.shutdown_timeout(THREADS_MAX);
    match ended {
        Ok(Ok(())) => {
            if is_server {
                tracing::info!(target: LIFECYCLE, "stopped");
            }
            Ok(ExitCode::SUCCESS)
        }
        Ok(Err(failure)) => {
            reader.report_failure(&failure);
            // A server that was asked to stop and could not is a failure. A command that was interrupted is not.
            let is_interrupted = !is_server && shutdown::is_interrupted();
            Ok(if is_interrupted { shutdown::INTERRUPTED.into() } else { failure.class().into() })
        }
        Err(panic) => Ok(output::exit_code_after(panic)),
    }
}

/// Whether the command delivers batches, as scheduled jobs do.
fn delivers(command: &Command) -> bool {
    matches!(
        command,
        Command::Send(_)
            | Command::Export(_)
            | Command::Spool(SpoolArgs { verb: SpoolVerb::Resend { .. }, .. })
            | Command::Failed(FailedArgs { verb: FailedVerb::Resend { .. }, .. })
    )
}

async fn dispatch(command: &Command, progress: &MultiProgress, log: Reader) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => demo::run(args).await,
        Command::DemoWorker(args) => demo::ledger_worker::run(args).await,
        Command::DemoOrders(args) => demo::orders_api::run(args).await,
        Command::Gateway(args) => gateway::run(args, log).await,
        Command::Send(args) => send::run(args, progress).await,
        Command::Export(args) => export::run(args).await,
        Command::Reconcile(args) => reconcile::run(args).await,
        Command::Run(args) => run::run(args, log).await,
        Command::Spool(args) => spool::run(args).await,
        Command::Failed(args) => failed::run(args).await,
        Command::Ledger(args) => ledger::run(args).await,
        Command::Events(args) => events::run(args).await,
        Command::Trace(args) => trace::run(args).await,
        Command::Report(args) => report::run(args).await,
        Command::Erase(args) => erase::run(args).await,
        Command::Audit(args) => audit::run(args),
        Command::Claims(args) => claims::run(args, log).await,
        Command::Meter(args) => meter::run(args, log).await,
        Command::Id(args) => id::run(args),
        Command::Check(args) => check::run(args).await,
        Command::Health(args) => health::run(args).await,
        Command::Config(args) => config::run(args),
        Command::Completions { shell } => manual::completions(*shell),
        Command::Man { dir } => manual::pages(dir),
    }
}
