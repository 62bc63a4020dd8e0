//! Lists and counts what is stored.
//!
//! Records are listed in the order of their tags. A record keeps its tag when it moves, so a cursor stays valid.

use ichido_core::{Phase, Timestamp, mark};

use crate::log::{Location, RecordKind, View, decode_claim, decode_mark};
use crate::{Error, Kind, Page, Query, Result, StateName, Stats, Summary};

/// Records that are read for one page. A page may be short and still have a cursor.
const PAGE_READS: usize = 10_000;
/// Up to this many records are counted one by one. Beyond it, expired records that are still stored are counted too.
const COUNTED_MAX: u64 = 100_000;

/// Which records a page lists, from which tag on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cursor {
    Open(u64),
    Done(u64),
}

impl Cursor {
    fn parse(query: &Query) -> Result<Self> {
        let Some(text) = &query.cursor else {
            return Ok(match query.state {
                Some(StateName::Done) => Cursor::Done(0),
                Some(StateName::Running | StateName::InDoubt) | None => Cursor::Open(0),
            });
        };
        let tag = |digits| u64::from_str_radix(digits, 16).ok();
        let parsed = match text.split_once('.') {
            Some(("open", digits)) => tag(digits).map(Cursor::Open),
            Some(("done", digits)) => tag(digits).map(Cursor::Done),
            Some(_) | None => None,
        };
        parsed.ok_or_else(|| {
            Error::new(Kind::Settings("the cursor is not from this ledger".to_owned()), "listing claims")
        })
    }

    fn text(self) -> String {
        match self {
            Cursor::Open(tag) => format!("open.{tag:016x}"),
            Cursor::Done(tag) => format!("done.{tag:016x}"),
        }
    }
}

/// One page of claims: open ones first.
pub(super) fn list(view: &View, query: &Query, now: Timestamp) -> Result<Page> {
    let mut page = Page::default();
    let mut reads = 0;
    let mut cursor = Cursor::parse(query)?;
    if let Cursor::Open(from) = cursor {
        let next = |from| view.index.open_from(from);
        if let Some(next) = fill(view, query, now, from, &mut page, &mut reads, next)? {
            page.cursor = Some(Cursor::Open(next).text());
            return Ok(page);
        }
        if query.state.is_some() {
            return Ok(page);
        }
        cursor = Cursor::Done(0);
    }
    if let Cursor::Done(from) = cursor {
        let next = |from| done_from(view, from);
        let stopped = fill(view, query, now, from, &mut page, &mut reads, next)?;
        page.cursor = stopped.map(|next| Cursor::Done(next).text());
    }
    Ok(page)
}

/// The next completed claims from this tag on.
fn done_from(view: &View, from: u64) -> Vec<(u64, Location)> {
    let mut from = Some(from);
    while let Some(start) = from {
        let entries = view.index.entries_from(start);
        let Some((last, _)) = entries.last() else { return Vec::new() };
        from = last.checked_add(1);
        let is_done = |kind| matches!(kind, RecordKind::Done | RecordKind::Large);
        let found: Vec<_> = entries.into_iter().filter(|(_, location)| is_done(location.kind)).collect();
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

/// Adds claims to a page. Returns the tag to continue from, if the page ended before the list did.
fn fill(
    view: &View,
    query: &Query,
    now: Timestamp,
    from: u64,
    page: &mut Page,
    reads: &mut usize,
    next: impl Fn(u64) -> Vec<(u64, Location)>,
) -> Result<Option<u64>> {
    let mut from = Some(from);
    while let Some(start) = from {
        let entries = next(start);
        from = entries.last().and_then(|(tag, _)| tag.checked_add(1));
        let mut last = None;
        for (tag, location) in entries {
            // The records of one tag are never on two pages.
            let is_full = page.claims.len() >= query.limit || *reads >= PAGE_READS;
            if is_full && last != Some(tag) {
                return Ok(Some(tag));
            }
            last = Some(tag);
            *reads += 1;
            let summary = summary(view, tag, location, now)?;
            page.claims.extend(summary.filter(|summary| query.wants(summary)));
        }
    }
    Ok(None)
}

fn summary(view: &View, tag: u64, location: Location, now: Timestamp) -> Result<Option<Summary>> {
    let Some((_, body)) = view.entry(tag, location)? else { return Ok(None) };
    let damaged = |flaw| view.damaged(location, flaw);
    let stored = decode_claim(&body).map_err(damaged)?;
    let outcome_bytes = stored.outcome_file.map(|file| file.length as usize);
    let Some(record) = view.revived(stored, false).map_err(|reason| view.unreadable(location, reason))?
    else {
        return Ok(None);
    };
    let mut summary = Summary::of(&record, now);
    if let (Some(summary), Some(bytes)) = (&mut summary, outcome_bytes) {
        summary.outcome_bytes = Some(bytes);
    }
    Ok(summary)
}

/// All marks that have not expired.
pub(super) fn marks(view: &View, now: Timestamp) -> Result<Vec<mark::Record>> {
    let mut marks = Vec::new();
    for_each(view, |tag, location| {
        if location.kind != RecordKind::Mark {
            return Ok(());
        }
        if let Some((_, body)) = view.entry(tag, location)? {
            let mark = decode_mark(&body).map_err(|flaw| view.damaged(location, flaw))?;
            marks.extend(Some(mark).filter(|mark| now < mark.expires_at));
        }
        Ok(())
    })?;
    Ok(marks)
}

/// Counts claims and marks.
pub(super) fn stats(view: &View, now: Timestamp) -> Result<Stats> {
    let counts = view.index.counts();
    let is_counted = counts.done + counts.marks <= COUNTED_MAX;
    let (mut running, mut in_doubt) = (0, 0);
    let (mut done, mut marks) = (0, 0);
    let mut count = |tag, location: Location| -> Result<()> {
        let Some((header, body)) = view.entry(tag, location)? else { return Ok(()) };
        match location.kind {
            RecordKind::Open => {
                let damaged = |flaw| view.damaged(location, flaw);
                let record = view.revived(decode_claim(&body).map_err(damaged)?, false);
                let record = record.map_err(|reason| view.unreadable(location, reason))?;
                match record.as_ref().map(|record| record.phase(now)) {
                    Some(Phase::Running { .. }) => running += 1,
                    Some(Phase::InDoubt(_)) => in_doubt += 1,
                    Some(Phase::Done(_) | Phase::Expired { .. }) | None => {}
                }
            }
            RecordKind::Done | RecordKind::Large => done += u64::from(now < header.expires_at),
            RecordKind::Mark => marks += u64::from(now < header.expires_at),
            RecordKind::Removed | RecordKind::State => {}
        }
        Ok(())
    };
    if is_counted {
        for_each(view, &mut count)?;
    } else {
        let mut entries = view.index.open_from(0);
        while let Some((last, _)) = entries.last().copied() {
            for (tag, location) in entries {
                count(tag, location)?;
            }
            entries = last.checked_add(1).map_or_else(Vec::new, |next| view.index.open_from(next));
        }
        (done, marks) = (counts.done, counts.marks);
    }
    let [running, in_doubt, done, marks] = [running, in_doubt, done, marks].map(Some);
    Ok(Stats { running, in_doubt, done, marks, fallback: None })
}

fn for_each(view: &View, mut visit: impl FnMut(u64, Location) -> Result<()>) -> Result<()> {
    let mut from = Some(0);
    while let Some(start) = from {
        let entries = view.index.entries_from(start);
        from = entries.last().and_then(|(tag, _)| tag.checked_add(1));
        for (tag, location) in entries {
            visit(tag, location)?;
        }
    }
    Ok(())
}
