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

use std::borrow::Cow;

use ichido_core::{Index, Timestamp};

use super::codec::RUNNING;
use super::reader::{Flaw, Reader};

/// Bytes before the first frame of a segment.
pub(crate) const SEGMENT_HEADER: usize = 64;
/// Bytes before the records of a frame.
pub(crate) const FRAME_HEADER: usize = 40;
/// The least number of bytes before the body of a record.
const RECORD_HEADER: usize = 21;
/// In the kind of a record: it replaces another one.
const REPLACES: u8 = 0x80;
/// In the kind of a record: the one that it replaces contains the rest of the claim.
const CONTINUES: u8 = 0x40;
/// Where frames may start.
pub(crate) const ALIGNMENT: usize = 8;
/// Offsets have 28 bits.
pub(crate) const SEGMENT_MAX: usize = 1 << 28;

const SEGMENT_MAGIC: [u8; 8] = *b"ichidolg";
const INDEX_MAGIC: [u8; 8] = *b"ichidoix";
/// Starts every frame.
pub(crate) const FRAME_MAGIC: [u8; 4] = *b"frm1";
const VERSION: u32 = 1;
const INDEX_HEADER: usize = 56;
/// Bytes of an entry of an index.
pub(crate) const INDEX_ENTRY: usize = 12;
const INDEX_REMOVAL: usize = 16;

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

/// The place of a record in an earlier segment, or nothing.
pub(crate) type Replaced = Option<(u32, u32)>;

/// Makes the checksums of one store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checksums {
    pub(crate) key: [u8; 16],
    /// Whether checksums are compared. Only a planted bug turns this off.
    pub(crate) is_checked: bool,
}

impl Checksums {
    fn of(&self, segment: u32, bytes: &[u8]) -> u32 {
        let seed = crc32c::crc32c_append(crc32c::crc32c(&self.key), &segment.to_be_bytes());
        crc32c::crc32c_append(seed, bytes)
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

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) commit: u64,
    /// The last commit that was durable when this one was written.
    pub(crate) synced: u64,
    pub(crate) time: Timestamp,
}

/// A frame that is being written.
#[derive(Debug, Default)]
pub(crate) struct FrameWriter {
    bytes: Vec<u8>,
    count: u32,
    /// Whether a record continues another one, so that the frame must be written to the segment of that one.
    pub(crate) is_bound: bool,
}

/// What a record says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) kind: RecordKind,
    pub(crate) tag: u64,
    pub(crate) expires_at: Timestamp,
    pub(crate) replaced: Replaced,
    /// Whether the body is only the state of the claim. The record that it replaced has the rest, and is in the same segment.
    pub(crate) continues: bool,
}

impl FrameWriter {
    /// Starts a new frame.
    pub(crate) fn start(&mut self) {
        self.bytes.clear();
        self.bytes.resize(FRAME_HEADER, 0);
        self.count = 0;
        self.is_bound = false;
    }

    /// The bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a record. Returns where it starts in the frame.
    pub(crate) fn push(&mut self, header: RecordHeader, body: impl FnOnce(&mut Vec<u8>)) -> usize {
        let at = self.bytes.len();
        self.bytes.extend([0; 8]);
        let replaces = if header.replaced.is_some() { REPLACES } else { 0 };
        let continues = if header.continues { CONTINUES } else { 0 };
        self.bytes.push(header.kind as u8 | replaces | continues);
        self.bytes.extend(header.tag.to_be_bytes());
        self.bytes.extend(u32::try_from(header.expires_at.ceil_seconds()).unwrap_or(u32::MAX).to_be_bytes());
        if let Some((segment, offset)) = header.replaced {
            if !header.continues {
                self.bytes.extend(segment.to_be_bytes());
            }
            self.bytes.extend(offset.to_be_bytes());
        }
        body(&mut self.bytes);
        let length = u32::try_from(self.bytes.len() - at - 8).unwrap_or(u32::MAX);
        self.bytes[at..at + 4].copy_from_slice(&length.to_be_bytes());
        self.count += 1;
        self.is_bound |= header.continues;
        at
    }

    /// Completes the frame for a segment. Returns its bytes, which may be extended.
    pub(crate) fn finish(
        &mut self,
        segment: u32,
        header: FrameHeader,
        checksums: &Checksums,
    ) -> &mut Vec<u8> {
        let mut at = FRAME_HEADER;
        while at < self.bytes.len() {
            let length = usize::try_from(u32_at(&self.bytes, at)).unwrap_or(usize::MAX);
            let end = at.saturating_add(8).saturating_add(length).min(self.bytes.len());
            let checksum = checksums.of(segment, &self.bytes[at + 8..end]);
            self.bytes[at + 4..at + 8].copy_from_slice(&checksum.to_be_bytes());
            at = end;
        }
        let length = u32::try_from(self.bytes.len() - FRAME_HEADER).unwrap_or(u32::MAX);
        self.bytes[..4].copy_from_slice(&FRAME_MAGIC);
        self.bytes[8..12].copy_from_slice(&length.to_be_bytes());
        self.bytes[12..16].copy_from_slice(&self.count.to_be_bytes());
        self.bytes[16..24].copy_from_slice(&header.commit.to_be_bytes());
        self.bytes[24..32].copy_from_slice(&header.synced.to_be_bytes());
        self.bytes[32..40].copy_from_slice(&header.time.0.to_be_bytes());
        let checksum = checksums.of(segment, &self.bytes[8..]);
        self.bytes[4..8].copy_from_slice(&checksum.to_be_bytes());
        let end = self.bytes.len().next_multiple_of(ALIGNMENT);
        self.bytes.resize(end, 0);
        &mut self.bytes
    }
}

/// A frame that was read and is intact.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) header: FrameHeader,
    count: u32,
    records: &'a [u8],
    /// Where its first record is in the segment.
    records_at: usize,
    /// Where the next frame may start.
    pub(crate) end: usize,
}

/// A record within a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordRef<'a> {
    pub(crate) header: RecordHeader,
    pub(crate) body: &'a [u8],
    pub(crate) offset: u32,
}

impl<'a> Frame<'a> {
    /// Reads the frame at an offset of a segment. `None` if there is no intact frame.
    pub(crate) fn decode(bytes: &'a [u8], at: usize, segment: u32, checksums: &Checksums) -> Option<Self> {
        let rest = bytes.get(at..)?;
        let mut reader = Reader(rest);
        if reader.array::<4>().ok()? != FRAME_MAGIC {
            return None;
        }
        let checksum = reader.u32().ok()?;
        let length = usize::try_from(reader.u32().ok()?).ok()?;
        let count = reader.u32().ok()?;
        let (commit, synced) = (reader.u64().ok()?, reader.u64().ok()?);
        let time = Timestamp(reader.u64().ok()?);
        let end = FRAME_HEADER.checked_add(length)?;
        let whole = rest.get(8..end)?;
        if !checksums.matches(segment, whole, checksum) {
            return None;
        }
        let header = FrameHeader { commit, synced, time };
        let (records, records_at) = (&rest[FRAME_HEADER..end], at + FRAME_HEADER);
        Some(Self { header, count, records, records_at, end: (at + end).next_multiple_of(ALIGNMENT) })
    }

    /// The records, in order.
    pub(crate) fn records(&self, segment: u32, checksums: &Checksums) -> Result<Vec<RecordRef<'a>>, Flaw> {
        let mut found = Vec::new();
        let mut at = 0;
        for _ in 0..self.count {
            let rest = self.records.get(at..).ok_or("its records are cut short")?;
            let (header, body, length) = decode_record(rest, segment, checksums)?;
            let offset = u32::try_from(self.records_at + at).map_err(|_| "its offset is too large")?;
            found.push(RecordRef { header, body, offset });
            at += length;
        }
        Ok(found)
    }
}

/// The number of bytes of the record that starts here.
pub(crate) fn record_len(bytes: &[u8]) -> Option<usize> {
    let length = usize::try_from(u32::from_be_bytes(*bytes.first_chunk()?)).ok()?;
    length.checked_add(8).filter(|length| (RECORD_HEADER..SEGMENT_MAX).contains(length))
}

/// Reads the record that starts here: its header, its body, and its length in all.
pub(crate) fn decode_record<'a>(
    bytes: &'a [u8],
    segment: u32,
    checksums: &Checksums,
) -> Result<(RecordHeader, &'a [u8], usize), Flaw> {
    let length = record_len(bytes).ok_or("its length is invalid")?;
    let bytes = bytes.get(..length).ok_or("it is cut short")?;
    let mut reader = Reader(&bytes[4..]);
    let checksum = reader.u32()?;
    if !checksums.matches(segment, &bytes[8..], checksum) {
        return Err("its checksum does not match");
    }
    let kind = reader.byte()?;
    let (replaces, continues) = (kind & REPLACES != 0, kind & CONTINUES != 0);
    let kind = RecordKind::parse(kind & !(REPLACES | CONTINUES)).ok_or("its kind is unknown")?;
    let tag = reader.u64()?;
    let expires_at = Timestamp(u64::from(reader.u32()?) * 1000);
    let replaced = match (replaces, continues) {
        (false, false) => None,
        (true, false) => Some((reader.u32()?, reader.u32()?)),
        (true, true) => Some((segment, reader.u32()?)),
        (false, true) => return Err("it continues no other record"),
    };
    Ok((RecordHeader { kind, tag, expires_at, replaced, continues }, reader.0, length))
}

/// The whole body of a record. `segment_bytes` are those of its segment.
pub(crate) fn whole_body<'a>(
    segment_bytes: &[u8],
    segment: u32,
    record: &RecordRef<'a>,
    checksums: &Checksums,
) -> Result<Cow<'a, [u8]>, Flaw> {
    let Some((_, offset)) = record.header.replaced.filter(|_| record.header.continues) else {
        return Ok(Cow::Borrowed(record.body));
    };
    let at = usize::try_from(offset).unwrap_or(usize::MAX);
    let bytes = segment_bytes.get(at..).ok_or("the record that it continues is not there")?;
    let (header, body, _) = decode_record(bytes, segment, checksums)?;
    continued(&record.header, record.body, &header, body).map(Cow::Owned)
}

/// The whole body of a record that continues another one.
pub(crate) fn continued(
    header: &RecordHeader,
    body: &[u8],
    previous: &RecordHeader,
    previous_body: &[u8],
) -> Result<Vec<u8>, Flaw> {
    match previous_body.split_last() {
        Some((&RUNNING, claim)) if (previous.kind, previous.tag) == (RecordKind::Open, header.tag) => {
            Ok([claim, body].concat())
        }
        _ => Err("the record that it continues is another one"),
    }
}

/// What a full segment contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentIndex {
    pub(crate) first_commit: u64,
    pub(crate) last_commit: u64,
    /// Where the frames end.
    pub(crate) end: u32,
    /// Indexed records that were written, replaced or not.
    pub(crate) records: u32,
    /// When most of the entries have expired.
    pub(crate) mostly_expired_at: Timestamp,
    /// Records that the segment itself did not replace.
    pub(crate) entries: Vec<(u64, RecordKind, u32)>,
    /// Records of earlier segments that were replaced, with their tags.
    pub(crate) removals: Vec<(u64, u32, u32)>,
}

impl SegmentIndex {
    pub(crate) fn encode(&self, segment: u32, checksums: &Checksums) -> Vec<u8> {
        let size = INDEX_HEADER + self.entries.len() * INDEX_ENTRY + self.removals.len() * INDEX_REMOVAL + 4;
        let mut bytes = Vec::with_capacity(size);
        bytes.extend(INDEX_MAGIC);
        bytes.extend(VERSION.to_be_bytes());
        bytes.extend(segment.to_be_bytes());
        bytes.extend(self.first_commit.to_be_bytes());
        bytes.extend(self.last_commit.to_be_bytes());
        bytes.extend(self.end.to_be_bytes());
        bytes.extend(self.records.to_be_bytes());
        bytes.extend(self.mostly_expired_at.0.to_be_bytes());
        for list in [self.entries.len(), self.removals.len()] {
            bytes.extend(u32::try_from(list).unwrap_or(u32::MAX).to_be_bytes());
        }
        for (tag, kind, offset) in &self.entries {
            bytes.extend(tag.to_be_bytes());
            bytes.extend(pack_offset(*kind, *offset).to_be_bytes());
        }
        for (tag, segment, offset) in &self.removals {
            bytes.extend(tag.to_be_bytes());
            bytes.extend(segment.to_be_bytes());
            bytes.extend(offset.to_be_bytes());
        }
        let checksum = checksums.of(segment, &bytes);
        bytes.extend(checksum.to_be_bytes());
        bytes
    }

    /// Reads an index. `None` if it is not intact.
    pub(crate) fn decode(bytes: &[u8], segment: u32, checksums: &Checksums) -> Option<Self> {
        let (content, checksum) = bytes.split_last_chunk::<4>()?;
        if !checksums.matches(segment, content, u32::from_be_bytes(*checksum)) {
            return None;
        }
        let mut reader = Reader(content);
        let is_ours = reader.array::<8>().ok()? == INDEX_MAGIC
            && reader.u32().ok()? == VERSION
            && reader.u32().ok()? == segment;
        let (first_commit, last_commit) = (reader.u64().ok()?, reader.u64().ok()?);
        let (end, records) = (reader.u32().ok()?, reader.u32().ok()?);
        let mostly_expired_at = Timestamp(reader.u64().ok()?);
        let (entry_count, removal_count) = (reader.u32().ok()?, reader.u32().ok()?);
        let entry_bytes = usize::try_from(entry_count).ok()?.checked_mul(INDEX_ENTRY)?;
        let removal_bytes = usize::try_from(removal_count).ok()?.checked_mul(INDEX_REMOVAL)?;
        if !is_ours || reader.0.len() != entry_bytes.checked_add(removal_bytes)? {
            return None;
        }
        let (entries, removals) = reader.0.split_at(entry_bytes);
        let entries = entries
            .chunks_exact(INDEX_ENTRY)
            .map(|chunk| {
                let (kind, offset) = unpack_offset(u32_at(chunk, 8))?;
                kind.is_indexed().then_some((u64_at(chunk), kind, offset))
            })
            .collect::<Option<Vec<_>>>()?;
        let removals = removals
            .chunks_exact(INDEX_REMOVAL)
            .map(|chunk| (u64_at(chunk), u32_at(chunk, 8), u32_at(chunk, 12)))
            .collect();
        Some(Self { first_commit, last_commit, end, records, mostly_expired_at, entries, removals })
    }
}

/// The body of a record that says that a key has none.
pub(crate) fn encode_removed(index: &Index, out: &mut Vec<u8>) {
    out.extend(index.as_bytes());
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
