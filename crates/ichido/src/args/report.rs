//! Arguments of `ichido report`.

use clap::Subcommand;
use ichido_settings::Flag;

use super::{Common, flag};

pub(super) const REPORT_EXAMPLES: &str = "\
Examples:
  ichido report slo --month 2026-11            the six success criteria of delivery
  ichido report slo --from 2026-11-01 --to 2026-11-07 --json";

const SLO_EXAMPLES: &str = "\
Examples:
  ichido report slo --month 2026-11
  ichido report slo --from 2026-11-01 --to 2026-11-07 --json

Measured from the receipts in data/receipts, the files in data/spool and data/failed, and the audit log. Days are days in UTC.
Receipts are kept for RECEIPT_RETENTION_DAYS (90).

Exit codes: 0 no criterion was missed; 1 a criterion was missed; 2 invalid usage or settings.";

#[derive(Debug, clap::Args)]
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

impl ReportArgs {
    pub(crate) fn flags(&self) -> Vec<Flag> {
        let mut flags = self.common.flags();
        match &self.verb {
            ReportVerb::Slo(slo) => flags.push(flag("delivery.data_dir", "--data-dir", &slo.data_dir)),
        }
        flags
    }
}
