//! The writing side of a store: decides calls, writes them as one frame, syncs it, and only then shows and answers them.
//!
//! There are no threads here. Whoever owns the engine calls [`Engine::run`] with the calls that are waiting; a simulation does
//! so step by step. If a write or a sync fails, nobody knows what of it is on the disk: the engine refuses everything from
//! then on, and the store must be opened again ([`super::recovery`]).

mod changes;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ichido_core::{Index, Record, Timestamp};

use super::active::Active;
use super::call::{Answer, Call, Maintenance, send};
use super::compaction::Drop;
use super::format::{
    self, Frame, FrameHeader, FrameWriter, Location, RecordHeader, RecordKind, SEGMENT_HEADER,
};
use super::high_water::HighWater;
use super::job_queue::Job;
use super::open_cache::OpenCache;
use super::openings::Openings;
use super::options::PlantedBug;
use super::round::{Decided, Round};
use super::view::View;
use crate::{Error, Kind, Result, Swept};

/// Writes to a store.
#[derive(Debug)]
pub(crate) struct Engine {
    view: Arc<View>,
    pub(super) active: Active,
    high_water: HighWater,
    /// The last commit, which is durable.
    pub(super) last: u64,
    oldest: u32,
    frame: FrameWriter,
    cache: OpenCache,
    /// Records of the frame that is being written.
    written: Vec<Written>,
    /// Empty between rounds; its memory is kept.
    decided: Decided,
    outcome_files: u32,
    /// Why the store must be opened again.
    failure: Option<String>,
}

/// A record of the frame that is being written.
#[derive(Debug)]
struct Written {
    tag: u64,
    kind: RecordKind,
    expires_at: Timestamp,
    before: Option<Location>,
    /// Where it starts in the frame.
    at: usize,
    /// Its key, and its record if it is an open claim.
    cached: Cached,
}

/// What happens to the cache of open claims when a record is durable.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "lives for one commit; a box would be an allocation for each claim"
)]
enum Cached {
    Put(Record),
    Moved(Index),
    Remove(Index),
    /// Marks are not cached.
    Keep,
}

impl Engine {
    pub(super) fn new(
        view: Arc<View>,
        active: Active,
        high_water: HighWater,
        last: u64,
        oldest: u32,
    ) -> Self {
        let cache = OpenCache::new(view.options.open_cached);
        Self {
            view,
            active,
            high_water,
            last,
            oldest,
            frame: FrameWriter::default(),
            cache,
            written: Vec::new(),
            decided: Decided::default(),
            outcome_files: 0,
            failure: None,
        }
    }

    /// What readers see.
    pub(crate) fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Why the store must be opened again, if it must.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The last durable commit.
    #[cfg(feature = "simulation")]
    pub(crate) fn last_commit(&self) -> u64 {
        self.last
    }

    /// Whether the high-water mark waits for its sync.
    pub(crate) fn is_mark_dirty(&self) -> bool {
        self.high_water.is_dirty()
    }

    /// Makes the high-water mark durable.
    pub(crate) fn sync_mark(&mut self) -> std::io::Result<()> {
        self.high_water.sync()
    }

    /// Decides the calls in order, commits what they change, and answers them.
    pub(crate) fn run(&mut self, calls: impl IntoIterator<Item = Call>, now: Timestamp) {
        let mut round = Round::new(&self.view, &self.cache, now, std::mem::take(&mut self.decided));
        let maintenance: Vec<_> = calls.into_iter().filter_map(|call| round.decide(call)).collect();
        let mut decided = round.finish();
        match self.commit(&mut decided, now) {
            Ok(()) => decided.answers.drain(..).for_each(Answer::give),
            Err(error) => {
                let text = error.to_string();
                for answer in decided.answers.drain(..) {
                    answer.fail(Error::new(Kind::Unavailable, text.clone()).with_unknown_effect());
                }
            }
        }
        self.decided = decided.emptied();
        for work in maintenance {
            self.maintain(work, now);
        }
    }

    fn maintain(&mut self, work: Maintenance, now: Timestamp) {
        match work {
            Maintenance::Drop(segment, reply) => send(reply, self.drop_oldest(segment, now)),
            Maintenance::Rotate(reply) => send(reply, self.rotate(now)),
        }
    }

    fn commit(&mut self, decided: &mut Decided, now: Timestamp) -> Result<()> {
        self.check_usable()?;
        self.frame.start();
        self.written.clear();
        self.outcome_files = 0;
        for (index, entry) in decided.claims.drain().filter(|(_, entry)| entry.is_changed) {
            self.add_claim(index, entry)?;
            self.write_if_full(now)?;
        }
        for (index, entry) in decided.marks.drain().filter(|(_, entry)| entry.is_changed) {
            self.add_mark(index, entry);
            self.write_if_full(now)?;
        }
        for moved in decided.moves.drain(..) {
            self.add_move(moved);
            self.write_if_full(now)?;
        }
        self.write(now)
    }

    fn check_usable(&self) -> Result<()> {
        match &self.failure {
            Some(text) => Err(Error::new(Kind::Unavailable, text.clone())),
            None => Ok(()),
        }
    }

    /// Whether the frame fits into the present segment.
    fn fits(&self) -> bool {
        self.active.end + self.frame.len() + format::ALIGNMENT <= self.view.options.segment_bytes
    }

    fn write_if_full(&mut self, now: Timestamp) -> Result<()> {
        match self.frame.len() >= self.view.options.frame_bytes {
            true => self.write(now),
            false => Ok(()),
        }
    }

    /// Writes the frame, makes it durable, and shows its records to readers.
    fn write(&mut self, now: Timestamp) -> Result<()> {
        if self.frame.is_empty() {
            return Ok(());
        }
        match self.fits() {
            true => self.append(now)?,
            false => self.start_segment(now)?,
        }
        self.frame.start();
        self.publish();
        self.high_water.raise(self.last).map_err(|error| self.fail("writing the high-water mark of", error))
    }

    /// Writes the frame to the present segment.
    fn append(&mut self, now: Timestamp) -> Result<()> {
        let header = FrameHeader { commit: self.last + 1, synced: self.last, time: now };
        let bytes = self.frame.finish(self.active.segment.id, header, &self.view.checksums);
        let length = bytes.len();
        let zeros = self.active.fill(bytes, self.active.end, &self.view.options);
        self.view.spares.count_zeros(zeros);
        let written = self.active.file.write_at(bytes, self.active.end as u64);
        let is_synced = !self.view.options.has(PlantedBug::NoSync);
        let written = written.and_then(|()| if is_synced { self.active.file.sync() } else { Ok(()) });
        written.map_err(|error| self.fail("writing to", error))?;
        self.last += 1;
        self.active.frame_at = self.active.end;
        self.active.end += length;
        Ok(())
    }

    /// Writes the frame as the first one of a new segment, together with the state of the store. So the newest segment
    /// always tells what an opening needs to know.
    fn start_segment(&mut self, now: Timestamp) -> Result<()> {
        if self.frame.is_bound {
            self.complete_records(now)?;
        }
        self.add_state();
        let (id, first_commit) = (self.active.segment.id + 1, self.last + 1);
        if self.view.options.has(PlantedBug::IndexTooEarly) {
            let contents = self.active.clone().into_contents(self.last);
            let written = Job::WriteIndex(contents).run(&self.view);
            written.map_err(|error| self.fail("writing to", error))?;
        }
        let next = write_segment(&self.view, &mut self.frame, id, first_commit, now)
            .map_err(|error| self.fail("writing to", error))?;
        self.last = first_commit;
        let full = std::mem::replace(&mut self.active, next);
        self.view.add_segment(self.active.segment.clone());
        self.seal(full);
        Ok(())
    }

    /// Writes the last frame of a segment to a new segment, because nobody knows whether it is durable. The new segment's
    /// first commit has the same number, so the old frame does not count any more.
    pub(super) fn rewrite_to_new_segment(&mut self, bytes: &[u8], at: usize, now: Timestamp) -> Result<()> {
        let (view, segment) = (self.view.clone(), self.active.segment.id);
        let damaged = |flaw| view.faults.damaged(&format::segment_name(segment), at as u64, flaw);
        let frame = Frame::decode(bytes, at, segment, &view.checksums);
        let frame = frame.ok_or_else(|| damaged("its checksum does not match"))?;
        self.frame.start();
        for record in frame.records(bytes, segment).map_err(damaged)? {
            let RecordHeader { kind, tag, expires_at, replaced, continues: _ } = record.header;
            if kind == RecordKind::State {
                continue;
            }
            let before = replaced.and_then(|(segment, offset)| view.location_at(tag, segment, offset));
            let body = format::whole_body(bytes, segment, &record, &view.checksums).map_err(damaged)?;
            let header = RecordHeader { continues: false, ..record.header };
            let at = self.frame.push(header, |out| out.extend(&*body));
            self.written.push(Written { tag, kind, expires_at, before, at, cached: Cached::Keep });
        }
        self.start_segment(now)?;
        self.frame.start();
        self.publish();
        self.high_water.raise(self.last).map_err(|error| self.fail("writing the high-water mark of", error))
    }

    fn add_state(&mut self) {
        push_state(&mut self.frame, self.oldest, &self.view.openings);
    }

    /// Leaves the index of a full segment to the maintenance.
    fn seal(&mut self, full: Active) {
        full.segment.end.store(to_u32(full.end), Ordering::Release);
        self.view.limit_open_files(full.segment.id);
        full.segment.look_at.store(full.mostly_expired_at().0, Ordering::Release);
        self.view.jobs().push_back(Job::WriteIndex(full.into_contents(self.last - 1)));
    }

    /// Shows the records of the frame to readers.
    fn publish(&mut self) {
        let (segment, frame_at) = (self.active.segment.id, self.active.frame_at);
        self.active.segment.end.store(to_u32(self.active.end), Ordering::Release);
        let mut records = std::mem::take(&mut self.written);
        for written in records.drain(..) {
            let offset = to_u32(frame_at + written.at);
            let after = written.kind.is_indexed().then_some(Location { segment, offset, kind: written.kind });
            self.active.record(written.tag, after, written.before, written.expires_at);
            self.view.publish(written.tag, written.before, after);
            match (written.cached, after) {
                (Cached::Put(record), Some(location)) => {
                    self.cache.put(record.key.index(), record, location);
                }
                (Cached::Moved(index), Some(location)) => self.cache.relocate(&index, location),
                (Cached::Remove(index), _) => self.cache.remove(&index),
                (Cached::Put(_) | Cached::Moved(_), None) | (Cached::Keep, _) => {}
            }
        }
        self.written = records;
    }

    /// Writes the state of the store as a commit of its own.
    pub(super) fn write_state(&mut self, now: Timestamp) -> Result<()> {
        self.check_usable()?;
        self.frame.start();
        self.add_state();
        self.write(now)
    }

    /// Starts a new segment, unless the present one is empty.
    fn rotate(&mut self, now: Timestamp) -> Result<()> {
        self.check_usable()?;
        if self.active.segment.records.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        self.frame.start();
        self.start_segment(now)?;
        self.frame.start();
        self.publish();
        self.high_water.raise(self.last).map_err(|error| self.fail("writing the high-water mark of", error))
    }

    /// Drops the oldest segment, if nothing in it is needed any more.
    ///
    /// First the log says that it is dropped, then it is. So a missing segment is damage, unless the log says otherwise.
    fn drop_oldest(&mut self, drop: Drop, now: Timestamp) -> Result<Swept> {
        self.check_usable()?;
        let Some(segment) = self.view.segment(drop.segment) else { return Ok(Swept::default()) };
        let is_oldest = drop.segment == self.oldest || self.view.options.has(PlantedBug::DropOutOfOrder);
        let is_here = |(tag, location): &&(u64, Location)| self.view.index.contains(*tag, *location);
        let expired: Vec<_> = drop.expired.iter().filter(is_here).copied().collect();
        let is_needed = segment.live.load(Ordering::Acquire) as usize != expired.len();
        if !is_oldest || is_needed || drop.segment == self.active.segment.id {
            return Ok(Swept { more: true, ..Swept::default() });
        }
        if drop.segment == self.oldest {
            self.oldest += 1;
        }
        self.write_state(now)?;
        for (tag, location) in &expired {
            self.view.publish(*tag, Some(*location), None);
        }
        let doubts = drop.doubts.iter().filter(|record| !self.is_claimed_again(record));
        let doubts_ended = doubts.inspect(|record| crate::backend::warn_doubt_expired(record)).count() as u64;
        drop.doubts.iter().for_each(|record| self.cache.remove(&record.key.index()));
        self.view.remove_segment(drop.segment);
        self.view.jobs().push_back(Job::Recycle(segment, drop.outcome_files));
        Ok(Swept { removed: expired.len() as u64, doubts_ended, more: false })
    }

    fn is_claimed_again(&self, record: &Record) -> bool {
        !self.view.index.find(self.view.tag(&record.key.index())).is_empty()
    }

    /// Nobody knows what of a write is on the disk.
    fn fail(&mut self, doing: &str, error: std::io::Error) -> Error {
        let error = self.view.faults.io(doing, error);
        self.failure = Some(error.to_string());
        error
    }
}

/// Adds the state of the store to a frame.
pub(super) fn push_state(frame: &mut FrameWriter, oldest: u32, openings: &Openings) {
    let header = RecordHeader {
        kind: RecordKind::State,
        tag: 0,
        expires_at: Timestamp(0),
        replaced: None,
        continues: false,
    };
    frame.push(header, |out| {
        out.extend(oldest.to_be_bytes());
        out.extend(openings.encode());
    });
}

/// Creates a segment whose first commit is this frame. The segment and its name are durable when this returns.
pub(super) fn write_segment(
    view: &View,
    frame: &mut FrameWriter,
    id: u32,
    first_commit: u64,
    now: Timestamp,
) -> std::io::Result<Active> {
    let header = FrameHeader { commit: first_commit, synced: first_commit - 1, time: now };
    let (file, length) = view.spares.take(&*view.storage, id)?;
    let mut next = Active::new(id, file, first_commit, length);
    let bytes = frame.finish(id, header, &view.checksums);
    let frame_bytes = bytes.len();
    let head = format::SegmentHeader { segment: id, first_commit }.encode(&view.checksums);
    bytes.splice(0..0, head);
    let zeros = next.fill(bytes, 0, &view.options);
    view.spares.count_zeros(zeros);
    next.file.write_at(bytes, 0)?;
    if !view.options.has(PlantedBug::NoSync) {
        next.file.sync()?;
    }
    if !view.options.has(PlantedBug::NoDirectorySync) {
        view.storage.sync_dir()?;
    }
    next.frame_at = SEGMENT_HEADER;
    next.end = SEGMENT_HEADER + frame_bytes;
    next.segment.end.store(to_u32(next.end), Ordering::Release);
    Ok(next)
}

/// Sizes within a segment have 28 bits.
fn to_u32(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}
