//! What a round writes: the items of one batch.
//!
//! Values come before the removals that they make up for: see [`super::view`].

use std::collections::BTreeMap;

use fjall::{Keyspace, OwnedWriteBatch, Slice};
use ichido_core::{Index, Outcome, Record, State, Timestamp};

use super::codec::{self, Kind};
use super::journal;
use super::meta::{COMMIT_KEY, Commit};
use super::round::{Entry, MarkEntry, Place};
use super::view::View;

/// Members of one value in `ends`.
const ENDS_PART: usize = 256;

/// What a round wants written.
pub(super) struct Written {
    pub(super) batch: OwnedWriteBatch,
    /// Keys that got a value.
    pub(super) put: Vec<Index>,
    /// What became of the claims that changed.
    pub(super) claims: Vec<(Index, Option<Record>)>,
    pub(super) commit: Commit,
    /// What it adds to the journal, about.
    pub(super) journal_bytes: u64,
    /// The earliest end that was added.
    pub(super) earliest_end: Option<Timestamp>,
}

/// The items of a batch.
pub(super) struct Items<'a> {
    view: View<'a>,
    batch: OwnedWriteBatch,
    scratch: Vec<u8>,
    ends: BTreeMap<Timestamp, Vec<u8>>,
    put: Vec<Index>,
    journal_bytes: u64,
}

impl<'a> Items<'a> {
    pub(super) fn new(view: View<'a>, changes: usize, spent: usize) -> Self {
        let batch = view.engine.batch(changes * 2 + spent + 2);
        let (scratch, put) = (Vec::with_capacity(512), Vec::with_capacity(changes));
        Self { view, batch, scratch, ends: BTreeMap::new(), put, journal_bytes: 0 }
    }

    pub(super) fn claim(&mut self, index: &Index, entry: &Entry, epoch: u64) {
        let engine = self.view.engine;
        let mut keeps_outcome = false;
        let mut place = Place::Absent;
        if let Some(record) = &entry.now {
            self.put.push(*index);
            if let Some(outcome) = kept(record) {
                codec::encode_outcome(outcome, &mut self.scratch);
                self.insert(&engine.outcomes, index);
                keeps_outcome = true;
            }
            codec::encode_claim(record, epoch, &mut self.scratch);
            if let State::Done(_) = record.state {
                self.insert(&engine.done, index);
                codec::push_end(self.ends.entry(record.over_at()).or_default(), Kind::Claim, *index);
                place = Place::Done { kept: keeps_outcome };
            } else {
                self.insert(&engine.open, index);
                place = Place::Open;
            }
        }
        if entry.before == Place::Open && place != Place::Open {
            self.remove(&engine.open, index);
        }
        if let Place::Done { kept } = entry.before {
            if !matches!(place, Place::Done { .. }) {
                self.remove(&engine.done, index);
            }
            if kept && !keeps_outcome {
                self.remove(&engine.outcomes, index);
            }
        }
    }

    pub(super) fn mark(&mut self, index: &Index, entry: &MarkEntry) {
        let marks = &self.view.engine.marks;
        if let Some(record) = &entry.now {
            self.put.push(*index);
            codec::encode_mark(record, &mut self.scratch);
            self.insert(marks, index);
            codec::push_end(self.ends.entry(record.expires_at).or_default(), Kind::Mark, *index);
        } else if entry.existed {
            self.remove(marks, index);
        }
    }

    pub(super) fn spend(&mut self, key: Slice, rest: Vec<u8>) {
        let ends = &self.view.engine.ends;
        self.grow(key.len() + rest.len());
        if rest.is_empty() { self.batch.remove(ends, key) } else { self.batch.insert(ends, key, rest) }
    }

    fn insert(&mut self, keyspace: &Keyspace, index: &Index) {
        self.grow(index.as_bytes().len() + self.scratch.len());
        self.batch.insert(keyspace, index.as_bytes().as_slice(), self.scratch.as_slice());
    }

    fn remove(&mut self, keyspace: &Keyspace, index: &Index) {
        self.grow(index.as_bytes().len());
        self.batch.remove(keyspace, index.as_bytes().as_slice());
    }

    fn grow(&mut self, bytes: usize) {
        self.journal_bytes += (journal::ITEM_BYTES + bytes) as u64;
    }

    pub(super) fn finish(
        mut self,
        last: Commit,
        now: Timestamp,
        claims: Vec<(Index, Option<Record>)>,
    ) -> Option<Written> {
        if self.batch.is_empty() {
            return None;
        }
        let engine = self.view.engine;
        let sequence = last.sequence + 1;
        let earliest_end = self.ends.keys().next().copied();
        for (end, value) in &self.ends {
            let members = value[1..].chunks(ENDS_PART * codec::END_BYTES);
            for (part, members) in (0..=u16::MAX).zip(members) {
                let value = [&value[..1], members].concat();
                let key = codec::end_key(*end, sequence, part);
                self.journal_bytes += (journal::ITEM_BYTES + key.len() + value.len()) as u64;
                self.batch.insert(&engine.ends, key.as_slice(), value);
            }
        }
        let swept_to = earliest_end.map_or(last.swept_to, |end| end.min(last.swept_to));
        let commit = Commit { sequence, time: now, swept_to };
        self.batch.insert(&engine.meta, COMMIT_KEY, commit.encode().as_slice());
        let Self { batch, put, journal_bytes, .. } = self;
        Some(Written { batch, put, claims, commit, journal_bytes, earliest_end })
    }
}

/// The outcome that a record has to keep.
pub(super) fn kept(record: &Record) -> Option<&[u8]> {
    match &record.state {
        State::Done(done) => match &done.outcome {
            Outcome::Kept(bytes) => Some(bytes),
            Outcome::Tombstone(_) => None,
        },
        State::Running | State::InDoubt(_) => None,
    }
}
