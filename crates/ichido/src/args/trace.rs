//! Arguments of `ichido trace`.

use ichido_settings::Flag;

use super::{Common, flag};

pub(super) const TRACE_EXAMPLES: &str = "\
Examples:
  ichido trace dify-2026-11-openai-gpt-4o-17     a record, by its event id
  ichido trace a3f2e1b9c4d5                      a batch, by its key or the first 12 characters of it
  ichido trace order-17                          a claim or an event, by its key
  ichido trace 5feceb66ffc86f38                  a key, by the hash that the log prints
  ichido trace 7f3a-41c2 --json                  a request, by its id
  ichido trace order-17 --admin 127.0.0.1:9090   as a running process sees it

Looks into the export, receipts, batches that are being sent, the spool, failed, the meter, the ledger, the history and the audit
log, and says what it could not look into, and why.

Exit codes: 0 something was found; 1 nothing was found; 2 invalid usage or settings.";

#[derive(Debug, clap::Args)]
pub(crate) struct TraceArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Event id of a record, key of a batch, a claim or an event, hash of a key, or id of a request.
    pub(crate) id: String,
    /// Ask a running process, through its admin port at this address, or at this https:// URL.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "data_dir")]
    pub(crate) admin: Option<String>,
    /// Directory of receipts, spool and failed [default: DATA_DIR, delivery.data_dir, data].
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<String>,
}

impl TraceArgs {
    pub(crate) fn flags(&self) -> Vec<Flag> {
        let mut flags = self.common.flags();
        flags.push(flag("delivery.data_dir", "--data-dir", &self.data_dir));
        flags
    }
}
