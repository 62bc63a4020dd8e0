//! Completed claims in memory, so that repeats need neither the writer nor the disk.
//!
//! Only completed claims are kept, which makes it simple: a completed claim does not change until its retention is over, and
//! the clock tells on every read whether that is so. So nothing is ever invalidated, a late insertion by a slow reader does
//! no harm, and what is inserted was read from the store, so it is durable.
//!
//! The exception is a claim that an operator forgets or erases. Its key is excluded from then on, because a slow reader may
//! still bring the old record. A shard with too many excluded keys is switched off until the process ends.
//!
//! Bounded by bytes. Each shard has a young and an old half. What is read in the old half moves to the young one. When the
//! young half is full, it becomes the old one, and the previous old one is forgotten.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ichido_core::{Index, Outcome, Record, State};

use crate::index_map::IndexMap;

const SHARDS: usize = 64;
/// The cost of an entry without its texts and outcome: the record, slots in two maps, two allocations.
const ENTRY_BYTES: usize = 640;
/// The most excluded keys of a shard.
const EXCLUDED_MAX: usize = 4_096;
/// Larger outcomes are read from the disk each time.
const OUTCOME_MAX: usize = 64 * 1024;

/// Completed claims, the most recently read ones.
#[derive(Debug)]
pub(super) struct Cache {
    shards: Vec<Mutex<Shard>>,
    /// The bound of one half of a shard.
    bound_bytes: usize,
}

#[derive(Debug, Default)]
struct Shard {
    young: IndexMap<Arc<Record>>,
    young_bytes: usize,
    old: IndexMap<Arc<Record>>,
    /// Keys that are read from the store each time.
    excluded: IndexMap<()>,
    /// Too many keys are excluded: all are read from the store.
    is_off: bool,
}

impl Cache {
    pub(super) fn new(bytes: usize) -> Self {
        let shards = std::iter::repeat_with(Mutex::default).take(SHARDS).collect();
        Self { shards, bound_bytes: bytes / SHARDS / 2 }
    }

    pub(super) fn get(&self, index: Index) -> Option<Arc<Record>> {
        let mut shard = self.shard(index);
        if let Some(record) = shard.young.get(&index) {
            return Some(record.clone());
        }
        let record = shard.old.remove(&index)?;
        shard.insert(index, record.clone(), self.bound_bytes);
        Some(record)
    }

    /// Keeps a record that was read from the store, if it is completed and not too large.
    pub(super) fn keep(&self, record: &Record) {
        let State::Done(done) = &record.state else { return };
        if done.outcome.size() > OUTCOME_MAX.min(self.bound_bytes / 4) {
            return;
        }
        let index = record.key.index();
        self.shard(index).insert(index, Arc::new(record.clone()), self.bound_bytes);
    }

    /// Drops the claim of a key, and keeps none of that key any more.
    pub(super) fn exclude(&self, index: Index) {
        let mut shard = self.shard(index);
        if shard.excluded.len() >= EXCLUDED_MAX {
            *shard = Shard { is_off: true, ..Shard::default() };
            return;
        }
        shard.excluded.insert(index, ());
        if let Some(record) = shard.young.remove(&index) {
            shard.young_bytes = shard.young_bytes.saturating_sub(weight(&record));
        }
        shard.old.remove(&index);
    }

    fn shard(&self, index: Index) -> MutexGuard<'_, Shard> {
        // Not a byte that the maps hash by.
        let number = usize::from(index.as_bytes()[31]) % SHARDS;
        self.shards[number].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    fn insert(&mut self, index: Index, record: Arc<Record>, bound_bytes: usize) {
        if self.is_off || self.excluded.contains_key(&index) {
            return;
        }
        let bytes = weight(&record);
        if self.young_bytes + bytes > bound_bytes {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if self.young.insert(index, record).is_none() {
            self.young_bytes += bytes;
        }
    }
}

fn weight(record: &Record) -> usize {
    let outcome = match &record.state {
        State::Done(done) => match &done.outcome {
            Outcome::Kept(bytes) => bytes.len(),
            Outcome::Tombstone(reason) => reason.len(),
        },
        State::Running | State::InDoubt(_) => 0,
    };
    let scope = record.key.scope();
    let metadata: usize = record.metadata.iter().map(|(name, value)| name.len() + value.len() + 64).sum();
    ENTRY_BYTES + outcome + metadata + scope.tenant.len() + scope.route.len() + record.key.text().len()
}
