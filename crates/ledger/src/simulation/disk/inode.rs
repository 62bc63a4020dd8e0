//! One file: its live content, its durable content, and the changes in between.
//!
//! The two images share their memory until one of them changes, so a restart copies only the files that are written again.

use std::mem;
use std::sync::Arc;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::survival::{Sequence, Survival};

/// The unit that a disk writes as a whole.
pub const SECTOR_BYTES: usize = 512;

#[derive(Debug, Default)]
pub(super) struct Inode {
    live: Arc<Vec<u8>>,
    durable: Arc<Vec<u8>>,
    pending: Vec<Change>,
    /// Open files hold clones of this.
    open: Arc<()>,
}

#[derive(Debug)]
enum Change {
    Truncate(Sequence),
    /// The pieces of a write have consecutive sequence numbers.
    Write {
        first: Sequence,
        offset: usize,
        bytes: Vec<u8>,
    },
}

/// The part of a write that lies within one sector.
struct Piece<'a> {
    sequence: Sequence,
    offset: usize,
    bytes: &'a [u8],
}

impl Inode {
    /// The content that a running process sees.
    pub(super) fn live(&self) -> &[u8] {
        &self.live
    }

    /// The content on the medium.
    pub(super) fn durable(&self) -> &[u8] {
        &self.durable
    }

    /// Proof that the file is open.
    pub(super) fn open(&self) -> Arc<()> {
        Arc::clone(&self.open)
    }

    pub(super) fn is_open(&self) -> bool {
        Arc::strong_count(&self.open) > 1
    }

    /// Writes to the live image. `offset + bytes.len()` must not overflow.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8], next: &mut Sequence) {
        if bytes.is_empty() {
            return;
        }
        overwrite(Arc::make_mut(&mut self.live), offset, bytes);
        let change = Change::Write { first: *next, offset, bytes: bytes.to_vec() };
        *next += change.pieces().count() as Sequence;
        self.pending.push(change);
    }

    /// Empties the live image.
    pub(super) fn truncate(&mut self, next: &mut Sequence) {
        self.live = Arc::default();
        self.pending.push(Change::Truncate(*next));
        *next += 1;
    }

    /// Makes pending changes durable, in order. Changes that an earlier sync dropped stay lost.
    pub(super) fn sync(&mut self) {
        if self.pending.is_empty() && self.durable.len() == self.live.len() {
            return;
        }
        let durable = Arc::make_mut(&mut self.durable);
        for change in self.pending.drain(..) {
            match change {
                Change::Truncate(_) => durable.clear(),
                Change::Write { offset, bytes, .. } => overwrite(durable, offset, &bytes),
            }
        }
        // The length is not part of the dropped data: after a failed sync, a later one still writes it.
        durable.resize(self.live.len(), 0);
    }

    /// Makes some of the pending changes durable, in any order, and forgets the others.
    pub(super) fn interrupt(&mut self, survival: Survival, rng: &mut StdRng) {
        let pending = mem::take(&mut self.pending);
        if pending.is_empty() {
            return;
        }
        let durable = Arc::make_mut(&mut self.durable);
        let mut length = durable.len();
        let mut kept = Vec::new();
        for change in &pending {
            match change {
                Change::Truncate(sequence) => {
                    if survival.keeps(*sequence, rng) {
                        durable.clear();
                        kept.clear();
                        length = 0;
                    }
                }
                Change::Write { .. } => {
                    for piece in change.pieces() {
                        if survival.keeps_length(piece.sequence, rng) {
                            length = length.max(piece.offset + piece.bytes.len());
                        }
                        if survival.keeps(piece.sequence, rng) {
                            kept.push(piece);
                        }
                    }
                }
            }
        }
        if rng.random() {
            kept.shuffle(rng);
        }
        durable.resize(length, 0);
        for Piece { offset, bytes, .. } in kept {
            // Data behind the end of the file is unreachable.
            let reachable = bytes.len().min(length.saturating_sub(offset));
            overwrite(durable, offset.min(length), &bytes[..reachable]);
        }
    }

    /// Replaces the live image by the durable one.
    pub(super) fn reload(&mut self) {
        self.live = Arc::clone(&self.durable);
    }

    /// Flips a bit in both images, and returns whether at least one of them is long enough.
    pub(super) fn flip_bit(&mut self, offset: usize, bit: u8) -> bool {
        let is_shared = Arc::ptr_eq(&self.live, &self.durable);
        let mask = 1 << (bit % 8);
        let mut is_flipped = false;
        if let Some(byte) = Arc::make_mut(&mut self.durable).get_mut(offset) {
            *byte ^= mask;
            is_flipped = true;
        }
        if is_shared {
            self.reload();
        } else if let Some(byte) = Arc::make_mut(&mut self.live).get_mut(offset) {
            *byte ^= mask;
            is_flipped = true;
        }
        is_flipped
    }

    /// The sequence numbers of the pending changes.
    pub(super) fn pending(&self) -> impl Iterator<Item = Sequence> {
        self.pending.iter().flat_map(Change::sequences)
    }
}

impl Change {
    fn sequences(&self) -> std::ops::Range<Sequence> {
        match self {
            Self::Truncate(sequence) => *sequence..*sequence + 1,
            Self::Write { first, .. } => *first..*first + self.pieces().count() as Sequence,
        }
    }

    fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let (mut sequence, mut offset, mut rest) = match self {
            Self::Truncate(sequence) => (*sequence, 0, &[] as &[u8]),
            Self::Write { first, offset, bytes } => (*first, *offset, bytes.as_slice()),
        };
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let (bytes, behind) = rest.split_at(rest.len().min(SECTOR_BYTES - offset % SECTOR_BYTES));
            let piece = Piece { sequence, offset, bytes };
            sequence += 1;
            offset += bytes.len();
            rest = behind;
            Some(piece)
        })
    }
}

fn overwrite(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(bytes);
}
