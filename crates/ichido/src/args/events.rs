//! Arguments of `ichido events`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

use super::Common;
use super::ledger::parse_reason;

pub(super) const EVENTS_EXAMPLES: &str = "\
Examples:
  ichido events list --prefix Ev0          events that are marked as seen
  ichido events show Ev0PV52K21            when an event was first seen, and by which instance
  ichido events forget Ev0PV52K21          let it be processed again
  ichido events history --by source        decisions of the last 7 days, by channel, repository or account
  ichido events timeline Ev0PV52K21        every decision about one key
  ichido events anomalies                  unusual hours of the last 7 days";

const HISTORY_EXAMPLES: &str = "\
Examples:
  ichido events history                                      decisions of the last 7 days, by result
  ichido events history --by hour --days 1 --csv > day.csv
  ichido events history --by instance --dir /mnt/a/history --dir /mnt/b/history";

const TIMELINE_EXAMPLES: &str = "\
Examples:
  ichido events timeline Ev0PV52K21              by key
  ichido events timeline 5feceb66ffc86f38        by the hash that the log prints
  ichido events timeline 7f3a-41c2               by the X-Request-Id of a request to the gateway
  ichido events timeline Ev0PV52K21 --admin 127.0.0.1:9090    as a running process has recorded it";

const ANOMALIES_EXAMPLES: &str = "\
Examples:
  ichido events anomalies                                    unusual hours of the last 7 days
  ichido events anomalies --days 1 --json
  ichido events anomalies --dir /mnt/a/history --dir /mnt/b/history    compare instances
  ichido events anomalies --admin 127.0.0.1:9090             as a running process has found them (at most 7 days)

Kinds: volume, duplicates, silence, in-doubt, instance. A source is judged from its second week on.";

const FORGET_EXAMPLES: &str = "\
Examples:
  ichido events forget Ev0PV52K21 --reason 'the bot lost the file'
  ichido events forget Ev0PV52K21 --yes --ledger dynamodb://processed-events

If the event is delivered again, it is processed again. A ledger that several instances share, such as a table in DynamoDB,
forgets it for all of them. The mark is removed only if it is still the one that was shown.";

#[derive(Debug, clap::Args)]
pub(crate) struct EventsArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Use the admin port of a running process at this address, or at this https:// URL. During an outage of the ledger, this also lists
    /// the events that the fallback of that process marked.
    #[arg(long, global = true, value_name = "ADDRESS")]
    pub(crate) admin: Option<String>,
    #[command(subcommand)]
    pub(crate) verb: EventsVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EventsVerb {
    /// List events that are marked.
    #[command(after_long_help = "Examples:\n  ichido events list --prefix Ev0\n  ichido events list --json")]
    List {
        /// Only keys that start with this.
        #[arg(long)]
        prefix: Option<String>,
        /// Maximum number of events.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
        /// Continue where the last list ended.
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Show when an event was first seen, by which instance, how often it was repeated, its metadata, and when it expires.
    Show {
        /// Key of the event.
        key: String,
    },
    /// Count what was decided about events and keyed requests, from the local history.
    #[command(after_long_help = HISTORY_EXAMPLES)]
    History {
        /// Count by this.
        #[arg(long, value_enum, default_value_t = HistoryBy::Result)]
        by: HistoryBy,
        /// How many days back.
        #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=3650))]
        days: u32,
        /// Print CSV.
        #[arg(long, conflicts_with = "json")]
        csv: bool,
        /// Directory of a history, or one of its files; repeat it to merge several instances. Default: `history.dir` and `history.merge`.
        #[arg(long, value_name = "DIR")]
        dir: Vec<PathBuf>,
    },
    /// Show what was decided about one key, from the local history: first seen, repeats, renewals, doubt, resolution.
    #[command(after_long_help = TIMELINE_EXAMPLES)]
    Timeline {
        /// Key, or at least 16 hexadecimal digits of its hash, or the id of a request.
        key: String,
        /// Directory of a history, or one of its files; repeat it to merge several instances. Default: `history.dir` and `history.merge`.
        #[arg(long, value_name = "DIR")]
        dir: Vec<PathBuf>,
    },
    /// Show unusual hours in the local history: volume, duplicates, silence, doubt, and instances that differ from the others.
    #[command(after_long_help = ANOMALIES_EXAMPLES)]
    Anomalies {
        /// How many days back.
        #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=30))]
        days: u32,
        /// Directory of a history, or one of its files; repeat it to merge several instances. Default: `history.dir`.
        #[arg(long, value_name = "DIR")]
        dir: Vec<PathBuf>,
    },
    /// Forget an event, so that it is processed again if it is delivered again.
    #[command(after_long_help = FORGET_EXAMPLES)]
    Forget {
        /// Key of the event.
        key: String,
        /// Why, for the audit log.
        #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
        reason: Option<String>,
        /// Do not ask for confirmation.
        #[arg(long)]
        yes: bool,
    },
}

/// What decisions are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HistoryBy {
    Hour,
    Route,
    Source,
    Instance,
    Result,
}
