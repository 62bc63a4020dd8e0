//! What one run did, counted in batches.

use serde::Serialize;

/// The counters that a run reports as one line of JSON. In the log they are `metrics.sendTotal`, `metrics.sendSuccess` and so on.
///
/// A batch counts in `send_total` each time an attempt to send it ends: it was delivered (`send_success`), or it went to
/// the spool or to failed (`send_failed`). A batch that was split is not counted, but its parts are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Batches whose sending ended.
    pub send_total: u64,
    /// Of these, batches that the receiver has, including duplicates.
    pub send_success: u64,
    /// Of these, batches that the receiver already had.
    pub send_duplicate: u64,
    /// Of these, batches that were not delivered.
    pub send_failed: u64,
    /// Requests that were retries.
    pub retries: u64,
    /// Batches that were delivered by a retry.
    pub retry_success: u64,
    /// Batches that were put into the spool.
    pub spool_saved: u64,
    /// Completed passes over spooled batches.
    pub spool_resend_attempts: u64,
    /// Of these, passes that delivered the batch.
    pub spool_resend_success: u64,
    /// Spooled batches that were tried, not delivered, and put back.
    #[serde(skip)]
    pub spool_returned: u64,
    /// Batches that were moved to failed.
    pub failed_moved: u64,
    /// Batches in the spool at the end of the run.
    pub spool_size: u64,
    /// Records that were delivered.
    pub records_delivered: u64,
    /// Batches that were neither delivered nor written to disk, because the disk was full.
    pub lost: u64,
}
