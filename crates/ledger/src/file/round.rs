//! One group commit: decide each call in turn, write once, answer all.
//!
//! Calls see what earlier calls of the same round decided, although none of it is written yet. So no answer leaves
//! before the commit, not even one that changes nothing: it may rest on a change that fails. What is written is the
//! final state of each key, once: the engine gives a whole batch one number, and two values of one key under one
//! number would have no order.

use std::collections::hash_map::Entry as MapEntry;

use fjall::Slice;
use ichido_core::mark::{self, Mark};
use ichido_core::rules::{self, Change, Decision};
use ichido_core::{Index, Nonce, Phase, Record, Timestamp, Token};

use super::fault;
use super::fresh::{Grants, Spot};
use super::items::{Items, Written};
use super::meta::Commit;
use super::queue::{Call, Reply};
use super::recent::Recent;
use super::replies::Answer;
use super::sweep::{Bite, Over};
use super::view::{Found, View};
use crate::index_map::IndexMap;
use crate::{Result, Swept};

/// A group commit in the making.
pub(super) struct Round<'a> {
    view: View<'a>,
    now: Timestamp,
    recent: &'a Recent,
    grants: &'a Grants,
    claims: IndexMap<Entry>,
    marks: IndexMap<MarkEntry>,
    answers: Vec<Answer>,
    /// Values of `ends` that are spent, or left with fewer members.
    spent: Vec<(Slice, Vec<u8>)>,
    /// Up to where a sweep left nothing in `ends`, and the generation at which it looked.
    pub(super) swept_to: Option<(u64, Timestamp)>,
}

/// A claim as the round has it so far.
pub(super) struct Entry {
    pub(super) before: Place,
    pub(super) now: Option<Record>,
    changed: bool,
}

/// Where a claim lay before the round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Absent,
    Fresh(Spot),
    Open,
    /// `apart`: its outcome is in `outcomes`.
    Done {
        apart: bool,
    },
}

/// A mark as the round has it so far.
pub(super) struct MarkEntry {
    pub(super) existed: bool,
    pub(super) now: Option<mark::Record>,
    changed: bool,
}

impl<'a> Round<'a> {
    pub(super) fn new(view: View<'a>, recent: &'a Recent, grants: &'a Grants, now: Timestamp) -> Self {
        let (claims, marks) = (IndexMap::default(), IndexMap::default());
        let (answers, spent) = (Vec::new(), Vec::new());
        Self { view, now, recent, grants, claims, marks, answers, spent, swept_to: None }
    }

    /// Decides a call. A call that cannot be decided is answered at once: it changes nothing.
    pub(super) fn decide(&mut self, call: Call) {
        match call {
            Call::Claim { request, absent_at, reply } => {
                let index = request.key.index();
                let step = self.claim_step(index, absent_at, |now, at| rules::claim(now, &request, at));
                self.answer(reply, step, Answer::Claim);
            }
            Call::Settle { key, token, word, reply } => {
                let step = self.claim_step(key.index(), None, |now, at| rules::settle(now, token, &word, at));
                self.answer(reply, step, Answer::Settle);
            }
            Call::Resolve { key, word, reply } => {
                let step = self.claim_step(key.index(), None, |now, at| rules::resolve(now, &word, at));
                self.answer(reply, step, Answer::Resolve);
            }
            Call::Adopt { record, reply } => {
                let index = record.key.index();
                let step = self.claim_step(index, None, |now, at| rules::adopt(now, &record, at));
                self.answer(reply, step, Answer::Adopt);
            }
            Call::Mark { requests, reply } => {
                let steps = requests.iter().map(|(request, absent_at)| self.mark_step(request, *absent_at));
                let steps = steps.collect::<Result<Vec<_>>>();
                self.answer(reply, steps, Answer::Mark);
            }
            Call::Remove { claims, marks, reply } => {
                let removed = self.remove(&claims, &marks);
                self.answer(reply, removed, Answer::Remove);
            }
            Call::Sweep { bite, reply } => {
                let swept = self.forget(bite);
                self.answer(reply, swept, Answer::Sweep);
            }
        }
    }

    fn answer<T>(&mut self, reply: Reply<T>, step: Result<T>, kind: impl FnOnce(Reply<T>, T) -> Answer) {
        match step {
            Ok(answer) => self.answers.push(kind(reply, answer)),
            Err(error) => drop(reply.send(Err(error))),
        }
    }

    fn claim_step<A>(
        &mut self,
        index: Index,
        absent_at: Option<u64>,
        decide: impl FnOnce(Option<&Record>, Timestamp) -> Decision<A, Record>,
    ) -> Result<A> {
        let entry = match self.claims.entry(index) {
            MapEntry::Occupied(entry) => entry.into_mut(),
            MapEntry::Vacant(vacant) => {
                let absent = absent_at.is_some_and(|seen| self.recent.unwritten_since(&index, seen));
                vacant.insert(if absent { Entry::absent() } else { Entry::read(&self.view, &index)? })
            }
        };
        let step = decide(entry.now.as_ref(), self.now);
        if let (Change::Put(_), Some(record)) = (&step.change, &entry.now)
            && record.phase(self.now) == (Phase::Expired { in_doubt: true })
        {
            crate::backend::warn_doubt_expired(record);
        }
        match step.change {
            Change::Keep => {}
            Change::Put(record) => (entry.now, entry.changed) = (Some(record), true),
            Change::Remove => (entry.now, entry.changed) = (None, true),
        }
        Ok(step.result)
    }

    fn mark_step(&mut self, request: &mark::Request, absent_at: Option<u64>) -> Result<Mark> {
        let index = request.key.index();
        let absent = absent_at.is_some_and(|seen| self.recent.unwritten_since(&index, seen));
        let now = self.now;
        let entry = self.mark_entry(index, absent)?;
        let step = rules::mark(entry.now.as_ref(), request, now);
        if let Change::Put(record) = step.change {
            (entry.now, entry.changed) = (Some(record), true);
        }
        Ok(step.result)
    }

    fn mark_entry(&mut self, index: Index, absent: bool) -> Result<&mut MarkEntry> {
        Ok(match self.marks.entry(index) {
            MapEntry::Occupied(entry) => entry.into_mut(),
            MapEntry::Vacant(vacant) => {
                let now = if absent { None } else { self.view.mark(&index)? };
                vacant.insert(MarkEntry { existed: now.is_some(), now, changed: false })
            }
        })
    }

    /// Removes what was handed over to another ledger, unless it is something else by now.
    fn remove(&mut self, claims: &[(Index, Token)], marks: &[(Index, Nonce)]) -> Result<()> {
        for (index, token) in claims {
            self.claim_step(*index, None, |current, _| {
                let is_same = current.is_some_and(|record| record.token == *token);
                Decision { result: (), change: if is_same { Change::Remove } else { Change::Keep } }
            })?;
        }
        for (index, nonce) in marks {
            let entry = self.mark_entry(*index, false)?;
            if entry.now.as_ref().is_some_and(|mark| mark.nonce == *nonce) {
                (entry.now, entry.changed) = (None, true);
            }
        }
        Ok(())
    }

    /// Removes what a sweep saw to be over, if it still is.
    fn forget(&mut self, bite: Bite) -> Result<Swept> {
        let mut swept = Swept::default();
        for over in bite.over {
            let dropped = match over {
                Over::Done { index, apart } => self.drop_done(index, apart, bite.seen)?,
                Over::Mark(index) => self.drop_mark(index, bite.seen)?,
                Over::Doubt(index) => {
                    let dropped = self.drop_doubt(index)?;
                    swept.doubts_ended += u64::from(dropped);
                    dropped
                }
            };
            swept.removed += u64::from(dropped);
        }
        self.spent.extend(bite.spent);
        self.swept_to = Some((bite.seen, bite.swept_to));
        Ok(swept)
    }

    /// Removes a completed claim that was seen to be over; `false` if there is none now.
    fn drop_done(&mut self, index: Index, apart: bool, seen: u64) -> Result<bool> {
        if let MapEntry::Vacant(vacant) = self.claims.entry(index) {
            if self.recent.unwritten_since(&index, seen) {
                vacant.insert(Entry { before: Place::Done { apart }, now: None, changed: true });
                return Ok(true);
            }
            let Some(stored) = self.view.done_claim(&index)? else { return Ok(false) };
            let before = Place::Done { apart: stored.outcome_bytes.is_some() };
            if self.now < stored.record.expires_at() {
                return Ok(false);
            }
            vacant.insert(Entry { before, now: None, changed: true });
            return Ok(true);
        }
        Ok(false)
    }

    /// Removes a mark that was seen to be over; `false` if there is none now.
    fn drop_mark(&mut self, index: Index, seen: u64) -> Result<bool> {
        if let MapEntry::Vacant(vacant) = self.marks.entry(index) {
            let over = self.recent.unwritten_since(&index, seen)
                || self.view.mark(&index)?.is_some_and(|mark| self.now >= mark.expires_at);
            if over {
                vacant.insert(MarkEntry { existed: true, now: None, changed: true });
            }
            return Ok(over);
        }
        Ok(false)
    }

    /// Removes a claim whose doubt is over; `false` if it is not.
    fn drop_doubt(&mut self, index: Index) -> Result<bool> {
        if let MapEntry::Vacant(vacant) = self.claims.entry(index) {
            let Entry { before, now, .. } = Entry::read(&self.view, &index)?;
            let Some(record) = now.filter(|now| now.phase(self.now) == (Phase::Expired { in_doubt: true }))
            else {
                return Ok(false);
            };
            vacant.insert(Entry { before, now: None, changed: true });
            crate::backend::warn_doubt_expired(&record);
            return Ok(true);
        }
        Ok(false)
    }

    /// Moves on what was granted before a commit and is still fresh.
    pub(super) fn move_on(&mut self, before: u64) {
        for (index, granted) in self.view.engine.fresh.sorted(|_, granted| granted.spot.sequence < before) {
            match self.claims.entry(index) {
                MapEntry::Occupied(mut entry) => entry.get_mut().changed = true,
                MapEntry::Vacant(vacant) => {
                    let (before, now) = (Place::Fresh(granted.spot), Some(granted.record));
                    vacant.insert(Entry { before, now, changed: true });
                }
            }
        }
    }

    /// What to write, or nothing if nothing changed; and what to answer then.
    pub(super) fn finish(mut self, epoch: u64, last: Commit) -> (Option<Written>, Vec<Answer>) {
        let answers = std::mem::take(&mut self.answers);
        let changes = self.claims.len() + self.marks.len();
        let mut writer = Items::new(self.view, last, changes + self.spent.len(), self.grants.room());
        for (index, entry) in self.claims.into_iter().filter(|(_, entry)| entry.changed) {
            writer.claim(&index, entry, epoch);
        }
        for (index, entry) in self.marks.iter().filter(|(_, entry)| entry.changed) {
            writer.mark(index, entry);
        }
        for (key, rest) in self.spent {
            writer.spend(key, rest);
        }
        let written = writer.finish(self.now, self.grants.spent());
        (written, answers)
    }
}

impl Entry {
    fn absent() -> Self {
        Self { before: Place::Absent, now: None, changed: false }
    }

    fn read(view: &View<'_>, index: &Index) -> Result<Self> {
        let (before, now) = match view.claim(index)? {
            Found::Absent => (Place::Absent, None),
            Found::Fresh(granted) => (Place::Fresh(granted.spot), Some(granted.record)),
            Found::Open(record) => (Place::Open, Some(record)),
            Found::Done { record, apart } => (Place::Done { apart }, Some(record)),
            // Nobody but us moves anything: for the writer this is damage.
            Found::Moving => {
                return Err(fault::flaw(
                    view.dir,
                    "outcomes",
                    "it is missing, or has another length than its record says",
                ));
            }
        };
        Ok(Self { before, now, changed: false })
    }
}
