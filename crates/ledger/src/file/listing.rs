//! Lists and counts what is stored.
//!
//! Records are listed in the order of their tags. A record keeps its tag when it moves, so a cursor stays valid.

use ichido_core::{Phase, Timestamp, mark};

use crate::log::{Location, RecordKind, View, decode_claim, decode_mark};
use crate::{Error, Kind, MarkPage, MarkQuery, Page, Query, Result, StateName, Stats, Summary};

/// Records that are read for one page. A page may be short and still have a cursor.
const PAGE_READS: usize = 10_000;
/// Up to this many records are counted one by one. Beyond it, expired records that are still stored are counted too.
const COUNTED_MAX: u64 = 100_000;

/// Which records a page lists, from which tag on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cursor {
    Open(u64),
    Done(u64),
    Mark(u64),
}

impl Cursor {
    fn parse(text: &str, doing: &'static str) -> Result<Self> {
        let tag = |digits| u64::from_str_radix(digits, 16).ok();
        let parsed = match text.split_once('.') {
            Some(("open", digits)) => tag(digits).map(Cursor::Open),
            Some(("done", digits)) => tag(digits).map(Cursor::Done),
            Some(("mark", digits)) => tag(digits).map(Cursor::Mark),
            Some(_) | None => None,
        };
        parsed.ok_or_else(|| invalid_cursor(doing))
    }

    fn text(self) -> String {
        match self {
            Cursor::Open(tag) => format!("open.{tag:016x}"),
            Cursor::Done(tag) => format!("done.{tag:016x}"),
            Cursor::Mark(tag) => format!("mark.{tag:016x}"),
        }
    }
}

fn invalid_cursor(doing: &'static str) -> Error {
    Error::new(Kind::Settings("the cursor is not from this ledger".to_owned()), doing)
}

/// One page of claims: open ones first.
pub(super) fn list(view: &View, query: &Query, now: Timestamp) -> Result<Page> {
    const DOING: &str = "listing claims";
    let mut filling = Filling { items: Vec::new(), limit: query.limit, reads: 0 };
    let read = |tag, at| Ok(summary(view, tag, at, now)?.filter(|summary| query.wants(summary)));
    let start = match (&query.cursor, query.state) {
        (Some(text), _) => Cursor::parse(text, DOING)?,
        (None, Some(StateName::Done)) => Cursor::Done(0),
        (None, Some(StateName::Running | StateName::InDoubt) | None) => Cursor::Open(0),
    };
    let (open, done) = match start {
        Cursor::Open(from) => (Some(from), query.state.is_none().then_some(0)),
        Cursor::Done(from) => (None, Some(from)),
        Cursor::Mark(_) => return Err(invalid_cursor(DOING)),
    };
    let mut cursor = None;
    if let Some(from) = open {
        cursor = filling.fill(from, |from| view.index.open_from(from), read)?.map(Cursor::Open);
    }
    if let (None, Some(from)) = (cursor, done) {
        let is_done = |kind| matches!(kind, RecordKind::Done | RecordKind::Large);
        cursor = filling.fill(from, |from| kind_from(view, from, is_done), read)?.map(Cursor::Done);
    }
    Ok(Page { claims: filling.items, cursor: cursor.map(Cursor::text), ..Page::default() })
}

/// One page of marks.
pub(super) fn list_marks(view: &View, query: &MarkQuery, now: Timestamp) -> Result<MarkPage> {
    const DOING: &str = "listing marks";
    let from = match query.cursor.as_deref().map(|text| Cursor::parse(text, DOING)).transpose()? {
        None => 0,
        Some(Cursor::Mark(from)) => from,
        Some(Cursor::Open(_) | Cursor::Done(_)) => return Err(invalid_cursor(DOING)),
    };
    let mut filling = Filling { items: Vec::new(), limit: query.limit, reads: 0 };
    let is_mark = |kind| kind == RecordKind::Mark;
    let read = |tag, at| Ok(mark(view, tag, at)?.and_then(|mark| query.select(&mark, now)));
    let cursor = filling.fill(from, |from| kind_from(view, from, is_mark), read)?.map(Cursor::Mark);
    Ok(MarkPage { marks: filling.items, cursor: cursor.map(Cursor::text), ..MarkPage::default() })
}

/// The next records of a kind from this tag on.
fn kind_from(view: &View, from: u64, is_wanted: impl Fn(RecordKind) -> bool) -> Vec<(u64, Location)> {
    let mut from = Some(from);
    while let Some(start) = from {
        let entries = view.index.entries_from(start);
        let Some((last, _)) = entries.last() else { return Vec::new() };
        from = last.checked_add(1);
        let found: Vec<_> = entries.into_iter().filter(|(_, location)| is_wanted(location.kind)).collect();
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

/// A page that is being filled.
struct Filling<T> {
    items: Vec<T>,
    limit: usize,
    /// Records that were read.
    reads: usize,
}

impl<T> Filling<T> {
    /// Adds records to the page. Returns the tag to continue from, if the page ended before the list did.
    fn fill(
        &mut self,
        from: u64,
        next: impl Fn(u64) -> Vec<(u64, Location)>,
        read: impl Fn(u64, Location) -> Result<Option<T>>,
    ) -> Result<Option<u64>> {
        let mut from = Some(from);
        while let Some(start) = from {
            let entries = next(start);
            from = entries.last().and_then(|(tag, _)| tag.checked_add(1));
            let mut last = None;
            for (tag, location) in entries {
                // The records of one tag are never on two pages.
                let is_full = self.items.len() >= self.limit || self.reads >= PAGE_READS;
                if is_full && last != Some(tag) {
                    return Ok(Some(tag));
                }
                last = Some(tag);
                self.reads += 1;
                self.items.extend(read(tag, location)?);
            }
        }
        Ok(None)
    }
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
        marks.extend(mark(view, tag, location)?.filter(|mark| now < mark.expires_at));
        Ok(())
    })?;
    Ok(marks)
}

fn mark(view: &View, tag: u64, location: Location) -> Result<Option<mark::Record>> {
    let Some((_, body)) = view.entry(tag, location)? else { return Ok(None) };
    decode_mark(&body).map(Some).map_err(|flaw| view.damaged(location, flaw))
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
