//! Listing and sweeping, by scanning.

use std::sync::PoisonError;

use futures_util::future::BoxFuture;
use ichido_core::Index;
use redis::Pipeline;

use super::position::Position;
use super::scan;
use super::scripts::{self, LuaScript};
use super::store::{Redis, Space};
use crate::{MarkPage, MarkQuery, MarkSummary, Page, Query, Result, Summary, Swept};

/// Claims that are read or swept in one round trip.
const PIPELINE: usize = 200;
/// Most SCAN calls for one page or one sweep; the next call continues.
const ROUNDS: usize = 50;
/// Buckets of a listing's first SCAN, however small the page.
const BUCKETS_MIN: usize = 10;

/// Records that are being read, with their names.
type Reading<'a, T> = BoxFuture<'a, Result<Vec<(Index, T)>>>;

impl Redis {
    pub(super) async fn list_claims(&self, query: &Query) -> Result<Page> {
        const DOING: &str = "listing claims in Redis";
        let read = |indexes: Vec<Index>| -> Reading<'_, Summary> {
            Box::pin(async move {
                let mut wanted = self.summaries(&indexes, DOING).await?;
                wanted.retain(|(_, summary)| query.wants(summary));
                Ok(wanted)
            })
        };
        let (claims, cursor) =
            self.fill_page(Space::Claims, query.limit, query.cursor.as_deref(), DOING, read).await?;
        Ok(Page { claims, cursor, ..Page::default() })
    }

    pub(super) async fn list_marked(&self, query: &MarkQuery) -> Result<MarkPage> {
        const DOING: &str = "listing marks in Redis";
        let read = |indexes| -> Reading<'_, MarkSummary> {
            Box::pin(async move { self.marks(indexes, query, DOING).await })
        };
        let (marks, cursor) =
            self.fill_page(Space::Marks, query.limit, query.cursor.as_deref(), DOING, read).await?;
        Ok(MarkPage { marks, cursor, ..MarkPage::default() })
    }

    /// Scans until a page is full. `read` returns the records with these names that the page should list.
    async fn fill_page<'a, T>(
        &self,
        space: Space,
        limit: usize,
        cursor: Option<&str>,
        doing: &'static str,
        read: impl Fn(Vec<Index>) -> Reading<'a, T>,
    ) -> Result<(Vec<T>, Option<String>)> {
        let mut at: Position = cursor.map(str::parse).transpose()?.unwrap_or_default();
        let mut page = Vec::new();
        let mut count = limit.clamp(BUCKETS_MIN, scan::BUCKETS_MAX);
        for _ in 0..ROUNDS {
            let batch = self.scan(space, &at, count, doing).await?;
            let mut wanted = read(batch.indexes).await?;
            let left = limit - page.len();
            if wanted.len() > left {
                if page.is_empty() && count > 1 {
                    count /= 2;
                    continue;
                }
                if page.is_empty() {
                    wanted.truncate(left);
                    at = wanted.last().map_or(at.clone(), |(last, _)| at.after(*last));
                    page.extend(wanted.into_iter().map(|(_, item)| item));
                }
                break;
            }
            if wanted.len() < left / 4 {
                count = (count * 2).min(scan::BUCKETS_MAX);
            }
            page.extend(wanted.into_iter().map(|(_, item)| item));
            match batch.next {
                Some(next) => at = next,
                None => return Ok((page, None)),
            }
        }
        Ok((page, Some(at.to_string())))
    }

    /// The marks that a query wants.
    async fn marks(
        &self,
        indexes: Vec<Index>,
        query: &MarkQuery,
        doing: &'static str,
    ) -> Result<Vec<(Index, MarkSummary)>> {
        let mut marks = Vec::with_capacity(indexes.len());
        for indexes in indexes.chunks(PIPELINE) {
            let read = &self.scripts.read;
            let commands = indexes.iter().map(|index| read.command(&self.mark_name(*index), 0));
            let replies = read.run_all(doing, &scripts::pipeline(commands)).await?;
            for (index, reply) in indexes.iter().zip(replies) {
                let mark = reply.mark()?.and_then(|mark| query.select(&mark, reply.now));
                marks.extend(mark.map(|mark| (*index, mark)));
            }
        }
        Ok(marks)
    }

    /// Summaries of claims, without expired ones.
    async fn summaries(&self, claims: &[Index], doing: &'static str) -> Result<Vec<(Index, Summary)>> {
        let mut summaries = Vec::with_capacity(claims.len());
        for claims in claims.chunks(PIPELINE) {
            let list = &self.scripts.list;
            let replies = list.run_all(doing, &self.on_each(list, claims)).await?;
            for (index, reply) in claims.iter().zip(replies) {
                let Some(found) =
                    (if reply.succeeded() { reply.claim_without_outcome()? } else { reply.claim(None)? })
                else {
                    continue;
                };
                let Some(mut summary) = Summary::of(&found.record, reply.now) else { continue };
                summary.outcome_bytes = summary.outcome_bytes.map(|_| found.tail_bytes);
                summaries.push((*index, summary));
            }
        }
        Ok(summaries)
    }

    /// Checks some claims, starting where the last sweep stopped. Redis itself removes completed claims and marks,
    /// so only claims that were in doubt and never resolved are found here.
    pub(super) async fn sweep_expired(&self, limit: usize) -> Result<Swept> {
        const DOING: &str = "sweeping Redis";
        let mut swept = Swept::default();
        let mut at = self.swept_to.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for _ in 0..ROUNDS {
            let batch = self.scan(Space::Claims, &at, scan::BUCKETS_MAX, DOING).await?;
            let mut claims = batch.indexes.as_slice();
            while !claims.is_empty() && !swept.more {
                let left = limit.saturating_sub(usize::try_from(swept.removed).unwrap_or(limit));
                let (now, later) = claims.split_at(claims.len().min(left).min(PIPELINE));
                self.sweep_claims(now, DOING, &mut swept).await?;
                claims = later;
                swept.more = left == 0;
            }
            if swept.more {
                break;
            }
            match batch.next {
                Some(next) => at = next,
                None => {
                    *self.swept_to.lock().unwrap_or_else(PoisonError::into_inner) = Position::default();
                    return Ok(swept);
                }
            }
        }
        *self.swept_to.lock().unwrap_or_else(PoisonError::into_inner) = at;
        Ok(Swept { more: true, ..swept })
    }

    async fn sweep_claims(&self, claims: &[Index], doing: &'static str, swept: &mut Swept) -> Result<()> {
        let sweep = &self.scripts.sweep;
        for reply in sweep.run_all(doing, &self.on_each(sweep, claims)).await? {
            if !reply.succeeded() {
                // The script could not read this record. Reading it here returns the error.
                reply.claim(None)?;
                continue;
            }
            swept.removed += 1;
            if let Some(found) = reply.claim_without_outcome()?
                && found.record.phase(reply.now) == (ichido_core::Phase::Expired { in_doubt: true })
            {
                swept.doubts_ended += 1;
                crate::backend::warn_doubt_expired(&found.record);
            }
        }
        Ok(())
    }

    fn on_each(&self, script: &LuaScript, claims: &[Index]) -> Pipeline {
        scripts::pipeline(claims.iter().map(|index| script.command(&self.claim_name(*index), 0)))
    }
}
