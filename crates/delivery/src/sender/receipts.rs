//! The receipts that the sender writes and looks up.

use crate::batch::Batch;
use crate::conflict::Proof;
use crate::next_action::Origin;
use crate::receipt::{Disposition, Entry};
use crate::store::StoredBatch;

use super::{Job, Sender};

impl Sender {
    /// Writes the receipt of a pass.
    pub(super) fn write_receipt(&self, job: &Job, disposition: Disposition, proof: Option<Proof>) {
        let entry = entry(&job.stored, disposition, job.origin);
        self.write_entry(&Entry { proof, attempts: &job.attempts, ..entry });
    }

    /// Writes the receipt of a batch that the receiver accepted in part. The rest of its records get receipts of their own.
    pub(super) fn write_split_receipt(&self, job: &Job, accepted: &[usize]) {
        let entry = entry(&job.stored, Disposition::Split, job.origin);
        self.write_entry(&Entry { attempts: &job.attempts, accepted, ..entry });
    }

    /// Writes the receipt of a batch that moved to failed without a request.
    pub(super) fn write_unsent_receipt(&self, stored: &StoredBatch, origin: Origin) {
        self.write_entry(&entry(stored, Disposition::Failed, origin));
    }

    /// Without a receipt the batch may be sent again, so an error is only logged.
    fn write_entry(&self, entry: &Entry<'_>) {
        if let Err(error) = self.deps.store.receipts().write(entry, self.deps.clock.now()) {
            tracing::error!(%error, batchIdempotencyKey = entry.batch.key(), "cannot write a receipt");
        }
    }

    /// Whether a receipt says that the receiver has exactly this batch.
    pub(super) fn has_receipt(&self, batch: &Batch) -> bool {
        self.deps.store.receipts().has_delivered(batch).unwrap_or_else(|error| {
            tracing::error!(%error, "cannot read receipts");
            false
        })
    }

    pub(super) fn sync_receipts(&self) {
        if let Err(error) = self.deps.store.receipts().sync() {
            tracing::error!(%error, "cannot sync receipts");
        }
    }
}

fn entry(stored: &StoredBatch, disposition: Disposition, origin: Origin) -> Entry<'_> {
    let entry = Entry::new(&stored.batch, disposition, stored.first_attempt);
    Entry { origin: Some(origin), part_of: stored.part_of.as_deref(), ..entry }
}
