//! Loads the segments that are full: from their indexes, without reading the segments themselves.
//!
//! The index in memory is built in one go from all entries. Inserting a million entries one by one would take most of the
//! time of an opening.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Files, Recovery, Tail};
use crate::Result;
use crate::log::active::Active;
use crate::log::format::{INDEX_ENTRY, Location, SEGMENT_HEADER, SegmentIndex, index_name, segment_name};
use crate::log::hash_index;
use crate::log::job_queue::Job;
use crate::log::openings::Openings;
use crate::log::options::PlantedBug;
use crate::log::scan;
use crate::log::segment::Segment;
use crate::log::view::View;

/// What the indexes of all full segments contain.
struct Loaded {
    segments: Vec<Arc<Segment>>,
    entries: hash_index::Builder,
    /// Records that later segments replaced: tag, segment and offset.
    removals: Vec<(u64, u32, u32)>,
    /// Indexes that were rebuilt.
    jobs: Vec<Job>,
}

impl Recovery {
    /// Loads all segments except for the newest one.
    pub(super) fn load_full_segments(
        &self,
        files: &Files,
        tail: &Tail,
        openings: Openings,
    ) -> Result<Arc<View>> {
        let mut loaded = Loaded {
            segments: Vec::new(),
            entries: hash_index::Builder::with_capacity(self.count_entries(files, tail)?),
            removals: Vec::new(),
            jobs: Vec::new(),
        };
        for id in files.segments.range(tail.state.oldest..tail.segment) {
            self.load_full_segment(*id, files, tail, &mut loaded)?;
        }
        let Loaded { segments, entries, mut removals, jobs } = loaded;
        removals.sort_unstable();
        let index = entries.build(|tag, location| {
            let place = (tag, location.segment, location.offset);
            let is_here = removals.binary_search(&place).is_err();
            if !is_here && let Ok(at) = segments.binary_search_by_key(&location.segment, |segment| segment.id)
            {
                segments[at].live.fetch_sub(1, Ordering::AcqRel);
            }
            is_here
        });
        let view = self.view(openings, index);
        segments.into_iter().for_each(|segment| view.add_segment(segment));
        view.jobs().extend(jobs);
        Ok(view)
    }

    /// About how many entries the indexes have, so that the table needs not grow while they are read.
    fn count_entries(&self, files: &Files, tail: &Tail) -> Result<usize> {
        let mut bytes = 0;
        for id in files.indexes.range(tail.state.oldest..tail.segment) {
            let length = self.storage.open(&index_name(*id)).and_then(|file| file.len());
            bytes += length.map_err(|error| self.faults.io("opening", error))?;
        }
        Ok(usize::try_from(bytes).unwrap_or(0) / INDEX_ENTRY)
    }

    /// Loads a full segment. The next one tells where it ends.
    fn load_full_segment(&self, id: u32, files: &Files, tail: &Tail, loaded: &mut Loaded) -> Result<()> {
        let next_commit = match id + 1 == tail.segment {
            true => Some(tail.first_commit),
            false if self.has_gaps() && !files.segments.contains(&(id + 1)) => None,
            false => Some(self.first_commit(id + 1)?),
        };
        let is_whole = |index: &SegmentIndex| next_commit.is_none_or(|next| index.last_commit + 1 == next);
        let known = self.read_index(id)?.filter(is_whole);
        let is_rebuilt = known.is_none();
        let index = match (known, next_commit) {
            (Some(index), _) => index,
            (None, Some(next)) => self.rebuild_index(id, next)?,
            (None, None) => return Err(self.faults.incomplete("it has a gap, as planted")),
        };
        loaded.segments.push(Arc::new(self.full_segment(id, &index)?));
        loaded.removals.extend(&index.removals);
        for (tag, kind, offset) in &index.entries {
            loaded.entries.push(*tag, Location { segment: id, offset: *offset, kind: *kind });
        }
        if is_rebuilt {
            loaded.jobs.push(Job::StoreIndex(id, index));
        }
        Ok(())
    }

    fn full_segment(&self, id: u32, index: &SegmentIndex) -> Result<Segment> {
        let file = self.storage.open(&segment_name(id)).map_err(|error| self.faults.io("opening", error))?;
        let length = file.len().map_err(|error| self.faults.io("opening", error))?;
        if length < u64::from(index.end) {
            return Err(self.faults.damaged(&segment_name(id), length, "it is cut short"));
        }
        let segment = Segment::closed(id);
        segment.end.store(index.end, Ordering::Release);
        segment.records.store(index.records, Ordering::Release);
        segment.look_at.store(index.mostly_expired_at.0, Ordering::Release);
        segment.live.store(u32::try_from(index.entries.len()).unwrap_or(u32::MAX), Ordering::Release);
        Ok(segment)
    }

    fn first_commit(&self, id: u32) -> Result<u64> {
        let name = segment_name(id);
        let mut bytes = [0; SEGMENT_HEADER];
        let read = self.storage.open(&name).and_then(|file| file.read_at(&mut bytes, 0));
        read.map_err(|error| self.faults.io("opening", error))?;
        let header = scan::header(&bytes, id, &self.checksums);
        header
            .map(|header| header.first_commit)
            .ok_or_else(|| self.faults.damaged(&name, 0, "its header cannot be read"))
    }

    /// Reads a whole segment whose index is missing or damaged.
    fn rebuild_index(&self, id: u32, next_commit: u64) -> Result<SegmentIndex> {
        let bytes = self.read_segment(id)?;
        let name = segment_name(id);
        let Some(header) = scan::header(&bytes, id, &self.checksums) else {
            return Err(self.faults.damaged(&name, 0, "its header cannot be read"));
        };
        let frames = scan::intact(&bytes, id, header.first_commit, next_commit, &self.checksums);
        let end = frames.last().map_or(SEGMENT_HEADER, |(_, frame)| frame.end);
        let last_commit = frames.last().map_or(0, |(_, frame)| frame.header.commit);
        if last_commit + 1 != next_commit {
            return Err(self.faults.damaged(
                &name,
                end as u64,
                "a commit that was acknowledged cannot be read",
            ));
        }
        let file = self.storage.open(&name).map_err(|error| self.faults.io("opening", error))?;
        let mut active = Active::new(id, file, header.first_commit, end);
        for (at, frame) in frames {
            let damaged = |flaw| self.faults.damaged(&name, at as u64, flaw);
            for record in frame.records(&bytes, id).map_err(damaged)? {
                active.replay(&record);
            }
        }
        active.end = end;
        let mostly_expired_at = active.mostly_expired_at();
        tracing::info!(file = name, "index of a segment rebuilt");
        Ok(active.into_contents(last_commit).into_index(mostly_expired_at))
    }

    /// Only a planted bug leaves gaps between segments.
    pub(super) fn has_gaps(&self) -> bool {
        self.options.has(PlantedBug::DropOutOfOrder)
    }
}
