//! The high-water mark: the last commit that was acknowledged, kept outside the engine.
//!
//! The engine may lose what it acknowledged without noticing (a damaged journal is cut, a backup of half the
//! directory is restored). A store that has fallen behind this mark is not opened: every claim it forgot would be
//! granted a second time.
//!
//! ```text
//! two slots, at 0 and 4096, written in turn
//!   4 "ihwm" │ 1 version = 1 │ 8 sequence │ 4 crc32 of what is before
//! ```
//!
//! A slot is written after the commit is durable and before anyone is told, so the mark is never ahead of the store.
//! It is synced at leisure: kill -9 loses nothing, power loss at most a tenth of a second of it, which makes the check
//! weaker and never wrong.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const MAGIC: [u8; 4] = *b"ihwm";
const VERSION: u8 = 1;
const SLOT_BYTES: usize = 17;
const SLOT_DISTANCE: u64 = 4096;

/// The mark beside one store.
#[derive(Debug)]
pub(super) struct HighWater {
    file: File,
    dirty: bool,
}

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// There is no file: a new store, or an operator removed it on purpose.
    Missing,
    /// Up to here commits were acknowledged.
    At(u64),
    /// Neither slot can be read.
    Damaged,
}

/// Reads the mark.
pub(super) fn read(path: &Path) -> io::Result<Mark> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Mark::Missing),
        Err(error) => return Err(error),
    };
    let slots = [read_slot(&file, 0)?, read_slot(&file, SLOT_DISTANCE)?];
    Ok(slots.into_iter().flatten().max().map_or(Mark::Damaged, Mark::At))
}

fn read_slot(file: &File, offset: u64) -> io::Result<Option<u64>> {
    let mut slot = [0; SLOT_BYTES];
    match file.read_exact_at(&mut slot, offset) {
        Ok(()) => Ok(decode(&slot)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

fn encode(sequence: u64) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[..4].copy_from_slice(&MAGIC);
    slot[4] = VERSION;
    slot[5..13].copy_from_slice(&sequence.to_be_bytes());
    let checksum = crc32fast::hash(&slot[..13]);
    slot[13..].copy_from_slice(&checksum.to_be_bytes());
    slot
}

fn decode(slot: &[u8; SLOT_BYTES]) -> Option<u64> {
    let sequence = u64::from_be_bytes(*slot[5..].first_chunk()?);
    (*slot == encode(sequence)).then_some(sequence)
}

impl HighWater {
    /// Opens or creates the file, and writes `sequence` into both slots.
    pub(super) fn open(path: &Path, sequence: u64) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        for offset in [0, SLOT_DISTANCE] {
            file.write_all_at(&encode(sequence), offset)?;
        }
        file.sync_all()?;
        Ok(Self { file, dirty: false })
    }

    /// Raises the mark after a durable commit.
    pub(super) fn raise(&mut self, sequence: u64) -> io::Result<()> {
        let offset = if sequence.is_multiple_of(2) { 0 } else { SLOT_DISTANCE };
        self.file.write_all_at(&encode(sequence), offset)?;
        self.dirty = true;
        Ok(())
    }

    /// Whether the mark was raised since it was last synced.
    pub(super) fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Makes the mark durable.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.dirty {
            self.file.sync_data()?;
            self.dirty = false;
        }
        Ok(())
    }
}
