//! Opens a store: finds out what is durable, and refuses what is damaged.
//!
//! The end of the log may be torn: a crash interrupts a commit before it is acknowledged. Everything before is as it was
//! written, or the store is damaged. What tells the two apart is evidence that a commit was durable: the high-water mark, and
//! the number that each frame carries of the last commit before it. If a commit that was durable cannot be read, the store
//! is not opened.
//!
//! The last intact frame is suspect: it may be readable now and still not be on the disk, if the sync after it failed. It is
//! written again before anything is answered: in place after a crash, and to a new segment after a failed sync, because
//! nobody knows what the disk made of the old one.

mod full_segments;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ichido_core::{SteadyTime, Timestamp};

use super::active::Active;
use super::engine::{Engine, push_state, write_segment};
use super::fault::Faults;
use super::format::{
    Checksums, Frame, FrameWriter, RecordKind, SEGMENT_HEADER, SegmentIndex, index_name, parse_name,
    segment_name,
};
use super::hash_index::HashIndex;
use super::high_water::{self, HighWater, Mark};
use super::identity;
use super::openings::Openings;
use super::options::{Options, PlantedBug};
use super::reader::{Flaw, Reader};
use super::scan;
use super::spares::Spares;
use super::storage::{Storage, read_all};
use super::view::View;
use crate::Result;

/// Why a store is opened.
pub(crate) enum Reason<'a> {
    /// A process starts. Claims of earlier processes become in doubt.
    Start(&'a dyn Fn(Timestamp) -> SteadyTime),
    /// A write failed in this process, whose openings these are.
    Failure(Timestamp),
}

/// An open store.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) engine: Engine,
    /// The time of the store, if a process starts.
    pub(crate) time: Option<SteadyTime>,
}

/// Opens the store, and creates it if there is none.
pub(crate) fn open(
    storage: Arc<dyn Storage>,
    options: Options,
    reason: &Reason<'_>,
    draw_key: impl FnOnce() -> [u8; 16],
) -> Result<Opened> {
    let faults = Faults { dir: options.dir.clone() };
    let files = Files::list(&*storage, &faults)?;
    let mark = high_water::read(&*storage).map_err(|error| faults.io("opening", error))?;
    let acknowledged = match mark {
        Mark::Missing => 0,
        Mark::At(commit) => commit,
        Mark::Damaged => {
            return Err(faults.damaged(high_water::NAME, 0, "neither of its numbers can be read"));
        }
    };
    let key = match identity::read(&*storage, &faults)? {
        Some(key) => key,
        None if files.segments.is_empty() && mark == Mark::Missing => {
            let key = draw_key();
            identity::write(&*storage, &key, &faults)?;
            key
        }
        None => return Err(faults.incomplete(format!("the file {} is missing", identity::NAME))),
    };
    let checksums = Checksums::new(key, !options.has(PlantedBug::NoChecksums));
    let recovery = Recovery { storage, options, faults, checksums, acknowledged };
    if files.segments.is_empty() && mark != Mark::Missing {
        return Err(recovery.faults.incomplete("its segments are missing"));
    }
    match recovery.is_new(&files)? {
        true => recovery.create(&files, reason),
        false => recovery.open(&files, reason),
    }
}

/// The files of a store.
#[derive(Debug, Default)]
struct Files {
    segments: BTreeSet<u32>,
    indexes: BTreeSet<u32>,
    spares: Vec<String>,
    outcomes: Vec<String>,
}

impl Files {
    fn list(storage: &dyn Storage, faults: &Faults) -> Result<Self> {
        let mut files = Self::default();
        for name in storage.list().map_err(|error| faults.io("opening", error))? {
            if let Some(segment) = parse_name(&name, ".log") {
                files.segments.insert(segment);
            } else if let Some(segment) = parse_name(&name, ".index") {
                files.indexes.insert(segment);
            } else if Spares::is_spare(&name) {
                files.spares.push(name);
            } else if name.starts_with(super::codec::OUTCOME_PREFIX) {
                files.outcomes.push(name);
            }
        }
        Ok(files)
    }
}

struct Recovery {
    storage: Arc<dyn Storage>,
    options: Options,
    faults: Faults,
    checksums: Checksums,
    acknowledged: u64,
}

/// The newest segment with a commit.
struct Tail {
    segment: u32,
    bytes: Vec<u8>,
    first_commit: u64,
    last_commit: u64,
    /// Its commits, with their offsets.
    frames: Vec<(usize, Frame)>,
    /// Where the last frame starts and ends.
    last_frame: (usize, usize),
    time: Timestamp,
    state: StoreState,
}

/// What the log says of the whole store.
#[derive(Clone, Debug)]
struct StoreState {
    oldest: u32,
    openings: Openings,
}

impl StoreState {
    fn decode(body: &[u8]) -> Result<Self, Flaw> {
        let mut reader = Reader(body);
        let oldest = reader.u32()?;
        Ok(Self { oldest, openings: Openings::decode(reader.0)? })
    }
}

impl Recovery {
    /// Whether there is no commit yet: the store is new, or a crash interrupted its first commit.
    fn is_new(&self, files: &Files) -> Result<bool> {
        if files.segments.iter().any(|id| *id != FIRST) || self.acknowledged > 0 {
            return Ok(false);
        }
        if files.segments.is_empty() {
            return Ok(true);
        }
        let bytes = self.read_segment(FIRST)?;
        let frames = scan::intact(&bytes, FIRST, 1, u64::MAX, &self.checksums);
        let synced = scan::synced_behind(&bytes, SEGMENT_HEADER, FIRST, &self.checksums);
        let has_header = scan::header(&bytes, FIRST, &self.checksums).is_some();
        Ok((frames.is_empty() || !has_header) && synced == 0 && !files.indexes.contains(&FIRST))
    }

    /// Starts an empty store.
    fn create(self, files: &Files, reason: &Reason<'_>) -> Result<Opened> {
        let (openings, now, time) = begin(Openings::default(), Timestamp(0), reason);
        let view = self.view(openings, HashIndex::default());
        self.remove_spares(files)?;
        let mut frame = FrameWriter::default();
        frame.start();
        push_state(&mut frame, FIRST, &view.openings);
        let io = |error| self.faults.io("creating", error);
        // An earlier opening may have named the format without making the name durable. Without it, a segment is unreadable.
        self.storage.sync_dir().map_err(io)?;
        let active = write_segment(&view, &mut frame, FIRST, 1, now).map_err(io)?;
        view.add_segment(active.segment.clone());
        let high_water = HighWater::open(&*self.storage, 1).map_err(io)?;
        Ok(Opened { engine: Engine::new(view, active, high_water, 1, FIRST), time })
    }

    fn open(self, files: &Files, reason: &Reason<'_>) -> Result<Opened> {
        let (tail, unused) = self.find_tail(files)?;
        let oldest = tail.state.oldest;
        let missing = (oldest..=tail.segment).find(|id| !files.segments.contains(id));
        if let Some(missing) = missing.filter(|_| !self.has_gaps()) {
            return Err(self.faults.incomplete(format!("the file {} is missing", segment_name(missing))));
        }
        let (openings, now, time) = begin(tail.state.openings.clone(), tail.time, reason);
        let view = self.load_full_segments(files, &tail, openings)?;
        let is_moved = matches!(reason, Reason::Failure(_)) && tail.last_frame.0 > SEGMENT_HEADER;
        let active = self.add_tail(&view, &tail, is_moved)?;
        if let Some(unused) = unused {
            self.remove(&segment_name(unused))?;
        }
        self.remove_spares(files)?;
        let io = |error| self.faults.io("opening", error);
        let high_water =
            HighWater::open(&*self.storage, self.acknowledged.min(tail.last_commit)).map_err(io)?;
        let last = if is_moved { tail.last_commit - 1 } else { tail.last_commit };
        let mut engine = Engine::new(view, active, high_water, last, oldest);
        match is_moved {
            true => engine.rewrite_to_new_segment(&tail.bytes, tail.last_frame.0, now)?,
            false => self.rewrite_in_place(&engine, &tail)?,
        }
        if matches!(reason, Reason::Start(_)) {
            engine.write_state(now)?;
        }
        self.remove_leftovers(files, oldest, &tail)?;
        self.remove_unused_outcomes(engine.view(), files)?;
        Ok(Opened { engine, time })
    }

    fn view(&self, openings: Openings, index: HashIndex) -> Arc<View> {
        Arc::new(View::new(self.storage.clone(), self.options.clone(), self.checksums, openings, index))
    }

    /// The newest segment with a commit, and a newer file that a crash left without one.
    fn find_tail(&self, files: &Files) -> Result<(Tail, Option<u32>)> {
        let mut synced = self.acknowledged;
        let mut unused = None;
        for id in files.segments.iter().rev().copied() {
            let mut bytes = self.read_segment(id)?;
            let header = scan::header(&bytes, id, &self.checksums);
            let first_commit = header.map(|header| header.first_commit);
            let frames = first_commit
                .map(|first| scan::intact(&bytes, id, first, u64::MAX, &self.checksums))
                .unwrap_or_default();
            let end = frames.last().map_or(SEGMENT_HEADER, |(_, frame)| frame.end);
            synced = synced.max(scan::synced_behind(&bytes, end, id, &self.checksums));
            let Some((at, last)) = frames.last() else {
                // Only the newest file can be without a commit: each segment is durable before the next one is started.
                if unused.replace(id).is_some() || files.indexes.contains(&id) {
                    return Err(self.faults.damaged(&segment_name(id), 0, "it has no readable commit"));
                }
                continue;
            };
            let name = segment_name(id);
            // An index is written once the next segment is durable.
            let is_full = files.indexes.contains(&id) && self.read_index(id)?.is_some();
            if last.header.commit < synced {
                return Err(self.faults.behind(&name, end, last.header.commit, synced));
            }
            if is_full {
                return Err(self.faults.incomplete(format!("the segment after {name} is missing")));
            }
            let state = self.last_state(id, &bytes, &frames)?;
            let (last_commit, time) = (last.header.commit, last.header.time);
            let (first_commit, last_frame) = (first_commit.unwrap_or(0), (*at, last.end));
            // The zeros behind the last frame may be missing from the file.
            bytes.resize(bytes.len().max(last_frame.1), 0);
            let tail =
                Tail { segment: id, bytes, first_commit, last_commit, frames, last_frame, time, state };
            return Ok((tail, unused));
        }
        Err(self.faults.incomplete("none of its segments has a readable commit"))
    }

    fn last_state(&self, id: u32, bytes: &[u8], frames: &[(usize, Frame)]) -> Result<StoreState> {
        let damaged = |flaw| self.faults.damaged(&segment_name(id), SEGMENT_HEADER as u64, flaw);
        for (_, frame) in frames.iter().rev() {
            let records = frame.records(bytes, id).map_err(damaged)?;
            if let Some(state) = records.iter().rfind(|record| record.header.kind == RecordKind::State) {
                return StoreState::decode(state.body).map_err(damaged);
            }
        }
        Err(damaged("it does not contain the state of the store"))
    }

    fn read_segment(&self, id: u32) -> Result<Vec<u8>> {
        let bytes =
            read_all(&*self.storage, &segment_name(id)).map_err(|error| self.faults.io("opening", error))?;
        bytes.ok_or_else(|| self.faults.incomplete(format!("the file {} is missing", segment_name(id))))
    }

    fn read_index(&self, id: u32) -> Result<Option<SegmentIndex>> {
        let bytes =
            read_all(&*self.storage, &index_name(id)).map_err(|error| self.faults.io("opening", error))?;
        Ok(bytes.and_then(|bytes| SegmentIndex::decode(&bytes, id, &self.checksums)))
    }

    /// Adds the newest segment, with or without its last commit.
    fn add_tail(&self, view: &View, tail: &Tail, is_moved: bool) -> Result<Active> {
        let name = segment_name(tail.segment);
        let file = self.storage.open(&name).map_err(|error| self.faults.io("opening", error))?;
        let mut active = Active::new(tail.segment, file, tail.first_commit, tail.bytes.len());
        view.add_segment(active.segment.clone());
        let count = tail.frames.len() - usize::from(is_moved);
        for (at, frame) in &tail.frames[..count] {
            let damaged = |flaw| self.faults.damaged(&name, *at as u64, flaw);
            for record in frame.records(&tail.bytes, tail.segment).map_err(damaged)? {
                let after = active.replay(&record);
                if let Some((segment, offset)) = record.header.replaced {
                    view.unpublish_at(record.header.tag, segment, offset);
                }
                if let Some(location) = after {
                    view.publish(record.header.tag, None, Some(location));
                }
            }
        }
        (active.frame_at, active.end) = tail.last_frame;
        if is_moved {
            active.end = active.frame_at;
        }
        active.segment.end.store(u32::try_from(active.end).unwrap_or(u32::MAX), Ordering::Release);
        Ok(active)
    }

    /// The same bytes in the same place: a crash in between changes nothing.
    fn rewrite_in_place(&self, engine: &Engine, tail: &Tail) -> Result<()> {
        let (start, end) = tail.last_frame;
        let start = if start == SEGMENT_HEADER { 0 } else { start };
        let file = &engine.active.file;
        let written = file.write_at(&tail.bytes[start..end], start as u64).and_then(|()| file.sync());
        // The name of the file may not be durable either.
        let written = written.and_then(|()| self.storage.sync_dir());
        written.map_err(|error| self.faults.io("opening", error))
    }

    /// Removes what a crash left behind: dropped segments, and indexes without a full segment.
    ///
    /// The last commit is durable by now. It may be the one that says that they are dropped.
    fn remove_leftovers(&self, files: &Files, oldest: u32, tail: &Tail) -> Result<()> {
        for id in files.segments.range(..oldest) {
            self.remove(&segment_name(*id))?;
        }
        let is_stale = |id: &&u32| **id < oldest || **id >= tail.segment;
        files.indexes.iter().filter(is_stale).try_for_each(|id| self.remove(&index_name(*id)))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.storage.remove(name).map_err(|error| self.faults.io("opening", error))
    }

    /// Removes the files that were prepared for new segments.
    ///
    /// They cannot be used: a power loss may have undone the rename that made such a file a segment, but not the commit that
    /// was written to it. That commit was never acknowledged, and would come back with the next use of the file.
    fn remove_spares(&self, files: &Files) -> Result<()> {
        files.spares.iter().try_for_each(|name| self.remove(name))
    }

    /// Removes files of outcomes that no record names. There are few.
    fn remove_unused_outcomes(&self, view: &View, files: &Files) -> Result<()> {
        if files.outcomes.is_empty() {
            return Ok(());
        }
        let used = view.outcome_files()?;
        for name in files.outcomes.iter().filter(|name| !used.contains(*name)) {
            self.remove(name)?;
        }
        Ok(())
    }
}

/// The number of the first segment.
const FIRST: u32 = 1;

/// The openings of the store with this one, and its time.
fn begin(
    mut openings: Openings,
    last: Timestamp,
    reason: &Reason<'_>,
) -> (Openings, Timestamp, Option<SteadyTime>) {
    match reason {
        Reason::Start(start) => {
            let time = start(last);
            let now = time.now();
            openings.begin(now, last);
            (openings, now, Some(time))
        }
        Reason::Failure(now) => (openings, *now, None),
    }
}
