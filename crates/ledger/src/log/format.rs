//! The bytes on disk. All numbers are big-endian.
//!
//! ```text
//! NNNNNNNN.log            a segment: commits, in order, written in place into a file that was zero-filled or used before
//!   header                8 "ichidolg" │ 4 version = 1 │ 4 segment │ 8 first commit │ 4 checksum, then zeros up to 64 bytes
//!   frames                each starts at a multiple of 8
//! frame                   one commit
//!   4 "frm1" │ 4 checksum │ 4 length of the records │ 4 count │ 8 commit │ 8 synced │ 8 time │ records │ zeros
//!                         synced: the last commit that was durable when this one was written
//! record
//!   4 length │ 4 checksum │ 1 kind │ 8 tag │ 4 expires at │ [[4 replaced segment] │ 4 replaced offset] │ body
//!                         length: of what follows the checksum
//!                         expires at: in seconds, rounded up
//!                         replaced: where the previous record of the key is, if bit 7 of the kind is set
//!                         bit 6 as well: it is in the same segment, which is not named; the body is only the state of the
//!                         claim, and the rest is as in the previous record, which is open and runs
//!   kind and body         1 open: a claim that runs or is in doubt     2 done: a completed claim
//!                         3 large: a completed claim whose outcome has a file of its own
//!                         4 mark                                       5 removed: 32 index
//!                         6 state: 4 oldest segment │ openings         (claims and marks: see `codec`)
//! NNNNNNNN.index          what a full segment contains; can be rebuilt from the segment
//!   8 "ichidoix" │ 4 version = 1 │ 4 segment │ 8 first commit │ 8 last commit │ 4 end │ 4 records
//!   8 mostly expired at │ 4 entries │ 4 removals
//!   entries               8 tag │ 4 kind (4 bits) and offset (28 bits); sorted by tag, without what the segment itself replaced
//!   removals              8 tag │ 4 segment │ 4 offset: records of earlier segments that this one replaced
//!   4 checksum
//! ```
//!
//! Checksums are CRC-32C. They start from a value that depends on the store and the segment: bytes that a recycled file still
//! has from its earlier use, or that a caller made up, are never taken for a record.

mod frame;
mod segment_index;

pub(crate) use self::frame::{
    FRAME_MAGIC, Frame, FrameHeader, FrameWriter, RecordHeader, RecordRef, continued, decode_record,
    encode_removed, record_len, whole_body,
};
pub(crate) use self::segment_index::{INDEX_ENTRY, SegmentIndex};
use super::reader::Reader;

/// Bytes before the first frame of a segment.
pub(crate) const SEGMENT_HEADER: usize = 64;
/// Where frames may start.
pub(crate) const ALIGNMENT: usize = 8;
/// Offsets have 28 bits.
pub(crate) const SEGMENT_MAX: usize = 1 << 28;

const SEGMENT_MAGIC: [u8; 8] = *b"ichidolg";
const VERSION: u32 = 1;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum RecordKind {
    /// A claim that runs or is in doubt.
    Open = 1,
    /// A completed claim.
    Done = 2,
    /// A completed claim whose outcome has a file of its own.
    Large = 3,
    /// A mark.
    Mark = 4,
    /// A key without a record.
    Removed = 5,
    /// The state of the store.
    State = 6,
}

impl RecordKind {
    fn parse(byte: u8) -> Option<Self> {
        [Self::Open, Self::Done, Self::Large, Self::Mark, Self::Removed, Self::State]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }

    /// Whether the index points to such records.
    pub(crate) fn is_indexed(self) -> bool {
        match self {
            Self::Open | Self::Done | Self::Large | Self::Mark => true,
            Self::Removed | Self::State => false,
        }
    }
}

/// Where a record is, and what it is. Later records have larger locations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Location {
    pub(crate) segment: u32,
    pub(crate) offset: u32,
    pub(crate) kind: RecordKind,
}

impl Location {
    /// The location in eight bytes; never zero.
    pub(crate) fn pack(self) -> u64 {
        u64::from(self.segment) << 32 | u64::from(pack_offset(self.kind, self.offset))
    }

    pub(crate) fn unpack(packed: u64) -> Option<Self> {
        let (kind, offset) = unpack_offset(low(packed))?;
        Some(Self { segment: low(packed >> 32), offset, kind })
    }
}

fn pack_offset(kind: RecordKind, offset: u32) -> u32 {
    (kind as u32) << 28 | (offset & 0x0fff_ffff)
}

fn unpack_offset(packed: u32) -> Option<(RecordKind, u32)> {
    let kind = RecordKind::parse(packed.to_be_bytes()[0] >> 4)?;
    Some((kind, packed & 0x0fff_ffff))
}

/// The lower half of a number.
fn low(number: u64) -> u32 {
    let [.., a, b, c, d] = number.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// Makes the checksums of one store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checksums {
    pub(crate) key: [u8; 16],
    /// The checksum of the key.
    seed: u32,
    /// Whether checksums are compared. Only a planted bug turns this off.
    is_checked: bool,
}

impl Checksums {
    pub(crate) fn new(key: [u8; 16], is_checked: bool) -> Self {
        Self { key, seed: crc32c::crc32c(&key), is_checked }
    }

    fn of(&self, segment: u32, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c_append(self.seed, &segment.to_be_bytes()), bytes)
    }

    fn matches(&self, segment: u32, bytes: &[u8], expected: u32) -> bool {
        !self.is_checked || self.of(segment, bytes) == expected
    }
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) segment: u32,
    pub(crate) first_commit: u64,
}

impl SegmentHeader {
    pub(crate) fn encode(self, checksums: &Checksums) -> [u8; SEGMENT_HEADER] {
        let mut bytes = [0; SEGMENT_HEADER];
        bytes[..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.segment.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.first_commit.to_be_bytes());
        let checksum = checksums.of(self.segment, &bytes[..24]);
        bytes[24..28].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    /// Reads the header of the segment with this number. `None` if this is not one.
    pub(crate) fn decode(bytes: &[u8], segment: u32, checksums: &Checksums) -> Option<Self> {
        let mut reader = Reader(bytes);
        let is_ours = reader.array::<8>().ok()? == SEGMENT_MAGIC
            && reader.u32().ok()? == VERSION
            && reader.u32().ok()? == segment;
        let first_commit = reader.u64().ok()?;
        let checksum = reader.u32().ok()?;
        (is_ours && checksums.matches(segment, &bytes[..24], checksum))
            .then_some(Self { segment, first_commit })
    }
}

fn u64_at(bytes: &[u8]) -> u64 {
    bytes.first_chunk().copied().map_or(0, u64::from_be_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u32::from_be_bytes)
}

/// The name of a segment.
pub(crate) fn segment_name(segment: u32) -> String {
    format!("{segment:08x}.log")
}

/// The name of a segment's index.
pub(crate) fn index_name(segment: u32) -> String {
    format!("{segment:08x}.index")
}

/// The number in the name of a segment or an index.
pub(crate) fn parse_name(name: &str, extension: &str) -> Option<u32> {
    let digits = name.strip_suffix(extension)?;
    let number = u32::from_str_radix(digits, 16).ok()?;
    (number > 0 && digits == format!("{number:08x}")).then_some(number)
}
