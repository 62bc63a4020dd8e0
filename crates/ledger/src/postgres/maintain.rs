//! Listing, counting and sweeping.

use ichido_core::{Index, Phase};

use super::connections::Param;
use super::row::{self, Found, column};
use super::store::Postgres;
use crate::{Error, Kind, Page, Query, Result, StateName, Stats, Summary, Swept};

/// Rows that a sweep removes per statement, so that none holds locks for long.
const SWEEP_CHUNK: usize = 1_000;

impl Postgres {
    pub(super) async fn list_claims(&self, query: &Query) -> Result<Page> {
        const DOING: &str = "listing claims in PostgreSQL";
        let after = after(query.cursor.as_deref(), DOING)?;
        let (from, to) = prefix_range(query.prefix.as_deref());
        let limit = one_more_than(query.limit);
        let sql =
            format!("{}{} ORDER BY c.index LIMIT $4::bigint", self.server.sql.list, condition(query.state));
        let params: [Param<'_>; 4] = [&after, &from, &to, &limit];
        let mut page = Page::default();
        for row in self.server.connections.query(DOING, &sql, &params).await? {
            let Some(found) = Found::read(&row)? else { continue };
            let Some(mut summary) = Summary::of(&found.record, row::now(&row)?) else { continue };
            if summary.outcome_bytes.is_some() {
                let bytes: Option<i64> = column(&row, "outcome_bytes")?;
                summary.outcome_bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
            }
            page.claims.push(summary);
        }
        if page.claims.len() > query.limit {
            page.claims.truncate(query.limit);
            page.cursor = page.claims.last().map(|last| last.index.clone());
        }
        Ok(page)
    }

    pub(super) async fn count(&self) -> Result<Stats> {
        const DOING: &str = "counting claims in PostgreSQL";
        let Some(row) = self.server.connections.query_one(DOING, &self.server.sql.stats, &[]).await? else {
            return Ok(Stats::default());
        };
        let number = |name| -> Result<Option<u64>> { Ok(u64::try_from(column::<i64>(&row, name)?).ok()) };
        Ok(Stats {
            running: number("running")?,
            in_doubt: number("in_doubt")?,
            done: number("done")?,
            marks: number("marks")?,
            fallback: None,
        })
    }

    pub(super) async fn sweep_expired(&self, limit: usize) -> Result<Swept> {
        let mut swept = Swept::default();
        let mut left = limit;
        while left > 0 {
            let chunk = left.min(SWEEP_CHUNK);
            let removed = self.sweep_claims(chunk, &mut swept).await?;
            left -= removed.min(left);
            if removed < chunk {
                break;
            }
        }
        while left > 0 {
            let chunk = left.min(SWEEP_CHUNK);
            let params: [Param<'_>; 1] = [&i64::try_from(chunk).unwrap_or(i64::MAX)];
            let removed =
                self.server.connections.query(SWEEPING, &self.server.sql.sweep_marks, &params).await?.len();
            swept.removed += removed as u64;
            left -= removed.min(left);
            if removed < chunk {
                return Ok(swept);
            }
        }
        swept.more = true;
        Ok(swept)
    }

    async fn sweep_claims(&self, chunk: usize, swept: &mut Swept) -> Result<usize> {
        let params: [Param<'_>; 1] = [&i64::try_from(chunk).unwrap_or(i64::MAX)];
        let rows = self.server.connections.query(SWEEPING, &self.server.sql.sweep_claims, &params).await?;
        for row in &rows {
            swept.removed += 1;
            if let Some(found) = Found::read(row)?
                && found.record.phase(row::now(row)?) == (Phase::Expired { in_doubt: true })
            {
                swept.doubts_ended += 1;
                crate::backend::warn_doubt_expired(&found.record);
            }
        }
        Ok(rows.len())
    }
}

const SWEEPING: &str = "sweeping PostgreSQL";

/// Phrased so that the index on open claims applies.
fn condition(state: Option<StateName>) -> &'static str {
    match state {
        None => "",
        Some(StateName::Running) => {
            " AND c.state <> 'done' AND c.state = 'running' AND c.doubt_at > clock.now"
        }
        Some(StateName::InDoubt) => {
            " AND c.state <> 'done' AND (c.state = 'in-doubt' OR c.doubt_at <= clock.now)"
        }
        Some(StateName::Done) => " AND c.state = 'done'",
    }
}

/// The empty index sorts before every other.
pub(super) fn after(cursor: Option<&str>, doing: &'static str) -> Result<Vec<u8>> {
    let Some(cursor) = cursor else { return Ok(Vec::new()) };
    let index: Result<Index, _> = cursor.parse();
    index.map(|index| index.as_bytes().to_vec()).map_err(|cause| {
        let text = "invalid cursor: it is not from this ledger".to_owned();
        Error::new(Kind::Unsupported(text), doing).caused_by(cause)
    })
}

/// To find out whether there are more than requested.
pub(super) fn one_more_than(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1)
}

/// The range of texts with this prefix: no byte of UTF-8 is 255.
pub(super) fn prefix_range(prefix: Option<&str>) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let Some(prefix) = prefix.filter(|prefix| !prefix.is_empty()) else { return (None, None) };
    let from = prefix.as_bytes().to_vec();
    let mut to = from.clone();
    if let Some(last) = to.last_mut() {
        *last = last.saturating_add(1);
    }
    (Some(from), Some(to))
}
