//! The arguments of `ichido ledger`.

use clap::{Subcommand, ValueEnum};

use super::Common;

#[derive(Debug, clap::Args)]
pub(crate) struct LedgerArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Go through a running process, by the address of its admin port. While the ledger is unavailable, this also lists and
    /// resolves the claims that the process granted in its place.
    #[arg(long, global = true, value_name = "ADDRESS")]
    pub(crate) admin: Option<String>,
    #[command(subcommand)]
    pub(crate) verb: LedgerVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LedgerVerb {
    /// Creates what the ledger needs: a directory, tables. Accepts a Redis ledger that lost data.
    Init,
    /// Lists claims.
    #[command(
        after_help = "Examples:\n  ichido ledger list --state in-doubt\n  ichido ledger list --prefix order- --json"
    )]
    List {
        /// Only claims in this state.
        #[arg(long)]
        state: Option<State>,
        /// Only keys that start so.
        #[arg(long)]
        prefix: Option<String>,
        /// At most so many.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
        /// Where the last list ended.
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Shows everything about a claim.
    Show(KeyArgs),
    /// Says how a claim in doubt ended.
    #[command(
        after_help = "Examples:\n  ichido ledger resolve order-17 --as done --outcome '{\"id\":17}'\n  ichido ledger resolve order-17 --as absent"
    )]
    Resolve {
        #[command(flatten)]
        key: KeyArgs,
        /// done: the effect happened; absent: it did not, and may be tried again.
        #[arg(long = "as", value_name = "END")]
        end: End,
        /// What repeats are answered, with --as done. Without it they learn that the answer was not kept.
        #[arg(long)]
        outcome: Option<String>,
    },
    /// Gives a key back whose effect did not happen.
    Release {
        #[command(flatten)]
        key: KeyArgs,
        /// Also while its lease is good: you know that its holder is gone.
        #[arg(long)]
        force: bool,
    },
    /// Removes what is over: claims past their retention, marks past their end.
    Sweep,
    /// Counts what is stored.
    Stats,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct KeyArgs {
    /// The caller's key.
    pub(crate) key: String,
    /// Whose key it is, where several have the same.
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// Which operation it is for, where several have the same.
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
