//! The verbs on a ledger that this process has open.

use ichido_core::{Outcome, Resolution, Resolved};
use ichido_ledger::{Ledger, Page, Query, StateName, Stats, Summary, Swept};

use super::claim_view::shown;
use super::find::{Found, find};
use super::{Operator, Refusal, Said, Shown, Which, Word};

/// Records removed in one step of a sweep.
const SWEEP_STEP: usize = 1_000;

/// A ledger that is open here.
#[derive(Clone, Debug)]
pub struct Local(pub Ledger);

impl Local {
    /// The one claim whose end is to be said.
    pub async fn to_resolve(&self, which: &Which) -> Result<Found, Refusal> {
        find(&self.0, which, &[StateName::InDoubt]).await
    }

    /// The one claim whose key is to be given back.
    pub async fn to_release(&self, which: &Which) -> Result<Found, Refusal> {
        find(&self.0, which, &[StateName::Running, StateName::InDoubt]).await
    }

    /// Says how a claim that was found ended.
    pub async fn resolve_found(&self, found: Found, word: &Word) -> Result<Said, Refusal> {
        let (resolution, state) = match word {
            Word::Done(Some(outcome)) => {
                (Resolution::Done(Outcome::kept(outcome.as_bytes().to_vec())), "done")
            }
            Word::Done(None) => {
                (Resolution::Done(Outcome::Tombstone("resolved by an operator".to_owned())), "done")
            }
            Word::Absent => (Resolution::Absent, "absent"),
        };
        settled(self.0.resolve(&found.key, &resolution).await?, found.summary, state)
    }

    /// Gives the key of a claim back that was found.
    pub async fn release_found(&self, found: Found, force: bool) -> Result<Said, Refusal> {
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

    async fn show(&self, which: &Which) -> Result<Shown, Refusal> {
        let Found { summary, key } = find(&self.0, which, &[]).await?;
        let record = self.0.get(&key).await?.ok_or(Refusal::NoSuchClaim)?;
        shown(&summary, &record)
    }

    async fn resolve(&self, which: &Which, word: &Word) -> Result<Said, Refusal> {
        self.resolve_found(self.to_resolve(which).await?, word).await
    }

    async fn release(&self, which: &Which, force: bool) -> Result<Said, Refusal> {
        self.release_found(self.to_release(which).await?, force).await
    }

    async fn sweep_step(&self) -> Result<Swept, Refusal> {
        Ok(self.0.sweep(SWEEP_STEP).await?)
    }

    async fn stats(&self) -> Result<Stats, Refusal> {
        Ok(self.0.stats().await?)
    }
}

fn settled(resolved: Resolved, claim: Summary, state: &str) -> Result<Said, Refusal> {
    match resolved {
        Resolved::Applied => {
            let Summary { key, tenant, route, index, .. } = claim;
            Ok(Said { key, tenant, route, index, state: state.to_owned() })
        }
        Resolved::Refused(now) => Err(Refusal::Left(now.into())),
    }
}
