//! What operators do, to its end and with its line in the log.

use ichido_core::{Key, Scope};
use ichido_serve::Failure;

use crate::auth::Peer;
use crate::operator::{ClaimSelector, FoundClaim, Local, Refusal, ResolveAs, ResolvedClaim};
use crate::state::AppState;

/// The target of the log lines that record what operators did.
pub const AUDIT: &str = "ichido::audit";

impl AppState {
    pub(crate) fn operator(&self) -> Local {
        Local(self.admin.ledger.clone())
    }

    /// Takes an operator's word on a claim in doubt.
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

    /// Gives a key back.
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

    /// Carries an action out to its end and its line in the audit, also if the caller hangs up.
    pub(crate) async fn run_action<T: Send + 'static>(
        &self,
        action: impl Future<Output = Result<T, Refusal>> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.actions.spawn(action).await.unwrap_or_else(|error| {
            tracing::error!(%error, "an action broke off");
            Err(Refusal::Failed(Failure::internal("the action broke off")))
        })
    }
}

/// One line for each action, done or refused. The key is named by its index: its text may be a secret.
fn audit(peer: Peer, action: &str, index: &str, result: &Result<ResolvedClaim, Refusal>) {
    let code = match result {
        Ok(_) => "applied",
        Err(refusal) => refusal.code(),
    };
    tracing::info!(target: AUDIT, who = %peer.0, action, index, result = code, "an operator's action");
}

/// The index of the claim, or of the key as it was asked for; parts that were left out then count as empty.
fn index_of(selector: &ClaimSelector, found: &Result<FoundClaim, Refusal>) -> String {
    if let Ok(found) = found {
        return found.summary.index.clone();
    }
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    let key = Key::new(Scope::new(part(&selector.tenant), part(&selector.route)), selector.key.clone());
    key.map_or_else(|_| "-".to_owned(), |key| key.index().to_string())
}
