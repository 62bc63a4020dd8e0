//! One group commit: decides each call in turn, so that all changes can be written at once.
//!
//! Calls see what earlier calls of the same round decided, although none of it is written yet. So no answer leaves before the
//! commit, not even one that changes nothing: it may depend on a change that fails. Only the final state of each key is
//! written.

use std::collections::hash_map::Entry as MapEntry;

use ichido_core::mark::{self, Mark};
use ichido_core::rules::{self, Change, Decision};
use ichido_core::{Index, Nonce, Phase, Record, Timestamp, Token};

use super::call::{Answer, Call, Maintenance, Reply, send};
use super::compaction::Move;
use super::format::Location;
use super::open_cache::OpenCache;
use super::view::View;
use crate::Result;
use crate::index_map::IndexMap;

/// Keys of an ordinary round.
const ORDINARY: usize = 1024;

/// A group commit that is being decided.
pub(crate) struct Round<'a> {
    view: &'a View,
    cache: &'a OpenCache,
    now: Timestamp,
    decided: Decided,
}

/// What a round has decided.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    pub(crate) claims: IndexMap<Entry<Record>>,
    pub(crate) marks: IndexMap<Entry<mark::Record>>,
    /// Records to copy.
    pub(crate) moves: Vec<Move>,
    /// What to answer once everything is durable.
    pub(crate) answers: Vec<Answer>,
}

impl Decided {
    /// The same, empty. The memory of an ordinary round is kept.
    pub(crate) fn emptied(mut self) -> Self {
        self.claims.clear();
        self.marks.clear();
        self.claims.shrink_to(ORDINARY);
        self.marks.shrink_to(ORDINARY);
        self.moves = Vec::new();
        self.answers.clear();
        self.answers.shrink_to(ORDINARY);
        self
    }
}

/// The record of a key.
#[derive(Debug)]
pub(crate) struct Entry<R> {
    /// Where it was before the round.
    pub(crate) before: Option<Location>,
    /// As the round has left it so far.
    pub(crate) now: Option<R>,
    pub(crate) is_changed: bool,
}

impl<'a> Round<'a> {
    /// Starts a round. `decided` is empty; its memory is used again.
    pub(crate) fn new(view: &'a View, cache: &'a OpenCache, now: Timestamp, decided: Decided) -> Self {
        Self { view, cache, now, decided }
    }

    /// Decides a call. A call that cannot be decided is answered at once: it changes nothing. Returns what must be done after
    /// the commit.
    pub(crate) fn decide(&mut self, call: Call) -> Option<Maintenance> {
        match call {
            Call::Claim { request, reply } => {
                let index = request.key.index();
                let result = self.claim_step(index, |current, now| rules::claim(current, &request, now));
                self.answer(reply, result, Answer::Claim);
            }
            Call::Settle { key, token, action, reply } => {
                let result =
                    self.claim_step(key.index(), |current, now| rules::settle(current, token, &action, now));
                self.answer(reply, result, Answer::Settle);
            }
            Call::Resolve { key, resolution, reply } => {
                let result =
                    self.claim_step(key.index(), |current, now| rules::resolve(current, &resolution, now));
                self.answer(reply, result, Answer::Resolve);
            }
            Call::Adopt { record, reply } => {
                let index = record.key.index();
                let result = self.claim_step(index, |current, now| rules::adopt(current, &record, now));
                self.answer(reply, result, Answer::Adopt);
            }
            Call::Mark { requests, reply } => {
                let results = self.mark(&requests);
                self.answer(reply, results, Answer::Mark);
            }
            Call::Remove { claims, marks, reply } => {
                let removed = self.remove(&claims, &marks);
                self.answer(reply, removed, Answer::Nothing);
            }
            Call::ForgetMark { index, nonce, reply } => {
                let result = self.mark_step(index, |current, now| rules::forget_mark(current, nonce, now));
                self.answer(reply, result, Answer::Forget);
            }
            Call::EraseMark { index, nonce, reply } => {
                let result = self.mark_step(index, |current, now| rules::erase_mark(current, nonce, now));
                self.answer(reply, result, Answer::Erase);
            }
            Call::Move { records, reply } => {
                self.decided.moves.extend(records);
                self.answer(reply, Ok(()), Answer::Nothing);
            }
            Call::Drop { segment, reply } => return Some(Maintenance::Drop(segment, reply)),
            Call::Rotate { reply } => return Some(Maintenance::Rotate(reply)),
        }
        None
    }

    fn answer<T>(&mut self, reply: Reply<T>, result: Result<T>, kind: impl FnOnce(Reply<T>, T) -> Answer) {
        match result {
            Ok(answer) => self.decided.answers.push(kind(reply, answer)),
            Err(error) => send(reply, Err(error)),
        }
    }

    fn claim_step<A>(
        &mut self,
        index: Index,
        decide: impl FnOnce(Option<&Record>, Timestamp) -> Decision<A, Record>,
    ) -> Result<A> {
        let now = self.now;
        let entry = self.claim_entry(index)?;
        let decision = decide(entry.now.as_ref(), now);
        if let (Change::Put(_), Some(record)) = (&decision.change, &entry.now)
            && record.phase(now) == (Phase::Expired { in_doubt: true })
        {
            crate::backend::warn_doubt_expired(record);
        }
        entry.apply(decision.change);
        Ok(decision.result)
    }

    fn claim_entry(&mut self, index: Index) -> Result<&mut Entry<Record>> {
        Ok(match self.decided.claims.entry(index) {
            MapEntry::Occupied(entry) => entry.into_mut(),
            MapEntry::Vacant(vacant) => vacant.insert(read_claim(self.view, self.cache, &index)?),
        })
    }

    /// Marks events. All keys are read before the first is marked: a call that fails has marked none.
    fn mark(&mut self, requests: &[mark::Request]) -> Result<Vec<Mark>> {
        for request in requests {
            self.mark_entry(request.key.index())?;
        }
        let mut mark = |request: &mark::Request| {
            self.mark_step(request.key.index(), |current, now| rules::mark(current, request, now))
        };
        requests.iter().map(&mut mark).collect()
    }

    fn mark_step<A>(
        &mut self,
        index: Index,
        decide: impl FnOnce(Option<&mark::Record>, Timestamp) -> Decision<A, mark::Record>,
    ) -> Result<A> {
        let now = self.now;
        let entry = self.mark_entry(index)?;
        let decision = decide(entry.now.as_ref(), now);
        entry.apply(decision.change);
        Ok(decision.result)
    }

    fn mark_entry(&mut self, index: Index) -> Result<&mut Entry<mark::Record>> {
        Ok(match self.decided.marks.entry(index) {
            MapEntry::Occupied(entry) => entry.into_mut(),
            MapEntry::Vacant(vacant) => {
                let (before, now) =
                    self.view.mark(&index)?.map(|found| (found.location, found.record)).unzip();
                vacant.insert(Entry { before, now, is_changed: false })
            }
        })
    }

    /// Removes what was handed over to another ledger, unless it has changed since. A call that fails has removed nothing.
    fn remove(&mut self, claims: &[(Index, Token)], marks: &[(Index, Nonce)]) -> Result<()> {
        for (index, _) in claims {
            self.claim_entry(*index)?;
        }
        for (index, _) in marks {
            self.mark_entry(*index)?;
        }
        for (index, token) in claims {
            self.claim_step(*index, |current, _| {
                let is_same = current.is_some_and(|record| record.token == *token);
                Decision { result: (), change: if is_same { Change::Remove } else { Change::Keep } }
            })?;
        }
        for (index, nonce) in marks {
            let entry = self.mark_entry(*index)?;
            if entry.now.as_ref().is_some_and(|mark| mark.nonce == *nonce) {
                entry.apply(Change::Remove);
            }
        }
        Ok(())
    }

    /// Everything that was decided. A record that the round has changed is not copied.
    pub(crate) fn finish(self) -> Decided {
        let mut decided = self.decided;
        let (claims, marks) = (&decided.claims, &decided.marks);
        let has_changed = |index: &Index| {
            claims.get(index).is_some_and(|entry| entry.is_changed)
                || marks.get(index).is_some_and(|entry| entry.is_changed)
        };
        decided.moves.retain(|moved| !has_changed(&moved.index));
        decided
    }
}

impl<R> Entry<R> {
    fn apply(&mut self, change: Change<R>) {
        match change {
            Change::Keep => return,
            Change::Put(record) => self.now = Some(record),
            Change::Remove => self.now = None,
        }
        self.is_changed = true;
    }
}

fn read_claim(view: &View, cache: &OpenCache, index: &Index) -> Result<Entry<Record>> {
    let (before, now) = match cache.get(index) {
        Some((record, location)) => (Some(*location), Some(record.clone())),
        None => view.claim(index)?.map(|found| (found.location, found.record)).unzip(),
    };
    Ok(Entry { before, now, is_changed: false })
}
