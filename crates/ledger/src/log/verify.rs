//! Reads and checks everything that is stored, without changing anything.
//!
//! This works on a store in use as well, if no segment is dropped meanwhile: what is appended after the high-water mark was
//! read may be incomplete, like the torn end after a crash.

use std::collections::{BTreeMap, BTreeSet};

use super::codec::{self, OutcomeFile};
use super::fault::Faults;
use super::format::{
    Checksums, Frame, RecordKind, RecordRef, SEGMENT_HEADER, SegmentIndex, index_name, parse_name,
    segment_name, whole_body,
};
use super::high_water::{self, Mark};
use super::options::Options;
use super::scan;
use super::storage::{Storage, read_all};
use super::{identity, view};
use crate::{Error, Result, Verified};

/// Checks a store. An error means that it could not be read at all.
pub(crate) fn verify(storage: &dyn Storage, options: &Options) -> Result<Verified> {
    let faults = Faults { dir: options.dir.clone() };
    let mark = high_water::read(storage).map_err(|error| faults.io("reading", error))?;
    let Some(key) = identity::read(storage, &faults)? else {
        return Err(faults.incomplete(format!("the file {} is missing", identity::NAME)));
    };
    let names = storage.list().map_err(|error| faults.io("reading", error))?;
    let segments: BTreeSet<u32> = names.iter().filter_map(|name| parse_name(name, ".log")).collect();
    let mut check = Check {
        storage,
        faults,
        checksums: Checksums::new(key, true),
        tag_mask: options.tag_mask,
        next_commit: None,
        oldest: 0,
        outcomes: BTreeMap::new(),
        replaced: BTreeSet::new(),
        report: Verified::default(),
    };
    // The newest first: each segment tells where the one before it ends.
    for id in segments.iter().rev().copied().take_while(|id| *id > 0) {
        if id < check.oldest {
            break;
        }
        check.segment(id, mark)?;
    }
    check.finish(&segments, mark)
}

struct Check<'a> {
    storage: &'a dyn Storage,
    faults: Faults,
    checksums: Checksums,
    tag_mask: u64,
    /// The first commit of the segment that was checked before, which is the next one.
    next_commit: Option<u64>,
    oldest: u32,
    /// Records whose outcomes have files, by their place.
    outcomes: BTreeMap<(u32, u32), OutcomeFile>,
    /// Places of records that later ones replaced.
    replaced: BTreeSet<(u32, u32)>,
    report: Verified,
}

impl Check<'_> {
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        read_all(self.storage, name).map_err(|error| self.faults.io("reading", error))
    }

    fn problem(&mut self, error: &Error) {
        self.report.problems.push(error.to_string());
    }

    fn segment(&mut self, id: u32, mark: Mark) -> Result<()> {
        let name = segment_name(id);
        let Some(bytes) = self.read(&name)? else { return Ok(()) };
        let Some(header) = scan::header(&bytes, id, &self.checksums) else {
            // A crash may leave the newest segment without a header.
            if self.next_commit.is_some() {
                self.problem(&self.faults.damaged(&name, 0, "its header cannot be read"));
            }
            return Ok(());
        };
        let before = self.next_commit.unwrap_or(u64::MAX);
        let frames = scan::intact(&bytes, id, header.first_commit, before, &self.checksums);
        let end = frames.last().map_or(SEGMENT_HEADER, |(_, frame)| frame.end);
        let last = frames.last().map_or(header.first_commit - 1, |(_, frame)| frame.header.commit);
        let mut is_whole = true;
        match (self.next_commit, mark) {
            (Some(next), _) if last + 1 != next => {
                is_whole = false;
                let flaw = "a commit that was acknowledged cannot be read";
                self.problem(&self.faults.damaged(&name, end as u64, flaw));
            }
            (None, Mark::At(acknowledged)) if last < acknowledged => {
                self.problem(&self.faults.behind(&name, end, last, acknowledged));
            }
            (Some(_) | None, _) => {}
        }
        if self.next_commit.is_none() {
            self.report.commit = last;
        }
        self.report.segments += 1;
        self.report.bytes += end as u64;
        let mut entries = Vec::new();
        for (at, frame) in &frames {
            entries.extend(self.frame(id, &bytes, *at, frame));
        }
        self.next_commit = Some(header.first_commit);
        if is_whole { self.index(id, entries, end) } else { Ok(()) }
    }

    /// Checks the records of a frame. Returns those that belong into the index of the segment.
    fn frame(&mut self, id: u32, bytes: &[u8], at: usize, frame: &Frame) -> Vec<(u64, RecordKind, u32)> {
        let records = match frame.checked_records(bytes, id, &self.checksums) {
            Ok(records) => records,
            Err(flaw) => {
                self.problem(&self.faults.damaged(&segment_name(id), at as u64, flaw));
                return Vec::new();
            }
        };
        let mut entries = Vec::new();
        for record in records {
            if let Err(error) = self.record(id, bytes, &record) {
                self.problem(&error);
            }
            let header = record.header;
            if header.kind.is_indexed() {
                entries.push((header.tag, header.kind, record.offset));
            }
            self.replaced.extend(header.replaced);
        }
        entries
    }

    fn record(&mut self, id: u32, bytes: &[u8], record: &RecordRef<'_>) -> Result<()> {
        let name = segment_name(id);
        let damaged = |flaw| self.faults.damaged(&name, u64::from(record.offset), flaw);
        let body = &*whole_body(bytes, id, record, &self.checksums).map_err(damaged)?;
        let index = match record.header.kind {
            RecordKind::Open | RecordKind::Done | RecordKind::Large => {
                self.report.claims += 1;
                let stored = codec::decode_claim(body).map_err(damaged)?;
                if let Some(file) = stored.outcome_file {
                    self.outcomes.insert((id, record.offset), file);
                }
                stored.record.key.index()
            }
            RecordKind::Mark => {
                self.report.marks += 1;
                codec::decode_mark(body).map_err(damaged)?.key.index()
            }
            RecordKind::State => {
                let oldest = body.first_chunk().copied().map_or(0, u32::from_be_bytes);
                self.oldest = self.oldest.max(oldest);
                return Ok(());
            }
            RecordKind::Removed => return Ok(()),
        };
        match view::tag_of(&self.checksums.key, &index) & self.tag_mask == record.header.tag {
            true => Ok(()),
            false => Err(damaged("its tag does not belong to its key")),
        }
    }

    /// Compares the index of a segment with the segment. If it cannot be read, it is rebuilt when the store is opened.
    fn index(&mut self, id: u32, mut entries: Vec<(u64, RecordKind, u32)>, end: usize) -> Result<()> {
        let name = index_name(id);
        let Some(bytes) = self.read(&name)? else { return Ok(()) };
        // A crash may leave an incomplete index, which is rebuilt as well.
        let Some(index) = SegmentIndex::decode(&bytes, id, &self.checksums) else { return Ok(()) };
        let within: BTreeSet<(u64, RecordKind, u32)> = entries.iter().copied().collect();
        entries.retain(|(_, _, offset)| !self.replaced.contains(&(id, *offset)));
        let is_complete = entries.iter().all(|entry| index.entries.binary_search(entry).is_ok());
        let is_true = index.entries.iter().all(|entry| within.contains(entry));
        if !is_complete || !is_true || index.end as usize != end {
            self.problem(&self.faults.damaged(&name, 0, "it does not match its segment"));
        }
        Ok(())
    }

    fn finish(mut self, segments: &BTreeSet<u32>, mark: Mark) -> Result<Verified> {
        let newest = segments.last().copied().unwrap_or(0);
        for id in (self.oldest..newest).filter(|id| !segments.contains(id)) {
            let error = self.faults.incomplete(format!("the file {} is missing", segment_name(id)));
            self.problem(&error);
        }
        if mark == Mark::Damaged {
            self.problem(&self.faults.damaged(high_water::NAME, 0, "neither of its numbers can be read"));
        }
        let outcomes = std::mem::take(&mut self.outcomes);
        let current = outcomes.into_iter().filter(|(place, _)| !self.replaced.contains(place));
        for file in current.map(|(_, file)| file).collect::<Vec<_>>() {
            let flaw = match self.read(&file.name())? {
                None => Some("it is missing"),
                Some(bytes) => file.check(&bytes).err(),
            };
            if let Some(flaw) = flaw {
                self.problem(&self.faults.damaged(&file.name(), 0, flaw));
            }
        }
        Ok(self.report)
    }
}
