//! What operators do with a file ledger. Looking through the store is done off the async threads.

use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;

use async_trait::async_trait;
use fjall::Keyspace;
use ichido_core::{Index, Key, Nonce, Phase, Record, Resolution, Resolved, Timestamp, Token, mark};
use tokio::sync::oneshot;

use super::engine::{Engine, guarded};
use super::queue::Call;
use super::shared::Shared;
use super::view::{Found, View};
use super::{File, codec, fault, sweep};
use crate::{Error, Kind, LocalBackend, Maintain, Page, Query, Result, StateName, Stats, Summary, Swept};

/// Records that are looked at for one page; a page may be short and yet have a cursor.
const PAGE_LOOKS: usize = 10_000;
/// Up to so many records are counted one by one; beyond that the engine's estimate is given.
const COUNTED_MAX: usize = 100_000;
/// Less room than this on the disk is worth a warning.
const ROOM_BYTES: u64 = 512 * 1024 * 1024;

#[async_trait]
impl Maintain for File {
    /// Opening made the store; this finds it there.
    async fn init(&self) -> Result<()> {
        self.engine().map(drop)
    }

    async fn check(&self) -> Result<Vec<String>> {
        self.engine()?;
        let shared = self.shared.clone();
        off_thread(move || Ok(warnings(&shared))).await
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>> {
        let engine = self.engine()?;
        let view = self.shared.view(&engine);
        // A claim that is being removed looks odd for the moment that a commit takes.
        for _ in 0..10 {
            let record = match view.claim(&key.index())? {
                Found::Absent => return Ok(None),
                Found::Fresh(granted) => granted.record,
                Found::Open(record) | Found::Done { record, .. } => record,
                Found::Moving => {
                    tokio::task::yield_now().await;
                    continue;
                }
            };
            return Ok(Some(record).filter(|record| self.shared.time.now() < record.expires_at()));
        }
        Err(fault::flaw(&self.shared.dir, "outcomes", "it is missing"))
    }

    async fn list(&self, query: &Query) -> Result<Page> {
        let (engine, shared, query) = (self.engine()?, self.shared.clone(), query.clone());
        off_thread(move || list(&shared, &engine, &query)).await
    }

    async fn resolve(&self, key: &Key, word: &Resolution) -> Result<Resolved> {
        let (key, word) = (key.clone(), word.clone());
        self.ask(|reply| Call::Resolve { key, word, reply }).await
    }

    async fn sweep(&self, limit: usize) -> Result<Swept> {
        self.check_open()?;
        let (reply, answer) = oneshot::channel();
        sweep::start(self.shared.clone(), limit, reply)
            .map_err(|error| fault::io(&self.shared.dir, "sweeping", error))?;
        answer.await.unwrap_or_else(|_| Err(Error::new(Kind::Unavailable, "sweeping the file ledger")))
    }

    async fn stats(&self) -> Result<Stats> {
        let (engine, shared) = (self.engine()?, self.shared.clone());
        off_thread(move || stats(&shared, &engine)).await
    }

    async fn close(&self) -> Result<()> {
        self.shared.queue.close();
        // An error means that the writer is gone, which is what we wait for.
        self.ended.clone().wait_for(|ended| *ended).await.map(drop).or(Ok(()))
    }
}

#[async_trait]
impl LocalBackend for File {
    async fn marks(&self) -> Result<Vec<mark::Record>> {
        let (engine, shared) = (self.engine()?, self.shared.clone());
        off_thread(move || marks(&shared, &engine)).await
    }

    async fn remove(&self, claims: &[(Index, Token)], marks: &[(Index, Nonce)]) -> Result<()> {
        // The cache may go on answering with a removed outcome: it was true, and ends with its retention.
        let (claims, marks) = (claims.to_vec(), marks.to_vec());
        self.ask(|reply| Call::Remove { claims, marks, reply }).await
    }

    fn now(&self) -> Timestamp {
        self.shared.time.now()
    }
}

impl File {
    fn engine(&self) -> Result<Arc<Engine>> {
        self.check_open()?;
        self.shared.engine().ok_or_else(|| Error::new(Kind::Unavailable, "reading the file ledger"))
    }
}

async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(
        |error| Err(Error::new(Kind::Unavailable, "reading the file ledger").caused_by(error)),
    )
}

fn warnings(shared: &Shared) -> Vec<String> {
    let mut warnings = Vec::new();
    let dir = shared.dir.display();
    match rustix::fs::statvfs(&shared.dir) {
        Ok(room) if room.f_bavail.saturating_mul(room.f_frsize) < ROOM_BYTES => {
            let left = room.f_bavail.saturating_mul(room.f_frsize) / (1024 * 1024);
            warnings.push(format!("{dir}: only {left} MiB are left on the disk"));
        }
        Ok(_) => {}
        Err(error) => warnings.push(format!("{dir}: the room on the disk is unknown ({error})")),
    }
    match std::fs::metadata(&shared.dir) {
        Ok(found) if std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o077 != 0 => {
            warnings.push(format!("{dir}: others may enter the directory; its rights should be 0700"));
        }
        Ok(_) => {}
        Err(error) => warnings.push(format!("{dir}: {error}")),
    }
    warnings
}

/// Which keyspace a page walks, and from where.
#[derive(Clone, Copy)]
enum Cursor {
    Open(Option<Index>),
    Done(Option<Index>),
}

impl Cursor {
    fn parse(query: &Query) -> Result<Self> {
        let Some(text) = &query.cursor else {
            return Ok(match query.state {
                Some(StateName::Done) => Cursor::Done(None),
                Some(StateName::Running | StateName::InDoubt) | None => Cursor::Open(None),
            });
        };
        let parsed = match text.split_once('.') {
            Some(("open", index)) => index.parse().ok().map(|index| Cursor::Open(Some(index))),
            Some(("done", "")) => Some(Cursor::Done(None)),
            Some(("done", index)) => index.parse().ok().map(|index| Cursor::Done(Some(index))),
            Some(_) | None => None,
        };
        parsed.ok_or_else(|| {
            Error::new(Kind::Settings("the cursor is not one of ours".to_owned()), "listing claims")
        })
    }

    fn text(self) -> String {
        match self {
            Cursor::Open(after) => {
                format!("open.{}", after.map_or_else(String::new, |index| index.to_string()))
            }
            Cursor::Done(after) => {
                format!("done.{}", after.map_or_else(String::new, |index| index.to_string()))
            }
        }
    }
}

fn list(shared: &Shared, engine: &Engine, query: &Query) -> Result<Page> {
    let view = shared.view(engine);
    let mut page = Page::default();
    let mut cursor = Cursor::parse(query)?;
    let mut looks = 0;
    if let Cursor::Open(after) = cursor {
        let stopped = walk_open(shared, engine, after, query, &mut page, &mut looks)?;
        if let Some(last) = stopped {
            page.cursor = Some(Cursor::Open(Some(last)).text());
            return Ok(page);
        }
        if query.state.is_some() {
            return Ok(page);
        }
        cursor = Cursor::Done(None);
    }
    if let Cursor::Done(after) = cursor {
        let stopped = walk(&engine.done, after, view, query, &mut page, &mut looks, |index, value| {
            done_summary(view, index, value, shared.time.now())
        })?;
        page.cursor = stopped.map(|last| Cursor::Done(Some(last)).text());
    }
    Ok(page)
}

fn done_summary(view: View<'_>, index: &[u8], value: &[u8], now: Timestamp) -> Result<Option<Summary>> {
    let stored = codec::decode_claim(index, value).map_err(|flaw| fault::flaw(view.dir, "done", flaw))?;
    let mut summary = Summary::of(&stored.record, now);
    if let Some(summary) = summary.as_mut().filter(|_| stored.outcome_bytes.is_some()) {
        summary.outcome_bytes = stored.outcome_bytes;
    }
    Ok(summary)
}

/// Adds open claims to a page: those in `open` and, in their places, fresh ones. Where it stopped, as [`walk`] says it.
fn walk_open(
    shared: &Shared,
    engine: &Engine,
    after: Option<Index>,
    query: &Query,
    page: &mut Page,
    looks: &mut usize,
) -> Result<Option<Index>> {
    let (view, now) = (shared.view(engine), shared.time.now());
    // Before `open`: what moves on from here meanwhile is found there.
    let fresh = engine.fresh.sorted(|index, _| after.is_none_or(|after| *index > after));
    let mut in_open = Page::default();
    let stopped = walk(&engine.open, after, view, query, &mut in_open, looks, |index, value| {
        Ok(Summary::of(&view.revived(index, value)?, now))
    })?;
    let mut claims = in_open.claims;
    let moved: HashSet<String> = claims.iter().map(|claim| claim.index.clone()).collect();
    let fresh = fresh.iter().filter(|(index, _)| stopped.is_none_or(|last| *index <= last));
    let fresh = fresh.filter_map(|(_, granted)| Summary::of(&granted.record, now));
    claims.extend(fresh.filter(|claim| query.wants(claim) && !moved.contains(&claim.index)));
    // Indexes in text have the order of their bytes.
    claims.sort_unstable_by(|one, other| one.index.cmp(&other.index));
    let is_cut = claims.len() > query.limit;
    claims.truncate(query.limit);
    let last = claims.last().and_then(|claim| claim.index.parse().ok());
    page.claims = claims;
    Ok(if is_cut { last } else { stopped })
}

/// Adds to a page. Returns where it stopped, if it stopped before the end.
fn walk(
    keyspace: &Keyspace,
    after: Option<Index>,
    view: View<'_>,
    query: &Query,
    page: &mut Page,
    looks: &mut usize,
    summary: impl Fn(&[u8], &[u8]) -> Result<Option<Summary>>,
) -> Result<Option<Index>> {
    let start = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.as_bytes().to_vec()));
    let mut last = after;
    for guard in keyspace.range((start, Bound::Unbounded)) {
        if page.claims.len() >= query.limit || *looks >= PAGE_LOOKS {
            return Ok(Some(last.unwrap_or(Index::from_bytes([0; 32]))));
        }
        *looks += 1;
        let (key, value) = guarded(view.dir, || guard.into_inner())?;
        page.claims.extend(summary(&key, &value)?.filter(|summary| query.wants(summary)));
        last = key.first_chunk().map(|bytes| Index::from_bytes(*bytes));
    }
    Ok(None)
}

fn marks(shared: &Shared, engine: &Engine) -> Result<Vec<mark::Record>> {
    let (view, now) = (shared.view(engine), shared.time.now());
    let mut marks = Vec::new();
    for guard in engine.marks.iter() {
        let (key, value) = guarded(view.dir, || guard.into_inner())?;
        let mark = codec::decode_mark(&key, &value).map_err(|flaw| fault::flaw(view.dir, "marks", flaw))?;
        marks.extend(Some(mark).filter(|mark| now < mark.expires_at));
    }
    Ok(marks)
}

fn stats(shared: &Shared, engine: &Engine) -> Result<Stats> {
    let view = shared.view(engine);
    let now = shared.time.now();
    let (mut running, mut in_doubt) = (0, 0);
    let mut count_open = |record: &Record| match record.phase(now) {
        Phase::Running { .. } => running += 1,
        Phase::InDoubt(_) => in_doubt += 1,
        Phase::Done(_) | Phase::Expired { .. } => {}
    };
    let fresh = engine.fresh.sorted(|_, _| true);
    fresh.iter().for_each(|(_, granted)| count_open(&granted.record));
    for guard in engine.open.iter() {
        let (key, value) = guarded(view.dir, || guard.into_inner())?;
        let record = view.revived(&key, &value)?;
        // What has moved on meanwhile was counted.
        if fresh.binary_search_by_key(&record.key.index(), |(index, _)| *index).is_err() {
            count_open(&record);
        }
    }
    let done = count(&engine.done, view, "done", |index, value| {
        codec::decode_claim(index, value).map(|stored| now < stored.record.expires_at())
    })?;
    let marks = count(&engine.marks, view, "marks", |index, value| {
        codec::decode_mark(index, value).map(|mark| now < mark.expires_at)
    })?;
    Ok(Stats {
        running: Some(running),
        in_doubt: Some(in_doubt),
        done: Some(done),
        marks: Some(marks),
        fallback: None,
    })
}

fn count(
    keyspace: &Keyspace,
    view: View<'_>,
    name: &str,
    lives: impl Fn(&[u8], &[u8]) -> Result<bool, &'static str>,
) -> Result<u64> {
    let estimate = keyspace.approximate_len();
    if estimate > COUNTED_MAX {
        return Ok(estimate as u64);
    }
    let mut count = 0;
    for guard in keyspace.iter() {
        let (key, value) = guarded(view.dir, || guard.into_inner())?;
        count += u64::from(lives(&key, &value).map_err(|flaw| fault::flaw(view.dir, name, flaw))?);
    }
    Ok(count)
}
