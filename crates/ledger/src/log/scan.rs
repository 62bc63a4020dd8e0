//! Reads segments from one end to the other.

use std::sync::atomic::Ordering;

use super::format::{
    self, ALIGNMENT, Checksums, FRAME_MAGIC, Frame, RecordRef, SEGMENT_HEADER, segment_name,
};
use super::segment::Segment;
use super::view::View;
use crate::Result;

/// Reads a segment in which every frame must be intact. `visit` gets each record, and all bytes of the segment.
pub(crate) fn each_record(
    view: &View,
    segment: &Segment,
    mut visit: impl FnMut(&[u8], &RecordRef<'_>) -> Result<()>,
) -> Result<()> {
    let end = usize::try_from(segment.end.load(Ordering::Acquire)).unwrap_or(0);
    let mut bytes = vec![0; end];
    let read = view.file(segment).and_then(|file| file.read_at(&mut bytes, 0));
    read.map_err(|error| view.faults.io("reading", error))?;
    let mut at = SEGMENT_HEADER;
    while at < end {
        let damaged = |flaw| view.faults.damaged(&segment_name(segment.id), at as u64, flaw);
        let frame = Frame::decode(&bytes, at, segment.id, &view.checksums)
            .ok_or_else(|| damaged("its checksum does not match"))?;
        for record in frame.records(&bytes, segment.id).map_err(damaged)? {
            visit(&bytes, &record)?;
        }
        at = frame.end;
    }
    Ok(())
}

/// The last commit that some intact frame behind `from` knows to have been durable.
///
/// A frame that cannot be read is the torn end of the log, unless such a frame says that it was durable once.
pub(crate) fn synced_behind(bytes: &[u8], from: usize, segment: u32, checksums: &Checksums) -> u64 {
    let mut synced = 0;
    let mut at = from.next_multiple_of(ALIGNMENT);
    while at < bytes.len() {
        let is_frame = bytes[at..].starts_with(&FRAME_MAGIC);
        match is_frame.then(|| Frame::decode(bytes, at, segment, checksums)).flatten() {
            Some(frame) => {
                synced = synced.max(frame.header.synced);
                at = frame.end;
            }
            None => at += ALIGNMENT,
        }
    }
    synced
}

/// The frames of a segment from the first one on, up to a commit or the first frame that is not intact.
pub(crate) fn intact(
    bytes: &[u8],
    segment: u32,
    first_commit: u64,
    before_commit: u64,
    checksums: &Checksums,
) -> Vec<(usize, Frame)> {
    let mut found = Vec::new();
    let (mut at, mut commit) = (SEGMENT_HEADER, first_commit);
    while commit < before_commit {
        let Some(frame) = Frame::decode(bytes, at, segment, checksums) else { break };
        if frame.header.commit != commit {
            break;
        }
        let end = frame.end;
        found.push((at, frame));
        at = end;
        commit += 1;
    }
    found
}

/// The header of a segment, if it has one.
pub(crate) fn header(bytes: &[u8], segment: u32, checksums: &Checksums) -> Option<format::SegmentHeader> {
    format::SegmentHeader::decode(bytes.get(..SEGMENT_HEADER)?, segment, checksums)
}
