//! Operator actions: each one runs to completion and leaves one line in the audit log.

use ichido_core::{Key, Scope};
use ichido_serve::Failure;

use crate::auth::Peer;
use crate::operator::{ClaimSelector, FoundClaim, Local, Refusal, ResolveAs, ResolvedClaim};
use crate::state::AppState;

/// The log target of operator actions.
pub const AUDIT: &str = "ichido::audit";

impl AppState {
    pub(crate) fn operator(&self) -> Local {
        Local(self.admin.ledger.clone())
    }

    /// Resolves a claim in doubt.
    pub(crate) async fn resolve(
        &self,
        peer: Peer,
        selector: ClaimSelector,
        resolve_as: ResolveAs,
    ) -> Result<ResolvedClaim, Refusal> {
        let operator = self.operator();
        self.run_action(async move {
            let action = match resolve_as {
                ResolveAs::Done(_) => "resolve as done",
                ResolveAs::Absent => "resolve as absent",
            };
            let found = operator.find_to_resolve(&selector).await;
            let index = index_of(&selector, &found);
            let result = match found {
                Ok(found) => operator.resolve_found(found, &resolve_as).await,
                Err(refusal) => Err(refusal),
            };
            audit(peer, action, &index, &result);
            result
        })
        .await
    }

    /// Releases a key.
    pub(crate) async fn release(
        &self,
        peer: Peer,
        selector: ClaimSelector,
        force: bool,
    ) -> Result<ResolvedClaim, Refusal> {
        let operator = self.operator();
        self.run_action(async move {
            let action = if force { "release by force" } else { "release" };
            let found = operator.find_to_release(&selector).await;
            let index = index_of(&selector, &found);
            let result = match found {
                Ok(found) => operator.release_found(found, force).await,
                Err(refusal) => Err(refusal),
            };
            audit(peer, action, &index, &result);
            result
        })
        .await
    }

    /// Runs an action and its audit line to completion, even if the caller disconnects.
    pub(crate) async fn run_action<T: Send + 'static>(
        &self,
        action: impl Future<Output = Result<T, Refusal>> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.actions.spawn(action).await.unwrap_or_else(|error| {
            tracing::error!(%error, "operator action panicked");
            Err(Refusal::Failed(Failure::internal(
                "the action was interrupted; check the claim before you repeat it",
            )))
        })
    }
}

/// Logs one line per action, applied or refused. It names the key by its index, because the key itself may be a
/// secret.
fn audit(peer: Peer, action: &str, index: &str, result: &Result<ResolvedClaim, Refusal>) {
    let code = match result {
        Ok(_) => "applied",
        Err(refusal) => refusal.code(),
    };
    tracing::info!(target: AUDIT, who = %peer.0, action, index, result = code, "operator action");
}

/// The index of the claim, or of the requested key if no claim was found. Missing parts of the scope count as empty.
fn index_of(selector: &ClaimSelector, found: &Result<FoundClaim, Refusal>) -> String {
    if let Ok(found) = found {
        return found.summary.index.clone();
    }
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    let key = Key::new(Scope::new(part(&selector.tenant), part(&selector.route)), selector.key.clone());
    key.map_or_else(|_| "-".to_owned(), |key| key.index().to_string())
}
