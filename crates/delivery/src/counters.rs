//! What a run did, in batches.

use serde::Serialize;

/// Counted in batches; one line of JSON at the end of a run.
///
/// A batch counts in `sendTotal` each time it was tried to an end: it arrived (`sendSuccess`), or it went to the spool
/// or to failed (`sendFailed`). A batch that was divided is not counted; its parts are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counters {
    /// Batches that were tried to an end.
    pub send_total: u64,
    /// Of these: arrived, now or before.
    pub send_success: u64,
    /// Of these: had arrived before.
    pub send_duplicate: u64,
    /// Of these: did not arrive.
    pub send_failed: u64,
    /// Requests that were repetitions.
    pub retries: u64,
    /// Batches that arrived by a repetition.
    pub retry_success: u64,
    /// Batches that were put into the spool.
    pub spool_saved: u64,
    /// Passes over batches of the spool that came to an end.
    pub spool_resend_attempts: u64,
    /// Of these: arrived.
    pub spool_resend_success: u64,
    /// Batches of the spool that were tried, did not arrive, and went back there.
    #[serde(skip)]
    pub spool_returned: u64,
    /// Batches that were moved to failed.
    pub failed_moved: u64,
    /// Batches in the spool at the end.
    pub spool_size: u64,
    /// Records that arrived.
    pub records_delivered: u64,
    /// Batches that could neither be delivered nor be written down: a full disk.
    pub lost: u64,
}
