//! Arguments of `ichido report`.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Subcommand, ValueEnum};
use ichido_settings::Flag;

use super::{Common, flag};

pub(super) const REPORT_EXAMPLES: &str = "\
Examples:
  ichido report slo --month 2026-11            the six success criteria of delivery
  ichido report slo --from 2026-11-01 --to 2026-11-07 --json
  ichido report usage --month 2026-11          what the meter has counted";

const SLO_EXAMPLES: &str = "\
Examples:
  ichido report slo --month 2026-11
  ichido report slo --from 2026-11-01 --to 2026-11-07 --json

Measured from the receipts in data/receipts, the files in data/spool and data/failed, and the audit log. Days are days in UTC.
Receipts are kept for RECEIPT_RETENTION_DAYS (90).

Exit codes: 0 no criterion was missed; 1 a criterion was missed; 2 invalid usage or settings.";

#[derive(Debug, clap::Args)]
#[command(mut_arg("ledger", |ledger| ledger.hide(true)))]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) verb: ReportVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReportVerb {
    /// Measure the six success criteria of delivery: shares that succeed, latency, time in the spool, share that fails.
    #[command(after_long_help = SLO_EXAMPLES)]
    Slo(SloArgs),
    /// State what the meter has counted in a month, with a digest that can be verified later.
    #[command(after_long_help = USAGE_EXAMPLES)]
    Usage(ReportUsageArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct SloArgs {
    #[command(flatten)]
    pub(crate) period: PeriodArgs,
    /// Directory of receipts, spool and failed [default: DATA_DIR, delivery.data_dir, data].
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<String>,
}

/// The days of a report.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PeriodArgs {
    /// Whole month: YYYY-MM.
    #[arg(long, value_name = "MONTH", conflicts_with_all = ["from", "to"], required_unless_present = "from")]
    pub(crate) month: Option<String>,
    /// First day: YYYY-MM-DD.
    #[arg(long, value_name = "DAY", requires = "to")]
    pub(crate) from: Option<String>,
    /// Last day: YYYY-MM-DD.
    #[arg(long, value_name = "DAY", requires = "from")]
    pub(crate) to: Option<String>,
}

const USAGE_EXAMPLES: &str = "\
Examples:
  ichido report usage --month 2026-11
  ichido report usage --month 2026-11 --app support --format csv --output usage.csv
  ichido report usage --month 2026-11 --format html --lang ja --output 2026-11.html
  ichido report usage --month 2026-11 --format json --output 2026-11.json
  ichido report usage --verify 2026-11.json           has anything changed since then?

Reads the meter's database (meter.db, METER_DB), also while the meter runs. A statement has the tokens and the cost by app,
user and model, for each currency and aggregation method; what changed since the last statement of the same month; records
that were refused as duplicates; what ichido reconcile found; and the budgets. data/statements remembers the last statement
of each month, tenant and app.

Exit codes: 0 done, or nothing differs; 1 the meter differs from the verified statement; 2 invalid usage or settings, or the
database cannot be read.";

#[derive(Debug, clap::Args)]
pub(crate) struct ReportUsageArgs {
    /// Month of the usage: YYYY-MM.
    #[arg(long, value_name = "MONTH", required_unless_present = "verify")]
    pub(crate) month: Option<String>,
    /// Only this app, by its id.
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) app: Option<String>,
    /// Tenant [default: the only tenant of the meter].
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) tenant: Option<String>,
    /// Format of the statement.
    #[arg(long, value_enum, default_value_t = StatementFormat::Table)]
    pub(crate) format: StatementFormat,
    /// Language of an HTML statement.
    #[arg(long, value_enum, default_value_t = StatementLanguage::En)]
    pub(crate) lang: StatementLanguage,
    /// Write the statement to this file, readable by its owner only.
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Do not remember this statement as the last one.
    #[arg(long)]
    pub(crate) preview: bool,
    /// Compare a statement in JSON with what the meter has now.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["month", "app", "tenant", "output", "preview", "format", "lang"])]
    pub(crate) verify: Option<PathBuf>,
    /// Database of the meter: sqlite:FILE or postgres://… [default: sqlite:data/meter.db].
    #[arg(long, value_name = "URL")]
    pub(crate) db: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatementFormat {
    Table,
    Csv,
    Json,
    Html,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatementLanguage {
    En,
    Ja,
}

impl ReportArgs {
    pub(crate) fn flags(&self) -> Vec<Flag> {
        let mut flags = self.common.flags();
        match &self.verb {
            ReportVerb::Slo(slo) => flags.push(flag("delivery.data_dir", "--data-dir", &slo.data_dir)),
            ReportVerb::Usage(usage) => flags.push(flag("meter.db", "--db", &usage.db)),
        }
        flags
    }
}
