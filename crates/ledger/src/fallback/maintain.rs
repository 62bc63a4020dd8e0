//! What operators see and do: the primary's claims, and in front of them those that are owed to it.

use std::sync::PoisonError;

use ichido_core::{Index, Key, Record, Resolution, Resolved};

use super::abandoned_grants::Orphan;
use super::state::Fallback;
use crate::{FallbackStatus, Maintain as _, Page, Query, Result, Stats};

/// A cursor among the local claims, and the one that follows the last of them.
const LOCAL: &str = "local:";
const PRIMARY: &str = "ledger:";

impl Fallback {
    /// Whether the local ledger answers for a claim.
    pub(crate) fn holds(&self, key: &Key) -> bool {
        self.owed().has_claim(key.index())
    }

    pub(crate) async fn look(&self, key: &Key) -> Result<Option<Record>> {
        if self.holds(key)
            && let Some(record) = self.store.look(key).await?
        {
            return Ok(Some(self.judged(record)));
        }
        self.primary.consult("looking at a claim", self.primary.backend.look(key)).await
    }

    /// Local claims come first. While the primary is out they are all there is.
    pub(crate) async fn list(&self, query: &Query) -> Result<Page> {
        let mut page = match query.cursor.as_deref() {
            None => self.list_local(query, None).await?,
            Some(cursor) => match cursor.strip_prefix(LOCAL) {
                Some(rest) => self.list_local(query, Some(rest.to_owned())).await?,
                None => Page { cursor: Some(cursor.to_owned()), ..Page::default() },
            },
        };
        if page.cursor.as_ref().is_some_and(|cursor| cursor.starts_with(LOCAL)) {
            return Ok(page);
        }
        if self.is_degraded().await {
            return Ok(Page { cursor: None, degraded: true, ..page });
        }
        let limit = query.limit.saturating_sub(page.claims.len());
        if limit == 0 {
            return Ok(page);
        }
        let cursor = page.cursor.filter(|cursor| cursor != PRIMARY);
        let query = Query { limit, cursor, ..query.clone() };
        let rest = self.primary.maintain("listing claims", self.primary.backend.list(&query)).await?;
        page.claims.extend(rest.claims);
        Ok(Page { cursor: rest.cursor, ..page })
    }

    async fn list_local(&self, query: &Query, cursor: Option<String>) -> Result<Page> {
        let query = Query { cursor, ..query.clone() };
        let mut page = self.local.maintain("listing claims", self.store.list(&query)).await?;
        page.claims.retain(|claim| {
            let is_owed = claim.index.parse().is_ok_and(|index: Index| self.owed().has_claim(index));
            is_owed && !Orphan::is_one(claim)
        });
        page.claims.iter_mut().for_each(|claim| claim.local = true);
        page.cursor = Some(match page.cursor {
            Some(cursor) => format!("{LOCAL}{cursor}"),
            None => PRIMARY.to_owned(),
        });
        Ok(page)
    }

    pub(crate) async fn resolve(&self, key: &Key, word: &Resolution) -> Result<Resolved> {
        if let Some(resolved) = self.resolve_owed(key, word).await? {
            return Ok(resolved);
        }
        let resolved =
            self.primary.consult("resolving a claim", self.primary.backend.resolve(key, word)).await?;
        if resolved == Resolved::Applied {
            let _ = self.mirror.resolve(key, word).await;
        }
        Ok(resolved)
    }

    async fn resolve_owed(&self, key: &Key, word: &Resolution) -> Result<Option<Resolved>> {
        let turn = self.owed_turn.lock().await;
        if !self.holds(key) {
            return Ok(None);
        }
        let Some(record) = self.store.look(key).await? else { return Ok(None) };
        let orphan = Orphan { key: key.clone(), token: record.token };
        let removes = match word {
            Resolution::Absent | Resolution::Release => true,
            Resolution::Done(_) => false,
        };
        if removes {
            // The primary may know this grant as well.
            self.add_orphan(key, record.token).await;
        }
        let resolved = self.local.consult("resolving a claim", self.store.resolve(key, word)).await?;
        match (&resolved, removes) {
            (Resolved::Applied, true) => self.owed().remove_claim(key.index()),
            (Resolved::Applied, false) => {}
            (Resolved::Refused(_), true) => self.drop_orphan(&orphan).await?,
            (Resolved::Refused(_), false) => {}
        }
        drop(turn);
        if resolved == Resolved::Applied {
            self.tell_if_healthy(key).await;
        }
        Ok(Some(resolved))
    }

    /// While the primary is out, what the local ledger holds is all that can be counted.
    pub(crate) async fn stats(&self) -> Result<Stats> {
        let status = self.status().await;
        let stats = match status.degraded {
            true => self.local.maintain("counting records", self.store.stats()).await?,
            false => self.primary.maintain("counting records", self.primary.backend.stats()).await?,
        };
        Ok(Stats { fallback: Some(status), ..stats })
    }

    pub(crate) async fn status(&self) -> FallbackStatus {
        let degraded = self.is_degraded().await;
        let (owed_claims, owed_marks) = self.count_owed();
        let conflicts = self.conflicts.lock().unwrap_or_else(PoisonError::into_inner).list();
        FallbackStatus { degraded, owed_claims, owed_marks, refused: self.owed().refused(), conflicts }
    }

    pub(crate) async fn close(&self) -> Result<()> {
        self.store.close().await
    }
}
