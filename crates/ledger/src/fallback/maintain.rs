//! Operators' calls: pending local claims and marks first, then the primary's.

use std::sync::PoisonError;

use ichido_core::mark::{self, Erased, Forgotten};
use ichido_core::{Index, Key, MarkKey, Record, Resolution, Resolved};

use super::abandoned_grants::AbandonedGrant;
use super::state::Fallback;
use crate::{
    Error, FallbackStatus, Kind, LocalBackend as _, Maintain as _, MarkPage, MarkQuery, Page, Query, Result,
    Stats,
};

/// Prefix of a cursor within the local claims, and the cursor that follows the last of them.
const LOCAL: &str = "local:";
const PRIMARY: &str = "ledger:";

impl Fallback {
    /// Whether the local ledger answers for a claim.
    pub(crate) fn is_pending(&self, key: &Key) -> bool {
        self.pending().has_claim(key.index())
    }

    /// Whether the local ledger answers for an event.
    pub(crate) fn is_mark_pending(&self, key: &MarkKey) -> bool {
        self.pending().has_mark(key.index())
    }

    pub(crate) async fn get(&self, key: &Key) -> Result<Option<Record>> {
        if self.is_pending(key)
            && let Some(record) = self.store.get(key).await?
        {
            return Ok(Some(self.as_of_now(record)));
        }
        self.primary.call_once("reading a claim", self.primary.inner.get(key)).await
    }

    /// Lists local claims first. During an outage there are no others.
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
        let rest = self.primary.call_once_long("listing claims", self.primary.inner.list(&query)).await?;
        page.claims.extend(rest.claims);
        Ok(Page { cursor: rest.cursor, ..page })
    }

    async fn list_local(&self, query: &Query, cursor: Option<String>) -> Result<Page> {
        let query = Query { cursor, ..query.clone() };
        let mut page = self.local.call_once_long("listing claims", self.store.list(&query)).await?;
        page.claims.retain(|claim| {
            let is_pending = claim.index.parse().is_ok_and(|index: Index| self.pending().has_claim(index));
            is_pending && !AbandonedGrant::is_abandoned_grant(claim)
        });
        page.claims.iter_mut().for_each(|claim| claim.local = true);
        page.cursor = Some(match page.cursor {
            Some(cursor) => format!("{LOCAL}{cursor}"),
            None => PRIMARY.to_owned(),
        });
        Ok(page)
    }

    pub(crate) async fn resolve(&self, key: &Key, resolution: &Resolution) -> Result<Resolved> {
        if let Some(resolved) = self.resolve_pending(key, resolution).await? {
            return Ok(resolved);
        }
        let resolved =
            self.primary.call_once("resolving a claim", self.primary.inner.resolve(key, resolution)).await?;
        if resolved == Resolved::Applied {
            let _ = self.mirror.resolve(key, &resolution.for_copy()).await;
        }
        Ok(resolved)
    }

    async fn resolve_pending(&self, key: &Key, resolution: &Resolution) -> Result<Option<Resolved>> {
        let turn = self.pending_lock.lock().await;
        if !self.is_pending(key) {
            return Ok(None);
        }
        let Some(record) = self.store.get(key).await? else { return Ok(None) };
        let grant = AbandonedGrant { key: key.clone(), token: record.token };
        let removes = match resolution {
            Resolution::Absent
            | Resolution::AbsentAsSeen(_)
            | Resolution::Release
            | Resolution::Forget(_) => true,
            Resolution::Done(_) | Resolution::DoneAsSeen(..) => false,
            // Some stores find a claim by its text.
            Resolution::Erase(_) => return Err(not_handed_over("erasing a claim")),
        };
        if removes {
            // The primary may have made this grant too.
            self.add_abandoned_grant(key, record.token).await;
        }
        let resolved = self.local.call_once("resolving a claim", self.store.resolve(key, resolution)).await?;
        match (&resolved, removes) {
            (Resolved::Applied, true) => self.pending().remove_claim(key.index()),
            (Resolved::Applied, false) => {}
            (Resolved::Refused(_), true) => self.remove_abandoned_grant(&grant).await?,
            (Resolved::Refused(_), false) => {}
        }
        drop(turn);
        if resolved == Resolved::Applied {
            self.hand_over_if_healthy(key).await;
        }
        Ok(Some(resolved))
    }

    pub(crate) async fn get_mark(&self, key: &MarkKey) -> Result<Option<mark::Record>> {
        if self.is_mark_pending(key)
            && let Some(record) = self.store.get_mark(key).await?
        {
            return Ok(Some(record));
        }
        self.primary.call_once("reading a mark", self.primary.inner.get_mark(key)).await
    }

    /// Lists local marks first. During an outage there are no others.
    pub(crate) async fn list_marks(&self, query: &MarkQuery) -> Result<MarkPage> {
        let mut page = MarkPage::default();
        let mut cursor = query.cursor.as_deref();
        let local = cursor.map_or(Some(None), |cursor| cursor.strip_prefix(LOCAL).map(Some));
        if let Some(from) = local {
            page = self.list_local_marks(query, from).await?;
            if page.cursor.is_some() {
                return Ok(page);
            }
            cursor = None;
        }
        if self.is_degraded().await {
            return Ok(MarkPage { degraded: true, ..page });
        }
        let limit = query.limit.saturating_sub(page.marks.len());
        if limit == 0 {
            return Ok(MarkPage { cursor: Some(PRIMARY.to_owned()), ..page });
        }
        let cursor = cursor.map(|cursor| cursor.strip_prefix(PRIMARY).unwrap_or(cursor));
        let cursor = cursor.filter(|cursor| !cursor.is_empty()).map(ToOwned::to_owned);
        let query = MarkQuery { limit, cursor, ..query.clone() };
        let rest =
            self.primary.call_once_long("listing marks", self.primary.inner.list_marks(&query)).await?;
        page.marks.extend(rest.marks);
        Ok(MarkPage { cursor: rest.cursor.map(|cursor| format!("{PRIMARY}{cursor}")), ..page })
    }

    async fn list_local_marks(&self, query: &MarkQuery, cursor: Option<&str>) -> Result<MarkPage> {
        let query = MarkQuery { cursor: cursor.map(ToOwned::to_owned), ..query.clone() };
        let mut page = self.local.call_once_long("listing marks", self.store.list_marks(&query)).await?;
        page.marks.retain(|mark| mark.index.parse().is_ok_and(|index| self.pending().has_mark(index)));
        page.marks.iter_mut().for_each(|mark| mark.local = true);
        Ok(MarkPage { cursor: page.cursor.map(|cursor| format!("{LOCAL}{cursor}")), ..page })
    }

    /// Forgets a mark here and in the primary. During an outage, only a mark that the primary does not know can be
    /// forgotten.
    pub(crate) async fn forget_mark(&self, seen: &mark::Record) -> Result<Forgotten> {
        const DOING: &str = "forgetting a mark";
        let (index, is_degraded) = (seen.key.index(), self.is_degraded().await);
        let _turn = self.mark_handover_lock.lock().await;
        let is_pending = self.is_mark_pending(&seen.key);
        let here = self.local.call_once(DOING, self.store.forget_mark(seen)).await?;
        if here == Forgotten::Removed {
            self.pending().remove_mark(index);
            self.count_pending();
        }
        // If the reply to the caller was lost, both have the mark.
        let there = match is_pending && is_degraded {
            true => Forgotten::Gone,
            false => {
                let forgotten = self.primary.call_once(DOING, self.primary.inner.forget_mark(seen)).await;
                forgotten.map_err(|error| match here {
                    Forgotten::Removed => error.with_unknown_effect(),
                    Forgotten::Gone => error,
                })?
            }
        };
        self.mirror.remove(&[], &[(index, seen.nonce), (index, self.foreign_nonce)]).await?;
        Ok(if here == Forgotten::Removed { here } else { there })
    }

    /// Erases what callers wrote in a mark of the primary. The event stays marked, also during an outage.
    pub(crate) async fn erase_mark(&self, seen: &mark::Record) -> Result<Erased> {
        const DOING: &str = "erasing a mark";
        let _turn = self.mark_handover_lock.lock().await;
        if self.is_mark_pending(&seen.key) {
            return Err(not_handed_over(DOING));
        }
        let erased = self.primary.call_once(DOING, self.primary.inner.erase_mark(seen)).await?;
        for nonce in [seen.nonce, self.foreign_nonce] {
            let copy = mark::Record { nonce, ..seen.clone() };
            match self.mirror.erase_mark(&copy).await? {
                Erased::Whole | Erased::KeyKept | Erased::Gone => {}
            }
        }
        Ok(erased)
    }

    /// During an outage, only the local ledger's records can be counted.
    pub(crate) async fn stats(&self) -> Result<Stats> {
        let status = self.status().await;
        let stats = match status.degraded {
            true => self.local.call_once_long("counting records", self.store.stats()).await?,
            false => self.primary.call_once_long("counting records", self.primary.inner.stats()).await?,
        };
        Ok(Stats { fallback: Some(status), ..stats })
    }

    pub(crate) async fn status(&self) -> FallbackStatus {
        let degraded = self.is_degraded().await;
        let (pending_claims, pending_marks) = self.count_pending();
        let conflicts = self.conflicts.lock().unwrap_or_else(PoisonError::into_inner).list();
        FallbackStatus {
            degraded,
            pending_claims,
            pending_marks,
            refused: self.pending().refused(),
            conflicts,
        }
    }

    pub(crate) async fn close(&self) -> Result<()> {
        self.store.close().await
    }
}

/// What the primary does not have yet is handed over as it is.
fn not_handed_over(doing: &'static str) -> Error {
    let text = "it is not in the ledger yet: try again when the outage is over".to_owned();
    Error::new(Kind::Unsupported(text), doing)
}
