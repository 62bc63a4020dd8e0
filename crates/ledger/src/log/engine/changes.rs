//! Turns changes into the records of a frame.
//!
//! A completed claim repeats nothing that its grant has already said, as long as both are in the same segment: segments are
//! dropped as a whole. A record that goes to another segment is complete.

use ichido_core::{Index, Outcome, Record, State, Timestamp, mark};

use super::{Cached, Engine, Written};
use crate::Result;
use crate::log::codec::{self, OutcomeFile};
use crate::log::compaction::Move;
use crate::log::format::{self, Frame, FrameHeader, Location, RecordHeader, RecordKind};
use crate::log::round::Entry;

impl Engine {
    pub(super) fn add_claim(&mut self, index: Index, entry: Entry<Record>) -> Result<()> {
        let Entry { before, now: record, .. } = entry;
        let tag = self.view.tag(&index);
        let Some(record) = record else {
            self.add_removed(index, tag, before, Cached::Remove(index));
            return Ok(());
        };
        let file = self.store_outcome(&record)?;
        let continues = self.continues(&index, &record, before);
        let kind = match (&record.state, file) {
            (State::Running | State::InDoubt(_), _) => RecordKind::Open,
            (State::Done(_), None) => RecordKind::Done,
            (State::Done(_), Some(_)) => RecordKind::Large,
        };
        let expires_at = record.expires_at();
        let header = RecordHeader { kind, tag, expires_at, replaced: place(before), continues };
        let epoch = self.view.openings.epoch();
        let at = self.frame.push(header, |out| match continues {
            true => codec::put_state(out, &record.state, file),
            false => codec::encode_claim(&record, epoch, file, out),
        });
        let cached = if kind == RecordKind::Open { Cached::Put(record) } else { Cached::Remove(index) };
        self.written.push(Written { tag, kind, expires_at, before, at, cached });
        Ok(())
    }

    pub(super) fn add_mark(&mut self, index: Index, entry: Entry<mark::Record>) {
        let Entry { before, now: record, .. } = entry;
        let tag = self.view.tag(&index);
        let Some(record) = record else { return self.add_removed(index, tag, before, Cached::Keep) };
        let (kind, expires_at) = (RecordKind::Mark, record.expires_at);
        let header = RecordHeader { kind, tag, expires_at, replaced: place(before), continues: false };
        let at = self.frame.push(header, |out| codec::encode_mark(&record, out));
        self.written.push(Written { tag, kind, expires_at, before, at, cached: Cached::Keep });
    }

    /// A key that had no record needs none that says so.
    fn add_removed(&mut self, index: Index, tag: u64, before: Option<Location>, cached: Cached) {
        let Some(before) = before else { return };
        let (kind, expires_at) = (RecordKind::Removed, Timestamp(0));
        let header = RecordHeader { kind, tag, expires_at, replaced: place(Some(before)), continues: false };
        let at = self.frame.push(header, |out| format::encode_removed(&index, out));
        self.written.push(Written { tag, kind, expires_at, before: Some(before), at, cached });
    }

    /// Copies a record, if it is still where it was seen.
    pub(super) fn add_move(&mut self, moved: Move) {
        let Move { index, tag, from, expires_at, body } = moved;
        if !self.view.index.contains(tag, from) {
            return;
        }
        let replaced = place(Some(from));
        let header = RecordHeader { kind: from.kind, tag, expires_at, replaced, continues: false };
        let at = self.frame.push(header, |out| out.extend(body));
        let cached = if from.kind == RecordKind::Open { Cached::Moved(index) } else { Cached::Keep };
        self.written.push(Written { tag, kind: from.kind, expires_at, before: Some(from), at, cached });
    }

    /// Whether a completed claim differs in its state only from its record before, which is in the present segment.
    fn continues(&self, index: &Index, record: &Record, before: Option<Location>) -> bool {
        matches!(record.state, State::Done(_))
            && before.is_some_and(|before| before.segment == self.active.segment.id)
            && self.cache.get(index).is_some_and(|(known, at)| {
                Some(*at) == before && known.state == State::Running && is_same_claim(known, record)
            })
    }

    /// Writes a large outcome to a file of its own. It is durable before the record that names it.
    fn store_outcome(&mut self, record: &Record) -> Result<Option<OutcomeFile>> {
        let State::Done(done) = &record.state else { return Ok(None) };
        let Outcome::Kept(bytes) = &done.outcome else { return Ok(None) };
        if bytes.len() <= self.view.options.inline_outcome_bytes {
            return Ok(None);
        }
        self.outcome_files += 1;
        let file = OutcomeFile::of(self.last + 1, self.outcome_files, bytes);
        let storage = &self.view.storage;
        let written = storage.create(&file.name()).and_then(|created| {
            created.write_at(bytes, 0)?;
            created.sync()?;
            storage.sync_dir()
        });
        written.map_err(|error| self.fail("writing an outcome to", error))?;
        Ok(Some(file))
    }

    /// Makes each record of the frame complete, because it will not be in the segment of the one that it continues. The rest
    /// of such a claim is in memory, so nothing is read.
    pub(super) fn complete_records(&mut self, now: Timestamp) -> Result<()> {
        let id = self.active.segment.id;
        let header = FrameHeader { commit: self.last + 1, synced: self.last, time: now };
        let bytes = self.frame.finish(id, header, &self.view.checksums).clone();
        let wrong = |flaw| self.view.faults.damaged("a commit in memory", 0, flaw);
        let frame = Frame::decode(&bytes, 0, id, &self.view.checksums).ok_or_else(|| wrong("unreadable"))?;
        let records = frame.records(&bytes, id).map_err(wrong)?;
        let epoch = self.view.openings.epoch();
        self.frame.start();
        for (written, record) in self.written.iter_mut().zip(records) {
            let header = RecordHeader { continues: false, ..record.header };
            let grant = match &written.cached {
                Cached::Remove(index) if record.header.continues => self.cache.get(index),
                Cached::Put(_) | Cached::Moved(_) | Cached::Remove(_) | Cached::Keep => None,
            };
            if record.header.continues && grant.is_none() {
                return Err(wrong("a grant is missing"));
            }
            written.at = self.frame.push(header, |out| {
                if let Some((grant, _)) = grant {
                    codec::encode_claim(grant, epoch, None, out);
                    // Its state, which follows.
                    out.pop();
                }
                out.extend(record.body);
            });
        }
        Ok(())
    }
}

/// Whether two records are equal, except for their state.
fn is_same_claim(a: &Record, b: &Record) -> bool {
    let Record {
        key,
        fingerprint,
        caller,
        nonce,
        token,
        attempt,
        holder,
        claimed_at,
        renewed_at,
        renewals,
        lease_ms,
        retention_ms,
        metadata,
        state: _,
    } = a;
    (token, nonce, attempt, renewals) == (&b.token, &b.nonce, &b.attempt, &b.renewals)
        && (claimed_at, renewed_at) == (&b.claimed_at, &b.renewed_at)
        && (lease_ms, retention_ms, holder) == (&b.lease_ms, &b.retention_ms, &b.holder)
        && (fingerprint, caller, metadata) == (&b.fingerprint, &b.caller, &b.metadata)
        && key == &b.key
        // A claim may be completed and erased in one commit, and equal keys may differ in that.
        && key.is_erased() == b.key.is_erased()
}

fn place(location: Option<Location>) -> Option<(u32, u32)> {
    location.map(|location| (location.segment, location.offset))
}
