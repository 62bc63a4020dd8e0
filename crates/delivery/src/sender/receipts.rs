//! The receipts that the sender writes and looks up.

use crate::batch::Batch;
use crate::conflict::Proof;
use crate::receipt::{Disposition, Entry};

use super::{Job, Sender};

impl Sender {
    /// Writes a receipt. Without one the batch may be sent again, so an error is only logged.
    pub(super) fn write_receipt(&self, job: &Job, disposition: Disposition, proof: Option<Proof>) {
        let entry = Entry { batch: &job.stored.batch, disposition, proof, attempts: &job.attempts };
        if let Err(error) = self.deps.store.receipts().write(&entry, self.deps.clock.now()) {
            tracing::error!(%error, batchIdempotencyKey = job.stored.batch.key(), "cannot write a receipt");
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
