//! Operator actions on a ledger that this process has open.

use std::path::Path;

use ichido_core::{Outcome, Resolution, Resolved};
use ichido_ledger::{Backup, Ledger, Page, Query, StateName, Stats, Summary, Swept, Verified};

use super::claim_view::claim_view;
use super::find::{FoundClaim, find};
use super::{ClaimSelector, ClaimView, Operator, Refusal, ResolveAs, ResolvedClaim};

/// The most records that one step of a sweep removes.
const SWEEP_STEP: usize = 1_000;

/// A ledger that this process has open.
#[derive(Clone, Debug)]
pub struct Local(pub Ledger);

impl Local {
    /// Finds the claim to resolve.
    pub async fn find_to_resolve(&self, selector: &ClaimSelector) -> Result<FoundClaim, Refusal> {
        find(&self.0, selector, &[StateName::InDoubt]).await
    }

    /// Finds the claim to release.
    pub async fn find_to_release(&self, selector: &ClaimSelector) -> Result<FoundClaim, Refusal> {
        find(&self.0, selector, &[StateName::Running, StateName::InDoubt]).await
    }

    /// Resolves a claim that was found.
    pub async fn resolve_found(
        &self,
        found: FoundClaim,
        resolve_as: &ResolveAs,
    ) -> Result<ResolvedClaim, Refusal> {
        let (resolution, state) = match resolve_as {
            ResolveAs::Done(Some(outcome)) => {
                (Resolution::Done(Outcome::kept(outcome.as_bytes().to_vec())), "done")
            }
            ResolveAs::Done(None) => {
                (Resolution::Done(Outcome::Tombstone("resolved by an operator".to_owned())), "done")
            }
            ResolveAs::Absent => (Resolution::Absent, "absent"),
        };
        settled(self.0.resolve(&found.key, &resolution).await?, found.summary, state)
    }

    /// Releases a claim that was found.
    pub async fn release_found(&self, found: FoundClaim, force: bool) -> Result<ResolvedClaim, Refusal> {
        if found.summary.state == StateName::Running && !force {
            return Err(Refusal::Running);
        }
        settled(self.0.resolve(&found.key, &Resolution::Release).await?, found.summary, "released")
    }
}

impl Operator for Local {
    async fn list(&self, query: &Query) -> Result<Page, Refusal> {
        Ok(self.0.list(query).await?)
    }

    async fn show(&self, selector: &ClaimSelector) -> Result<ClaimView, Refusal> {
        let FoundClaim { summary, key } = find(&self.0, selector, &[]).await?;
        let record = self.0.get(&key).await?.ok_or(Refusal::NoSuchClaim)?;
        claim_view(&summary, &record)
    }

    async fn resolve(
        &self,
        selector: &ClaimSelector,
        resolve_as: &ResolveAs,
    ) -> Result<ResolvedClaim, Refusal> {
        self.resolve_found(self.find_to_resolve(selector).await?, resolve_as).await
    }

    async fn release(&self, selector: &ClaimSelector, force: bool) -> Result<ResolvedClaim, Refusal> {
        self.release_found(self.find_to_release(selector).await?, force).await
    }

    async fn sweep_step(&self) -> Result<Swept, Refusal> {
        Ok(self.0.sweep(SWEEP_STEP).await?)
    }

    async fn stats(&self) -> Result<Stats, Refusal> {
        Ok(self.0.stats().await?)
    }

    async fn verify(&self) -> Result<Verified, Refusal> {
        Ok(self.0.verify().await?)
    }

    async fn backup(&self, to: &Path) -> Result<Backup, Refusal> {
        Ok(self.0.backup(to).await?)
    }

    async fn compact(&self) -> Result<Swept, Refusal> {
        Ok(self.0.compact().await?)
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
