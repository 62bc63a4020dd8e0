//! Arguments of `ichido ledger`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

use super::Common;
use ichido_admin::operator::{REASON_CHARS_MAX, is_reason};

const RESTORE_EXAMPLES: &str = "\
Example, with the gateway stopped:
  mv data/ledger data/ledger.damaged
  ichido ledger restore /var/backups/ichido/2026-01-31

Requests that were claimed after the backup was taken would run again. Requests that were running at that time are in doubt.";

const FORGET_EXAMPLES: &str = "\
Example:
  ichido ledger forget Ev0PV52K21 --reason 'the bot answered 200 before it crashed'

The stored outcome is removed. This holds for every instance that uses the ledger. A claim that is running or in doubt is not
forgotten: resolve or release it.";

#[derive(Debug, clap::Args)]
pub(crate) struct LedgerArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Use the admin port of a running process at this address, or at this https:// URL. During an outage of the ledger, this also lists and
    /// resolves the claims that the fallback of that process granted.
    #[arg(long, global = true, value_name = "ADDRESS")]
    pub(crate) admin: Option<String>,
    #[command(subcommand)]
    pub(crate) verb: LedgerVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LedgerVerb {
    /// Create the directory or tables of the ledger, or accept a Redis ledger that has lost data.
    Init,
    /// List claims.
    #[command(
        after_long_help = "Examples:\n  ichido ledger list --state in-doubt\n  ichido ledger list --prefix order- --json"
    )]
    List {
        /// Only claims in this state.
        #[arg(long)]
        state: Option<State>,
        /// Only keys that start with this.
        #[arg(long)]
        prefix: Option<String>,
        /// Maximum number of claims.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
        /// Continue where the last list ended.
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Show everything about a claim.
    Show(KeyArgs),
    /// Record what happened to a claim in doubt.
    #[command(
        after_long_help = "Examples:\n  ichido ledger resolve order-17 --as done --outcome '{\"id\":17}'\n  ichido ledger resolve order-17 --as absent"
    )]
    Resolve {
        #[command(flatten)]
        key: KeyArgs,
        /// done: the effect happened; absent: it did not happen, and a retry may run it.
        #[arg(long = "as", value_name = "END")]
        end: End,
        /// Outcome that retries get, with --as done. Without it, retries learn that the outcome was not kept.
        #[arg(long)]
        outcome: Option<String>,
    },
    /// Release a key whose effect did not happen.
    Release {
        #[command(flatten)]
        key: KeyArgs,
        /// Release it even though its lease has not expired. Only if you know that the holder is gone.
        #[arg(long)]
        force: bool,
    },
    /// Forget a completed claim whose effect did not happen, so that the next request with its key runs it.
    #[command(after_long_help = FORGET_EXAMPLES)]
    Forget {
        #[command(flatten)]
        key: KeyArgs,
        /// Why, for the audit log.
        #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
        reason: String,
        /// Do not ask for confirmation.
        #[arg(long)]
        yes: bool,
    },
    /// Remove claims and marks that have expired.
    Sweep,
    /// Count claims and marks.
    Stats,
    /// Read and check everything that a file: ledger stores. Exits with 1 if something is damaged.
    Verify,
    /// Copy a file: ledger to a new directory, even while it is in use.
    #[command(after_long_help = "Example:\n  ichido ledger backup /var/backups/ichido/$(date +%F)")]
    Backup {
        /// Directory that does not exist yet or is empty, on the machine of the process that has the ledger open.
        directory: PathBuf,
    },
    /// Restore a backup to the directory of the ledger, which must not exist or be empty.
    #[command(after_long_help = RESTORE_EXAMPLES)]
    Restore {
        /// Directory of the backup.
        backup: PathBuf,
        /// Do not ask for confirmation.
        #[arg(long)]
        yes: bool,
    },
    /// Reclaim all disk space that expired and replaced records of a file: ledger take.
    Compact,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct KeyArgs {
    /// Key of the claim.
    pub(crate) key: String,
    /// Tenant, if several have the same key.
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// Route, if several have the same key.
    #[arg(long)]
    pub(crate) route: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum State {
    Running,
    InDoubt,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum End {
    Done,
    Absent,
}

/// Parses a reason for the audit log.
pub(super) fn parse_reason(text: &str) -> Result<String, String> {
    match is_reason(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("expected 1 to {REASON_CHARS_MAX} characters")),
    }
}
