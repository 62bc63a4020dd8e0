//! The segment that commits are written to, and what its index will contain.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ichido_core::Timestamp;

use super::format::{Location, RecordKind, RecordRef, SegmentIndex};
use super::options::Options;
use super::segment::Segment;
use super::storage::File;

/// The newest segment.
#[derive(Clone, Debug)]
pub(crate) struct Active {
    pub(crate) segment: Arc<Segment>,
    pub(crate) file: Arc<dyn File>,
    pub(crate) first_commit: u64,
    /// Where the next frame starts.
    pub(crate) end: usize,
    /// Where the last frame starts.
    pub(crate) frame_at: usize,
    /// Up to here the file has bytes: writing them again does not change its size, which makes a sync cheaper.
    filled: usize,
    records: Vec<Entry>,
    /// Offsets of records that later records of the same segment replaced.
    replaced: Vec<u32>,
    removals: Vec<(u64, u32, u32)>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: u64,
    kind: RecordKind,
    offset: u32,
    expires_at: Timestamp,
}

/// What a full segment contains, for its index.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) segment: u32,
    first_commit: u64,
    last_commit: u64,
    end: u32,
    entries: Vec<Entry>,
    replaced: Vec<u32>,
    removals: Vec<(u64, u32, u32)>,
}

impl Active {
    pub(crate) fn new(id: u32, file: Arc<dyn File>, first_commit: u64, filled: usize) -> Self {
        Self {
            segment: Arc::new(Segment::new(id, file.clone())),
            file,
            first_commit,
            end: 0,
            frame_at: 0,
            filled,
            records: Vec::new(),
            replaced: Vec::new(),
            removals: Vec::new(),
        }
    }

    /// Extends what is written at `at` with zeros, if it would be the first to use that part of the file. Returns how many.
    pub(crate) fn fill(&mut self, bytes: &mut Vec<u8>, at: usize, options: &Options) -> usize {
        let end = at + bytes.len();
        if end <= self.filled {
            return 0;
        }
        let filled = end.next_multiple_of(options.fill_bytes).min(options.segment_bytes).max(end);
        bytes.resize(filled - at, 0);
        self.filled = filled;
        filled - end
    }

    /// Notes a durable record.
    pub(crate) fn record(
        &mut self,
        tag: u64,
        after: Option<Location>,
        before: Option<Location>,
        expires_at: Timestamp,
    ) {
        if let Some(Location { kind, offset, .. }) = after {
            self.records.push(Entry { tag, kind, offset, expires_at });
            self.segment.records.fetch_add(1, Ordering::AcqRel);
            self.segment.live.fetch_add(1, Ordering::AcqRel);
        }
        if let Some(before) = before {
            self.note_replaced(tag, before.segment, before.offset);
        }
    }

    /// Notes a record that was read from the segment. Returns where it is, if the index points to such records.
    pub(crate) fn replay(&mut self, record: &RecordRef<'_>) -> Option<Location> {
        let (header, segment, offset) = (record.header, self.segment.id, record.offset);
        let after = header.kind.is_indexed().then_some(Location { segment, offset, kind: header.kind });
        self.record(header.tag, after, None, header.expires_at);
        if let Some((segment, offset)) = header.replaced {
            self.note_replaced(header.tag, segment, offset);
        }
        after
    }

    fn note_replaced(&mut self, tag: u64, segment: u32, offset: u32) {
        match segment == self.segment.id {
            true => self.replaced.push(offset),
            false => self.removals.push((tag, segment, offset)),
        }
    }

    /// When seven of eight records have expired. Claims that were open and are completed by now expire with the rest.
    pub(crate) fn mostly_expired_at(&self) -> Timestamp {
        let mut times: Vec<_> = self
            .records
            .iter()
            .filter(|entry| entry.kind != RecordKind::Open)
            .map(|entry| entry.expires_at)
            .collect();
        if times.is_empty() {
            return Timestamp(0);
        }
        let at = times.len() * 7 / 8;
        *times.select_nth_unstable(at).1
    }

    pub(crate) fn into_contents(self, last_commit: u64) -> Contents {
        Contents {
            segment: self.segment.id,
            first_commit: self.first_commit,
            last_commit,
            end: u32::try_from(self.end).unwrap_or(u32::MAX),
            entries: self.records,
            replaced: self.replaced,
            removals: self.removals,
        }
    }
}

impl Contents {
    /// The index of the segment.
    pub(crate) fn into_index(mut self, mostly_expired_at: Timestamp) -> SegmentIndex {
        self.replaced.sort_unstable();
        let records = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        let kept = self.entries.iter().filter(|entry| self.replaced.binary_search(&entry.offset).is_err());
        let mut entries: Vec<_> = kept.map(|entry| (entry.tag, entry.kind, entry.offset)).collect();
        entries.sort_unstable();
        SegmentIndex {
            first_commit: self.first_commit,
            last_commit: self.last_commit,
            end: self.end,
            records,
            mostly_expired_at,
            entries,
            removals: self.removals,
        }
    }
}
