//! The arguments of `ichido export` and `reconcile`.

use std::path::PathBuf;

use clap::Subcommand;

use super::Common;

pub(super) const EXPORT_EXAMPLES: &str = "\
Examples:
  ichido export dify --dry-run --yesterday            what would be sent?
  ichido export dify                                  what is new since the last time
  ichido export dify --from 2025-11-01 --to 2025-11-30
  ichido export dify --month 2025-11 --json
  ichido export jsonl usage.jsonl                     usage events of any other source

[export.dify] in ichido.toml says where Dify is and how usage is summed; DIFY_DATABASE_URL (or DIFY_CONSOLE_URL with
DIFY_ADMIN_KEY, or DIFY_EMAIL and DIFY_PASSWORD) says it as well. Where to and as whom is told as for ichido send, with
EXTERNAL_API_ENVELOPE=api_meter and EXTERNAL_API_TENANT_ID. What was sent is remembered in data/export.
Exit codes: 0 all arrived; 3 something waits; 4 something went to failed; 2 settings, Dify, another export; 1 anything else.";

pub(super) const RECONCILE_EXAMPLES: &str = "\
Examples:
  ichido reconcile                                    every day that was exported
  ichido reconcile --from 2025-11-01 --to 2025-11-30 --json

Compares by day what Dify has, what was sent, and what the receiver counted (GET on EXTERNAL_API_ENDPOINT, as the meter
answers it). Exit codes: 0 all the same; 1 there are differences; 2 settings, or a side that does not answer.";

#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) source: ExportSource,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExportSource {
    /// Usage of Dify: its database, or its console.
    Dify(ExportDifyArgs),
    /// Usage events as JSON Lines. A file must hold whole days.
    Jsonl(ExportJsonlArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExportDifyArgs {
    #[command(flatten)]
    pub(crate) days: DaysArgs,
    /// The day before today, in the zone of the settings.
    #[arg(long, conflicts_with_all = ["from", "to", "month"])]
    pub(crate) yesterday: bool,
    /// A whole month: YYYY-MM.
    #[arg(long, value_name = "MONTH", conflicts_with_all = ["from", "to"])]
    pub(crate) month: Option<String>,
    /// Also days that are not over. Only for receivers that let a later total replace an earlier one.
    #[arg(long)]
    pub(crate) include_open: bool,
    #[command(flatten)]
    pub(crate) sums: SumsArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExportJsonlArgs {
    /// Files of usage events; - is standard input [default: -].
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) sums: SumsArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SumsArgs {
    /// What a record is a sum of: per_model, per_user, per_app, workspace, all.
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<String>,
    /// How long: daily, weekly, monthly.
    #[arg(long, value_name = "PERIOD")]
    pub(crate) period: Option<String>,
    /// Prints what would be sent, and sends nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DaysArgs {
    /// The first day: YYYY-MM-DD.
    #[arg(long, value_name = "DAY")]
    pub(crate) from: Option<String>,
    /// The last day [default: yesterday].
    #[arg(long, value_name = "DAY")]
    pub(crate) to: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReconcileArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) days: DaysArgs,
}
