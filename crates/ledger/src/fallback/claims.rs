//! Claims, wherever they are granted, and what their holders say of them.
//!
//! A claim that was granted here is *owed* to the primary until it is handed over, and asked for here first. A grant
//! that the primary made without an answer, and that nobody holds, is an *orphan*; it is released there.

use std::sync::Arc;

use ichido_core::{Claim, ClaimRequest, Key, Settle, Settled, Token};

use super::abandoned_grants::Orphan;
use super::state::Fallback;
use crate::{Backend, Claimed, Effect, Result};

impl Fallback {
    pub(crate) async fn claim(self: &Arc<Self>, request: &ClaimRequest) -> Result<Claimed> {
        let index = request.key.index();
        let mut perhaps = false;
        loop {
            if let Some(claim) = self.claim_owed(request).await? {
                return self.answer_locally(request, claim, perhaps).await;
            }
            if let Some(asked) = self.ask_primary(&[index]).await {
                // Granted here just before the primary came back. From now on nobody is: `asked` is known to all.
                if self.owed().has_claim(index) {
                    continue;
                }
                match self.primary.claim(request).await {
                    Ok(claim) => {
                        let claim = if perhaps { self.unless_run_here(request, claim).await } else { claim };
                        if let Claim::Granted(grant) = &claim {
                            // Full or not, the primary has granted: the mirror is best effort.
                            let _ = self.mirror.put_grant(request, grant);
                        }
                        return Ok(Claimed { claim, degraded: false });
                    }
                    Err(error) if error.is_outage() => {
                        perhaps |= error.effect() == Effect::Unknown;
                        self.degrade(&error).await;
                    }
                    Err(error) => return Err(error),
                }
                drop(asked);
            }
            let Some(_mode) = self.local_turn(&[index]).await else { continue };
            if let Some(claim) = self.mirror.peek_claim(request) {
                return self.answer_locally(request, claim, perhaps).await;
            }
            let claim = self.local.claim(request).await?;
            if matches!(claim, Claim::Granted(_)) {
                self.owed().add_claim(&request.key);
                self.count_owed();
            }
            return self.answer_locally(request, claim, perhaps).await;
        }
    }

    /// `perhaps`: the primary may have granted this call without an answer. If it is not granted here, that grant is
    /// nobody's.
    async fn answer_locally(&self, request: &ClaimRequest, claim: Claim, perhaps: bool) -> Result<Claimed> {
        let is_granted = matches!(&claim, Claim::Granted(grant) if grant.token == request.token);
        if perhaps && !is_granted {
            self.add_orphan(&request.key, request.token).await;
        }
        Ok(Claimed { claim, degraded: true })
    }

    /// The primary's grant, unless the key was granted here to another in the time that this call waited.
    async fn unless_run_here(&self, request: &ClaimRequest, claim: Claim) -> Claim {
        let Claim::Granted(grant) = &claim else { return claim };
        match self.mirror.peek_claim(request) {
            None | Some(Claim::Granted(_)) => claim,
            Some(known) => {
                // Nobody will settle it; at worst it lapses.
                let _ = self.primary.settle(&request.key, grant.token, &Settle::Release).await;
                known
            }
        }
    }

    /// A claim on a key that was granted here, and of which the primary knows nothing yet.
    async fn claim_owed(&self, request: &ClaimRequest) -> Result<Option<Claim>> {
        if !self.owed().has_claim(request.key.index()) {
            return Ok(None);
        }
        let _turn = self.owed_turn.lock().await;
        if !self.owed().has_claim(request.key.index()) {
            return Ok(None);
        }
        self.local.claim(request).await.map(Some)
    }

    pub(crate) async fn settle(self: &Arc<Self>, key: &Key, token: Token, word: &Settle) -> Result<Settled> {
        if let Some(settled) = self.settle_owed(key, token, word).await? {
            return Ok(settled);
        }
        let settled = self.primary.settle(key, token, word).await?;
        if settled == Settled::Applied {
            let _ = self.mirror.settle(key, token, word).await;
        }
        Ok(settled)
    }

    async fn settle_owed(
        self: &Arc<Self>,
        key: &Key,
        token: Token,
        word: &Settle,
    ) -> Result<Option<Settled>> {
        if !self.owed().has_claim(key.index()) {
            return Ok(None);
        }
        let turn = self.owed_turn.lock().await;
        if !self.owed().has_claim(key.index()) {
            return Ok(None);
        }
        let orphan = Orphan { key: key.clone(), token };
        if *word == Settle::Release {
            // The primary may know this grant as well. Before the release: after a crash nobody would remember it.
            self.add_orphan(key, token).await;
        }
        let settled = self.local.settle(key, token, word).await?;
        match (&settled, word) {
            (Settled::Applied, Settle::Release) => self.owed().remove_claim(key.index()),
            (Settled::Stale(_), Settle::Release) => self.drop_orphan(&orphan).await?,
            (_, Settle::Renew { .. } | Settle::Complete(_) | Settle::Doubt(_)) => {}
        }
        drop(turn);
        if settled == Settled::Applied {
            self.tell_if_healthy(key).await;
        }
        Ok(Some(settled))
    }
}
