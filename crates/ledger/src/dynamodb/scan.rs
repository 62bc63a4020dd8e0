//! Operations on the whole table: listing, sweeping, counting.
//!
//! There is no index on states, so each is a paged scan with a bounded number of pages per call. An operator's
//! process has not watched any lease, so leases are evaluated by the wall clock here. A claim that is listed as in
//! doubt may therefore still be held for a claimant until it has watched the claim for a full lease.

use futures_util::{StreamExt, TryStreamExt, stream};
use ichido_core::{Phase, Record, Timestamp};

use super::error;
use super::item::{self, CLAIMS};
use super::marks::{self, ESCAPED};
use super::sweep_cursor::SweepCursor;
use super::table::{Condition, EVENT_KEY, Item, TTL, Table, Written, key_of, names, number, text};
use crate::{MarkPage, MarkQuery, Page, Query, Result, Stats, Summary, Swept};

/// Items that the server visits per page.
const PAGE_ITEMS: i32 = 1000;
/// Pages that one call reads. A longer list gets a cursor; a longer sweep continues with the next call.
const PAGES: usize = 64;
/// Deletions of a sweep that are in flight at once.
const CONCURRENCY: usize = 16;

/// Marks that have not expired.
const MARKS: &str = "(NOT begins_with(event_key, :claims) OR begins_with(event_key, :escaped)) \
    AND (attribute_not_exists(#ttl) OR #ttl > :seconds)";
/// The same with a prefix, which an escaped key does not show.
const MARKS_WITH_PREFIX: &str = "((NOT begins_with(event_key, :claims) AND begins_with(event_key, :prefix)) \
    OR begins_with(event_key, :escaped)) AND (attribute_not_exists(#ttl) OR #ttl > :seconds)";

/// Which items a scan returns.
struct ScanFilter {
    filter: Option<&'static str>,
    /// The attributes to return; all of them without one.
    projection: Option<&'static str>,
    values: Vec<(&'static str, aws_sdk_dynamodb::types::AttributeValue)>,
    consistent: bool,
    doing: &'static str,
}

impl ScanFilter {
    /// A page of items, and the key where the next one starts.
    async fn page(&self, table: &Table, from: Option<&str>) -> Result<(Vec<Item>, Option<String>)> {
        let values = self.values.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let call = table
            .client
            .scan()
            .table_name(&table.name)
            .set_projection_expression(self.projection.map(str::to_owned))
            .set_filter_expression(self.filter.map(str::to_owned))
            .set_expression_attribute_names(names(&[
                self.projection.unwrap_or_default(),
                self.filter.unwrap_or_default(),
            ]))
            .set_expression_attribute_values(
                Some(values.collect()).filter(|values: &Item| !values.is_empty()),
            )
            .set_exclusive_start_key(from.map(|key| Item::from([(EVENT_KEY.to_owned(), text(key))])))
            .consistent_read(self.consistent)
            .limit(PAGE_ITEMS);
        match call.send().await {
            Ok(page) => {
                let next = page.last_evaluated_key.as_ref().map(|key| key_of(key).to_owned());
                Ok((page.items.unwrap_or_default(), next))
            }
            Err(error) => Err(error::failed_read(&table.name, self.doing, &error)),
        }
    }
}

/// A page of claims. The cursor is the key of an item, which need not be a claim.
pub(super) async fn list(table: &Table, query: &Query, now: Timestamp) -> Result<Page> {
    let filter = ScanFilter {
        filter: Some("begins_with(event_key, :claims) AND NOT begins_with(event_key, :marks)"),
        projection: Some(item::WITHOUT_OUTCOME),
        values: vec![(":claims", text(CLAIMS)), (":marks", text(ESCAPED))],
        consistent: true,
        doing: "listing claims in DynamoDB",
    };
    let mut page = Page { cursor: query.cursor.clone(), ..Page::default() };
    if query.limit == 0 {
        return Ok(Page::default());
    }
    for _ in 0..PAGES {
        let (items, next) = filter.page(table, page.cursor.as_deref()).await?;
        let mut wanted = items.iter().filter_map(|item| summary(item, now)).filter(|one| query.wants(one));
        page.claims.extend(wanted.by_ref().take(query.limit - page.claims.len()));
        if wanted.next().is_some() {
            page.cursor = page.claims.last().map(|last| format!("{CLAIMS}{}", last.index));
            return Ok(page);
        }
        page.cursor = next;
        if page.cursor.is_none() || page.claims.len() == query.limit {
            return Ok(page);
        }
    }
    Ok(page)
}

/// A page of marks. The cursor is the key of an item.
pub(super) async fn list_marks(table: &Table, query: &MarkQuery, now: Timestamp) -> Result<MarkPage> {
    let mut filter = ScanFilter {
        filter: Some(MARKS),
        // Marks have the caller's metadata as attributes.
        projection: None,
        values: vec![
            (":claims", text(CLAIMS)),
            (":escaped", text(ESCAPED)),
            (":seconds", number(now.0 / 1000)),
        ],
        consistent: true,
        doing: "listing marks in DynamoDB",
    };
    if let Some(prefix) = query.prefix.as_deref().filter(|prefix| !prefix.is_empty()) {
        filter.filter = Some(MARKS_WITH_PREFIX);
        filter.values.push((":prefix", text(prefix)));
    }
    let mut page = MarkPage { cursor: query.cursor.clone(), ..MarkPage::default() };
    if query.limit == 0 {
        return Ok(MarkPage::default());
    }
    for _ in 0..PAGES {
        let (items, next) = filter.page(table, page.cursor.as_deref()).await?;
        let read = |item| Some((key_of(item), query.select(&marks::decode(item)?, now)?));
        let mut wanted = items.iter().filter_map(read).peekable();
        let mut last = None;
        while page.marks.len() < query.limit
            && let Some((key, mark)) = wanted.next()
        {
            last = Some(key.to_owned());
            page.marks.push(mark);
        }
        page.cursor = if wanted.peek().is_some() { last } else { next };
        if page.cursor.is_none() || page.marks.len() == query.limit {
            return Ok(page);
        }
    }
    Ok(page)
}

fn summary(item: &Item, now: Timestamp) -> Option<Summary> {
    let record = decode_or_warn(item)?;
    let mut summary = Summary::of(&record, now)?;
    summary.outcome_bytes = item::outcome_bytes(item);
    Some(summary)
}

/// A claim in a known format. Others are left alone and logged.
fn decode_or_warn(item: &Item) -> Option<Record> {
    match item::decode_without_outcome(item) {
        Ok(record) => Some(record),
        Err(error) => {
            tracing::warn!(%error, "skipping unreadable claim");
            None
        }
    }
}

/// Removes expired items, starting where the last sweep stopped.
pub(super) async fn sweep(
    table: &Table,
    cursor: &SweepCursor,
    limit: usize,
    now: Timestamp,
) -> Result<Swept> {
    let filter = ScanFilter {
        filter: Some("ichido_over_at <= :now OR #ttl <= :seconds"),
        projection: Some(item::WITHOUT_OUTCOME),
        values: vec![(":now", number(now.0)), (":seconds", number(now.0 / 1000))],
        consistent: false,
        doing: "sweeping DynamoDB",
    };
    let mut swept = Swept::default();
    let mut from = cursor.take();
    let mut from_start = from.is_none();
    for _ in 0..PAGES {
        let (items, next) = filter.page(table, from.as_deref()).await?;
        let room = limit.saturating_sub(usize::try_from(swept.removed).unwrap_or(usize::MAX));
        let batch = &items[..items.len().min(room)];
        let positions = stream::iter(0..batch.len());
        let removed =
            positions.map(|position| remove(table, &batch[position], now)).buffer_unordered(CONCURRENCY);
        for one in removed.try_collect::<Vec<_>>().await? {
            swept.removed += one.removed;
            swept.doubts_ended += one.doubts_ended;
        }
        if batch.len() < items.len() {
            cursor.set(batch.last().map(|last| key_of(last).to_owned()).or(from));
            return Ok(Swept { more: true, ..swept });
        }
        match next {
            Some(next) => from = Some(next),
            None if from_start => return Ok(swept),
            None => (from, from_start) = (None, true),
        }
    }
    cursor.set(from);
    Ok(Swept { more: true, ..swept })
}

/// Removes one item, unless it changed since it was read.
async fn remove(table: &Table, item: &Item, now: Timestamp) -> Result<Swept> {
    let key = key_of(item);
    let (condition, in_doubt) = if is_claim(key) {
        let Some(record) = decode_or_warn(item) else { return Ok(Swept::default()) };
        let Phase::Expired { in_doubt } = record.phase(now) else { return Ok(Swept::default()) };
        (item::unchanged(&record), in_doubt.then_some(record))
    } else {
        let values = vec![(":seconds", number(now.0 / 1000))];
        (Condition { expression: "#ttl <= :seconds", values }, None)
    };
    match table.delete(key, condition, "sweeping DynamoDB").await? {
        Written::Applied(_) => {
            in_doubt.iter().for_each(crate::backend::warn_doubt_expired);
            Ok(Swept { removed: 1, doubts_ended: u64::from(in_doubt.is_some()), more: false })
        }
        Written::Refused(_) => Ok(Swept::default()),
    }
}

/// Counts records. If the table is larger than one call may read, all counts are `None`.
pub(super) async fn stats(table: &Table, now: Timestamp) -> Result<Stats> {
    let filter = ScanFilter {
        filter: None,
        projection: Some(item::WITHOUT_OUTCOME),
        values: Vec::new(),
        consistent: false,
        doing: "counting records in DynamoDB",
    };
    let (mut running, mut in_doubt, mut done, mut marks) = (0, 0, 0, 0);
    let mut from = None;
    for _ in 0..PAGES {
        let (items, next) = filter.page(table, from.as_deref()).await?;
        for item in &items {
            if !is_claim(key_of(item)) {
                marks += u64::from(!is_expired(item, now));
                continue;
            }
            match decode_or_warn(item).as_ref().map(|record| record.phase(now)) {
                Some(Phase::Running { .. }) => running += 1,
                Some(Phase::InDoubt(_)) => in_doubt += 1,
                Some(Phase::Done(_)) => done += 1,
                Some(Phase::Expired { .. }) | None => {}
            }
        }
        from = next;
        if from.is_none() {
            return Ok(Stats {
                running: Some(running),
                in_doubt: Some(in_doubt),
                done: Some(done),
                marks: Some(marks),
                fallback: None,
            });
        }
    }
    Ok(Stats::default())
}

fn is_claim(event_key: &str) -> bool {
    event_key.starts_with(CLAIMS) && !event_key.starts_with(ESCAPED)
}

/// A mark without a readable `ttl` never expires.
fn is_expired(item: &Item, now: Timestamp) -> bool {
    let ttl = item.get(TTL).and_then(|ttl| ttl.as_n().ok()).and_then(|ttl| ttl.parse::<u64>().ok());
    ttl.is_some_and(|ttl| ttl <= now.0 / 1000)
}
