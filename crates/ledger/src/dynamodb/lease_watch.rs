//! Leases without a clock in the store.
//!
//! DynamoDB has no clock, and the wall clocks of two claimants may differ. So a lease is *watched* on the
//! claimant's own steady clock. Its holder counts as silent only when the same grant with the same number of
//! renewals was seen for a full lease. A grant is identified by its token and the time it was written. A request
//! that is delivered again after its key was released is granted with the same token, and has a lease of its own. A
//! grant or renewal made by this process counts as a sighting.
//!
//! The table is bounded. Forgetting an entry restarts its watch, which may delay doubt but never hastens it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ichido_core::{Clock, Index, Record, State, Timestamp, Token};

/// How many claims are watched at once.
const WATCHED_MAX: usize = 65_536;

/// Open claims, and since when they have shown no sign of life.
#[derive(Debug)]
pub(super) struct LeaseWatch {
    bound: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<Index, Entry>,
    /// The entries by when they were last used.
    order: BTreeMap<u64, Index>,
    touches: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    sighting: Sighting,
    since: Duration,
    touched: u64,
}

/// What an open claim looks like. While it looks the same, its holder is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sighting {
    pub(super) token: Token,
    pub(super) claimed_at: Timestamp,
    pub(super) renewals: u32,
}

impl Sighting {
    pub(super) fn of(record: &Record) -> Self {
        Self { token: record.token, claimed_at: record.claimed_at, renewals: record.renewals }
    }
}

/// When a claim was requested, on both clocks, read before the call to the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedAt {
    pub(super) wall: Timestamp,
    steady: Duration,
}

impl AskedAt {
    pub(super) fn now(clock: &dyn Clock) -> Self {
        Self { wall: clock.now(), steady: clock.steady() }
    }
}

impl Default for LeaseWatch {
    fn default() -> Self {
        Self { bound: WATCHED_MAX, table: Mutex::default() }
    }
}

impl LeaseWatch {
    /// Records what a claim looks like. `seen` is read after the store's reply.
    pub(super) fn record(&self, index: Index, sighting: Sighting, seen: Duration) {
        self.observe(index, sighting, seen);
    }

    /// Records a renewal of a watched grant. A grant that is not watched yet is watched from its next sighting.
    pub(super) fn renewed(&self, index: Index, token: Token, renewals: u32, seen: Duration) {
        let known = self
            .lock()
            .entries
            .get(&index)
            .map(|entry| entry.sighting)
            .filter(|sighting| sighting.token == token);
        match known {
            Some(sighting) => self.record(index, Sighting { renewals, ..sighting }, seen),
            None => self.forget(index),
        }
    }

    /// The time by which to evaluate a record that was just read.
    ///
    /// An open claim is evaluated by its own last renewal plus the silence that was watched, so that the error of
    /// neither clock moves a lease. The end of retention, and of doubt, is evaluated by the wall clock.
    pub(super) fn judged_at(&self, record: &Record, asked: AskedAt, seen: Duration) -> Timestamp {
        let index = record.key.index();
        if matches!(record.state, State::Done(_)) {
            self.forget(index);
            return asked.wall;
        }
        let since = self.observe(index, Sighting::of(record), seen);
        // From after the first sighting to before the last: at most as long as the holder was silent.
        let silence_ms = u64::try_from(asked.steady.saturating_sub(since).as_millis()).unwrap_or(u64::MAX);
        let is_silent = silence_ms >= record.lease_ms || matches!(record.state, State::InDoubt(_));
        if is_silent && asked.wall >= record.expires_at() {
            return asked.wall;
        }
        record.renewed_at + silence_ms
    }

    /// Stops watching a claim.
    pub(super) fn forget(&self, index: Index) {
        let mut table = self.lock();
        if let Some(entry) = table.entries.remove(&index) {
            table.order.remove(&entry.touched);
        }
    }

    /// Since when the claim has looked like this.
    fn observe(&self, index: Index, sighting: Sighting, seen: Duration) -> Duration {
        let mut table = self.lock();
        let known = table.entries.get(&index).copied();
        if let Some(entry) = known {
            table.order.remove(&entry.touched);
        }
        let same = known.filter(|entry| entry.sighting == sighting);
        let since = same.map_or(seen, |entry| entry.since);
        table.touches += 1;
        let touched = table.touches;
        table.entries.insert(index, Entry { sighting, since, touched });
        table.order.insert(touched, index);
        if table.entries.len() > self.bound
            && let Some((_, oldest)) = table.order.pop_first()
        {
            table.entries.remove(&oldest);
        }
        since
    }

    /// A panic can at worst lose an entry, which restarts its watch. So a poisoned lock can be used.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Duration = Duration::from_secs(100);

    fn index(n: u8) -> Index {
        Index::from_bytes([n; 32])
    }

    fn sighting(n: u8, renewals: u32) -> Sighting {
        Sighting { token: Token::from_bytes([n; 16]), claimed_at: Timestamp(1_000), renewals }
    }

    fn after(ms: u64) -> Duration {
        T0 + Duration::from_millis(ms)
    }

    #[test]
    fn renewal_or_new_grant_restarts_the_watch() {
        let watch = LeaseWatch::default();
        assert_eq!(watch.observe(index(1), sighting(1, 0), T0), T0);
        assert_eq!(watch.observe(index(1), sighting(1, 0), after(10)), T0);
        assert_eq!(watch.observe(index(1), sighting(1, 1), after(20)), after(20));
        assert_eq!(watch.observe(index(1), sighting(2, 1), after(30)), after(30));
        let granted_again = Sighting { claimed_at: Timestamp(2_000), ..sighting(2, 1) };
        assert_eq!(watch.observe(index(1), granted_again, after(35)), after(35));
        watch.forget(index(1));
        assert_eq!(watch.observe(index(1), sighting(2, 1), after(40)), after(40));
    }

    #[test]
    fn renewal_of_an_unwatched_grant_starts_no_watch() {
        let watch = LeaseWatch::default();
        watch.renewed(index(1), sighting(1, 0).token, 1, T0);
        assert_eq!(watch.observe(index(1), sighting(1, 1), after(10)), after(10));
        watch.renewed(index(1), sighting(1, 0).token, 2, after(20));
        assert_eq!(watch.observe(index(1), sighting(1, 2), after(30)), after(20));
    }

    #[test]
    fn full_watch_forgets_the_least_recently_used_entry() {
        let watch = LeaseWatch { bound: 2, table: Mutex::default() };
        watch.observe(index(1), sighting(1, 0), T0);
        watch.observe(index(2), sighting(2, 0), T0);
        watch.observe(index(1), sighting(1, 0), after(1));
        watch.observe(index(3), sighting(3, 0), after(2));
        assert_eq!(watch.observe(index(1), sighting(1, 0), after(3)), T0);
        assert_eq!(watch.observe(index(2), sighting(2, 0), after(4)), after(4), "its watch was restarted");
        assert_eq!(watch.lock().entries.len(), 2);
        assert_eq!(watch.lock().order.len(), 2);
    }
}
