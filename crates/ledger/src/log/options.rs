//! The sizes of a log.

use super::format::SEGMENT_MAX;

/// How a log is laid out. Simulations use small sizes, so that every border is crossed often.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The directory, for messages.
    pub(crate) dir: String,
    /// A segment is full when the next frame would exceed this size.
    pub(crate) segment_bytes: usize,
    /// A commit with more bytes becomes several frames.
    pub(crate) frame_bytes: usize,
    /// Larger outcomes have files of their own.
    pub(crate) inline_outcome_bytes: usize,
    /// A segment without a prepared file grows by this many zeros at a time.
    pub(crate) fill_bytes: usize,
    /// Bits of a key's hash that are used.
    pub(crate) tag_mask: u64,
    /// Open claims whose records are kept in memory.
    pub(crate) open_cached: usize,
    /// Full segments whose files are open at the same time.
    pub(crate) open_files: usize,
    /// A bug to plant, for the simulation that must find it.
    pub(crate) planted: Option<PlantedBug>,
}

/// A bug that a simulation must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// Commits are acknowledged before they are synced.
    NoSync,
    /// The directory is not synced when a segment is added.
    NoDirectorySync,
    /// Checksums are not compared.
    NoChecksums,
    /// The oldest segment is dropped together with its survivors, which should have been copied.
    DropTooEarly,
    /// The newest full segment is dropped first, and an opening does not mind the gap.
    DropOutOfOrder,
    /// The index of a segment is written before the next segment is durable.
    IndexTooEarly,
}

impl PlantedBug {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::NoSync,
        Self::NoDirectorySync,
        Self::NoChecksums,
        Self::DropTooEarly,
        Self::DropOutOfOrder,
        Self::IndexTooEarly,
    ];

    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoSync => "no-sync",
            Self::NoDirectorySync => "no-directory-sync",
            Self::NoChecksums => "no-checksums",
            Self::DropTooEarly => "drop-too-early",
            Self::DropOutOfOrder => "drop-out-of-order",
            Self::IndexTooEarly => "index-too-early",
        }
    }
}

impl Options {
    /// The layout of a store in this directory.
    pub(crate) fn standard(dir: impl Into<String>) -> Self {
        Self {
            dir: dir.into(),
            segment_bytes: 16 * 1024 * 1024,
            frame_bytes: 2 * 1024 * 1024,
            inline_outcome_bytes: 128 * 1024,
            fill_bytes: 256 * 1024,
            tag_mask: u64::MAX,
            open_cached: 64 * 1024,
            open_files: 256,
            planted: None,
        }
    }

    pub(crate) fn has(&self, bug: PlantedBug) -> bool {
        self.planted == Some(bug)
    }
}

const _: () = assert!(16 * 1024 * 1024 <= SEGMENT_MAX);
