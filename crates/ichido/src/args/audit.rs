//! Arguments of `ichido audit`.

use clap::Subcommand;
use ichido_settings::Flag;

use super::{Common, flag};

pub(super) const AUDIT_EXAMPLES: &str = "\
Examples:
  ichido audit list --since 2026-01-01 --who alice      what alice did this year
  ichido audit list --action resolve --json             every resolved claim, for a program
  ichido audit verify                                   exit code 1 if the log was edited, cut or reordered
  ichido audit verify --contains 3f9c…                  and if it lacks the entry with this hash

The hash of the last entry, kept elsewhere, shows later whether the whole log was written anew.";

#[derive(Debug, clap::Args)]
#[command(mut_arg("ledger", |ledger| ledger.hide(true)))]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Directory of the audit log [default: data/audit; ICHIDO_ADMIN_AUDIT_DIR].
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) dir: Option<String>,
    #[command(subcommand)]
    pub(crate) verb: AuditVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditVerb {
    /// List what operators did, oldest first.
    List {
        /// Only entries since this date or time, in UTC: 2026-01-31, 2026-01-31T12:00:00Z.
        #[arg(long, value_name = "TIME", value_parser = parse_time)]
        since: Option<jiff::Timestamp>,
        /// Only what this person did.
        #[arg(long, value_name = "NAME")]
        who: Option<String>,
        /// Only actions that start with this: resolve, release, forget, sweep, resend, accept, sign.
        #[arg(long, value_name = "NAME")]
        action: Option<String>,
        /// Maximum number of entries: the latest ones.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        limit: u32,
    },
    /// Verify that no entry was edited, removed, moved or cut off.
    Verify {
        /// Hash of the last entry that was moved to an archive. The log continues it.
        #[arg(long, value_name = "HASH")]
        after: Option<String>,
        /// Hash of an entry that must be in the log.
        #[arg(long, value_name = "HASH")]
        contains: Option<String>,
    },
}

impl AuditArgs {
    pub(crate) fn flags(&self) -> Vec<Flag> {
        let own = [flag("admin.audit_dir", "--dir", &self.dir)];
        self.common.flags().into_iter().chain(own).collect()
    }
}

fn parse_time(text: &str) -> Result<jiff::Timestamp, String> {
    let date = || text.parse::<jiff::civil::Date>().and_then(|date| date.to_zoned(jiff::tz::TimeZone::UTC));
    text.parse()
        .or_else(|_| date().map(|day| day.timestamp()))
        .map_err(|_| "expected a date or a time, such as 2026-01-31 or 2026-01-31T12:00:00Z".to_owned())
}
