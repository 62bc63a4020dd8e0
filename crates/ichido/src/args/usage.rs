//! Arguments of `ichido export` and `reconcile`.

use std::path::PathBuf;

use clap::Subcommand;
use ichido_settings::Flag;

use super::{Common, flag};

pub(super) const EXPORT_EXAMPLES: &str = "\
Examples:
  ichido export dify --dry-run --yesterday            show what would be sent
  ichido export dify                                  everything since the last export
  ichido export dify --from 2025-11-01 --to 2025-11-30
  ichido export dify --month 2025-11 --json
  ichido export jsonl usage.jsonl                     usage events from any other source

Configure the source in [export.dify] of ichido.toml, or with DIFY_DATABASE_URL (or DIFY_CONSOLE_URL with DIFY_ADMIN_KEY,
or with DIFY_EMAIL and DIFY_PASSWORD). Configure the receiver as for ichido send, with EXTERNAL_API_ENVELOPE=api_meter and
EXTERNAL_API_TENANT_ID. data/export records what was sent.

Exit codes: 0 everything arrived; 3 a batch is in the spool, or totals are withheld; 4 a batch went to failed; 2 invalid
settings, Dify unreachable, or another export is running; 1 any other error.";

pub(super) const RECONCILE_EXAMPLES: &str = "\
Examples:
  ichido reconcile                                    every exported day
  ichido reconcile --from 2025-11-01 --to 2025-11-30 --json
  ichido reconcile --jsonl usage.jsonl                the days in a file that ichido export jsonl has sent

Compares, for each day, the usage in Dify or in the files, what was sent, and what the receiver counted (GET on
EXTERNAL_API_ENDPOINT, with the query API of the meter). data/export/reconciled.json keeps the last result of each day,
for ichido report usage.

Exit codes: 0 no differences; 1 differences; 2 invalid settings, or the source or the receiver cannot be read.";

#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) source: ExportSource,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExportSource {
    /// Usage from the database or the console of Dify.
    Dify(ExportDifyArgs),
    /// Usage events as JSON Lines. Each file must contain whole days.
    Jsonl(ExportJsonlArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExportDifyArgs {
    #[command(flatten)]
    pub(crate) days: DaysArgs,
    /// Yesterday, in the time zone of the settings.
    #[arg(long, conflicts_with_all = ["from", "to", "month"])]
    pub(crate) yesterday: bool,
    /// Whole month: YYYY-MM.
    #[arg(long, value_name = "MONTH", conflicts_with_all = ["from", "to"])]
    pub(crate) month: Option<String>,
    /// Include days that are not over. Only for receivers where a later total replaces an earlier one.
    #[arg(long)]
    pub(crate) include_open: bool,
    #[command(flatten)]
    pub(crate) sums: SumsArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExportJsonlArgs {
    /// Files of usage events; - for standard input [default: -].
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) sums: SumsArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SumsArgs {
    /// What to aggregate by: per_model, per_user, per_app, workspace or all.
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<String>,
    /// Length of a period: daily, weekly or monthly.
    #[arg(long, value_name = "PERIOD")]
    pub(crate) period: Option<String>,
    /// Print what would be sent, but send nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DaysArgs {
    /// First day: YYYY-MM-DD.
    #[arg(long, value_name = "DAY")]
    pub(crate) from: Option<String>,
    /// Last day [default: yesterday].
    #[arg(long, value_name = "DAY")]
    pub(crate) to: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReconcileArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) days: DaysArgs,
    /// Files of usage events to compare instead of Dify; - for standard input. Without --from, the days they contain.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) jsonl: Vec<PathBuf>,
}

impl ExportArgs {
    pub(crate) fn flags(&self) -> Vec<Flag> {
        let sums = match &self.source {
            ExportSource::Dify(args) => &args.sums,
            ExportSource::Jsonl(args) => &args.sums,
        };
        let own = [
            flag("export.dify.mode", "--mode", &sums.mode),
            flag("export.dify.period", "--period", &sums.period),
        ];
        self.common.flags().into_iter().chain(own).collect()
    }
}
