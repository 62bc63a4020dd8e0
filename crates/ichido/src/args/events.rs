//! Arguments of `ichido events`.

use clap::Subcommand;

use super::Common;
use super::ledger::parse_reason;

pub(super) const EVENTS_EXAMPLES: &str = "\
Examples:
  ichido events list --prefix Ev0          events that are marked as seen
  ichido events show Ev0PV52K21            when an event was first seen, and by which instance
  ichido events forget Ev0PV52K21          let it be processed again";

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
    #[command(after_help = "Examples:\n  ichido events list --prefix Ev0\n  ichido events list --json")]
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
    /// Show when an event was first seen, by which instance, its metadata, and when it expires.
    Show {
        /// Key of the event.
        key: String,
    },
    /// Forget an event, so that it is processed again if it is delivered again.
    #[command(after_help = FORGET_EXAMPLES)]
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
