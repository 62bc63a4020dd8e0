//! The verbs on a ledger that this process has open.

use ichido_core::{Outcome, Resolution, Resolved};
use ichido_ledger::{Ledger, Page, Query, StateName, Stats, Summary, Swept};

use super::find::find;
use super::shown::shown;
use super::{Operator, Refusal, Said, Shown, Which, Word};

/// Records removed in one step of a sweep.
const SWEEP_STEP: usize = 1_000;

/// A ledger that is open here.
#[derive(Clone, Debug)]
pub(crate) struct Local(pub(crate) Ledger);

impl Operator for Local {
    async fn list(&self, query: &Query) -> Result<Page, Refusal> {
        Ok(self.0.list(query).await?)
    }

    async fn show(&self, which: &Which) -> Result<Shown, Refusal> {
        let (summary, key) = find(&self.0, which, &[None]).await?;
        let record = self.0.look(&key).await?.ok_or(Refusal::NoSuchClaim)?;
        shown(&summary, &record)
    }

    async fn resolve(&self, which: &Which, word: &Word) -> Result<Said, Refusal> {
        let (resolution, state) = match word {
            Word::Done(Some(outcome)) => {
                (Resolution::Done(Outcome::kept(outcome.as_bytes().to_vec())), "done")
            }
            Word::Done(None) => {
                (Resolution::Done(Outcome::Tombstone("resolved by an operator".to_owned())), "done")
            }
            Word::Absent => (Resolution::Absent, "absent"),
        };
        let (summary, key) = find(&self.0, which, &[Some(StateName::InDoubt)]).await?;
        settled(self.0.resolve(&key, &resolution).await?, summary, state)
    }

    async fn release(&self, which: &Which, force: bool) -> Result<Said, Refusal> {
        let states = [Some(StateName::Running), Some(StateName::InDoubt)];
        let (summary, key) = find(&self.0, which, &states).await?;
        if summary.state == StateName::Running && !force {
            return Err(Refusal::Running);
        }
        settled(self.0.resolve(&key, &Resolution::Release).await?, summary, "released")
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
