//! Claims during and after an outage, and their settlement.
//!
//! A claim that the local ledger granted is *pending handover* until the primary has it, and is looked up locally
//! first. If the primary may have granted a claim without anyone receiving the grant, it is *abandoned* and
//! released there.

use std::sync::Arc;

use ichido_core::{Claim, ClaimRequest, Key, Settle, Settled, Token};

use super::abandoned_grants::AbandonedGrant;
use super::state::Fallback;
use crate::{Backend, Claimed, Effect, Result};

impl Fallback {
    pub(crate) async fn claim(self: &Arc<Self>, request: &ClaimRequest) -> Result<Claimed> {
        let index = request.key.index();
        let mut maybe_granted = false;
        loop {
            if let Some(claim) = self.claim_pending(request).await? {
                return self.degraded_result(request, claim, maybe_granted).await;
            }
            if let Some(call) = self.begin_primary_call(&[index]).await {
                // Granted locally just before the primary came back. From now on that cannot happen: all others see
                // `call`.
                if self.pending().has_claim(index) {
                    continue;
                }
                if maybe_granted {
                    self.take_back_abandoned_grant(&request.key, request.token).await?;
                }
                match self.primary.claim(request).await {
                    Ok(claim) => {
                        let claim =
                            if maybe_granted { self.prefer_local_claim(request, claim).await } else { claim };
                        if let Claim::Granted(grant) = &claim {
                            // The primary has granted, so this succeeds even if the mirror is full: the mirror is
                            // best effort.
                            let _ = self.mirror.put_grant(request, grant);
                        }
                        return Ok(Claimed { claim, degraded: false });
                    }
                    Err(error) => {
                        maybe_granted |= error.effect() == Effect::Unknown;
                        if maybe_granted {
                            // Noted before others see that the call has ended: a claim that is granted here next must
                            // not meet this grant in the primary when it is handed over.
                            self.add_abandoned_grant(&request.key, request.token).await;
                        }
                        if !error.is_outage() {
                            return Err(error);
                        }
                        self.degrade(&error).await;
                    }
                }
                drop(call);
            }
            let Some(_mode) = self.wait_for_local_turn(&[index]).await else { continue };
            if let Some(claim) = self.mirror.peek_claim(request) {
                return self.degraded_result(request, claim, maybe_granted).await;
            }
            let claim = self.local.claim(request).await?;
            if matches!(claim, Claim::Granted(_)) {
                self.pending().add_claim(&request.key);
                self.count_pending();
            }
            return self.degraded_result(request, claim, maybe_granted).await;
        }
    }

    /// If `maybe_granted`, the primary may have granted this call although its reply was lost, and the grant is noted as
    /// abandoned. If the local ledger granted it as well, it has a holder after all.
    async fn degraded_result(
        &self,
        request: &ClaimRequest,
        claim: Claim,
        maybe_granted: bool,
    ) -> Result<Claimed> {
        let is_granted = matches!(&claim, Claim::Granted(grant) if grant.token == request.token);
        if maybe_granted && is_granted {
            self.take_back_abandoned_grant(&request.key, request.token).await?;
        }
        Ok(Claimed { claim, degraded: true })
    }

    /// The primary's answer, unless the local ledger granted the key to another caller while this call waited.
    async fn prefer_local_claim(&self, request: &ClaimRequest, claim: Claim) -> Claim {
        let Claim::Granted(grant) = &claim else { return claim };
        match self.mirror.peek_claim(request) {
            None | Some(Claim::Granted(_)) => claim,
            Some(known) => {
                // Nobody will settle this grant. If the release fails, the lease lapses.
                let _ = self.primary.settle(&request.key, grant.token, &Settle::Release).await;
                known
            }
        }
    }

    /// A claim on a key that the local ledger granted and the primary does not know yet.
    async fn claim_pending(&self, request: &ClaimRequest) -> Result<Option<Claim>> {
        if !self.pending().has_claim(request.key.index()) {
            return Ok(None);
        }
        let _turn = self.pending_lock.lock().await;
        if !self.pending().has_claim(request.key.index()) {
            return Ok(None);
        }
        self.local.claim(request).await.map(Some)
    }

    pub(crate) async fn settle(
        self: &Arc<Self>,
        key: &Key,
        token: Token,
        action: &Settle,
    ) -> Result<Settled> {
        if let Some(settled) = self.settle_pending(key, token, action).await? {
            return Ok(settled);
        }
        let settled = self.primary.settle(key, token, action).await?;
        if settled == Settled::Applied {
            let _ = self.mirror.settle(key, token, action).await;
        }
        Ok(settled)
    }

    async fn settle_pending(
        self: &Arc<Self>,
        key: &Key,
        token: Token,
        action: &Settle,
    ) -> Result<Option<Settled>> {
        if !self.pending().has_claim(key.index()) {
            return Ok(None);
        }
        let turn = self.pending_lock.lock().await;
        if !self.pending().has_claim(key.index()) {
            return Ok(None);
        }
        let grant = AbandonedGrant { key: key.clone(), token };
        if *action == Settle::Release {
            // The primary may have made this grant too. Note it before the release: after a crash nobody would
            // remember it.
            self.add_abandoned_grant(key, token).await;
        }
        let settled = self.local.settle(key, token, action).await?;
        match (&settled, action) {
            (Settled::Applied, Settle::Release) => self.pending().remove_claim(key.index()),
            (Settled::Stale(_), Settle::Release) => self.remove_abandoned_grant(&grant).await?,
            (_, Settle::Renew { .. } | Settle::Complete(_) | Settle::Doubt(_)) => {}
        }
        drop(turn);
        if settled == Settled::Applied {
            self.hand_over_if_healthy(key).await;
        }
        Ok(Some(settled))
    }
}
