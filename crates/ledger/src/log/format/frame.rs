//! Frames and the records in them.

use std::borrow::Cow;
use std::ops::Range;

use ichido_core::{Index, Timestamp};

use super::{ALIGNMENT, Checksums, RecordKind, SEGMENT_MAX, u32_at};
use crate::log::codec::RUNNING;
use crate::log::reader::{Flaw, Reader};

/// Bytes before the records of a frame.
const FRAME_HEADER: usize = 40;
/// The least number of bytes before the body of a record.
const RECORD_HEADER: usize = 21;
/// In the kind of a record: it replaces another one.
const REPLACES: u8 = 0x80;
/// In the kind of a record: the one that it replaces contains the rest of the claim.
const CONTINUES: u8 = 0x40;
/// Starts every frame.
pub(crate) const FRAME_MAGIC: [u8; 4] = *b"frm1";

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
    /// Segment and offset of the record that this one replaces.
    pub(crate) replaced: Option<(u32, u32)>,
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
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) header: FrameHeader,
    count: u32,
    /// Where its records are in the segment.
    records: Range<usize>,
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

impl Frame {
    /// Reads the frame at an offset of a segment. `None` if there is no intact frame.
    pub(crate) fn decode(bytes: &[u8], at: usize, segment: u32, checksums: &Checksums) -> Option<Self> {
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
        let records = at + FRAME_HEADER..at + end;
        Some(Self { header, count, records, end: (at + end).next_multiple_of(ALIGNMENT) })
    }

    /// The records, in order. Their own checksums are not compared: that of the frame covers them.
    pub(crate) fn records<'a>(&self, bytes: &'a [u8], segment: u32) -> Result<Vec<RecordRef<'a>>, Flaw> {
        self.each_record(bytes, |record| parse_record(record, segment))
    }

    /// The same, with the checksums by which a record is read alone.
    pub(crate) fn checked_records<'a>(
        &self,
        bytes: &'a [u8],
        segment: u32,
        checksums: &Checksums,
    ) -> Result<Vec<RecordRef<'a>>, Flaw> {
        self.each_record(bytes, |record| decode_record(record, segment, checksums))
    }

    fn each_record<'a>(
        &self,
        bytes: &'a [u8],
        read: impl Fn(&'a [u8]) -> Result<(RecordHeader, &'a [u8], usize), Flaw>,
    ) -> Result<Vec<RecordRef<'a>>, Flaw> {
        let mut found = Vec::new();
        let mut at = self.records.start;
        for _ in 0..self.count {
            let rest = bytes.get(at..self.records.end).ok_or("its records are cut short")?;
            let (header, body, length) = read(rest)?;
            let offset = u32::try_from(at).map_err(|_| "its offset is too large")?;
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
    let record = whole_record(bytes)?;
    match checksums.matches(segment, &record[8..], u32_at(record, 4)) {
        true => parse_record(record, segment),
        false => Err("its checksum does not match"),
    }
}

fn whole_record(bytes: &[u8]) -> Result<&[u8], Flaw> {
    let length = record_len(bytes).ok_or("its length is invalid")?;
    bytes.get(..length).ok_or("it is cut short")
}

fn parse_record(bytes: &[u8], segment: u32) -> Result<(RecordHeader, &[u8], usize), Flaw> {
    let bytes = whole_record(bytes)?;
    let mut reader = Reader(&bytes[8..]);
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
    Ok((RecordHeader { kind, tag, expires_at, replaced, continues }, reader.0, bytes.len()))
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

/// The body of a record that says that a key has none.
pub(crate) fn encode_removed(index: &Index, out: &mut Vec<u8>) {
    out.extend(index.as_bytes());
}
