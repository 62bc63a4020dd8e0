//! Operator actions on a ledger that this process has open.

use std::path::Path;
use std::sync::Arc;

use ichido_core::mark::{self, Erased, Forgotten};
use ichido_core::{CurrentState, Key, MarkKey, Resolution, Resolved, Seen};
use ichido_http::AskService;
use ichido_ledger::{
    Backup, Ledger, MarkPage, MarkQuery, MarkSummary, Page, Query, StateName, Stats, Summary, Swept, Verified,
};

use ichido_history::{Find, History, Repeats};

use super::claim_view::claim_view;
use super::find::{FoundClaim, find};
use super::refusal::ClaimState;
use super::triage::triage;
use super::{
    AskedClaim, ClaimSelector, ClaimView, Confirmed, Ending, ErasedEvent, EventView, Operator, Refusal,
    ResolveAs, ResolvedClaim, SeenClaim, SeenResult, Triage, TriageFilter,
};
use crate::audit_log::Actor;
use crate::histories::{Histories, Unavailable};

/// What is decided for several claims, or by somebody else's answer, is always recorded.
const NOT_AUDITED: &str = "this action needs the audit log";
/// The most records that one step of a sweep removes.
const SWEEP_STEP: usize = 1_000;

/// A ledger that this process has open.
#[derive(Clone, Debug)]
pub struct Local {
    /// The ledger.
    pub ledger: Ledger,
    /// What was decided about keys.
    pub histories: Histories,
    /// Asks the service behind a claim, if this process knows one.
    pub service: Option<Arc<dyn AskService>>,
}

impl Local {
    /// Finds the claim to resolve.
    pub async fn find_to_resolve(&self, selector: &ClaimSelector) -> Result<FoundClaim, Refusal> {
        find(&self.ledger, selector, &[StateName::InDoubt]).await
    }

    /// Finds the claim to release.
    pub async fn find_to_release(&self, selector: &ClaimSelector) -> Result<FoundClaim, Refusal> {
        find(&self.ledger, selector, &[StateName::Running, StateName::InDoubt]).await
    }

    /// Finds the completed claim to forget.
    pub async fn find_to_forget(&self, selector: &ClaimSelector) -> Result<FoundClaim, Refusal> {
        let FoundClaim { summary, key, .. } = find(&self.ledger, selector, &[StateName::Done]).await?;
        let record = self.ledger.get(&key).await?.ok_or(Refusal::NoSuchClaim)?;
        let local = summary.local;
        let summary = Summary::of(&record, self.ledger.settings().clock.now()).ok_or(Refusal::NoSuchClaim)?;
        Ok(FoundClaim { summary: Summary { local, ..summary }, key, seen: Some(Seen::of(&record)) })
    }

    /// Finds the claim in doubt that somebody has seen in this version.
    pub(super) async fn find_seen(&self, key: &Key, version: &str) -> Result<FoundClaim, Refusal> {
        let record = self.ledger.get(key).await?.ok_or(Refusal::NoSuchClaim)?;
        let now = self.ledger.settings().clock.now();
        let summary = Summary::of(&record, now).ok_or(Refusal::NoSuchClaim)?;
        if summary.version != version {
            return Err(Refusal::Changed);
        }
        let local = self.ledger.is_pending_handover(key);
        let seen = Some(Seen::of(&record));
        Ok(FoundClaim { summary: Summary { local, ..summary }, key: key.clone(), seen })
    }

    /// Forgets a claim that was found, if it is still the same.
    pub async fn forget_found(&self, found: FoundClaim) -> Result<ResolvedClaim, Refusal> {
        let seen = found.seen.ok_or(Refusal::NoSuchClaim)?;
        match self.ledger.resolve(&found.key, &Resolution::Forget(seen.token)).await? {
            Resolved::Refused(CurrentState::Running) => Err(Refusal::NotCompleted(ClaimState::Running)),
            Resolved::Refused(CurrentState::InDoubt) => Err(Refusal::NotCompleted(ClaimState::InDoubt)),
            // A completed claim with another token is a newer one.
            Resolved::Refused(CurrentState::Absent | CurrentState::Done(_)) => {
                Err(Refusal::WrongState(ClaimState::Absent))
            }
            applied @ Resolved::Applied => settled(applied, found.summary, "forgotten"),
        }
    }

    /// Erases what callers wrote in a claim that was found, if it is still the same.
    pub async fn erase_found(&self, found: FoundClaim) -> Result<ResolvedClaim, Refusal> {
        let seen = found.seen.ok_or(Refusal::NoSuchClaim)?;
        settled(self.ledger.erase(&found.key, seen.token).await?, found.summary, "erased")
    }

    /// Finds the mark of an event.
    pub async fn find_event(&self, key: &str) -> Result<mark::Record, Refusal> {
        self.ledger.get_mark(&MarkKey::stored(key)?).await?.ok_or(Refusal::NoSuchEvent)
    }

    /// Forgets the mark of an event that was found, if it is still the same.
    pub async fn forget_found_event(&self, found: &mark::Record) -> Result<MarkSummary, Refusal> {
        let event = self.event(found);
        match self.ledger.forget_mark(found).await? {
            Forgotten::Removed => Ok(event),
            Forgotten::Gone => Err(Refusal::NoSuchEvent),
        }
    }

    /// Erases what callers wrote in the mark of an event that was found, if it is still the same.
    pub async fn erase_found_event(&self, found: &mark::Record) -> Result<ErasedEvent, Refusal> {
        let index = found.key.index().to_string();
        match self.ledger.erase_mark(found).await? {
            Erased::Whole => Ok(ErasedEvent { index, key_kept: false }),
            Erased::KeyKept => Ok(ErasedEvent { index, key_kept: true }),
            Erased::Gone => Err(Refusal::NoSuchEvent),
        }
    }

    fn event(&self, found: &mark::Record) -> MarkSummary {
        MarkSummary { local: self.ledger.is_mark_pending_handover(&found.key), ..MarkSummary::of(found) }
    }

    /// How often an event was repeated, if the history tells.
    async fn repeats(&self, found: &mark::Record) -> Option<Repeats> {
        let (index, first_seen) = (found.key.index(), found.marked_at.0);
        let read = move |history: &History| {
            Ok(Repeats::of(&history.timeline(Find::Hash(index.as_bytes()))?, first_seen))
        };
        match self.histories.read(read).await {
            Ok(repeats) => repeats,
            Err(Unavailable::Off) => None,
            Err(error @ (Unavailable::Failed(_) | Unavailable::Interrupted(_))) => {
                tracing::warn!(%error, "cannot read history");
                None
            }
        }
    }

    /// The same for an operator. The history says who acted, and why.
    pub(super) fn on_behalf_of(&self, actor: &Actor, reason: Option<&str>) -> Self {
        let Actor { who, .. } = actor;
        let by = reason.map_or_else(|| format!("by {who}"), |reason| format!("by {who}: {reason}"));
        Self { ledger: self.ledger.on_behalf_of(by), ..self.clone() }
    }

    /// Resolves a claim that was found.
    pub async fn resolve_found(&self, found: FoundClaim, ending: Ending) -> Result<ResolvedClaim, Refusal> {
        let (resolution, state) = match (ending, found.seen) {
            (Ending::Done(outcome), Some(seen)) => (Resolution::DoneAsSeen(seen, outcome), "done"),
            (Ending::Done(outcome), None) => (Resolution::Done(outcome), "done"),
            (Ending::Absent, Some(seen)) => (Resolution::AbsentAsSeen(seen), "absent"),
            (Ending::Absent, None) => (Resolution::Absent, "absent"),
        };
        match self.ledger.resolve(&found.key, &resolution).await? {
            // It is in doubt, and yet not the one that was seen.
            Resolved::Refused(CurrentState::InDoubt) => Err(Refusal::Changed),
            resolved @ (Resolved::Applied | Resolved::Refused(_)) => settled(resolved, found.summary, state),
        }
    }

    /// Releases a claim that was found.
    pub async fn release_found(&self, found: FoundClaim, force: bool) -> Result<ResolvedClaim, Refusal> {
        if found.summary.state == StateName::Running && !force {
            return Err(Refusal::Running);
        }
        settled(self.ledger.resolve(&found.key, &Resolution::Release).await?, found.summary, "released")
    }
}

impl Operator for Local {
    async fn list(&self, query: &Query) -> Result<Page, Refusal> {
        Ok(self.ledger.list(query).await?)
    }

    async fn show(&self, selector: &ClaimSelector) -> Result<ClaimView, Refusal> {
        let FoundClaim { summary, key, .. } = find(&self.ledger, selector, &[]).await?;
        let record = self.ledger.get(&key).await?.ok_or(Refusal::NoSuchClaim)?;
        claim_view(&summary, &record)
    }

    async fn resolve(
        &self,
        selector: &ClaimSelector,
        resolve_as: &ResolveAs,
    ) -> Result<ResolvedClaim, Refusal> {
        self.resolve_found(self.find_to_resolve(selector).await?, resolve_as.into()).await
    }

    async fn ask(
        &self,
        selector: &ClaimSelector,
        confirmed: Option<&Confirmed>,
    ) -> Result<AskedClaim, Refusal> {
        match confirmed {
            None => Local::ask(self, selector).await,
            Some(_) => Err(Refusal::AuditUnavailable(NOT_AUDITED.to_owned())),
        }
    }

    async fn triage(&self, filter: &TriageFilter, limit: usize) -> Result<Triage, Refusal> {
        Ok(triage(&self.ledger, filter, limit).await?)
    }

    async fn resolve_all(
        &self,
        _: &[SeenClaim],
        _: &ResolveAs,
        _: Option<&str>,
    ) -> Result<Vec<SeenResult>, Refusal> {
        Err(Refusal::AuditUnavailable(NOT_AUDITED.to_owned()))
    }

    async fn release(&self, selector: &ClaimSelector, force: bool) -> Result<ResolvedClaim, Refusal> {
        self.release_found(self.find_to_release(selector).await?, force).await
    }

    async fn forget(&self, selector: &ClaimSelector, _reason: &str) -> Result<ResolvedClaim, Refusal> {
        self.forget_found(self.find_to_forget(selector).await?).await
    }

    async fn erase(&self, selector: &ClaimSelector, _reason: &str) -> Result<ResolvedClaim, Refusal> {
        self.erase_found(self.find_to_forget(selector).await?).await
    }

    async fn erase_event(&self, key: &str, _reason: &str) -> Result<ErasedEvent, Refusal> {
        self.erase_found_event(&self.find_event(key).await?).await
    }

    async fn list_events(&self, query: &MarkQuery) -> Result<MarkPage, Refusal> {
        Ok(self.ledger.list_marks(query).await?)
    }

    async fn show_event(&self, key: &str) -> Result<EventView, Refusal> {
        let found = self.find_event(key).await?;
        let repeats = self.repeats(&found).await;
        Ok(EventView { event: self.event(&found), repeats })
    }

    async fn forget_event(&self, key: &str, _reason: Option<&str>) -> Result<MarkSummary, Refusal> {
        self.forget_found_event(&self.find_event(key).await?).await
    }

    async fn sweep_step(&self) -> Result<Swept, Refusal> {
        Ok(self.ledger.sweep(SWEEP_STEP).await?)
    }

    async fn stats(&self) -> Result<Stats, Refusal> {
        Ok(self.ledger.stats().await?)
    }

    async fn verify(&self) -> Result<Verified, Refusal> {
        Ok(self.ledger.verify().await?)
    }

    async fn backup(&self, to: &Path) -> Result<Backup, Refusal> {
        Ok(self.ledger.backup(to).await?)
    }

    async fn compact(&self) -> Result<Swept, Refusal> {
        Ok(self.ledger.compact().await?)
    }
}

fn settled(resolved: Resolved, claim: Summary, state: &str) -> Result<ResolvedClaim, Refusal> {
    match resolved {
        Resolved::Applied => {
            let Summary { key, tenant, route, index, .. } = claim;
            Ok(ResolvedClaim { key, tenant, route, index, state: state.to_owned() })
        }
        Resolved::Refused(now) => Err(Refusal::WrongState(now.into())),
    }
}
