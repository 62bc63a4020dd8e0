//! Arguments of `ichido send`, `spool` and `failed`.

use std::path::PathBuf;

use clap::Subcommand;
use ichido_settings::Flag;

use super::flag;

pub(super) const SEND_EXAMPLES: &str = "\
Examples:
  ichido send usage.jsonl                       one JSON object per line
  ichido send january.json february.json.gz     a JSON array, or {\"records\":[…]}; also gzipped
  export-usage | ichido send -                  from a pipe
  ichido send --dry-run usage.jsonl             show the batches without sending them

Set the receiver with EXTERNAL_API_ENDPOINT and EXTERNAL_API_TOKEN (or EXTERNAL_API_TOKEN_FILE), or with endpoint and
token_file in the section [delivery] of ichido.toml.

Batches in the spool are sent first. A batch that does not arrive stays in data/spool for the next run. Batches that the
receiver rejects, and lines that are not records, go to data/failed.

A batch may be sent more than once, always with the same Idempotency-Key: after a timeout or a lost response nobody knows
whether it arrived. Each record counts once if the receiver recognises the key of a batch or the ids of its records.

Exit codes: 0 everything arrived; 3 a batch is in the spool; 4 a batch went to failed; 2 invalid settings; 1 any other error.";

/// Flags that override settings of the sender.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DeliveryFlags {
    /// URL of the receiver [default: EXTERNAL_API_ENDPOINT, delivery.endpoint].
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) endpoint: Option<String>,
    /// Directory of spool, failed and notices [default: DATA_DIR, delivery.data_dir, data].
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) data_dir: Option<String>,
}

/// Flags of commands that have a sender, but no ledger.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DeliveryArgs {
    /// Settings file [default: ichido.toml, if it exists].
    #[arg(long, value_name = "FILE", env = "ICHIDO_CONFIG", global = true)]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) flags: DeliveryFlags,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SendArgs {
    #[command(flatten)]
    pub(crate) delivery: DeliveryArgs,
    /// Files with records; - for standard input [default: -].
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Read the input and print the batches, but send nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print the result as one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SpoolArgs {
    #[command(flatten)]
    pub(crate) delivery: DeliveryArgs,
    /// Print JSON instead of tables.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) verb: SpoolVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SpoolVerb {
    /// List batches, oldest first.
    List(ListArgs),
    /// Show a batch with its history and its records.
    Show(BatchArgs),
    /// Send batches now.
    #[command(
        after_long_help = "Examples:\n  ichido spool resend\n  ichido spool resend a3f2e1b9c4d5 --force"
    )]
    Resend {
        /// Only batches whose key starts with this.
        #[arg(value_name = "KEY")]
        keys: Vec<String>,
        /// Include batches that are not due yet.
        #[arg(long)]
        force: bool,
    },
    /// Check every file, and report what is wrong. Changes nothing.
    Fsck,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FailedArgs {
    #[command(flatten)]
    pub(crate) delivery: DeliveryArgs,
    /// Print JSON instead of tables.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) verb: FailedVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FailedVerb {
    /// List batches, oldest first.
    List(ListArgs),
    /// Show a batch with its history and its records.
    Show(BatchArgs),
    /// Send batches again. They keep their history.
    #[command(
        after_long_help = "Examples:\n  ichido failed resend a3f2e1b9c4d5\n  ichido failed resend --all\n  \
        ichido failed resend --by-record a3f2e1b9c4d5"
    )]
    Resend {
        /// Only batches whose key starts with this.
        #[arg(value_name = "KEY")]
        keys: Vec<String>,
        /// Every batch. This is the default without KEY.
        #[arg(long, conflicts_with = "keys")]
        all: bool,
        /// On a 409, send smaller batches until each record is accepted or known. Only for receivers that recognise
        /// single records: one that recognises only whole batches would count records twice.
        #[arg(long, requires = "keys")]
        by_record: bool,
    },
    /// Remove batches that the receiver already has, and write receipts for them.
    #[command(after_long_help = "Example:\n  ichido failed accept a3f2e1b9c4d5")]
    Accept {
        /// Key of the batch, or the start of it.
        #[arg(value_name = "KEY", required = true)]
        keys: Vec<String>,
    },
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Only batches whose key starts with this.
    #[arg(long, value_name = "KEY")]
    pub(crate) prefix: Option<String>,
    /// Only batches whose last error contains this text.
    #[arg(long, value_name = "TEXT")]
    pub(crate) error: Option<String>,
    /// Maximum number of batches.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) limit: u32,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BatchArgs {
    /// Key of the batch, or the start of it.
    pub(crate) key: String,
}

impl DeliveryFlags {
    pub(crate) fn flags(&self) -> Vec<Flag> {
        vec![
            flag("delivery.endpoint", "--endpoint", &self.endpoint),
            flag("delivery.data_dir", "--data-dir", &self.data_dir),
        ]
    }
}
