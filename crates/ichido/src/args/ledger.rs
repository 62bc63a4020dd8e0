//! Arguments of `ichido ledger`.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Subcommand, ValueEnum};

use super::Common;
use ichido_admin::operator::{REASON_CHARS_MAX, is_reason};

const RESTORE_EXAMPLES: &str = "\
Example, with the gateway stopped:
  mv data/ledger data/ledger.damaged
  ichido ledger restore /var/backups/ichido/2026-01-31

Requests that were claimed after the backup was taken would run again. Requests that were running at that time are in doubt.";

const TRIAGE_EXAMPLES: &str = "\
Examples:
  ichido ledger triage
  ichido ledger triage --route 'POST /orders' --reason 'lease lapsed' --older-than 1h

At most 10,000 claims in doubt are read.";

const ASK_EXAMPLES: &str = "\
Examples:
  ichido ledger ask order-17                 show what the service says, and what would follow
  ichido ledger ask order-17 --resolve       resolve the claim as the service says, after a confirmation

The route of the gateway says how to ask:
  [[gateway.routes]]
  match = \"POST /orders\"
  resolve = { get = \"/orders?key={key}\", done = 200, absent = 404 }

Before you rely on it, ask about a completed key: the service must say that it happened.";

const RESOLVE_EXAMPLES: &str = "\
Examples:
  ichido ledger resolve order-17 --as done --outcome '{\"id\":17}'
  ichido ledger resolve order-17 --as absent
  ichido ledger resolve --route 'POST /orders' --older-than 1h --as done

Without a key, the claims that match are listed first. One confirmation resolves exactly these, and each has its own entry in the
audit log.";

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
    /// Show claims in doubt, oldest first, and how many there are on which route and why.
    #[command(after_long_help = TRIAGE_EXAMPLES)]
    Triage {
        #[command(flatten)]
        filter: FilterArgs,
        /// Maximum number of claims to list. All are counted.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
    },
    /// Ask the service whether the effect of a claim happened. Needs `resolve` on the route of the gateway.
    #[command(after_long_help = ASK_EXAMPLES)]
    Ask {
        #[command(flatten)]
        key: KeyArgs,
        /// Resolve the claim as the service says.
        #[arg(long)]
        resolve: bool,
        /// Do not ask for confirmation.
        #[arg(long, requires = "resolve")]
        yes: bool,
    },
    /// Record what happened to a claim in doubt, or to all that match.
    #[command(after_long_help = RESOLVE_EXAMPLES)]
    Resolve(ResolveArgs),
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
pub(crate) struct ResolveArgs {
    /// Key of the claim. Without it, all claims in doubt that match --route, --tenant, --reason and --older-than.
    pub(crate) key: Option<String>,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// done: the effect happened; absent: it did not happen, and a retry may run it.
    #[arg(long = "as", value_name = "END", value_parser = EndParser)]
    pub(crate) end: End,
    /// Outcome that retries get, with --as done. Without it, retries learn that the outcome was not kept.
    #[arg(long, requires = "key")]
    pub(crate) outcome: Option<String>,
    /// Maximum number of claims to resolve at once, the oldest first.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) limit: u32,
    /// Do not ask for confirmation when several claims are resolved.
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FilterArgs {
    /// Only claims on this route, such as "POST /orders".
    #[arg(long)]
    pub(crate) route: Option<String>,
    /// Only claims of this tenant, which is how callers are told apart.
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// Only claims whose doubt has a reason that contains this text.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Only claims that have been in doubt for at least this time, such as 90s, 15m, 2h or 3d.
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub(crate) older_than: Option<Duration>,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Done,
    Absent,
}

/// Parses an end. It suggests nothing: the two are opposites, and whoever mistypes one must not be led to the other.
#[derive(Clone, Debug)]
struct EndParser;

impl End {
    const ALL: [(&'static str, Self); 2] = [("done", Self::Done), ("absent", Self::Absent)];
}

impl TypedValueParser for EndParser {
    type Value = End;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<End, clap::Error> {
        let found = End::ALL.into_iter().find(|(name, _)| value == *name);
        found.map(|(_, end)| end).ok_or_else(|| {
            let mut error = clap::Error::new(ErrorKind::InvalidValue).with_cmd(command);
            let names = End::ALL.map(|(name, _)| name.to_owned()).to_vec();
            let arg = arg.map(ToString::to_string).unwrap_or_default();
            error.insert(ContextKind::InvalidArg, ContextValue::String(arg));
            error.insert(
                ContextKind::InvalidValue,
                ContextValue::String(value.to_string_lossy().into_owned()),
            );
            error.insert(ContextKind::ValidValue, ContextValue::Strings(names));
            error
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(End::ALL.into_iter().map(|(name, _)| PossibleValue::new(name))))
    }
}

/// Parses how long a claim has been in doubt.
fn parse_age(text: &str) -> Result<Duration, String> {
    ichido_settings::duration("", text).map_err(|_| "expected a time such as 90s, 15m, 2h or 3d".to_owned())
}

/// Parses a reason for the audit log.
pub(super) fn parse_reason(text: &str) -> Result<String, String> {
    match is_reason(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("expected 1 to {REASON_CHARS_MAX} characters")),
    }
}
