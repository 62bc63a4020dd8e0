//! What a round writes: the items of one batch.
//!
//! Values come before the removals that they make up for: see [`super::view`].

use std::collections::BTreeMap;

use fjall::{Keyspace, OwnedWriteBatch, Slice};
use ichido_core::{Index, Record, State, Timestamp};

use super::codec::{self, GrantsValue, Kind};
use super::fresh::{Granted, Spot};
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
    /// Claims that were granted, and are fresh once this is committed.
    pub(super) granted: Vec<Granted>,
    /// Claims that are fresh no longer.
    pub(super) ended: Vec<(Index, Spot)>,
    /// The bytes of its value in `grants`; 0 if it has none.
    pub(super) grants_bytes: usize,
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
    grants: GrantsValue,
    granted: Vec<Granted>,
    ended: Vec<(Index, Spot)>,
    /// How many more claims may be fresh.
    room: usize,
    last: Commit,
    journal_bytes: u64,
}

impl<'a> Items<'a> {
    /// The items of the commit after `last`.
    pub(super) fn new(view: View<'a>, last: Commit, changes: usize, room: usize) -> Self {
        Self {
            view,
            batch: view.engine.batch(changes + 4),
            scratch: Vec::with_capacity(1024),
            ends: BTreeMap::new(),
            put: Vec::with_capacity(changes),
            grants: GrantsValue::default(),
            granted: Vec::new(),
            ended: Vec::new(),
            room,
            last,
            journal_bytes: 0,
        }
    }

    pub(super) fn claim(&mut self, index: &Index, entry: Entry, epoch: u64) {
        let engine = self.view.engine;
        let place = match entry.now {
            None => Place::Absent,
            Some(record) => {
                self.put.push(*index);
                self.put_claim(index, record, entry.before, epoch)
            }
        };
        match entry.before {
            Place::Absent => {}
            Place::Fresh(spot) => {
                self.grants.end(spot);
                self.ended.push((*index, spot));
            }
            Place::Open if place == Place::Open => {}
            Place::Open => self.remove(&engine.open, index),
            Place::Done { apart } => {
                if !matches!(place, Place::Done { .. }) {
                    self.remove(&engine.done, index);
                }
                if apart && place != (Place::Done { apart: true }) {
                    self.remove(&engine.outcomes, index);
                }
            }
        }
    }

    /// Writes a record where it belongs. A claim is fresh only if there was none before.
    fn put_claim(&mut self, index: &Index, record: Record, before: Place, epoch: u64) -> Place {
        let engine = self.view.engine;
        if let State::Done(_) = record.state {
            let apart = codec::outcome_apart(&record);
            if let Some(outcome) = apart {
                codec::encode_outcome(outcome, &mut self.scratch);
                self.insert(&engine.outcomes, index);
            }
            codec::encode_claim(&record, epoch, &mut self.scratch);
            self.insert(&engine.done, index);
            codec::push_end(self.ends.entry(record.expires_at()).or_default(), Kind::Claim, *index);
            return Place::Done { apart: apart.is_some() };
        }
        let is_new = matches!(before, Place::Absent | Place::Done { .. });
        if is_new && record.state == State::Running && self.room > 0 {
            self.room -= 1;
            let place = self.grants.grant(&record, epoch);
            let spot = Spot { sequence: self.last.sequence + 1, place };
            self.granted.push(Granted { record, spot });
            return Place::Fresh(spot);
        }
        codec::encode_claim(&record, epoch, &mut self.scratch);
        self.insert(&engine.open, index);
        Place::Open
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

    /// Inserts what was encoded.
    fn insert(&mut self, keyspace: &Keyspace, index: &Index) {
        self.grow(index.as_bytes().len() + self.scratch.len());
        self.batch.insert(keyspace, index.as_bytes().as_slice(), self.scratch.as_slice());
        self.scratch.clear();
    }

    fn remove(&mut self, keyspace: &Keyspace, index: &Index) {
        self.grow(index.as_bytes().len());
        self.batch.remove(keyspace, index.as_bytes().as_slice());
    }

    fn grow(&mut self, bytes: usize) {
        self.journal_bytes += (journal::ITEM_BYTES + bytes) as u64;
    }

    /// What to write, or nothing if nothing changed; `spent` are values of `grants` that are needed no longer.
    pub(super) fn finish(mut self, now: Timestamp, spent: &[u64]) -> Option<Written> {
        let (engine, last) = (self.view.engine, self.last);
        let sequence = last.sequence + 1;
        let value = std::mem::take(&mut self.grants).finish();
        if self.batch.is_empty() && value.is_none() {
            return None;
        }
        let grants_bytes = value.as_ref().map_or(0, Vec::len);
        if let Some(value) = value {
            self.grow(8 + value.len());
            self.batch.insert(&engine.grants, sequence.to_be_bytes().as_slice(), value);
        }
        for commit in spent {
            self.grow(8);
            self.batch.remove(&engine.grants, commit.to_be_bytes().as_slice());
        }
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
        let Self { batch, put, granted, ended, journal_bytes, .. } = self;
        Some(Written { batch, put, granted, ended, grants_bytes, commit, journal_bytes, earliest_end })
    }
}
