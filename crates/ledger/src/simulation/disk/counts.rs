//! Counts what happens on the disk, for statistics and for choosing where to crash.

use super::faults::Operation;

/// What has happened on a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations that change something, the unit of `crash_after`.
    pub changes: u64,
    /// Reads of content.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes passed to writes.
    pub bytes_written: u64,
    /// Syncs of files.
    pub syncs: u64,
    /// Syncs of the directory.
    pub dir_syncs: u64,
    /// Injected faults.
    pub faults: u64,
    /// Power losses.
    pub power_losses: u64,
    /// Restarts of the process without a power loss.
    pub kills: u64,
}

impl Counts {
    pub(super) fn count(&mut self, operation: Operation) {
        self.changes += u64::from(operation.is_change());
        match operation {
            Operation::Read => self.reads += 1,
            Operation::Write => self.writes += 1,
            Operation::Sync => self.syncs += 1,
            Operation::SyncDir => self.dir_syncs += 1,
            Operation::Open
            | Operation::Create
            | Operation::Rename
            | Operation::Remove
            | Operation::List
            | Operation::Len => {}
        }
    }
}
