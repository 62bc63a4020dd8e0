//! Leases without a clock of the store's.
//!
//! DynamoDB tells no time, and two askers' wall clocks may differ. So a lapse is *watched*: only when the same token
//! and the same number of renewals were seen for a full lease, on the asker's own steady clock, is the holder silent.
//! A grant or renewal that went through this process counts as a sighting.
//!
//! The table is bounded. Forgetting an entry restarts its watch, which delays a doubt and never hastens one.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ichido_core::{Clock, Index, Record, State, Timestamp, Token};

/// How many claims are watched at once.
const BOUND: usize = 65_536;

/// The claims that were seen open, and since when without a sign of life.
#[derive(Debug)]
pub(super) struct Watch {
    bound: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<Index, Entry>,
    /// The entries by when they were last touched.
    order: BTreeMap<u64, Index>,
    touches: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    token: Token,
    renewals: u32,
    since: Duration,
    touched: u64,
}

/// The time at which a claim was asked for, on both clocks, read before the store was asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) wall: Timestamp,
    steady: Duration,
}

impl Asked {
    pub(super) fn now(clock: &dyn Clock) -> Self {
        Self { wall: clock.now(), steady: clock.steady() }
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self { bound: BOUND, table: Mutex::default() }
    }
}

impl Watch {
    /// Notes that a claim has this token and so many renewals. `seen` is read after the store's answer.
    pub(super) fn saw(&self, index: Index, token: Token, renewals: u32, seen: Duration) {
        self.look(index, token, renewals, seen);
    }

    /// The moment by which a record that was just read is to be judged.
    ///
    /// What is open is judged by its own last renewal plus the silence that was watched, so that neither clock's
    /// error moves a lease. The end of retention, and of doubt, is judged by the wall clock.
    pub(super) fn judged_at(&self, record: &Record, asked: Asked, seen: Duration) -> Timestamp {
        let index = record.key.index();
        if matches!(record.state, State::Done(_)) {
            self.forget(index);
            return asked.wall;
        }
        let since = self.look(index, record.token, record.renewals, seen);
        // From after the first sighting to before the last: at most as long as the holder was silent.
        let silence_ms = u64::try_from(asked.steady.saturating_sub(since).as_millis()).unwrap_or(u64::MAX);
        let is_silent = silence_ms >= record.lease_ms || matches!(record.state, State::InDoubt(_));
        if is_silent && asked.wall >= record.over_at() {
            return asked.wall;
        }
        record.renewed_at + silence_ms
    }

    /// Ends a watch.
    pub(super) fn forget(&self, index: Index) {
        let mut table = self.lock();
        if let Some(entry) = table.entries.remove(&index) {
            table.order.remove(&entry.touched);
        }
    }

    /// Since when the claim is seen as it is.
    fn look(&self, index: Index, token: Token, renewals: u32, seen: Duration) -> Duration {
        let mut table = self.lock();
        let known = table.entries.get(&index).copied();
        if let Some(entry) = known {
            table.order.remove(&entry.touched);
        }
        let same = known.filter(|entry| entry.token == token && entry.renewals == renewals);
        let since = same.map_or(seen, |entry| entry.since);
        table.touches += 1;
        let touched = table.touches;
        table.entries.insert(index, Entry { token, renewals, since, touched });
        table.order.insert(touched, index);
        if table.entries.len() > self.bound
            && let Some((_, oldest)) = table.order.pop_first()
        {
            table.entries.remove(&oldest);
        }
        since
    }

    /// A panic can at worst lose an entry, which restarts its watch. So a poisoned lock is a lock.
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

    fn token(n: u8) -> Token {
        Token::from_bytes([n; 16])
    }

    fn after(ms: u64) -> Duration {
        T0 + Duration::from_millis(ms)
    }

    #[test]
    fn a_renewal_or_another_token_restarts_the_watch() {
        let watch = Watch::default();
        assert_eq!(watch.look(index(1), token(1), 0, T0), T0);
        assert_eq!(watch.look(index(1), token(1), 0, after(10)), T0);
        assert_eq!(watch.look(index(1), token(1), 1, after(20)), after(20));
        assert_eq!(watch.look(index(1), token(2), 1, after(30)), after(30));
        watch.forget(index(1));
        assert_eq!(watch.look(index(1), token(2), 1, after(40)), after(40));
    }

    #[test]
    fn at_its_bound_it_forgets_what_was_not_looked_at_for_longest() {
        let watch = Watch { bound: 2, table: Mutex::default() };
        watch.look(index(1), token(1), 0, T0);
        watch.look(index(2), token(2), 0, T0);
        watch.look(index(1), token(1), 0, after(1));
        watch.look(index(3), token(3), 0, after(2));
        assert_eq!(watch.look(index(1), token(1), 0, after(3)), T0);
        assert_eq!(watch.look(index(2), token(2), 0, after(4)), after(4), "its watch began anew");
        assert_eq!(watch.lock().entries.len(), 2);
        assert_eq!(watch.lock().order.len(), 2);
    }
}
