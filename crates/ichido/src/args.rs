//! The arguments, exactly as they were typed. What they mean together is checked in [`crate::settings`].

use std::path::PathBuf;

use clap::{Parser, Subcommand};

mod delivery;
mod demo;
mod id;
mod ledger;
mod serving;
mod usage;

pub(crate) use delivery::{
    DeliveryArgs, DeliveryFlags, FailedArgs, FailedVerb, ListArgs, SendArgs, SpoolArgs, SpoolVerb,
};
pub(crate) use demo::{DemoArgs, DemoOrdersArgs, DemoWorkerArgs};
pub(crate) use id::{EventArgs, IdArgs, IdVerb};
pub(crate) use ledger::{End, KeyArgs, LedgerArgs, LedgerVerb, State};
pub(crate) use serving::{ADMIN_VARIABLE, ClaimsArgs, GatewayArgs, MeterArgs, RunArgs};
pub(crate) use usage::{ExportArgs, ExportDifyArgs, ExportJsonlArgs, ExportSource, ReconcileArgs, SumsArgs};

use delivery::SEND_EXAMPLES;
use demo::DEMO_EXAMPLES;
use serving::{GATEWAY_EXAMPLES, METER_EXAMPLES, RUN_EXAMPLES};
use usage::{EXPORT_EXAMPLES, RECONCILE_EXAMPLES};

const EXAMPLES: &str = "\
Examples:
  ichido demo                                    see it at work, with a kill -9 in the middle
  ichido gateway --upstream http://127.0.0.1:5000   make an API safe to retry
  ichido check --ledger postgres://db/app        are the settings and the connection right?
  ichido ledger list --state in-doubt            what does nobody know the end of?
  ichido ledger resolve order-17 --as done       say how it ended
  ichido claims                                  serve the claim API: is this event new? may I run this?
  ichido send usage.jsonl                        deliver records to an API, each one once
  ichido spool list                              what waits to be delivered?
  ichido meter                                   receive usage records, count each one once
  ichido export dify --yesterday                 usage of Dify to the bill, each token once

Settings come from ichido.toml, then the environment, then flags.
Exit codes: 0 done; 2 usage, settings, a store out of reach or held by another; 1 internal error or failed check;
3 something waits in the spool; 4 something is in failed.";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  ichido completions bash > /etc/bash_completion.d/ichido
  ichido completions zsh > ~/.zfunc/_ichido
  ichido completions fish > ~/.config/fish/completions/ichido.fish";

/// Makes each effect happen once.
#[derive(Debug, Parser)]
#[command(name = "ichido", version, about, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows the product at work on this machine: races, a kill -9, recovery.
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// One process of the demo: the one that is killed.
    #[command(hide = true)]
    DemoWorker(DemoWorkerArgs),
    /// The orders API of the demo.
    #[command(hide = true)]
    DemoOrders(DemoOrdersArgs),
    /// Stands before an API in any language and makes it safe to retry.
    #[command(after_help = GATEWAY_EXAMPLES)]
    Gateway(GatewayArgs),
    /// Serves the claim API: events checked once, two-phase claims, inspection and repair, health, metrics.
    Claims(ClaimsArgs),
    /// Delivers records to an API: retries, keeps what does not arrive, repeats under the same idempotency key.
    #[command(after_help = SEND_EXAMPLES)]
    Send(SendArgs),
    /// Reads usage, sums it, and delivers each sum under an id that the same data always gets.
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(ExportArgs),
    /// Compares what the source has, what was sent, and what the receiver counted.
    #[command(after_help = RECONCILE_EXAMPLES)]
    Reconcile(ReconcileArgs),
    /// The daemon: every part that has a section in the settings, in one process with one admin port.
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Looks after batches that wait to be delivered.
    Spool(SpoolArgs),
    /// Looks after batches that were not delivered and need a person.
    Failed(FailedArgs),
    /// Looks after a ledger of claims.
    Ledger(LedgerArgs),
    /// Receives usage records and counts each one once: by day, model, app, user.
    #[command(after_help = METER_EXAMPLES)]
    Meter(MeterArgs),
    /// Computes the ids of usage records and the keys of batches.
    Id(IdArgs),
    /// Checks the settings and the connections, each with a verdict.
    Check(CheckArgs),
    /// Prints what a shell needs to complete commands and flags.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Writes the manual pages, one for each command.
    #[command(after_help = "Example:\n  ichido man /usr/local/share/man/man1")]
    Man {
        /// The directory; it is made if it is missing.
        dir: PathBuf,
    },
}

/// Where the settings come from.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Common {
    /// The settings file [default: ichido.toml, if it exists].
    #[arg(long, value_name = "FILE", env = "ICHIDO_CONFIG", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// The ledger: memory:, file:DIR, postgres://…, redis://…, rediss://…, dynamodb://TABLE [default: file:data/ledger].
    #[arg(long, value_name = "URL", env = "ICHIDO_LEDGER_URL", hide_env_values = true, global = true)]
    pub(crate) ledger: Option<String>,
    /// Prints JSON instead of tables.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) common: Common,
}
