//! `memory:`: claims of one process, for tests, for demos, and as the local side of a fallback.
//!
//! The ledger is bounded: when it is full it refuses new records, and never drops a live one to make room. Claims
//! and marks are spread over shards. Each shard has a lock that is held for one step only. A sweep takes one shard
//! and a few records at a time, so it does not block claims. Leases are evaluated with a steady clock.
//!
//! The sweep visits each record once, at its `sweep_at` time, which is no later than its end. Most claims are
//! completed soon, so `sweep_at` is when the outcome would expire if the claim were completed at once. Completing a
//! claim therefore reschedules nothing, and the sweep puts off records that are still alive. Entries for released
//! or replaced records are skipped.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use ichido_core::mark::{self, Erased, Forgotten, Mark};
use ichido_core::rules::{self, Change, Decision};
use ichido_core::{
    Adopted, Claim, ClaimRequest, Clock, Grant, Index, Key, MarkKey, Nonce, Phase, Record, Resolution,
    Resolved, Settle, Settled, SteadyTime, Timestamp, Token,
};

use crate::index_map::IndexMap;
use crate::{
    Backend, Capabilities, Error, Expiry, Fencing, Kind, Listing, LocalBackend, Maintain, MarkPage,
    MarkQuery, Page, Query, Reach, Result, Stats, StoreClock, Summary, Swept,
};

const SHARDS: usize = 64;
/// Records that a sweep removes before it unlocks a shard.
const SWEEP_CHUNK: usize = 128;
/// Records that a sweep visits before it unlocks a shard.
const SWEEP_VISITS: usize = 4 * SWEEP_CHUNK;
/// The default bound, in records.
pub const DEFAULT_BOUND: usize = 1_000_000;

/// A ledger in memory.
#[derive(Debug)]
pub struct Memory {
    time: SteadyTime,
    bound: usize,
    live: AtomicUsize,
    shards: Vec<Mutex<Shard>>,
}

#[derive(Debug, Default)]
struct Shard {
    claims: IndexMap<StoredClaim>,
    marks: IndexMap<mark::Record>,
    /// When the sweep visits which record. `true` for a mark, which is visited when it expires.
    sweep_queue: BinaryHeap<Reverse<(Timestamp, Index, bool)>>,
}

#[derive(Debug)]
struct StoredClaim {
    /// Boxed, so that a growing map need not move it.
    record: Box<Record>,
    sweep_at: Timestamp,
}

impl Memory {
    /// A ledger of at most `bound` records.
    pub fn new(clock: Arc<dyn Clock>, bound: usize) -> Self {
        let time = SteadyTime::start(clock, Timestamp::default());
        let shards = std::iter::repeat_with(Mutex::default).take(SHARDS).collect();
        Self { time, bound, live: AtomicUsize::new(0), shards }
    }

    fn shard(&self, index: Index) -> MutexGuard<'_, Shard> {
        // Not a byte that the maps use as hash.
        self.lock(usize::from(index.as_bytes()[31]) % SHARDS)
    }

    /// A panic cannot leave a shard half-written, because every step writes at its end. So a poisoned lock can be
    /// used.
    fn lock(&self, number: usize) -> MutexGuard<'_, Shard> {
        self.shards[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply_to_claim<A>(
        &self,
        index: Index,
        decide: impl FnOnce(Option<&Record>, Timestamp) -> Decision<A, Record>,
    ) -> Result<A> {
        let mut shard = self.shard(index);
        let (now, current) = (self.time.now(), shard.claims.get(&index));
        let (decision, replaces) = (decide(current.map(StoredClaim::record), now), current.is_some());
        match decision.change {
            Change::Keep => {}
            Change::Put(record) => {
                self.make_room(&mut shard, replaces, now)?;
                shard.put_claim(index, record, now);
            }
            Change::Remove => {
                if shard.claims.remove(&index).is_some() {
                    self.live.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        Ok(decision.result)
    }

    fn apply_to_mark<A>(
        &self,
        index: Index,
        decide: impl FnOnce(Option<&mark::Record>, Timestamp) -> Decision<A, mark::Record>,
    ) -> Result<A> {
        let mut shard = self.shard(index);
        let (now, current) = (self.time.now(), shard.marks.get(&index));
        let (decision, replaces) = (decide(current, now), current.is_some());
        match decision.change {
            Change::Keep => {}
            Change::Put(record) => {
                self.make_room(&mut shard, replaces, now)?;
                shard.put_mark(index, record);
            }
            Change::Remove => {
                if shard.marks.remove(&index).is_some() {
                    self.live.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        Ok(decision.result)
    }

    /// The answer to a claim, if it needs no write.
    pub(crate) fn peek_claim(&self, request: &ClaimRequest) -> Option<Claim> {
        let shard = self.shard(request.key.index());
        let current = shard.claims.get(&request.key.index()).map(StoredClaim::record);
        let decision = rules::claim(current, request, self.time.now());
        (decision.change == Change::Keep).then_some(decision.result)
    }

    /// The answer to a mark, if it needs no write.
    pub(crate) fn peek_mark(&self, request: &mark::Request) -> Option<Mark> {
        let shard = self.shard(request.key.index());
        let decision = rules::mark(shard.marks.get(&request.key.index()), request, self.time.now());
        (decision.change == Change::Keep).then_some(decision.result)
    }

    /// Stores what another ledger granted, replacing whatever is here.
    pub(crate) fn put_grant(&self, request: &ClaimRequest, grant: &Grant) -> Result<()> {
        self.apply_to_claim(request.key.index(), |_, now| {
            let Decision { change, .. } = rules::claim(None, request, now);
            let change = match change {
                Change::Put(record) => {
                    Change::Put(Record { token: grant.token, attempt: grant.attempt, ..record })
                }
                other @ (Change::Keep | Change::Remove) => other,
            };
            Decision { result: (), change }
        })
    }

    /// Stores a record of another ledger, replacing whatever is here.
    pub(crate) fn put_record(&self, record: Record) -> Result<()> {
        self.apply_to_claim(record.key.index(), |_, _| Decision { result: (), change: Change::Put(record) })
    }

    /// Stores what another ledger reported as new, replacing whatever is here.
    pub(crate) fn put_mark(&self, request: &mark::Request) -> Result<()> {
        self.apply_to_mark(request.key.index(), |_, now| rules::mark(None, request, now)).map(drop)
    }

    /// Reserves room for one more record, unless it replaces one. If the ledger is full, removes expired records of
    /// this shard.
    fn make_room(&self, shard: &mut Shard, replaces: bool, now: Timestamp) -> Result<()> {
        if replaces || self.live.fetch_add(1, Ordering::Relaxed) < self.bound {
            return Ok(());
        }
        let mut swept = shard.sweep(now, SWEEP_CHUNK);
        while swept.removed == 0 && swept.more {
            swept = shard.sweep(now, SWEEP_CHUNK);
        }
        self.live.fetch_sub(count(swept), Ordering::Relaxed);
        if swept.removed > 0 {
            return Ok(());
        }
        self.live.fetch_sub(1, Ordering::Relaxed);
        Err(Error::new(Kind::Full { bound: self.bound }, "writing to the memory ledger"))
    }
}

fn count(swept: Swept) -> usize {
    usize::try_from(swept.removed).unwrap_or(usize::MAX)
}

impl StoredClaim {
    fn record(&self) -> &Record {
        &self.record
    }
}

impl Shard {
    fn put_claim(&mut self, index: Index, record: Record, now: Timestamp) {
        let end = record.expires_at();
        let sweep_at = match self.claims.entry(index) {
            Entry::Vacant(entry) => {
                let sweep_at = end.min(now + record.retention_ms);
                entry.insert(StoredClaim { record: Box::new(record), sweep_at });
                sweep_at
            }
            Entry::Occupied(entry) => {
                let stored = entry.into_mut();
                if stored.record.phase(now) == (Phase::Expired { in_doubt: true }) {
                    crate::backend::warn_doubt_expired(&stored.record);
                }
                *stored.record = record;
                if stored.sweep_at <= end {
                    return;
                }
                stored.sweep_at = end;
                end
            }
        };
        self.schedule_sweep(sweep_at, index, false);
    }

    fn put_mark(&mut self, index: Index, record: mark::Record) {
        let sweep_at = record.expires_at;
        self.marks.insert(index, record);
        self.schedule_sweep(sweep_at, index, true);
    }

    fn schedule_sweep(&mut self, sweep_at: Timestamp, index: Index, is_mark: bool) {
        // Claims that are made and released leave their entries behind.
        if self.sweep_queue.len() >= 2 * (self.claims.len() + self.marks.len()) + SWEEP_CHUNK {
            let (claims, marks) = (&self.claims, &self.marks);
            self.sweep_queue.retain(|Reverse((sweep_at, index, is_mark))| match is_mark {
                true => marks.get(index).is_some_and(|mark| mark.expires_at == *sweep_at),
                false => claims.get(index).is_some_and(|stored| stored.sweep_at == *sweep_at),
            });
        }
        self.sweep_queue.push(Reverse((sweep_at, index, is_mark)));
    }

    /// Removes at most `limit` expired records. `more` is set if there may be others.
    fn sweep(&mut self, now: Timestamp, limit: usize) -> Swept {
        let mut swept = Swept::default();
        for visited in 0.. {
            let Some(&Reverse((sweep_at, index, is_mark))) =
                self.sweep_queue.peek().filter(|due| due.0.0 <= now)
            else {
                break;
            };
            if visited == SWEEP_VISITS || count(swept) == limit {
                swept.more = true;
                break;
            }
            self.sweep_queue.pop();
            if is_mark {
                if self.marks.get(&index).is_some_and(|mark| mark.expires_at == sweep_at) {
                    self.marks.remove(&index);
                    swept.removed += 1;
                }
                continue;
            }
            let Some(stored) = self.claims.get_mut(&index).filter(|stored| stored.sweep_at == sweep_at)
            else {
                continue;
            };
            let end = stored.record.expires_at();
            if now < end {
                stored.sweep_at = end;
                self.sweep_queue.push(Reverse((end, index, false)));
                continue;
            }
            if stored.record.phase(now) == (Phase::Expired { in_doubt: true }) {
                swept.doubts_ended += 1;
                crate::backend::warn_doubt_expired(&stored.record);
            }
            self.claims.remove(&index);
            swept.removed += 1;
        }
        swept
    }
}

#[async_trait]
impl Backend for Memory {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "memory",
            reach: Reach::Process,
            survives: Vec::new(),
            expiry: Expiry::Exact,
            fencing: Fencing::Unique,
            listing: Listing::Indexed,
            clock: StoreClock::Own,
            outcome_bytes: ichido_core::Limits::STANDARD.outcome_bytes,
        }
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        self.apply_to_claim(request.key.index(), |current, now| rules::claim(current, request, now))
    }

    async fn settle(&self, key: &Key, token: Token, action: &Settle) -> Result<Settled> {
        self.apply_to_claim(key.index(), |current, now| rules::settle(current, token, action, now))
    }

    async fn mark(&self, requests: &[mark::Request]) -> Result<Vec<Mark>> {
        let mark = |request: &mark::Request| {
            self.apply_to_mark(request.key.index(), |current, now| rules::mark(current, request, now))
        };
        requests.iter().map(mark).collect()
    }

    async fn adopt(&self, record: &Record) -> Result<Adopted> {
        self.apply_to_claim(record.key.index(), |current, now| rules::adopt(current, record, now))
    }
}

#[async_trait]
impl Maintain for Memory {
    async fn init(&self) -> Result<()> {
        Ok(())
    }

    async fn check(&self) -> Result<Vec<String>> {
        Ok(vec!["memory: loses everything when the process ends; use it for tests and demos only".to_owned()])
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>> {
        let now = self.time.now();
        let shard = self.shard(key.index());
        Ok(shard
            .claims
            .get(&key.index())
            .map(StoredClaim::record)
            .filter(|record| now < record.expires_at())
            .cloned())
    }

    async fn list(&self, query: &Query) -> Result<Page> {
        let now = self.time.now();
        let mut claims = Vec::new();
        for number in 0..SHARDS {
            let shard = self.lock(number);
            let summaries = shard.claims.values().filter_map(|stored| Summary::of(&stored.record, now));
            claims.extend(summaries.filter(|summary| {
                query.wants(summary) && query.cursor.as_ref().is_none_or(|cursor| summary.index > *cursor)
            }));
        }
        claims.sort_unstable_by(|a, b| a.index.cmp(&b.index));
        let more = claims.len() > query.limit;
        claims.truncate(query.limit);
        let cursor = claims.last().filter(|_| more).map(|last| last.index.clone());
        Ok(Page { claims, cursor, ..Page::default() })
    }

    async fn resolve(&self, key: &Key, resolution: &Resolution) -> Result<Resolved> {
        self.apply_to_claim(key.index(), |current, now| rules::resolve(current, resolution, now))
    }

    async fn get_mark(&self, key: &MarkKey) -> Result<Option<mark::Record>> {
        let now = self.time.now();
        let shard = self.shard(key.index());
        Ok(shard.marks.get(&key.index()).filter(|mark| now < mark.expires_at).cloned())
    }

    async fn list_marks(&self, query: &MarkQuery) -> Result<MarkPage> {
        let now = self.time.now();
        let mut marks = Vec::new();
        for number in 0..SHARDS {
            let shard = self.lock(number);
            let wanted = shard.marks.values().filter_map(|mark| query.select(mark, now));
            let cursor = query.cursor.as_ref();
            marks.extend(wanted.filter(|mark| cursor.is_none_or(|cursor| mark.index > *cursor)));
        }
        marks.sort_unstable_by(|a, b| a.index.cmp(&b.index));
        let more = marks.len() > query.limit;
        marks.truncate(query.limit);
        let cursor = marks.last().filter(|_| more).map(|last| last.index.clone());
        Ok(MarkPage { marks, cursor, ..MarkPage::default() })
    }

    async fn forget_mark(&self, seen: &mark::Record) -> Result<Forgotten> {
        self.apply_to_mark(seen.key.index(), |current, now| rules::forget_mark(current, seen.nonce, now))
    }

    async fn erase_mark(&self, seen: &mark::Record) -> Result<Erased> {
        self.apply_to_mark(seen.key.index(), |current, now| rules::erase_mark(current, seen.nonce, now))
    }

    async fn sweep(&self, limit: usize) -> Result<Swept> {
        let mut total = Swept::default();
        for number in 0..SHARDS {
            loop {
                let left = limit.saturating_sub(count(total));
                let swept = self.lock(number).sweep(self.time.now(), left.min(SWEEP_CHUNK));
                self.live.fetch_sub(count(swept), Ordering::Relaxed);
                total.removed += swept.removed;
                total.doubts_ended += swept.doubts_ended;
                total.more |= swept.more && count(total) >= limit;
                if !swept.more || total.more {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        Ok(total)
    }

    async fn stats(&self) -> Result<Stats> {
        let now = self.time.now();
        let (mut running, mut in_doubt, mut done, mut marks) = (0, 0, 0, 0);
        for number in 0..SHARDS {
            let shard = self.lock(number);
            for stored in shard.claims.values() {
                match stored.record.phase(now) {
                    Phase::Running { .. } => running += 1,
                    Phase::InDoubt(_) => in_doubt += 1,
                    Phase::Done(_) => done += 1,
                    Phase::Expired { .. } => {}
                }
            }
            marks += shard.marks.values().filter(|mark| now < mark.expires_at).count() as u64;
        }
        Ok(Stats {
            running: Some(running),
            in_doubt: Some(in_doubt),
            done: Some(done),
            marks: Some(marks),
            fallback: None,
        })
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl LocalBackend for Memory {
    async fn marks(&self) -> Result<Vec<mark::Record>> {
        let now = self.time.now();
        let mut marks = Vec::new();
        for number in 0..SHARDS {
            let shard = self.lock(number);
            marks.extend(shard.marks.values().filter(|mark| now < mark.expires_at).cloned());
        }
        Ok(marks)
    }

    async fn remove(&self, claims: &[(Index, Token)], marks: &[(Index, Nonce)]) -> Result<()> {
        for (index, token) in claims {
            self.apply_to_claim(*index, |current, _| {
                let is_same = current.is_some_and(|record| record.token == *token);
                Decision { result: (), change: if is_same { Change::Remove } else { Change::Keep } }
            })?;
        }
        for (index, nonce) in marks {
            self.apply_to_mark(*index, |current, _| {
                let is_same = current.is_some_and(|mark| mark.nonce == *nonce);
                Decision { result: (), change: if is_same { Change::Remove } else { Change::Keep } }
            })?;
        }
        Ok(())
    }

    fn now(&self) -> Timestamp {
        self.time.now()
    }
}
