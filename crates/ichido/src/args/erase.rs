//! Arguments of `ichido erase`.

use ichido_settings::Flag;

use super::ledger::parse_reason;
use super::{Common, flag};

pub(super) const ERASE_EXAMPLES: &str = "\
Examples:
  ichido erase --user U024BE7LH --dry-run                     show what is stored about a user
  ichido erase --user U024BE7LH --reason 'request 2026-118'   erase it, after a confirmation
  ichido erase --key order-17 --reason 'test data' --yes
  ichido erase --channel C061EG9SL --reason 'channel closed' --json

A completed claim keeps the hash of its key, so that a retry still does not run again: it learns that the response was not kept.
A claim that is running or in doubt is not erased. The report says for each place what was found, what was erased, and what
stays and why; docs/privacy.md lists the places.

Exit codes: 0 something was found; 1 nothing was found; 2 invalid usage or settings.";

#[derive(Debug, clap::Args)]
pub(crate) struct EraseArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) subject: SubjectArgs,
    /// Why, for the audit log. It must not contain what is erased.
    #[arg(long, value_name = "TEXT", value_parser = parse_reason, required_unless_present = "dry_run")]
    pub(crate) reason: Option<String>,
    /// Show what would be erased, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask for confirmation.
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) yes: bool,
    /// Reach the ledger through the admin port of a running process, at this address, or at this https:// URL.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<String>,
    /// Directory of spool, failed, receipts and notices [default: DATA_DIR, delivery.data_dir, data].
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<String>,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct SubjectArgs {
    /// Key of a claim, an event or a batch, or event id of a record.
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// User: claims and events with this user_id or user, records with this source_user_id, and the usage that was counted.
    #[arg(long, value_name = "ID")]
    pub(crate) user: Option<String>,
    /// Channel: claims, events, records and decisions with this channel_id, channel, repository or source.
    #[arg(long, value_name = "ID")]
    pub(crate) channel: Option<String>,
}

impl EraseArgs {
    pub(crate) fn flags(&self) -> Vec<Flag> {
        let mut flags = self.common.flags();
        flags.push(flag("delivery.data_dir", "--data-dir", &self.data_dir));
        flags
    }
}
