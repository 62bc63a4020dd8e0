//! Operator actions that leave entries in the audit log.

use std::path::Path;

use ichido_core::{Key, MarkKey, Scope, mark};
use ichido_ledger::{Backup, MarkPage, MarkQuery, MarkSummary, Page, Query, Stats, Swept, Verified};

use super::find::FoundClaim;
use super::{
    AskedClaim, ClaimSelector, ClaimView, Confirmed, Ending, ErasedEvent, EventView, Local, Operator,
    Refusal, ResolveAs, ResolvedClaim, SeenClaim, SeenResult, Triage, TriageFilter,
};
use crate::audit_log::{Action, Actor, AuditLog, Outcome, Pending, blocking};

/// A ledger of this process, used by somebody.
#[derive(Clone, Debug)]
pub struct Audited {
    /// The ledger.
    pub operator: Local,
    /// Where actions are recorded.
    pub audit: AuditLog,
    /// Who acts.
    pub actor: Actor,
}

/// What is done to a claim.
enum Act<'a> {
    Resolve { ending: Ending, reason: Option<&'a str> },
    Release { force: bool },
    Forget { reason: &'a str },
    Erase { reason: &'a str },
}

impl Act<'_> {
    fn name(&self) -> &'static str {
        match self {
            Act::Resolve { ending: Ending::Done(_), .. } => "resolve as done",
            Act::Resolve { ending: Ending::Absent, .. } => "resolve as absent",
            Act::Release { force: true } => "release by force",
            Act::Release { force: false } => "release",
            Act::Forget { .. } => "forget",
            Act::Erase { .. } => "erase",
        }
    }
}

impl Audited {
    /// Resolves a claim in doubt.
    pub async fn resolve(
        &self,
        selector: &ClaimSelector,
        resolve_as: &ResolveAs,
    ) -> Result<ResolvedClaim, Refusal> {
        let found = self.operator.find_to_resolve(selector).await;
        self.act(selector, found, Act::Resolve { ending: resolve_as.into(), reason: None }).await
    }

    /// Resolves a claim in doubt, if it is still the one that was seen.
    pub async fn resolve_seen(
        &self,
        key: &Key,
        version: &str,
        ending: Ending,
        reason: Option<&str>,
    ) -> Result<ResolvedClaim, Refusal> {
        let found = self.operator.find_seen(key, version).await;
        let Scope { tenant, route } = key.scope().clone();
        let selector = ClaimSelector { key: key.text().to_owned(), tenant: Some(tenant), route: Some(route) };
        self.act(&selector, found, Act::Resolve { ending, reason }).await
    }

    /// Resolves claims in doubt one by one, each if it is still the one that was seen.
    pub async fn resolve_all(
        &self,
        claims: &[SeenClaim],
        resolve_as: &ResolveAs,
        reason: Option<&str>,
    ) -> Result<Vec<SeenResult>, Refusal> {
        let key = |claim: &SeenClaim| Key::new(Scope::new(&claim.tenant, &claim.route), claim.key.clone());
        // A claim that cannot exist is found before anything is done.
        let keys = claims.iter().map(key).collect::<Result<Vec<_>, _>>()?;
        let mut results = Vec::with_capacity(claims.len());
        for (claim, key) in claims.iter().zip(keys) {
            let resolved = self.resolve_seen(&key, &claim.version, resolve_as.into(), reason).await;
            results.push(SeenResult::new(claim, resolved));
        }
        Ok(results)
    }

    /// Releases a key.
    pub async fn release(&self, selector: &ClaimSelector, force: bool) -> Result<ResolvedClaim, Refusal> {
        let found = self.operator.find_to_release(selector).await;
        self.act(selector, found, Act::Release { force }).await
    }

    /// Forgets a completed claim whose effect did not happen.
    pub async fn forget(&self, selector: &ClaimSelector, reason: &str) -> Result<ResolvedClaim, Refusal> {
        let found = self.operator.find_to_forget(selector).await;
        self.act(selector, found, Act::Forget { reason }).await
    }

    /// Erases what callers wrote in a completed claim.
    pub async fn erase(&self, selector: &ClaimSelector, reason: &str) -> Result<ResolvedClaim, Refusal> {
        let found = self.operator.find_to_forget(selector).await;
        self.act(selector, found, Act::Erase { reason }).await
    }

    /// Forgets an event.
    pub async fn forget_event(&self, key: &str, reason: Option<&str>) -> Result<MarkSummary, Refusal> {
        let forget = async |operator: Local, found| operator.forget_found_event(&found).await;
        self.act_on_event(key, reason, ("forget event", "forgotten"), forget).await
    }

    /// Erases what callers wrote in the mark of an event.
    pub async fn erase_event(&self, key: &str, reason: &str) -> Result<ErasedEvent, Refusal> {
        let erase = async |operator: Local, found| operator.erase_found_event(&found).await;
        self.act_on_event(key, Some(reason), ("erase event", "marked"), erase).await
    }

    /// Does something to the mark of an event. `names` are the action, and the state after it.
    async fn act_on_event<T>(
        &self,
        key: &str,
        reason: Option<&str>,
        names: (&str, &str),
        act: impl AsyncFnOnce(Local, mark::Record) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let index = MarkKey::stored(key).map_or_else(|_| "-".to_owned(), |key| key.index().to_string());
        let action =
            Action { index: Some(index), reason: reason.map(ToOwned::to_owned), ..Action::named(names.0) };
        let found = match self.operator.find_event(key).await {
            Ok(found) => found,
            Err(refusal) => return self.refuse(action, refusal).await,
        };
        let before = "marked".to_owned();
        let pending = self.begin(Action { before: Some(before.clone()), ..action }).await?;
        let result = act(self.operator.on_behalf_of(&self.actor, reason), found).await;
        let (code, after) = match &result {
            Ok(_) => ("applied", Some(names.1.to_owned())),
            Err(refusal) => (refusal.code(), refusal.state_left(&before)),
        };
        finish(pending, Outcome { after, ..Outcome::of(code) }, result).await
    }

    /// One step of a sweep.
    pub async fn sweep_step(&self) -> Result<Swept, Refusal> {
        let pending = self.begin(Action::named("sweep")).await?;
        let swept = self.operator.sweep_step().await;
        finish(pending, outcome_of(&swept, |swept| Some(swept.removed)), swept).await
    }

    /// Copies the store to a new directory, which the entry names: a backup contains everything that the ledger does.
    pub async fn backup(&self, to: &Path) -> Result<Backup, Refusal> {
        let place = Some(to.display().to_string());
        let pending = self.begin(Action { place, ..Action::named("backup") }).await?;
        let backup = self.operator.backup(to).await;
        finish(pending, outcome_of(&backup, |_| None), backup).await
    }

    /// Reclaims all space that expired and replaced records take.
    pub async fn compact(&self) -> Result<Swept, Refusal> {
        let pending = self.begin(Action::named("compact")).await?;
        let swept = self.operator.compact().await;
        finish(pending, outcome_of(&swept, |swept| Some(swept.removed)), swept).await
    }

    async fn act(
        &self,
        selector: &ClaimSelector,
        found: Result<FoundClaim, Refusal>,
        act: Act<'_>,
    ) -> Result<ResolvedClaim, Refusal> {
        let reason = match act {
            Act::Forget { reason } | Act::Erase { reason } => Some(reason),
            Act::Resolve { reason, .. } => reason,
            Act::Release { .. } => None,
        };
        let operator = self.operator.on_behalf_of(&self.actor, reason);
        let (index, reason) = (Some(index_of(selector, &found)), reason.map(ToOwned::to_owned));
        let action = Action { index, reason, ..Action::named(act.name()) };
        let found = match found {
            Ok(found) => found,
            Err(refusal) => return self.refuse(action, refusal).await,
        };
        let before = found.summary.state.as_str().to_owned();
        let pending = self.begin(Action { before: Some(before.clone()), ..action }).await?;
        let result = match act {
            Act::Resolve { ending, .. } => operator.resolve_found(found, ending).await,
            Act::Release { force } => operator.release_found(found, force).await,
            Act::Forget { .. } => operator.forget_found(found).await,
            Act::Erase { .. } => operator.erase_found(found).await,
        };
        let (code, after) = match &result {
            Ok(resolved) => ("applied", Some(resolved.state.clone())),
            Err(refusal) => (refusal.code(), refusal.state_left(&before)),
        };
        finish(pending, Outcome { after, ..Outcome::of(code) }, result).await
    }

    /// Records an action that was refused before it began.
    async fn refuse<T>(&self, action: Action, refusal: Refusal) -> Result<T, Refusal> {
        let (audit, actor, outcome) = (self.audit.clone(), self.actor.clone(), Outcome::of(refusal.code()));
        blocking(move || audit.record(&actor, &action, outcome)).await.map_err(Refusal::not_begun)?;
        Err(refusal)
    }

    async fn begin(&self, action: Action) -> Result<Pending, Refusal> {
        let (audit, actor) = (self.audit.clone(), self.actor.clone());
        blocking(move || audit.begin(actor, action)).await.map_err(Refusal::not_begun)
    }
}

fn outcome_of<T>(result: &Result<T, Refusal>, removed: impl FnOnce(&T) -> Option<u64>) -> Outcome {
    match result {
        Ok(done) => Outcome { removed: removed(done), ..Outcome::of("applied") },
        Err(refusal) => Outcome::of(refusal.code()),
    }
}

/// Records the result, and returns it. If that fails, an action that was carried out is not reported as done.
async fn finish<T>(pending: Pending, outcome: Outcome, result: Result<T, Refusal>) -> Result<T, Refusal> {
    match (blocking(move || pending.finish(outcome)).await, result) {
        (Ok(()), result) => result,
        (Err(error), Ok(_)) => Err(Refusal::not_recorded(&error)),
        (Err(error), Err(refusal)) => {
            tracing::error!(%error, "cannot record the result of an operator action");
            Err(refusal)
        }
    }
}

/// The index of the claim, or of the requested key if no claim was found. Missing parts of the scope count as empty.
fn index_of(selector: &ClaimSelector, found: &Result<FoundClaim, Refusal>) -> String {
    if let Ok(found) = found {
        return found.summary.index.clone();
    }
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    let key = Key::stored(Scope::new(part(&selector.tenant), part(&selector.route)), selector.key.clone());
    key.map_or_else(|_| "-".to_owned(), |key| key.index().to_string())
}

impl Operator for Audited {
    async fn list(&self, query: &Query) -> Result<Page, Refusal> {
        self.operator.list(query).await
    }

    async fn show(&self, selector: &ClaimSelector) -> Result<ClaimView, Refusal> {
        self.operator.show(selector).await
    }

    async fn resolve(
        &self,
        selector: &ClaimSelector,
        resolve_as: &ResolveAs,
    ) -> Result<ResolvedClaim, Refusal> {
        Audited::resolve(self, selector, resolve_as).await
    }

    async fn ask(
        &self,
        selector: &ClaimSelector,
        confirmed: Option<&Confirmed>,
    ) -> Result<AskedClaim, Refusal> {
        Audited::ask(self, selector, confirmed).await
    }

    async fn triage(&self, filter: &TriageFilter, limit: usize) -> Result<Triage, Refusal> {
        self.operator.triage(filter, limit).await
    }

    async fn resolve_all(
        &self,
        claims: &[SeenClaim],
        resolve_as: &ResolveAs,
        reason: Option<&str>,
    ) -> Result<Vec<SeenResult>, Refusal> {
        Audited::resolve_all(self, claims, resolve_as, reason).await
    }

    async fn release(&self, selector: &ClaimSelector, force: bool) -> Result<ResolvedClaim, Refusal> {
        Audited::release(self, selector, force).await
    }

    async fn forget(&self, selector: &ClaimSelector, reason: &str) -> Result<ResolvedClaim, Refusal> {
        Audited::forget(self, selector, reason).await
    }

    async fn erase(&self, selector: &ClaimSelector, reason: &str) -> Result<ResolvedClaim, Refusal> {
        Audited::erase(self, selector, reason).await
    }

    async fn erase_event(&self, key: &str, reason: &str) -> Result<ErasedEvent, Refusal> {
        Audited::erase_event(self, key, reason).await
    }

    async fn list_events(&self, query: &MarkQuery) -> Result<MarkPage, Refusal> {
        self.operator.list_events(query).await
    }

    async fn show_event(&self, key: &str) -> Result<EventView, Refusal> {
        self.operator.show_event(key).await
    }

    async fn forget_event(&self, key: &str, reason: Option<&str>) -> Result<MarkSummary, Refusal> {
        Audited::forget_event(self, key, reason).await
    }

    async fn sweep_step(&self) -> Result<Swept, Refusal> {
        Audited::sweep_step(self).await
    }

    async fn stats(&self) -> Result<Stats, Refusal> {
        self.operator.stats().await
    }

    async fn verify(&self) -> Result<Verified, Refusal> {
        self.operator.verify().await
    }

    async fn backup(&self, to: &Path) -> Result<Backup, Refusal> {
        Audited::backup(self, to).await
    }

    async fn compact(&self) -> Result<Swept, Refusal> {
        Audited::compact(self).await
    }
}
