//! What readers see of a store: every commit that is durable, and nothing else.
//!
//! The writer adds a record to the index after it is durable, so reads need no lock against commits. A record may move while
//! it is read: its segment is then gone, or its file is used for something else. A read that fails is an error only if the
//! index still points to the same place.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::Hasher;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use ichido_core::{Index, Record, Timestamp, mark};
use siphasher::sip::SipHasher13;

use super::codec::{self, StoredClaim};
use super::fault::Faults;
use super::format::{self, Checksums, Location, RecordHeader, RecordKind};
use super::hash_index::HashIndex;
use super::job_queue::Job;
use super::openings::Openings;
use super::options::Options;
use super::reader::Flaw;
use super::segment::Segment;
use super::spares::Spares;
use super::storage::{File, Storage, read_all};
use crate::Result;

/// Bytes that are read at once: most records are shorter.
const READ_BYTES: usize = 1024;

/// The readable part of a store.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) options: Options,
    pub(crate) checksums: Checksums,
    pub(crate) faults: Faults,
    pub(crate) openings: Openings,
    pub(crate) index: HashIndex,
    segments: RwLock<BTreeMap<u32, Arc<Segment>>>,
    /// Full segments whose files are open, in the order in which they were opened.
    open_files: Mutex<VecDeque<u32>>,
    /// Work for the maintenance.
    jobs: Mutex<VecDeque<Job>>,
    pub(crate) spares: Spares,
}

/// A claim, and where it is.
#[derive(Debug)]
pub(crate) struct FoundClaim {
    pub(crate) record: Record,
    pub(crate) location: Location,
}

/// A mark, and where it is.
#[derive(Debug)]
pub(crate) struct FoundMark {
    pub(crate) record: mark::Record,
    pub(crate) location: Location,
}

/// Why a record could not be read.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// The disk failed. The record may be intact.
    Io(io::Error),
    /// It is not what was written.
    Damaged(Flaw),
}

impl Unreadable {
    /// A file that is too short is damaged; any other error is the disk's.
    fn new(error: io::Error) -> Self {
        match error.kind() == io::ErrorKind::UnexpectedEof {
            true => Self::Damaged("it is cut short"),
            false => Self::Io(error),
        }
    }
}

impl From<Flaw> for Unreadable {
    fn from(flaw: Flaw) -> Self {
        Self::Damaged(flaw)
    }
}

/// The result of reading one record.
enum Read<T> {
    Found(T),
    /// The tag belongs to another key.
    Other,
    /// The record is not there any more.
    Moved,
}

impl View {
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        options: Options,
        checksums: Checksums,
        openings: Openings,
        index: HashIndex,
    ) -> Self {
        let faults = Faults { dir: options.dir.clone() };
        Self {
            storage,
            options,
            checksums,
            faults,
            openings,
            index,
            segments: RwLock::default(),
            open_files: Mutex::default(),
            jobs: Mutex::default(),
            spares: Spares::default(),
        }
    }

    /// The tag of a key.
    pub(crate) fn tag(&self, index: &Index) -> u64 {
        tag_of(&self.checksums.key, index) & self.options.tag_mask
    }

    /// The claim of a key, expired or not.
    pub(crate) fn claim(&self, index: &Index) -> Result<Option<FoundClaim>> {
        self.find(
            index,
            |kind| matches!(kind, RecordKind::Open | RecordKind::Done | RecordKind::Large),
            |location, body| {
                let stored = codec::decode_claim(body)?;
                if stored.record.key.index() != *index {
                    return Ok(Read::Other);
                }
                Ok(match self.revived(stored, true)? {
                    Some(record) => Read::Found(FoundClaim { record, location }),
                    None => Read::Moved,
                })
            },
        )
    }

    /// The mark of a key, expired or not.
    pub(crate) fn mark(&self, index: &Index) -> Result<Option<FoundMark>> {
        self.find(
            index,
            |kind| kind == RecordKind::Mark,
            |location, body| {
                let record = codec::decode_mark(body)?;
                Ok(match record.key.index() == *index {
                    true => Read::Found(FoundMark { record, location }),
                    false => Read::Other,
                })
            },
        )
    }

    /// What a stored claim means in this opening. `None` if the file of its outcome is gone.
    pub(crate) fn revived(
        &self,
        stored: StoredClaim,
        needs_outcome: bool,
    ) -> Result<Option<Record>, Unreadable> {
        let epoch = stored.epoch;
        let mut record = match stored.outcome_file.filter(|_| needs_outcome) {
            None => stored.record,
            Some(file) => {
                let bytes = read_all(&*self.storage, &file.name());
                let Some(bytes) = bytes.map_err(Unreadable::new)? else { return Ok(None) };
                file.check(&bytes)?;
                stored.with_outcome(bytes)
            }
        };
        self.openings.revive(&mut record, epoch);
        Ok(Some(record))
    }

    /// Reads the records with the tag of a key until one belongs to the key.
    fn find<T>(
        &self,
        index: &Index,
        is_wanted: impl Fn(RecordKind) -> bool,
        read: impl Fn(Location, &[u8]) -> Result<Read<T>, Unreadable>,
    ) -> Result<Option<T>> {
        let tag = self.tag(index);
        'again: loop {
            let candidates = self.index.find(tag);
            for location in candidates.iter().filter(|location| is_wanted(location.kind)) {
                match self.read(tag, location, &read)? {
                    Read::Found(found) => return Ok(Some(found)),
                    Read::Other => {}
                    Read::Moved => continue 'again,
                }
            }
            return Ok(None);
        }
    }

    fn read<T>(
        &self,
        tag: u64,
        location: Location,
        decode: impl Fn(Location, &[u8]) -> Result<Read<T>, Unreadable>,
    ) -> Result<Read<T>> {
        let Some(segment) = self.segment(location.segment) else { return Ok(Read::Moved) };
        let read = self.record(&segment, location.offset).and_then(|(header, bytes)| {
            if (header.kind, header.tag) != (location.kind, tag) {
                return Err("another record is in its place".into());
            }
            decode(location, &bytes)
        });
        match read {
            Err(_) | Ok(Read::Moved) if !self.index.contains(tag, location) => Ok(Read::Moved),
            Err(reason) => Err(self.unreadable(location, reason)),
            Ok(Read::Moved) => Err(self.damaged(location, "the file of its outcome is missing")),
            Ok(read) => Ok(read),
        }
    }

    /// The record of an entry of the index, with its header. `None` if it is not there any more.
    pub(crate) fn entry(&self, tag: u64, location: Location) -> Result<Option<(RecordHeader, Vec<u8>)>> {
        let Some(segment) = self.segment(location.segment) else { return Ok(None) };
        match self.record(&segment, location.offset) {
            Ok(found) => Ok(Some(found)),
            Err(_) if !self.index.contains(tag, location) => Ok(None),
            Err(reason) => Err(self.unreadable(location, reason)),
        }
    }

    /// The header and the whole body of a record.
    fn record(&self, segment: &Segment, offset: u32) -> Result<(RecordHeader, Vec<u8>), Unreadable> {
        let (header, body) = self.stored(segment, offset)?;
        let Some((_, before)) = header.replaced.filter(|_| header.continues) else {
            return Ok((header, body));
        };
        let (previous, previous_body) = self.stored(segment, before)?;
        let body = format::continued(&header, &body, &previous, &previous_body)?;
        Ok((header, body))
    }

    /// The header and the body of a record, as it is stored.
    fn stored(&self, segment: &Segment, offset: u32) -> Result<(RecordHeader, Vec<u8>), Unreadable> {
        let end = segment.end.load(Ordering::Acquire);
        let available = usize::try_from(end.saturating_sub(offset)).unwrap_or(0);
        let mut bytes = vec![0; available.min(READ_BYTES)];
        let file = self.file(segment).map_err(Unreadable::new)?;
        file.read_at(&mut bytes, u64::from(offset)).map_err(Unreadable::new)?;
        let length = format::record_len(&bytes).ok_or("its length is invalid")?;
        if length > available {
            return Err("it is cut short".into());
        }
        let known = bytes.len().min(length);
        bytes.resize(length, 0);
        if known < length {
            file.read_at(&mut bytes[known..], u64::from(offset) + known as u64).map_err(Unreadable::new)?;
        }
        let (header, body, _) = format::decode_record(&bytes, segment.id, &self.checksums)?;
        let body_at = bytes.len() - body.len();
        bytes.drain(..body_at);
        Ok((header, bytes))
    }

    pub(crate) fn damaged(&self, location: Location, flaw: Flaw) -> crate::Error {
        self.faults.damaged(&format::segment_name(location.segment), u64::from(location.offset), flaw)
    }

    pub(crate) fn unreadable(&self, location: Location, reason: Unreadable) -> crate::Error {
        match reason {
            Unreadable::Io(error) => self.faults.io("reading", error),
            Unreadable::Damaged(flaw) => self.damaged(location, flaw),
        }
    }

    pub(crate) fn segment(&self, id: u32) -> Option<Arc<Segment>> {
        self.segments.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// All segments, the oldest first.
    pub(crate) fn segments(&self) -> Vec<Arc<Segment>> {
        self.segments.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(crate) fn add_segment(&self, segment: Arc<Segment>) {
        self.segments.write().unwrap_or_else(PoisonError::into_inner).insert(segment.id, segment);
    }

    /// The file of a segment.
    pub(crate) fn file(&self, segment: &Segment) -> io::Result<Arc<dyn File>> {
        let mut handle = segment.handle();
        if let Some(file) = &*handle {
            return Ok(file.clone());
        }
        let file = self.storage.open(&format::segment_name(segment.id))?;
        *handle = Some(file.clone());
        drop(handle);
        self.limit_open_files(segment.id);
        Ok(file)
    }

    /// Prepares a file for a new segment.
    pub(crate) fn prepare_spare(&self) -> io::Result<()> {
        self.spares.prepare(&*self.storage, self.options.segment_bytes)
    }

    /// Notes that the file of a full segment is open, and closes another one if there are too many.
    pub(crate) fn limit_open_files(&self, id: u32) {
        let mut open = self.open_files.lock().unwrap_or_else(PoisonError::into_inner);
        open.push_back(id);
        if open.len() > self.options.open_files
            && let Some(segment) = open.pop_front().and_then(|id| self.segment(id))
        {
            *segment.handle() = None;
        }
    }

    pub(crate) fn remove_segment(&self, id: u32) -> Option<Arc<Segment>> {
        self.segments.write().unwrap_or_else(PoisonError::into_inner).remove(&id)
    }

    /// Whether there is work to do.
    pub(crate) fn has_jobs(&self) -> bool {
        !self.jobs().is_empty()
    }

    /// The next piece of work.
    pub(crate) fn next_job(&self) -> Option<Job> {
        self.jobs().pop_front()
    }

    /// Work for the maintenance.
    pub(crate) fn jobs(&self) -> MutexGuard<'_, VecDeque<Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Points the index to a record instead of its predecessor, and keeps the counts.
    pub(crate) fn publish(&self, tag: u64, before: Option<Location>, after: Option<Location>) {
        self.index.replace(tag, before, after);
        if let Some(segment) = before.and_then(|before| self.segment(before.segment)) {
            segment.live.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// The record at a place that the index points to.
    pub(crate) fn location_at(&self, tag: u64, segment: u32, offset: u32) -> Option<Location> {
        self.index.find(tag).iter().find(|found| (found.segment, found.offset) == (segment, offset))
    }

    /// Removes a record that a later one replaced.
    pub(crate) fn unpublish_at(&self, tag: u64, segment: u32, offset: u32) {
        if let Some(location) = self.location_at(tag, segment, offset) {
            self.publish(tag, Some(location), None);
        }
    }

    /// The names of all files of outcomes that a record names.
    pub(crate) fn outcome_files(&self) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        let mut from = Some(0);
        while let Some(tag) = from {
            let entries = self.index.entries_from(tag);
            from = entries.last().and_then(|(tag, _)| tag.checked_add(1));
            for (tag, location) in entries.into_iter().filter(|(_, at)| at.kind == RecordKind::Large) {
                let Some((_, body)) = self.entry(tag, location)? else { continue };
                let stored = codec::decode_claim(&body).map_err(|flaw| self.damaged(location, flaw))?;
                names.extend(stored.outcome_file.map(codec::OutcomeFile::name));
            }
        }
        Ok(names)
    }

    /// Whether the current claim of a key has its outcome in this file.
    pub(crate) fn names_outcome_file(&self, tag: u64, file: codec::OutcomeFile) -> Result<bool> {
        for location in self.index.find(tag).iter().filter(|location| location.kind == RecordKind::Large) {
            let Some((_, body)) = self.entry(tag, location)? else { continue };
            let stored = codec::decode_claim(&body).map_err(|flaw| self.damaged(location, flaw))?;
            if stored.outcome_file == Some(file) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a record whose retention is over may be dropped. An open claim is judged by what it means in this opening.
    pub(crate) fn is_expired(
        &self,
        header: &RecordHeader,
        body: &[u8],
        now: Timestamp,
    ) -> Result<bool, Unreadable> {
        match header.kind {
            RecordKind::Done | RecordKind::Large | RecordKind::Mark => Ok(now >= header.expires_at),
            RecordKind::Open => {
                let stored = codec::decode_claim(body)?;
                let record = self.revived(stored, false)?;
                Ok(record.is_none_or(|record| now >= record.expires_at()))
            }
            RecordKind::Removed | RecordKind::State => Ok(true),
        }
    }
}

/// The tag of a key, before it is masked.
pub(crate) fn tag_of(key: &[u8; 16], index: &Index) -> u64 {
    let mut hasher = SipHasher13::new_with_key(key);
    hasher.write(index.as_bytes());
    hasher.finish()
}
