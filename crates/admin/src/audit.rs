//! Operator actions through the admin port: each one runs to completion and is recorded.

use std::path::PathBuf;

use ichido_core::Key;
use ichido_ledger::{Backup, MarkSummary, Swept};
use ichido_serve::Failure;

use crate::audit_log::Actor;
use crate::operator::{
    AskedClaim, Audited, ClaimSelector, Confirmed, ErasedEvent, Local, Refusal, ResolveAs, ResolvedClaim,
    SeenClaim, SeenResult,
};
use crate::state::AppState;

impl AppState {
    pub(crate) fn operator(&self) -> Local {
        Local {
            ledger: self.admin.ledger.clone(),
            histories: self.admin.histories.clone(),
            service: self.admin.service.clone(),
        }
    }

    fn audited(&self, actor: Actor) -> Audited {
        Audited { operator: self.operator(), audit: self.audit.clone(), actor }
    }

    /// Resolves a claim in doubt.
    pub(crate) async fn resolve(
        &self,
        actor: Actor,
        selector: ClaimSelector,
        resolve_as: ResolveAs,
    ) -> Result<ResolvedClaim, Refusal> {
        let audited = self.audited(actor);
        self.run_action(async move { audited.resolve(&selector, &resolve_as).await }).await
    }

    /// Asks the service behind a claim, and resolves the claim if an operator has confirmed that.
    pub(crate) async fn ask(
        &self,
        actor: Actor,
        selector: ClaimSelector,
        confirmed: Option<Confirmed>,
    ) -> Result<AskedClaim, Refusal> {
        let audited = self.audited(actor);
        self.run_action(async move { audited.ask(&selector, confirmed.as_ref()).await }).await
    }

    /// Resolves the claim in doubt that an operator has seen.
    pub(crate) async fn resolve_seen(
        &self,
        actor: Actor,
        key: Key,
        version: String,
        resolve_as: ResolveAs,
    ) -> Result<ResolvedClaim, Refusal> {
        let audited = self.audited(actor);
        self.run_action(async move { audited.resolve_seen(&key, &version, (&resolve_as).into(), None).await })
            .await
    }

    /// Resolves claims in doubt that an operator has seen.
    pub(crate) async fn resolve_all(
        &self,
        actor: Actor,
        claims: Vec<SeenClaim>,
        resolve_as: ResolveAs,
        reason: Option<String>,
    ) -> Result<Vec<SeenResult>, Refusal> {
        let audited = self.audited(actor);
        self.run_action(async move { audited.resolve_all(&claims, &resolve_as, reason.as_deref()).await })
            .await
    }

    /// Releases a key.
    pub(crate) async fn release(
        &self,
        actor: Actor,
        selector: ClaimSelector,
        force: bool,
    ) -> Result<ResolvedClaim, Refusal> {
        let audited = self.audited(actor);
        self.run_action(async move { audited.release(&selector, force).await }).await
    }

    /// Forgets a completed claim.
    pub(crate) async fn forget(
        &self,
        actor: Actor,
        selector: ClaimSelector,
        reason: String,
    ) -> Result<ResolvedClaim, Refusal> {
        let audited = self.audited(actor);
        self.run_action(async move { audited.forget(&selector, &reason).await }).await
    }

    /// Erases what callers wrote in a completed claim.
    pub(crate) async fn erase(
        &self,
        actor: Actor,
        selector: ClaimSelector,
        reason: String,
    ) -> Result<ResolvedClaim, Refusal> {
        let audited = self.audited(actor);
        self.run_action(async move { audited.erase(&selector, &reason).await }).await
    }

    /// Erases what callers wrote in the mark of an event.
    pub(crate) async fn erase_event(
        &self,
        actor: Actor,
        key: String,
        reason: String,
    ) -> Result<ErasedEvent, Refusal> {
        let audited = self.audited(actor);
        self.run_action(async move { audited.erase_event(&key, &reason).await }).await
    }

    /// Forgets an event.
    pub(crate) async fn forget_event(
        &self,
        actor: Actor,
        key: String,
        reason: Option<String>,
    ) -> Result<MarkSummary, Refusal> {
        let audited = self.audited(actor);
        self.run_action(async move { audited.forget_event(&key, reason.as_deref()).await }).await
    }

    /// Removes expired records, one step at a time.
    pub(crate) async fn sweep(&self, actor: Actor) -> Result<Swept, Refusal> {
        let audited = self.audited(actor);
        self.run_action(async move { audited.sweep_step().await }).await
    }

    /// Copies the store to a new directory.
    pub(crate) async fn backup(&self, actor: Actor, to: PathBuf) -> Result<Backup, Refusal> {
        let audited = self.audited(actor);
        self.run_action(async move { audited.backup(&to).await }).await
    }

    /// Reclaims all space that expired and replaced records take.
    pub(crate) async fn compact(&self, actor: Actor) -> Result<Swept, Refusal> {
        let audited = self.audited(actor);
        self.run_action(async move { audited.compact().await }).await
    }

    /// Runs an action and its audit entries to completion, even if the caller disconnects.
    async fn run_action<T: Send + 'static>(
        &self,
        action: impl Future<Output = Result<T, Refusal>> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.actions.spawn(action).await.unwrap_or_else(|error| {
            tracing::error!(%error, "operator action panicked");
            Err(Refusal::Failed(Failure::internal(
                "the action was interrupted; check what it did before you repeat it",
            )))
        })
    }
}
