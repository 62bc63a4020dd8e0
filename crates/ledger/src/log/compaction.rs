//! Decides which segments are dropped, and what must be copied before.
//!
//! Segments are dropped from the old end only: an expired completion must not disappear before the grant that it replaced. A
//! segment is dropped when all of its records have expired or were replaced. A few survivors (a claim in doubt, a long
//! retention) do not hold it up: they are copied to the end of the log, a little at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ichido_core::{Index, Record, Timestamp};

use super::codec;
use super::format::{Location, RecordHeader, RecordKind, RecordRef, whole_body};
use super::options::PlantedBug;
use super::reader::Flaw;
use super::scan;
use super::segment::Segment;
use super::view::View;
use crate::Result;

/// Records that are copied in one commit.
const MOVE_RECORDS: usize = 256;
/// Bytes that are copied in one commit, about.
const MOVE_BYTES: usize = 64 * 1024;
/// With fewer segments than this, space is not worth copying for.
const SEGMENTS_MIN: usize = 8;

/// A record that is copied to the end of the log.
#[derive(Debug)]
pub(crate) struct Move {
    pub(crate) index: Index,
    pub(crate) tag: u64,
    pub(crate) from: Location,
    pub(crate) expires_at: Timestamp,
    pub(crate) body: Vec<u8>,
}

/// A segment that is dropped.
#[derive(Debug)]
pub(crate) struct Drop {
    pub(crate) segment: u32,
    /// Expired records that the index still points to.
    pub(crate) expired: Vec<(u64, Location)>,
    /// Claims that expired in doubt.
    pub(crate) doubts: Vec<Record>,
    /// Files of large outcomes that go with the segment.
    pub(crate) outcome_files: Vec<String>,
}

/// How eagerly space is reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// When it is cheap: at most a quarter of a segment is copied.
    Normal,
    /// At most half of a segment is copied, for an operator who asked for a sweep.
    Sweep,
    /// Everything is copied.
    Compact,
}

/// The next step of reclaiming the oldest segment.
#[derive(Debug)]
pub(crate) enum Next {
    /// Nothing to do for now.
    Nothing,
    /// Copy these records, then ask again.
    Move(Vec<Move>),
    /// Drop this segment, then ask again.
    Drop(Drop),
}

/// Reclaims segments, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Compaction {
    moves: VecDeque<Move>,
    drop: Option<Drop>,
}

/// What is in a segment.
#[derive(Debug)]
struct Examined {
    survivors: Vec<Move>,
    drop: Drop,
}

impl Compaction {
    /// What to do next.
    pub(crate) fn next(&mut self, view: &View, now: Timestamp, effort: Effort) -> Result<Next> {
        if self.drop.is_none() {
            let Some(segment) = due(view, now, effort) else { return Ok(Next::Nothing) };
            let examined = examine(view, &segment, now)?;
            if !is_worthwhile(view, &segment, &examined, now, effort) {
                return Ok(Next::Nothing);
            }
            self.moves = examined.survivors.into();
            self.drop = Some(examined.drop);
        }
        if view.options.has(PlantedBug::DropTooEarly)
            && let Some(drop) = &mut self.drop
        {
            drop.expired.extend(self.moves.drain(..).map(|record| (record.tag, record.from)));
        }
        if self.moves.is_empty() {
            return Ok(self.drop.take().map_or(Next::Nothing, Next::Drop));
        }
        let mut bytes = 0;
        let count = self.moves.iter().take(MOVE_RECORDS).take_while(|record| {
            bytes += record.body.len();
            bytes < MOVE_BYTES
        });
        let count = count.count().max(1);
        Ok(Next::Move(self.moves.drain(..count).collect()))
    }
}

/// Whether so many records of the newest segment have expired that a sweep should start a new one.
pub(crate) fn is_worth_rotating(view: &View, now: Timestamp) -> Result<bool> {
    let Some(newest) = view.segments().pop() else { return Ok(false) };
    let examined = examine(view, &newest, now)?;
    let records = newest.records.load(Ordering::Acquire) as usize;
    Ok(!examined.drop.expired.is_empty() && examined.survivors.len() * 2 <= records)
}

/// The oldest segment, if it may be worth reclaiming. The newest one never is.
fn due(view: &View, now: Timestamp, effort: Effort) -> Option<Arc<Segment>> {
    let segments = view.segments();
    let (_newest, full) = segments.split_last()?;
    let oldest = match view.options.has(PlantedBug::DropOutOfOrder) {
        true => full.last()?,
        false => full.first()?,
    };
    let is_due = effort != Effort::Normal || is_mostly_over(oldest, now) || is_wasteful(full, now);
    is_due.then(|| oldest.clone())
}

fn is_mostly_over(segment: &Segment, now: Timestamp) -> bool {
    let (records, live) = (segment.records.load(Ordering::Acquire), segment.live.load(Ordering::Acquire));
    now.0 >= segment.look_at.load(Ordering::Acquire) || u64::from(live) * 8 <= u64::from(records)
}

/// Whether more than half of all records are of no use, although the oldest segment is.
fn is_wasteful(full: &[Arc<Segment>], now: Timestamp) -> bool {
    let (mut records, mut live) = (0, 0);
    for segment in full {
        records += u64::from(segment.records.load(Ordering::Acquire));
        let still = u64::from(segment.live.load(Ordering::Acquire));
        live += if now.0 >= segment.look_at.load(Ordering::Acquire) { still / 8 } else { still };
    }
    full.len() >= SEGMENTS_MIN && live * 2 < records
}

/// Whether so little must be copied that the segment is reclaimed now. Otherwise notes when to look again.
fn is_worthwhile(
    view: &View,
    segment: &Segment,
    examined: &Examined,
    now: Timestamp,
    effort: Effort,
) -> bool {
    let records = segment.records.load(Ordering::Acquire) as usize;
    let survivors = examined.survivors.len();
    let is_cheap = match effort {
        Effort::Normal => survivors * 4 <= records,
        Effort::Sweep => survivors * 2 <= records && !examined.drop.expired.is_empty(),
        Effort::Compact => true,
    };
    let full = view.segments();
    if survivors == 0 || is_cheap || full.split_last().is_some_and(|(_, full)| is_wasteful(full, now)) {
        return true;
    }
    let mut times: Vec<_> = examined.survivors.iter().map(|record| record.expires_at.0).collect();
    let at = survivors.saturating_sub(records / 8).min(survivors - 1);
    let look_at = *times.select_nth_unstable(at).1;
    segment.look_at.store(look_at.max(now.0 + 1), Ordering::Release);
    false
}

/// Reads a whole segment: what must be kept, and what goes.
fn examine(view: &View, segment: &Segment, now: Timestamp) -> Result<Examined> {
    let drop =
        Drop { segment: segment.id, expired: Vec::new(), doubts: Vec::new(), outcome_files: Vec::new() };
    let mut examined = Examined { survivors: Vec::new(), drop };
    scan::each_record(view, segment, |bytes, record| examined.add(view, segment.id, bytes, record, now))?;
    Ok(examined)
}

impl Examined {
    fn add(
        &mut self,
        view: &View,
        segment: u32,
        segment_bytes: &[u8],
        record: &RecordRef<'_>,
        now: Timestamp,
    ) -> Result<()> {
        let RecordRef { header, offset, .. } = *record;
        let RecordHeader { kind, tag, expires_at, .. } = header;
        if !kind.is_indexed() {
            return Ok(());
        }
        let from = Location { segment, offset, kind };
        let damaged = |flaw| view.damaged(from, flaw);
        // Most records are expired, and need not be put together.
        let body = || whole_body(segment_bytes, segment, record, &view.checksums).map_err(damaged);
        let is_live = view.index.contains(tag, from);
        let is_expired = || view.is_expired(&header, record.body, now);
        if is_live && !is_expired().map_err(|reason| view.unreadable(from, reason))? {
            let body = body()?.into_owned();
            let index = index_of(kind, &body).map_err(damaged)?;
            self.survivors.push(Move { index, tag, from, expires_at, body });
            return Ok(());
        }
        if is_live {
            self.drop.expired.push((tag, from));
        }
        match kind {
            RecordKind::Open if is_live => {
                self.drop.doubts.push(codec::decode_claim(&body()?).map_err(damaged)?.record);
            }
            RecordKind::Large => {
                let file = codec::decode_claim(&body()?).map_err(damaged)?.outcome_file;
                // A copy of this record names the same file.
                if let Some(file) = file
                    && (is_live || !view.names_outcome_file(tag, file)?)
                {
                    self.drop.outcome_files.push(file.name());
                }
            }
            RecordKind::Open
            | RecordKind::Done
            | RecordKind::Mark
            | RecordKind::Removed
            | RecordKind::State => {}
        }
        Ok(())
    }
}

/// The key of a record.
fn index_of(kind: RecordKind, body: &[u8]) -> Result<Index, Flaw> {
    match kind {
        RecordKind::Mark => Ok(codec::decode_mark(body)?.key.index()),
        RecordKind::Open | RecordKind::Done | RecordKind::Large => {
            Ok(codec::decode_claim(body)?.record.key.index())
        }
        RecordKind::Removed | RecordKind::State => Err("it has no key"),
    }
}
