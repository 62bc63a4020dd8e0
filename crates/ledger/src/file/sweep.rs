//! Forgetting: small bites inside the group commits, so that claims go on.
//!
//! `ends` is ordered by time. A sweep walks it from where the last one stopped (not from its beginning, where the
//! engine would wade through what was removed before) up to the present. A member of `ends` is a hint only: the
//! record itself says whether it is over, because its key may have been claimed anew.
//!
//! Looking takes far longer than removing. So a thread of its own looks, and hands the writer one bite at a time, as a
//! call among others: what was seen to be over, and when that was. The writer looks again only at what was written
//! since. The next bite is looked for once the last one is durable; claims never wait for more than one.
//!
//! Doubt is not in `ends`: fresh claims and those in `open` are looked through, which are few.

use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError, TryLockError};

use fjall::Slice;
use ichido_core::{Index, Phase, Record, Timestamp};
use tokio::sync::oneshot;

use super::codec::{self, Kind};
use super::engine::{Engine, guarded};
use super::fault;
use super::queue::{Call, Reply};
use super::shared::Shared;
use super::view::View;
use crate::{Error, Result, Swept};

/// Records that are looked at for one group commit, about.
const BITE: usize = 256;

/// What is over is left to those who sweep by hand for so long; then the ledger takes it by itself.
pub(super) const GRACE_MS: u64 = 600_000;

/// Claims in doubt that the ledger takes by itself at once.
const DOUBTS_MAX: usize = 100_000;

/// What one group commit is to forget.
#[derive(Debug)]
pub(super) struct Bite {
    /// The generation at which it was looked for.
    pub(super) seen: u64,
    pub(super) over: Vec<Over>,
    /// Values of `ends` that are spent, or left with fewer members.
    pub(super) spent: Vec<(Slice, Vec<u8>)>,
    /// Up to where `ends` is empty once this is committed.
    pub(super) swept_to: Timestamp,
}

/// A record that was seen to be over.
#[derive(Clone, Copy, Debug)]
pub(super) enum Over {
    Done { index: Index, apart: bool },
    Mark(Index),
    Doubt(Index),
}

/// Sweeps in a thread of its own, after the sweeps before it. Stops if nobody waits for the answer any more.
pub(super) fn start(shared: Arc<Shared>, limit: usize, reply: Reply<Swept>) -> std::io::Result<()> {
    let work = move || {
        let turn = shared.sweeping.lock().unwrap_or_else(PoisonError::into_inner);
        let sweep = Sweep { shared: &shared, grace_ms: 0, left: limit, swept: Swept::default() };
        let stop = || reply.is_closed() || shared.queue.is_closed();
        let swept = sweep.run(Some(limit), stop);
        drop(turn);
        drop(reply.send(swept));
    };
    spawn(work)
}

/// Sweeps for the ledger itself, unless a sweep is under way.
pub(super) fn start_own(shared: Arc<Shared>, doubts: bool) {
    let work = move || {
        let Some(_turn) = turn(&shared) else { return };
        let sweep = Sweep { shared: &shared, grace_ms: GRACE_MS, left: usize::MAX, swept: Swept::default() };
        let doubts = doubts.then_some(DOUBTS_MAX);
        match sweep.run(doubts, || shared.queue.is_closed()) {
            Ok(_) => {}
            // The ledger was closed under it, and the next opening goes on.
            Err(_) if shared.queue.is_closed() => {}
            Err(error) => tracing::warn!(%error, "sweeping failed"),
        }
    };
    if let Err(error) = spawn(work) {
        tracing::warn!(%error, "sweeping failed");
    }
}

/// Whether a sweep is under way.
pub(super) fn is_busy(shared: &Shared) -> bool {
    turn(shared).is_none()
}

fn turn(shared: &Shared) -> Option<MutexGuard<'_, ()>> {
    match shared.sweeping.try_lock() {
        Ok(turn) => Some(turn),
        Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name("ichido:sweep".to_owned()).spawn(work).map(drop)
}

/// A sweep that is under way.
struct Sweep<'a> {
    shared: &'a Shared,
    grace_ms: u64,
    left: usize,
    swept: Swept,
}

impl Sweep<'_> {
    fn run(mut self, doubts: Option<usize>, stop: impl Fn() -> bool) -> Result<Swept> {
        self.sweep_ends(&stop)?;
        if let Some(limit) = doubts.filter(|_| !self.swept.more && !stop()) {
            self.sweep_doubts(limit, &stop)?;
        }
        Ok(self.swept)
    }

    fn sweep_ends(&mut self, stop: &impl Fn() -> bool) -> Result<()> {
        let last = self.engine()?.last_commit(&self.shared.dir)?.unwrap_or_default();
        let mut walked = Walked {
            from: Bound::Included(codec::end_key(last.swept_to, 0, 0).to_vec()),
            swept_to: last.swept_to,
            at_end: false,
        };
        while !walked.at_end && !self.swept.more && !stop() {
            let bite = self.look_at_ends(&mut walked)?;
            self.commit(bite)?;
        }
        Ok(())
    }

    fn look_at_ends(&mut self, walked: &mut Walked) -> Result<Bite> {
        let now = self.shared.time.now();
        // Noted before the look, and after the time: an end that is committed later and missed here shows itself.
        let mut bite = self.bite();
        let engine = self.engine()?;
        let view = self.shared.view(&engine);
        let until = Timestamp(now.0.saturating_sub(self.grace_ms));
        let to = codec::end_key((until + 1).max(walked.swept_to), 0, 0).to_vec();
        let mut seen = 0;
        for guard in engine.ends.range((walked.from.clone(), Bound::Excluded(to))) {
            if self.left == 0 {
                self.swept.more = true;
            }
            if seen >= BITE || self.swept.more {
                bite.swept_to = walked.swept_to;
                return Ok(bite);
            }
            let (key, value) = guarded(view.dir, || guard.into_inner())?;
            let flaw = |flaw| fault::flaw(view.dir, "ends", flaw);
            let members = codec::decode_ends(&value).map_err(flaw)?;
            walked.swept_to = codec::end_of(&key).map_err(flaw)?;
            walked.from = Bound::Excluded(key.to_vec());
            let mut rest = Vec::new();
            for &(kind, index) in &members {
                if self.left == 0 {
                    codec::push_end(&mut rest, kind, index);
                } else if let Some(over) = over(view, kind, index, now)? {
                    bite.over.push(over);
                    self.left -= 1;
                }
            }
            self.swept.more |= !rest.is_empty();
            bite.spent.push((key, rest));
            seen += members.len();
        }
        walked.at_end = true;
        bite.swept_to = if self.swept.more { walked.swept_to } else { until.max(walked.swept_to) };
        Ok(bite)
    }

    fn sweep_doubts(&mut self, limit: usize, stop: &impl Fn() -> bool) -> Result<()> {
        let engine = self.engine()?;
        let view = self.shared.view(&engine);
        let limit = limit.min(self.left);
        let (found, more) = find_doubts(view, self.shared.time.now(), self.grace_ms, limit, stop)?;
        drop(engine);
        self.swept.more |= more;
        for some in found.chunks(BITE) {
            if stop() {
                break;
            }
            let over = some.iter().copied().map(Over::Doubt).collect();
            self.commit(Bite { over, ..self.bite() })?;
        }
        Ok(())
    }

    fn bite(&self) -> Bite {
        let seen = self.shared.published.load(Ordering::Acquire);
        Bite { seen, over: Vec::new(), spent: Vec::new(), swept_to: Timestamp::default() }
    }

    /// Waits until the bite is durable. No engine is held meanwhile: the writer may have to close it.
    fn commit(&mut self, bite: Bite) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        self.shared.queue.push_blocking(Call::Sweep { bite, reply })?;
        let broke_off = |_| Err(unavailable());
        let swept = answer.blocking_recv().unwrap_or_else(broke_off)?;
        self.swept.removed += swept.removed;
        self.swept.doubts_ended += swept.doubts_ended;
        Ok(())
    }

    fn engine(&self) -> Result<Arc<Engine>> {
        self.shared.engine().ok_or_else(unavailable)
    }
}

/// How far a sweep has walked through `ends`.
struct Walked {
    from: Bound<Vec<u8>>,
    swept_to: Timestamp,
    at_end: bool,
}

fn unavailable() -> Error {
    Error::new(crate::Kind::Unavailable, "sweeping the file ledger")
}

fn over(view: View<'_>, kind: Kind, index: Index, now: Timestamp) -> Result<Option<Over>> {
    Ok(match kind {
        Kind::Claim => {
            let over = view.done_claim(&index)?.filter(|stored| now >= stored.record.expires_at());
            over.map(|stored| Over::Done { index, apart: stored.outcome_bytes.is_some() })
        }
        Kind::Mark => view.mark(&index)?.filter(|mark| now >= mark.expires_at).map(|_| Over::Mark(index)),
    })
}

/// Looks for at most `limit` claims whose doubt has been over for `grace_ms`, until told to stop; and whether there are
/// more.
fn find_doubts(
    view: View<'_>,
    now: Timestamp,
    grace_ms: u64,
    limit: usize,
    stop: impl Fn() -> bool,
) -> Result<(Vec<Index>, bool)> {
    let is_over = |record: &Record| {
        record.phase(now) == (Phase::Expired { in_doubt: true }) && now >= record.expires_at() + grace_ms
    };
    let fresh = view.engine.fresh.sorted(|_, granted| is_over(&granted.record));
    let mut found: Vec<Index> = fresh.into_iter().map(|(index, _)| index).collect();
    for guard in view.engine.open.iter() {
        let (key, value) = guarded(view.dir, || guard.into_inner())?;
        let record = view.revived(&key, &value)?;
        if is_over(&record) {
            found.push(record.key.index());
        }
        if found.len() > limit {
            break;
        }
        if stop() {
            break;
        }
    }
    let more = found.len() > limit;
    found.truncate(limit);
    Ok((found, more))
}

/// Whether something in `ends` waits for the ledger's own sweep.
pub(super) fn is_due(view: View<'_>, swept_to: Timestamp, now: Timestamp) -> bool {
    let until = Timestamp(now.0.saturating_sub(GRACE_MS));
    let due = codec::end_key(swept_to, 0, 0)..codec::end_key((until + 1).max(swept_to), 0, 0);
    swept_to <= until && view.engine.ends.range(due).next().is_some()
}
