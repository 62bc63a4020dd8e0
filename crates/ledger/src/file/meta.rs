//! What the store says of itself, in the keyspace `meta`.
//!
//! ```text
//! "format"    1 version = 1 │ 4 format
//! "commit"    1 version = 1 │ 8 sequence │ 8 latest time │ 8 swept to        rewritten by every group commit
//! "openings"  1 version = 1 │ (8 epoch │ 8 opened_at │ 8 end of the one before)*
//! ```

use ichido_core::Timestamp;

use super::codec::VERSION;
use super::reader::{Flaw, Reader};

/// The format that this version writes. Older ones are read, and made into this one at opening.
pub(super) const FORMAT: u32 = 3;
/// Without callers in claims.
pub(super) const FORMAT_TWO: u32 = 2;
/// Without `grants` as well, and with every outcome in `outcomes`.
pub(super) const FORMAT_ONE: u32 = 1;
pub(super) const FORMAT_KEY: &[u8] = b"format";
/// No other key of the store has these bytes: indexes have 32, ends 18, and commits 8.
pub(super) const COMMIT_KEY: &[u8] = b"commit";
pub(super) const OPENINGS_KEY: &[u8] = b"openings";

/// The last group commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Commit {
    /// Counts group commits.
    pub(super) sequence: u64,
    /// The time of the commit: time already recorded is not lived again.
    pub(super) time: Timestamp,
    /// Before this time nothing is left in `ends`.
    pub(super) swept_to: Timestamp,
}

impl Commit {
    pub(super) fn encode(self) -> [u8; 25] {
        let mut bytes = [VERSION; 25];
        bytes[1..9].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[9..17].copy_from_slice(&self.time.0.to_be_bytes());
        bytes[17..].copy_from_slice(&self.swept_to.0.to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        let mut reader = Reader::versioned(bytes)?;
        let sequence = reader.u64()?;
        let time = Timestamp(reader.u64()?);
        let swept_to = Timestamp(reader.u64()?);
        reader.end()?;
        Ok(Self { sequence, time, swept_to })
    }
}

pub(super) fn encode_format(format: u32) -> [u8; 5] {
    let mut bytes = [VERSION; 5];
    bytes[1..].copy_from_slice(&format.to_be_bytes());
    bytes
}

pub(super) fn decode_format(bytes: &[u8]) -> Result<u32, Flaw> {
    let mut reader = Reader::versioned(bytes)?;
    let format = reader.u32()?;
    reader.end()?;
    Ok(format)
}
