//! The high-water mark: the last commit that was acknowledged, in a file of its own.
//!
//! A store may lose what it acknowledged without noticing: the last segment may be cut, or an old copy of it restored. A
//! store that has fallen behind this mark is not opened, because every claim that it lost would be granted again.
//!
//! ```text
//! two slots, at 0 and 4096: the lower one is written, so that a torn write leaves the other
//!   4 "ihwm" │ 1 version = 2 │ 8 commit │ 4 CRC-32C of what is before
//! ```
//!
//! A slot is written after its commit is durable and before anyone gets an answer, so the mark is never ahead of the store.
//! It is synced from time to time: kill -9 loses nothing of it, and power loss at most the last tenth of a second, which
//! makes the check weaker and never wrong.

use std::io;
use std::sync::Arc;

use super::storage::{File, Storage};

/// The name of the file.
pub(crate) const NAME: &str = "high-water";
const MAGIC: [u8; 4] = *b"ihwm";
const VERSION: u8 = 2;
const SLOT_BYTES: usize = 17;
const SLOT_DISTANCE: u64 = 4096;

/// The mark of an open store.
#[derive(Debug)]
pub(crate) struct HighWater {
    file: Arc<dyn File>,
    /// The slot that is written next. The other one has the mark.
    next: Slot,
    is_dirty: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    First,
    Second,
}

impl Slot {
    fn offset(self) -> u64 {
        match self {
            Self::First => 0,
            Self::Second => SLOT_DISTANCE,
        }
    }

    fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// What the file contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// There is no file: the store is new, or an operator removed it on purpose.
    Missing,
    /// Commits up to this one were acknowledged.
    At(u64),
    /// Neither slot can be read.
    Damaged,
}

/// Reads the mark.
pub(crate) fn read(storage: &dyn Storage) -> io::Result<Mark> {
    let file = match storage.open(NAME) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Mark::Missing),
        Err(error) => return Err(error),
    };
    let commit = read_slot(&*file, Slot::First)?.max(read_slot(&*file, Slot::Second)?);
    Ok(commit.map_or(Mark::Damaged, Mark::At))
}

fn read_slot(file: &dyn File, slot: Slot) -> io::Result<Option<u64>> {
    let offset = slot.offset();
    if file.len()? < offset + SLOT_BYTES as u64 {
        return Ok(None);
    }
    let mut slot = [0; SLOT_BYTES];
    file.read_at(&mut slot, offset)?;
    Ok(decode(&slot))
}

fn encode(commit: u64) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[..4].copy_from_slice(&MAGIC);
    slot[4] = VERSION;
    slot[5..13].copy_from_slice(&commit.to_be_bytes());
    let checksum = crc32c::crc32c(&slot[..13]);
    slot[13..].copy_from_slice(&checksum.to_be_bytes());
    slot
}

fn decode(slot: &[u8; SLOT_BYTES]) -> Option<u64> {
    let commit = u64::from_be_bytes(*slot[5..].first_chunk()?);
    (*slot == encode(commit)).then_some(commit)
}

impl HighWater {
    /// Opens the mark at this commit, in a new file.
    ///
    /// An old file cannot be trusted with the next commits: after a failed sync its slots may read well and be torn on the
    /// disk. The new file appears under its name after its content is durable.
    pub(crate) fn open(storage: &dyn Storage, commit: u64) -> io::Result<Self> {
        // The name of the first segment may not be durable yet. A mark without segments would be damage.
        storage.sync_dir()?;
        let mut bytes = vec![0; usize::try_from(SLOT_DISTANCE).unwrap_or(0)];
        bytes[..SLOT_BYTES].copy_from_slice(&encode(commit));
        bytes.extend(encode(commit));
        super::storage::replace(storage, NAME, &bytes)?;
        Ok(Self { file: storage.open(NAME)?, next: Slot::First, is_dirty: false })
    }

    /// Raises the mark after a durable commit.
    pub(crate) fn raise(&mut self, commit: u64) -> io::Result<()> {
        self.file.write_at(&encode(commit), self.next.offset())?;
        self.next = self.next.other();
        self.is_dirty = true;
        Ok(())
    }

    /// Whether the mark was raised since it was last synced.
    pub(crate) fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    /// Makes the mark durable.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if self.is_dirty {
            self.file.sync()?;
            self.is_dirty = false;
        }
        Ok(())
    }
}

#[cfg(all(test, feature = "simulation"))]
mod tests {
    use super::*;
    use crate::simulation::disk::{Fault, Operation, SimulatedDisk};

    #[test]
    fn torn_writes_leave_a_mark() {
        for seed in 0..500 {
            let disk = SimulatedDisk::new(seed);
            let mut mark = HighWater::open(&disk, 6).unwrap();
            mark.raise(7).unwrap();
            disk.schedule_fault(Operation::Write, 0, Fault::Io);
            mark.raise(8).unwrap_err();
            // The commit is durable all the same, so the next one has the number 9.
            let mut mark = HighWater::open(&disk, 7).unwrap();
            disk.crash_after(0);
            mark.raise(9).unwrap_err();
            let disk = if seed % 2 == 0 { disk.kill() } else { disk.restart() };
            let found = read(&disk).unwrap();
            assert!(matches!(found, Mark::At(6..=9)), "{found:?} with seed {seed}");
        }
    }
}
