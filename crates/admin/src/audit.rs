//! What operators do, to its end and with its line in the log.

use ichido_core::{Key, Scope};
use ichido_serve::Failure;

use crate::auth::Peer;
use crate::operator::{Found, Local, Refusal, Said, Which, Word};
use crate::state::Served;

/// The target of the log lines that record what operators did.
pub const AUDIT: &str = "ichido::audit";

impl Served {
    pub(crate) fn operator(&self) -> Local {
        Local(self.admin.ledger.clone())
    }

    /// Takes an operator's word on a claim in doubt.
    pub(crate) async fn resolve(&self, peer: Peer, which: Which, word: Word) -> Result<Said, Refusal> {
        let operator = self.operator();
        self.to_the_end(async move {
            let action = match word {
                Word::Done(_) => "resolve as done",
                Word::Absent => "resolve as absent",
            };
            let found = operator.to_resolve(&which).await;
            let index = index_of(&which, &found);
            let said = match found {
                Ok(found) => operator.resolve_found(found, &word).await,
                Err(refusal) => Err(refusal),
            };
            audit(peer, action, &index, &said);
            said
        })
        .await
    }

    /// Gives a key back.
    pub(crate) async fn release(&self, peer: Peer, which: Which, force: bool) -> Result<Said, Refusal> {
        let operator = self.operator();
        self.to_the_end(async move {
            let action = if force { "release by force" } else { "release" };
            let found = operator.to_release(&which).await;
            let index = index_of(&which, &found);
            let said = match found {
                Ok(found) => operator.release_found(found, force).await,
                Err(refusal) => Err(refusal),
            };
            audit(peer, action, &index, &said);
            said
        })
        .await
    }

    /// Carries an action out to its end and its line in the audit, also if the caller hangs up.
    pub(crate) async fn to_the_end<T: Send + 'static>(
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
fn audit(peer: Peer, action: &str, index: &str, said: &Result<Said, Refusal>) {
    let result = match said {
        Ok(_) => "applied",
        Err(refusal) => refusal.word(),
    };
    tracing::info!(target: AUDIT, who = %peer.0, action, index, result, "an operator's action");
}

/// The index of the claim, or of the key as it was asked for; parts that were left out then count as empty.
fn index_of(which: &Which, found: &Result<Found, Refusal>) -> String {
    if let Ok(found) = found {
        return found.summary.index.clone();
    }
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    let key = Key::new(Scope::new(part(&which.tenant), part(&which.route)), which.key.clone());
    key.map_or_else(|_| "-".to_owned(), |key| key.index().to_string())
}
