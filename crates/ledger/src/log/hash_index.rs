//! Finds records by the tags of their keys, in memory.
//!
//! A tag is 64 bits of a keyed hash, so callers cannot make up keys with equal tags. Equal tags are possible all the same: a
//! lookup returns every record with the tag, and whoever reads them compares the whole key.
//!
//! The index is split into shards by the upper bits of the tag. Each shard is a table with linear probing that keeps its
//! entries sorted by tag: the slot where an entry belongs grows with its tag. So a miss ends at the first larger tag, a list
//! of all entries in order is a walk over the table, and a shard grows without the others: the writer never waits for more
//! than a thousandth of the index to be copied.
//!
//! An entry takes 16 bytes, and a table is between 60 and 85 percent full: 19 to 27 bytes for a key.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::format::{Location, RecordKind};

const SHARD_BITS: u32 = 10;
const SHARDS: usize = 1 << SHARD_BITS;
/// A table grows when it is fuller than this, in percent.
const FULL: usize = 85;
/// How full a table is after it was resized, in percent.
const RESIZED: usize = 60;
/// A table shrinks when it is emptier than this, in percent.
const SPARSE: usize = 25;
const CAPACITY_MIN: usize = 8;

/// A tag and a packed location; no location is zero, so zero is an empty slot.
type Slot = (u64, u64);
const EMPTY: Slot = (0, 0);

/// Where the records of all keys are.
#[derive(Debug)]
pub(crate) struct HashIndex {
    shards: Box<[Mutex<Shard>]>,
}

/// The records with one tag. Most tags have at most one.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    first: Option<Location>,
    others: Vec<Location>,
}

impl Candidates {
    fn push(&mut self, location: Location) {
        match self.first {
            None => self.first = Some(location),
            Some(_) => self.others.push(location),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Location> {
        self.first.into_iter().chain(self.others.iter().copied())
    }
}

impl Default for HashIndex {
    fn default() -> Self {
        Self { shards: std::iter::repeat_with(Mutex::default).take(SHARDS).collect() }
    }
}

impl HashIndex {
    /// All records with this tag.
    pub(crate) fn find(&self, tag: u64) -> Candidates {
        self.shard(tag).find(tag)
    }

    /// Points to a record instead of its predecessor.
    pub(crate) fn replace(&self, tag: u64, old: Option<Location>, new: Option<Location>) {
        let mut shard = self.shard(tag);
        match (old.map(Location::pack), new.map(Location::pack)) {
            (Some(old), Some(new)) => {
                if !shard.overwrite(tag, old, new) {
                    shard.insert(tag, new);
                }
            }
            (Some(old), None) => shard.remove(tag, old),
            (None, Some(new)) => shard.insert(tag, new),
            (None, None) => {}
        }
    }

    /// Whether the index points to this record.
    pub(crate) fn contains(&self, tag: u64, location: Location) -> bool {
        self.find(tag).iter().any(|found| found == location)
    }

    /// The next entries from this tag on, in the order of tags: those of one shard, or of the next one that has any. An empty
    /// list is the end.
    pub(crate) fn entries_from(&self, tag: u64) -> Vec<(u64, Location)> {
        self.next_entries(tag, |shard| shard.len, |_| true)
    }

    /// The same for open claims. Shards without any are not searched.
    pub(crate) fn open_from(&self, tag: u64) -> Vec<(u64, Location)> {
        self.next_entries(tag, |shard| shard.open, |kind| kind == RecordKind::Open)
    }

    fn next_entries(
        &self,
        tag: u64,
        count: impl Fn(&Shard) -> usize,
        is_wanted: impl Fn(RecordKind) -> bool,
    ) -> Vec<(u64, Location)> {
        for shard in &self.shards[shard_of(tag)..] {
            let shard = lock(shard);
            if count(&shard) == 0 {
                continue;
            }
            let slots = shard.slots.iter().filter(|slot| slot.1 != 0 && slot.0 >= tag);
            let entries = slots.filter_map(|slot| Some((slot.0, Location::unpack(slot.1)?)));
            let entries: Vec<_> = entries.filter(|(_, location)| is_wanted(location.kind)).collect();
            if !entries.is_empty() {
                return entries;
            }
        }
        Vec::new()
    }

    /// How many entries there are of each kind: open claims, completed claims, marks.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for shard in &self.shards {
            for (_, packed) in lock(shard).slots.iter().filter(|slot| slot.1 != 0) {
                match Location::unpack(*packed).map(|location| location.kind) {
                    Some(RecordKind::Open) => counts.open += 1,
                    Some(RecordKind::Done | RecordKind::Large) => counts.done += 1,
                    Some(RecordKind::Mark) => counts.marks += 1,
                    Some(RecordKind::Removed | RecordKind::State) | None => {}
                }
            }
        }
        counts
    }

    fn shard(&self, tag: u64) -> MutexGuard<'_, Shard> {
        lock(&self.shards[shard_of(tag)])
    }
}

/// Builds an index from many entries at once.
#[derive(Debug)]
pub(crate) struct Builder {
    shards: Vec<Vec<Slot>>,
}

impl Builder {
    /// A builder for about this many entries.
    pub(crate) fn with_capacity(entries: usize) -> Self {
        let each = entries / SHARDS + entries / SHARDS / 8;
        Self { shards: std::iter::repeat_with(|| Vec::with_capacity(each)).take(SHARDS).collect() }
    }

    /// Adds an entry.
    pub(crate) fn push(&mut self, tag: u64, location: Location) {
        self.shards[shard_of(tag)].push((tag, location.pack()));
    }

    /// Builds the index of the entries that `is_kept` accepts.
    pub(crate) fn build(self, mut is_kept: impl FnMut(u64, Location) -> bool) -> HashIndex {
        let shards = self.shards.into_iter().map(|mut slots| {
            slots.retain(|slot| Location::unpack(slot.1).is_some_and(|location| is_kept(slot.0, location)));
            // The entries of each segment are sorted already, and a stable sort merges such runs.
            slots.sort();
            let open = slots.iter().map(|slot| is_open(slot.1)).sum();
            let mut shard = Shard { capacity: 0, len: slots.len(), open, slots };
            shard.resize(shard.len);
            Mutex::new(shard)
        });
        HashIndex { shards: shards.collect() }
    }
}

/// How many entries there are of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) open: u64,
    pub(crate) done: u64,
    pub(crate) marks: u64,
}

fn shard_of(tag: u64) -> usize {
    usize::try_from(tag >> (64 - SHARD_BITS)).unwrap_or(0)
}

/// One for an open claim, zero for anything else.
fn is_open(packed: u64) -> usize {
    usize::from(Location::unpack(packed).is_some_and(|location| location.kind == RecordKind::Open))
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct Shard {
    /// At least `capacity` slots. Entries that belong near the end may need more.
    slots: Vec<Slot>,
    capacity: usize,
    len: usize,
    /// How many entries are open claims.
    open: usize,
}

impl Shard {
    /// The slot where an entry belongs, if it is free. It grows with the tag.
    fn home(&self, tag: u64) -> usize {
        let within = u128::from(tag << SHARD_BITS);
        usize::try_from((within * self.capacity as u128) >> 64).unwrap_or(0)
    }

    fn find(&self, tag: u64) -> Candidates {
        let mut found = Candidates::default();
        if self.len == 0 {
            return found;
        }
        for slot in &self.slots[self.home(tag)..] {
            if slot.1 == 0 || slot.0 > tag {
                break;
            }
            if slot.0 == tag
                && let Some(location) = Location::unpack(slot.1)
            {
                found.push(location);
            }
        }
        found
    }

    fn position(&self, tag: u64, packed: u64) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let home = self.home(tag);
        let run = self.slots[home..].iter().take_while(|slot| slot.1 != 0 && slot.0 <= tag);
        run.enumerate().find(|(_, slot)| **slot == (tag, packed)).map(|(at, _)| home + at)
    }

    fn overwrite(&mut self, tag: u64, old: u64, new: u64) -> bool {
        let Some(at) = self.position(tag, old) else { return false };
        self.slots[at].1 = new;
        self.open = self.open + is_open(new) - is_open(old);
        true
    }

    fn insert(&mut self, tag: u64, packed: u64) {
        if (self.len + 1) * 100 > self.capacity * FULL {
            self.resize(self.len + 1);
        }
        let mut at = self.home(tag);
        while self.slots.get(at).is_some_and(|slot| slot.1 != 0 && slot.0 <= tag) {
            at += 1;
        }
        let free = self.slots[at..].iter().position(|slot| slot.1 == 0).map(|distance| at + distance);
        let free = free.unwrap_or_else(|| {
            self.slots.push(EMPTY);
            self.slots.len() - 1
        });
        self.slots.copy_within(at..free, at + 1);
        self.slots[at] = (tag, packed);
        self.len += 1;
        self.open += is_open(packed);
    }

    fn remove(&mut self, tag: u64, packed: u64) {
        let Some(at) = self.position(tag, packed) else { return };
        // What follows moves one slot back, as long as that is not before the slot where it belongs.
        let mut end = at + 1;
        while self.slots.get(end).is_some_and(|slot| slot.1 != 0 && self.home(slot.0) < end) {
            end += 1;
        }
        self.slots.copy_within(at + 1..end, at);
        self.slots[end - 1] = EMPTY;
        self.len -= 1;
        self.open -= is_open(packed);
        if self.capacity > CAPACITY_MIN && self.len * 100 < self.capacity * SPARSE {
            self.resize(self.len);
        }
    }

    /// Makes room for this many entries.
    fn resize(&mut self, entries: usize) {
        self.capacity = (entries.max(self.len) * 100 / RESIZED + 1).max(CAPACITY_MIN);
        let old = std::mem::replace(&mut self.slots, vec![EMPTY; self.capacity]);
        let mut next = 0;
        for slot in old.into_iter().filter(|slot| slot.1 != 0) {
            let at = self.home(slot.0).max(next);
            if at >= self.slots.len() {
                self.slots.resize(at + 1, EMPTY);
            }
            self.slots[at] = slot;
            next = at + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn at(offset: u32) -> Location {
        Location { segment: 1, offset, kind: RecordKind::Done }
    }

    /// Compares the index with a sorted list, with tags of this many bits.
    fn matches_a_list(bits: u32, operations: u32) {
        let mut random = StdRng::seed_from_u64(u64::from(bits));
        let index = HashIndex::default();
        let mut list: BTreeMap<u64, Vec<Location>> = BTreeMap::new();
        for number in 1..=operations {
            let tag = random.random::<u64>() << (64 - bits) >> (64 - bits) << (64 - bits);
            let known = list.entry(tag).or_default();
            if random.random_range(0..3) > 0 || known.is_empty() {
                index.replace(tag, None, Some(at(number)));
                known.push(at(number));
            } else {
                let old = known.swap_remove(random.random_range(0..known.len()));
                if random.random::<bool>() {
                    index.replace(tag, Some(old), Some(at(number)));
                    known.push(at(number));
                } else {
                    index.replace(tag, Some(old), None);
                }
            }
            let mut found: Vec<_> = index.find(tag).iter().collect();
            found.sort_unstable();
            known.sort_unstable();
            assert_eq!(&found, known);
        }
        let mut listed = Vec::new();
        let mut from = 0;
        loop {
            let entries = index.entries_from(from);
            let Some((last, _)) = entries.last() else { break };
            let next = last.checked_add(1);
            listed.extend(entries);
            let Some(next) = next else { break };
            from = next;
        }
        assert!(listed.is_sorted_by_key(|(tag, _)| *tag), "entries are listed in order");
        let total: usize = list.values().map(Vec::len).sum();
        assert_eq!((listed.len(), index.counts().done), (total, total as u64));
    }

    #[test]
    fn every_entry_is_found() {
        matches_a_list(64, 20_000);
    }

    #[test]
    fn equal_tags_are_kept_apart() {
        matches_a_list(4, 3_000);
        matches_a_list(14, 30_000);
    }

    #[test]
    fn a_key_takes_at_most_32_bytes_and_memory_is_given_back() {
        let mut random = StdRng::seed_from_u64(7);
        let index = HashIndex::default();
        let bytes = |index: &HashIndex| -> usize {
            index.shards.iter().map(|shard| lock(shard).slots.len() * size_of::<Slot>()).sum()
        };
        let tags: Vec<u64> = (0..1_000_000).map(|_| random.random()).collect();
        for (number, tag) in (1..).zip(&tags) {
            index.replace(*tag, None, Some(at(number)));
            if number % 50_000 == 0 {
                assert!(bytes(&index) <= number as usize * 32, "{} bytes for {number} keys", bytes(&index));
            }
        }
        for (number, tag) in (1..).zip(&tags) {
            index.replace(*tag, Some(at(number)), None);
        }
        assert!(bytes(&index) < 1_000_000, "{} bytes for nothing", bytes(&index));
    }
}
