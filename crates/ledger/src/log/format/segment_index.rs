//! The index of a full segment.

use ichido_core::Timestamp;

use super::{Checksums, RecordKind, VERSION, pack_offset, u32_at, u64_at, unpack_offset};
use crate::log::reader::Reader;

const INDEX_MAGIC: [u8; 8] = *b"ichidoix";
const INDEX_HEADER: usize = 56;
/// Bytes of an entry of an index.
pub(crate) const INDEX_ENTRY: usize = 12;
const INDEX_REMOVAL: usize = 16;

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
