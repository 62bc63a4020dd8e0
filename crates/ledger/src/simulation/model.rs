//! What the store must contain: the rules of claims, applied to a map in memory that never crashes.

use std::collections::BTreeMap;

use ichido_core::rules::{self, Change, Decision};
use ichido_core::{Doubt, DoubtReason, Holder, Outcome, Phase, Record, State, Timestamp, mark};

use super::requests::{Answer, Keys, Request};

/// Bytes of a stored record besides its variable parts, at most.
const RECORD_BYTES_MAX: usize = 300;

/// The record of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Claim(Record),
    Mark(mark::Record),
}

/// All records, by the number of their key.
#[derive(Debug)]
pub(super) struct Model {
    records: Vec<Option<Held>>,
    /// The records before the requests that are not acknowledged yet.
    before: BTreeMap<usize, Option<Held>>,
}

/// Which of two versions of a record the store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// As before the unacknowledged requests.
    Before,
    /// As after them.
    After,
    /// They did not change it.
    Same,
}

impl Held {
    fn key_text(&self) -> &str {
        match self {
            Held::Claim(record) => record.key.text(),
            Held::Mark(record) => record.key.text(),
        }
    }

    pub(super) fn is_expired(&self, now: Timestamp) -> bool {
        match self {
            Self::Claim(record) => matches!(record.phase(now), Phase::Expired { .. }),
            Self::Mark(record) => now >= record.expires_at,
        }
    }

    /// About how many bytes it takes in the log, rounded up.
    fn bytes_max(&self) -> usize {
        let metadata = match self {
            Self::Claim(record) => &record.metadata,
            Self::Mark(record) => &record.metadata,
        };
        let metadata: usize = metadata.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
        let state = match self {
            Self::Claim(Record { state: State::Done(done), .. }) => match &done.outcome {
                Outcome::Kept(bytes) => bytes.len(),
                Outcome::Tombstone(reason) => reason.len(),
            },
            Self::Claim(Record { state: State::InDoubt(doubt), .. }) => match &doubt.reason {
                DoubtReason::Declared(reason) => reason.len(),
                DoubtReason::LeaseLapsed | DoubtReason::HolderGone => 0,
            },
            Self::Claim(Record { state: State::Running, .. }) | Self::Mark(_) => 0,
        };
        RECORD_BYTES_MAX + metadata + state
    }
}

impl Model {
    pub(super) fn new(keys: &Keys) -> Self {
        Self { records: vec![None; keys.len()], before: BTreeMap::new() }
    }

    /// The record of a key.
    pub(super) fn get(&self, key: usize) -> Option<&Held> {
        self.records[key].as_ref()
    }

    /// The claim of a key.
    pub(super) fn claim(&self, key: usize) -> Option<&Record> {
        match self.get(key)? {
            Held::Claim(record) => Some(record),
            Held::Mark(_) => None,
        }
    }

    fn mark(&self, key: usize) -> Option<&mark::Record> {
        match self.get(key)? {
            Held::Mark(record) => Some(record),
            Held::Claim(_) => None,
        }
    }

    /// All records with their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Held)> {
        self.records.iter().enumerate().filter_map(|(key, held)| Some((key, held.as_ref()?)))
    }

    /// Decides a request.
    pub(super) fn decide(&mut self, request: &Request, now: Timestamp) -> Answer {
        match request {
            Request::Claim { key, request } => {
                let decision = rules::claim(self.claim(*key), request, now);
                Answer::Claim(self.apply_claim(*key, decision))
            }
            Request::Settle { key, token, action } => {
                let decision = rules::settle(self.claim(*key), *token, action, now);
                Answer::Settled(self.apply_claim(*key, decision))
            }
            Request::Resolve { key, resolution } => {
                let decision = rules::resolve(self.claim(*key), resolution, now);
                Answer::Resolved(self.apply_claim(*key, decision))
            }
            Request::Adopt { key, record } => {
                let decision = rules::adopt(self.claim(*key), record, now);
                Answer::Adopted(self.apply_claim(*key, decision))
            }
            Request::Mark { marks } => {
                let marked = marks.iter().map(|(key, request)| {
                    let decision = rules::mark(self.mark(*key), request, now);
                    self.apply(*key, decision.change, Held::Mark);
                    decision.result
                });
                Answer::Marked(marked.collect())
            }
            Request::Remove { claims, marks } => {
                for (key, token) in claims {
                    if self.claim(*key).is_some_and(|record| record.token == *token) {
                        self.apply(*key, Change::Remove, Held::Claim);
                    }
                }
                for (key, nonce) in marks {
                    if self.mark(*key).is_some_and(|record| record.nonce == *nonce) {
                        self.apply(*key, Change::Remove, Held::Mark);
                    }
                }
                Answer::Removed
            }
            Request::ForgetMark { key, nonce } => {
                let decision = rules::forget_mark(self.mark(*key), *nonce, now);
                self.apply(*key, decision.change, Held::Mark);
                Answer::Forgotten(decision.result)
            }
            Request::EraseMark { key, nonce } => {
                let decision = rules::erase_mark(self.mark(*key), *nonce, now);
                self.apply(*key, decision.change, Held::Mark);
                Answer::Erased(decision.result)
            }
        }
    }

    fn apply_claim<A>(&mut self, key: usize, decision: Decision<A, Record>) -> A {
        self.apply(key, decision.change, Held::Claim);
        decision.result
    }

    fn apply<R>(&mut self, key: usize, change: Change<R>, held: fn(R) -> Held) {
        let after = match change {
            Change::Keep => return,
            Change::Put(record) => Some(held(record)),
            Change::Remove => None,
        };
        let before = std::mem::replace(&mut self.records[key], after);
        self.before.entry(key).or_insert(before);
    }

    /// The store acknowledged every request so far.
    pub(super) fn acknowledge(&mut self) {
        self.before.clear();
    }

    /// The most bytes that the unacknowledged requests take in the log.
    pub(super) fn unacknowledged_bytes_max(&self) -> usize {
        let bytes = |key: &usize| self.records[*key].as_ref().map_or(RECORD_BYTES_MAX, Held::bytes_max);
        self.before.keys().map(bytes).sum()
    }

    /// A process started at `opened_at`. The one before gave its last sign of life at `ended_at`.
    ///
    /// Claims of that process are in doubt from now on, unless their leases had lapsed before. Remote callers could not
    /// renew while no process ran: they get a full lease.
    pub(super) fn restart(&mut self, opened_at: Timestamp, ended_at: Timestamp) {
        for held in self.records.iter_mut().chain(self.before.values_mut()).flatten() {
            let Held::Claim(record) = held else { continue };
            if record.state != State::Running || ended_at >= record.renewed_at + record.lease_ms {
                continue;
            }
            match record.holder {
                Holder::Process => {
                    let doubt = Doubt { since: opened_at, reason: DoubtReason::HolderGone };
                    record.state = State::InDoubt(doubt);
                }
                Holder::Remote => record.renewed_at = opened_at,
            }
        }
    }

    /// Compares what the store has with what it must have. Unacknowledged requests may have been applied or not.
    pub(super) fn compare(
        &self,
        key: usize,
        found: Option<&Held>,
        now: Timestamp,
    ) -> Result<Version, String> {
        let after = self.get(key);
        let is_after = matches(after, found, now);
        let Some(before) = self.before.get(&key) else {
            let expected = || format!("it must be {after:?} at {now}");
            return if is_after { Ok(Version::Same) } else { Err(expected()) };
        };
        match (matches(before.as_ref(), found, now), is_after) {
            (true, true) => Ok(Version::Same),
            (true, false) => Ok(Version::Before),
            (false, true) => Ok(Version::After),
            (false, false) => Err(format!("it must be {before:?} or {after:?} at {now}")),
        }
    }

    /// The store has these versions of the records that the unacknowledged requests changed.
    pub(super) fn adopt(&mut self, versions: &[Version]) {
        for (key, before) in std::mem::take(&mut self.before) {
            if versions[key] == Version::Before {
                self.records[key] = before;
            }
        }
    }
}

/// An expired record may be gone.
fn matches(expected: Option<&Held>, found: Option<&Held>, now: Timestamp) -> bool {
    match found {
        // Equal keys may differ in whether their text was erased.
        Some(found) => {
            expected.is_some_and(|expected| expected == found && expected.key_text() == found.key_text())
        }
        None => expected.is_none_or(|held| held.is_expired(now)),
    }
}
