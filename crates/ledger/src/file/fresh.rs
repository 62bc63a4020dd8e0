//! Claims that were granted a moment ago.
//!
//! Most claims end soon after they began. In the engine a claim that was only granted lies among those that were granted
//! by the same commit, in one value of `grants`; whoever looks for it finds it here, in memory. Whatever is said of it
//! next moves it on, to `done`, to `open`, or away, and the commit that does so also notes that the grant has ended. So
//! a claim that is granted and completed is one record in the engine, and not one that is written, removed, and written
//! elsewhere.
//!
//! What lies here is lost with the process and not needed after it: at opening, grants that did not end are moved to
//! `open` ([`super::store`]).

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ichido_core::{Index, Record};

use crate::index_map::IndexMap;

const SHARDS: usize = 16;
/// Claims that may lie here; what is granted beyond goes to `open` at once.
const CLAIMS_MAX: usize = 8 * 1024;
/// Commits whose values are in `grants`. Beyond any of these bounds, the grants of the older half are moved to `open`:
/// otherwise one claim that goes on for long would keep the values of all later commits.
const COMMITS_MAX: usize = 4 * 1024;
/// Bytes of these values. At opening they are read into memory.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// Where a grant stands in `grants`: the commit, and its place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Spot {
    pub(super) sequence: u64,
    pub(super) place: u32,
}

/// A claim that was granted, and nothing was said of it since.
#[derive(Clone, Debug)]
pub(super) struct Granted {
    pub(super) record: Record,
    pub(super) spot: Spot,
}

/// The fresh claims of an open engine, durable all of them. The writer changes them, and others look.
#[derive(Debug)]
pub(super) struct Fresh {
    shards: Vec<Mutex<IndexMap<Granted>>>,
}

impl Fresh {
    pub(super) fn new() -> Self {
        Self { shards: std::iter::repeat_with(Mutex::default).take(SHARDS).collect() }
    }

    pub(super) fn get(&self, index: &Index) -> Option<Granted> {
        self.shard(index).get(index).cloned()
    }

    pub(super) fn put(&self, index: Index, granted: Granted) {
        self.shard(&index).insert(index, granted);
    }

    pub(super) fn remove(&self, index: &Index) {
        self.shard(index).remove(index);
    }

    /// Those that `wants` wants, in the order of their indexes.
    pub(super) fn sorted(&self, wants: impl Fn(&Index, &Granted) -> bool) -> Vec<(Index, Granted)> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            let wanted = shard.iter().filter(|(index, granted)| wants(index, granted));
            found.extend(wanted.map(|(index, granted)| (*index, granted.clone())));
        }
        found.sort_unstable_by_key(|(index, _)| *index);
        found
    }

    fn shard(&self, index: &Index) -> MutexGuard<'_, IndexMap<Granted>> {
        // Not a byte that the maps hash by.
        lock(&self.shards[usize::from(index.as_bytes()[31]) % SHARDS])
    }
}

fn lock(shard: &Mutex<IndexMap<Granted>>) -> MutexGuard<'_, IndexMap<Granted>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which commits have grants that have not ended. The writer's own.
#[derive(Debug, Default)]
pub(super) struct Grants {
    /// By their sequence. Those before the first are settled.
    commits: VecDeque<Value>,
    /// Commits whose values are spent. They go in their order: a note that a grant has ended must not go before the grant.
    spent: Vec<u64>,
    alive: usize,
    bytes: usize,
}

/// A value in `grants`.
#[derive(Debug)]
struct Value {
    sequence: u64,
    /// Its grants that have not ended.
    alive: usize,
    bytes: usize,
}

impl Grants {
    /// How many more claims may be fresh.
    pub(super) fn room(&self) -> usize {
        CLAIMS_MAX.saturating_sub(self.alive)
    }

    /// Commits whose values a batch can remove.
    pub(super) fn spent(&self) -> &[u64] {
        &self.spent
    }

    /// If there is too much: grants of commits before this one should be moved on.
    pub(super) fn too_old(&self) -> Option<u64> {
        let too_many = self.commits.len() > COMMITS_MAX || self.alive >= CLAIMS_MAX;
        (too_many || self.bytes > BYTES_MAX).then(|| self.commits[self.commits.len() / 2].sequence)
    }

    /// Notes a commit that is durable: its grants, the bytes of its value, the grants that it ended, and that it removed
    /// what was spent. A commit has a value in `grants` if it granted or ended anything.
    pub(super) fn note(
        &mut self,
        sequence: u64,
        granted: usize,
        bytes: usize,
        ended: impl Iterator<Item = u64>,
    ) {
        self.spent.clear();
        for commit in ended {
            if let Ok(at) = self.commits.binary_search_by_key(&commit, |value| value.sequence) {
                self.commits[at].alive = self.commits[at].alive.saturating_sub(1);
                self.alive = self.alive.saturating_sub(1);
            }
        }
        if bytes > 0 {
            self.commits.push_back(Value { sequence, alive: granted, bytes });
            self.alive += granted;
            self.bytes += bytes;
        }
        while let Some(value) = self.commits.pop_front_if(|value| value.alive == 0) {
            self.bytes -= value.bytes;
            self.spent.push(value.sequence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_spent_in_their_order_and_after_all_their_grants() {
        let mut grants = Grants::default();
        grants.note(1, 2, 10, [].into_iter());
        grants.note(2, 1, 10, [].into_iter());
        assert_eq!(grants.room(), CLAIMS_MAX - 3);
        grants.note(3, 0, 10, [2].into_iter());
        assert_eq!(grants.spent(), [0_u64; 0], "the first commit has grants, so the notes behind it stay");
        grants.note(4, 0, 10, [1].into_iter());
        assert_eq!(grants.spent(), [0_u64; 0]);
        grants.note(6, 1, 10, [1].into_iter());
        assert_eq!(grants.spent(), [1, 2, 3, 4]);
        grants.note(7, 0, 0, [].into_iter());
        assert_eq!((grants.spent(), grants.room(), grants.bytes), (&[][..], CLAIMS_MAX - 1, 10));
    }

    #[test]
    fn too_many_commits_are_told() {
        let mut grants = Grants::default();
        for sequence in 0..COMMITS_MAX as u64 {
            grants.note(sequence, 1, 10, [].into_iter());
        }
        assert_eq!(grants.too_old(), None);
        grants.note(COMMITS_MAX as u64, 1, 10, [].into_iter());
        assert_eq!(grants.too_old(), Some(COMMITS_MAX as u64 / 2));
    }

    #[test]
    fn values_that_are_too_large_together_are_told_as_well() {
        let mut grants = Grants::default();
        for sequence in 0..4 {
            grants.note(sequence, 1, BYTES_MAX / 4, [].into_iter());
        }
        assert_eq!(grants.too_old(), None);
        grants.note(4, 1, 1, [].into_iter());
        assert_eq!(grants.too_old(), Some(2));
        grants.note(5, 0, 1, [0, 1].into_iter());
        assert_eq!((grants.spent(), grants.too_old()), (&[0, 1][..], None));
    }

    #[test]
    fn claims_that_nobody_ends_do_not_keep_the_room_for_good() {
        let mut grants = Grants::default();
        for sequence in 0..4 {
            grants.note(sequence, CLAIMS_MAX / 4, 10, [].into_iter());
        }
        assert_eq!((grants.room(), grants.too_old()), (0, Some(2)));
    }
}
