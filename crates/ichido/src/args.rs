//! The command line, exactly as typed. Values are checked together with the other settings in [`crate::settings`].

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};
use ichido_settings::Flag;

mod audit;
mod config;
mod delivery;
mod demo;
mod erase;
mod events;
mod id;
mod ledger;
mod report;
mod serving;
mod trace;
mod usage;

pub(crate) use audit::{AuditArgs, AuditVerb};
pub(crate) use config::{ConfigArgs, ConfigVerb};
pub(crate) use delivery::{DeliveryFlags, FailedArgs, FailedVerb, ListArgs, SendArgs, SpoolArgs, SpoolVerb};
pub(crate) use demo::{DemoArgs, DemoOrdersArgs, DemoWorkerArgs};
pub(crate) use erase::{EraseArgs, SubjectArgs};
pub(crate) use events::{EventsArgs, EventsVerb, HistoryBy};
pub(crate) use id::{EventArgs, IdArgs, IdVerb};
pub(crate) use ledger::{End, FilterArgs, KeyArgs, LedgerArgs, LedgerVerb, ResolveArgs, State};
pub(crate) use report::{
    PeriodArgs, ReportArgs, ReportUsageArgs, ReportVerb, StatementFormat, StatementLanguage,
};
pub(crate) use serving::{ClaimsArgs, GatewayArgs, HealthArgs, MeterArgs, RunArgs};
pub(crate) use trace::TraceArgs;
pub(crate) use usage::{ExportArgs, ExportDifyArgs, ExportJsonlArgs, ExportSource, ReconcileArgs};

use audit::AUDIT_EXAMPLES;
use config::CONFIG_EXAMPLES;
use delivery::SEND_EXAMPLES;
use demo::DEMO_EXAMPLES;
use erase::ERASE_EXAMPLES;
use events::EVENTS_EXAMPLES;
use report::REPORT_EXAMPLES;
use serving::{GATEWAY_EXAMPLES, METER_EXAMPLES, RUN_EXAMPLES};
use trace::TRACE_EXAMPLES;
use usage::{EXPORT_EXAMPLES, RECONCILE_EXAMPLES};

const EXAMPLES: &str = "\
Examples:
  ichido demo                                       see it work, with crashes and lost responses
  ichido gateway --upstream http://127.0.0.1:5000   make an API safe to retry
  ichido claims                                     serve the claim API for bots and workers
  ichido send usage.jsonl                           deliver records to an API, each one once
  ichido spool list                                 list batches that are not delivered yet
  ichido export dify --yesterday                    export the usage of Dify
  ichido meter                                      receive usage records, and count each one once
  ichido report usage --month 2026-11               state what was counted in a month
  ichido ledger list --state in-doubt               list claims whose outcome nobody knows
  ichido ledger resolve order-17 --as done          record what happened
  ichido events show Ev0PV52K21                     show when an event was first seen
  ichido trace order-17                             follow one record, batch, key or request
  ichido report slo --month 2026-11                 measure the success of delivery
  ichido erase --user U024BE7LH --dry-run           show what is stored about a user
  ichido check --ledger postgres://db/app           check settings and connections

Settings come from ichido.toml; environment variables override the file, and flags override both.

Exit codes:
  0  done
  1  internal error, failed check, or difference found
  2  invalid usage or settings, or a store that is unreachable or in use by another process
  3  a batch is in the spool, or the lane is held
  4  a batch was moved to failed
  130  stopped by Ctrl-C before the end";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  ichido completions bash > /etc/bash_completion.d/ichido
  ichido completions zsh > ~/.zfunc/_ichido
  ichido completions fish > ~/.config/fish/completions/ichido.fish";

/// Makes each effect happen once.
#[derive(Debug, Parser)]
#[command(name = "ichido", version, about, after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show ichido at work on this machine, with crashes, outages and lost responses.
    #[command(after_long_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// The process of the demo that is killed.
    #[command(hide = true)]
    DemoWorker(DemoWorkerArgs),
    /// The orders API of the demo.
    #[command(hide = true)]
    DemoOrders(DemoOrdersArgs),
    /// Make an API safe to retry, as a reverse proxy in front of it.
    #[command(after_long_help = GATEWAY_EXAMPLES)]
    Gateway(GatewayArgs),
    /// Serve the claim API: recognise duplicate events, claim operations, inspect and resolve claims.
    Claims(ClaimsArgs),
    /// Deliver records to an API, with retries, a spool on disk and idempotency keys.
    #[command(after_long_help = SEND_EXAMPLES)]
    Send(SendArgs),
    /// Aggregate usage and deliver it. The same usage always gets the same ids.
    #[command(after_long_help = EXPORT_EXAMPLES)]
    Export(ExportArgs),
    /// Compare the usage in the source, what was sent, and what the receiver counted.
    #[command(after_long_help = RECONCILE_EXAMPLES)]
    Reconcile(ReconcileArgs),
    /// Run every component that has a section in the settings, in one process with one admin port.
    #[command(after_long_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// List, show, resend and check batches that are not delivered yet.
    Spool(SpoolArgs),
    /// List, show, resend and accept batches that need an operator.
    Failed(FailedArgs),
    /// Inspect and repair a ledger of claims.
    Ledger(LedgerArgs),
    /// List, show and forget the events that a ledger has marked as seen.
    #[command(after_long_help = EVENTS_EXAMPLES)]
    Events(EventsArgs),
    /// Follow one record, batch, key or request through everything that is recorded about it.
    #[command(after_long_help = TRACE_EXAMPLES)]
    Trace(TraceArgs),
    /// Report figures about a period: how delivery did, what was used.
    #[command(after_long_help = REPORT_EXAMPLES)]
    Report(ReportArgs),
    /// Erase what is stored about a key, a user or a channel, and report what must stay.
    #[command(after_long_help = ERASE_EXAMPLES)]
    Erase(EraseArgs),
    /// List and verify what operators did.
    #[command(after_long_help = AUDIT_EXAMPLES)]
    Audit(AuditArgs),
    /// Receive usage records, and count each one once, by day, model, app and user.
    #[command(after_long_help = METER_EXAMPLES)]
    Meter(MeterArgs),
    /// Compute ids of usage records, keys of batches, and collision odds.
    Id(IdArgs),
    /// Check the settings and the connections.
    Check(CheckArgs),
    /// Probe a running process: whether it is ready, or alive.
    Health(HealthArgs),
    /// Show the settings in effect and where they come from; print defaults and the schema.
    #[command(after_long_help = CONFIG_EXAMPLES)]
    Config(ConfigArgs),
    /// Print a completion script for a shell.
    #[command(after_long_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell to complete for.
        shell: clap_complete::Shell,
    },
    /// Write a manual page for each command.
    #[command(after_long_help = "Example:\n  ichido man /usr/local/share/man/man1")]
    Man {
        /// Directory to write to. It is created if it does not exist.
        dir: PathBuf,
    },
}

impl Args {
    /// Parses the command line.
    ///
    /// Lambda starts each file in `/opt/extensions` without arguments, so there the binary is an extension by itself.
    pub(crate) fn from_command_line() -> Self {
        let mut line = std::env::args_os();
        let (name, is_bare) = (line.next().unwrap_or_default(), line.next().is_none());
        let directory = Path::new(&name).parent().and_then(Path::file_name);
        let is_extension = is_bare
            && directory.is_some_and(|directory| directory == "extensions")
            && std::env::var_os("AWS_LAMBDA_RUNTIME_API").is_some();
        match is_extension {
            true => Self::parse_from([name, "claims".into(), "--lambda-extension".into()]),
            false => Self::parse(),
        }
    }
}

/// Flags of most commands.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Common {
    /// Settings file [default: ichido.toml, if it exists].
    #[arg(long, value_name = "FILE", env = "ICHIDO_CONFIG", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// Ledger: memory:, file:DIR, postgres://…, redis://…, rediss://… or dynamodb://TABLE [default: file:data/ledger; ICHIDO_LEDGER_URL].
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) ledger: Option<String>,
    /// Print JSON instead of tables.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  ichido check
  ichido check --config ichido.toml --json
  ichido check --notify          send a test notice through every configured channel

Exit codes: 0 every check passed; 1 a check failed; 2 invalid settings.")]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Send a test notice through every configured channel.
    #[arg(long)]
    pub(crate) notify: bool,
}

impl Common {
    pub(crate) fn flags(&self) -> Vec<Flag> {
        vec![flag("ledger.url", "--ledger", &self.ledger)]
    }
}

/// A flag that overrides a setting.
fn flag(setting: &'static str, name: &'static str, value: &Option<String>) -> Flag {
    Flag { setting, name, value: value.clone() }
}
