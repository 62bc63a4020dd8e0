//! The arguments of `ichido send`, `spool` and `failed`.

use std::path::PathBuf;

use clap::Subcommand;

pub(super) const SEND_EXAMPLES: &str = "\
Examples:
  ichido send usage.jsonl                       one JSON object per line
  ichido send january.json february.json.gz     a JSON array, or {\"records\":[…]}; gzip is understood
  export-usage | ichido send -                  from a pipe
  ichido send --dry-run usage.jsonl             how many batches would it be?

EXTERNAL_API_ENDPOINT and EXTERNAL_API_TOKEN (or EXTERNAL_API_TOKEN_FILE) say where to and as whom, or endpoint and
token_file in the section [delivery] of ichido.toml.
What waits in the spool is sent first. A batch that does not arrive waits in data/spool for the next run; what the
receiver refuses, and lines that are no records, lie in data/failed.
A batch may be sent more than once, always with the same Idempotency-Key: after a timeout or a lost answer nobody knows whether it
arrived. Each record counts once if the receiver recognises the key of a batch or the ids of its records.
Exit codes: 0 all arrived; 3 something waits in the spool; 4 something went to failed; 2 settings; 1 anything else.";

/// What the command line says of the sender.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DeliveryFlags {
    /// Where batches go [default: EXTERNAL_API_ENDPOINT, delivery.endpoint].
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) endpoint: Option<String>,
    /// Where spool, failed and notices are [default: DATA_DIR, delivery.data_dir, data].
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) data_dir: Option<String>,
}

/// The same, for commands that have no ledger.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DeliveryArgs {
    /// The settings file [default: ichido.toml, if it exists].
    #[arg(long, value_name = "FILE", env = "ICHIDO_CONFIG", global = true)]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) flags: DeliveryFlags,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SendArgs {
    #[command(flatten)]
    pub(crate) delivery: DeliveryArgs,
    /// Files with records; - is standard input [default: -].
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Reads and counts, and sends nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Prints what was done as one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SpoolArgs {
    #[command(flatten)]
    pub(crate) delivery: DeliveryArgs,
    /// Prints JSON instead of tables.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) verb: SpoolVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SpoolVerb {
    /// Lists what waits, oldest first.
    List(ListArgs),
    /// Shows everything about a batch: its history and its records.
    Show(BatchArgs),
    /// Tries what waits now.
    #[command(after_help = "Examples:\n  ichido spool resend\n  ichido spool resend a3f2e1b9c4d5 --force")]
    Resend {
        /// Only batches whose key begins so.
        #[arg(value_name = "KEY")]
        keys: Vec<String>,
        /// Also what is not due yet.
        #[arg(long)]
        force: bool,
    },
    /// Reads every file and names what is not as it should be. Changes nothing.
    Fsck,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FailedArgs {
    #[command(flatten)]
    pub(crate) delivery: DeliveryArgs,
    /// Prints JSON instead of tables.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) verb: FailedVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FailedVerb {
    /// Lists what failed, oldest first.
    List(ListArgs),
    /// Shows everything about a batch: its history and its records.
    Show(BatchArgs),
    /// Tries batches again. They keep their history.
    #[command(
        after_help = "Examples:\n  ichido failed resend a3f2e1b9c4d5\n  ichido failed resend --all\n  \
        ichido failed resend --by-record a3f2e1b9c4d5"
    )]
    Resend {
        /// Only batches whose key begins so.
        #[arg(value_name = "KEY")]
        keys: Vec<String>,
        /// Every batch, as without KEY.
        #[arg(long, conflicts_with = "keys")]
        all: bool,
        /// The receiver recognises single records: on 409, send smaller batches until each record is accepted or known.
        /// A receiver that recognises only whole batches would count records twice.
        #[arg(long, requires = "keys")]
        by_record: bool,
    },
    /// Removes batches that the receiver has already, and records that in data/receipts.
    #[command(after_help = "Example:\n  ichido failed accept a3f2e1b9c4d5")]
    Accept {
        /// The key of the batch, or the beginning of it.
        #[arg(value_name = "KEY", required = true)]
        keys: Vec<String>,
    },
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Only batches whose key begins so.
    #[arg(long, value_name = "KEY")]
    pub(crate) prefix: Option<String>,
    /// Only batches whose last error holds this text.
    #[arg(long, value_name = "TEXT")]
    pub(crate) error: Option<String>,
    /// At most so many.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) limit: u32,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BatchArgs {
    /// The key of the batch, or the beginning of it.
    pub(crate) key: String,
}
