//! Asks the service behind a claim whether its effect happened, because an operator wants to know.
//!
//! The first call only shows the answer and what would follow. A second call names what the operator confirmed: it asks
//! again, and resolves the claim only if the answer is the same and the claim is still the one that was shown.

use std::sync::Arc;
use std::time::Duration;

use ichido_http::{Answer, AskService, Asked, NotAsked, Schedule};
use ichido_ledger::{StateName, Summary};

use super::control::{Control, control};
use super::doubt_wire::{AskedClaim, Confirmed};
use super::find::{FoundClaim, find};
use super::questions;
use super::wire::ResolveKind;
use super::{Audited, ClaimSelector, Ending, Local, Refusal};

/// A claim, and what the service says about it.
struct Inquired {
    found: FoundClaim,
    asked: Asked,
    view: AskedClaim,
}

impl Local {
    /// Asks the service about a claim. Changes nothing.
    pub async fn ask(&self, selector: &ClaimSelector) -> Result<AskedClaim, Refusal> {
        self.inquire(selector).await.map(|inquired| inquired.view)
    }

    async fn inquire(&self, selector: &ClaimSelector) -> Result<Inquired, Refusal> {
        let found = find(&self.ledger, selector, &[StateName::InDoubt]).await?;
        let service = self.service()?;
        let cannot = |why: NotAsked| Refusal::CannotAsk(why.to_string());
        let schedule = service.schedule(found.key.scope()).map_err(cannot)?;
        let asked = questions::ask(&*service, &found.key).await.map_err(cannot)?;
        let control = match (&asked.answer, found.summary.state) {
            (Answer::Absent, StateName::InDoubt) => Some(control(&self.ledger, &*service, &found.key).await),
            (Answer::Absent | Answer::Done(_) | Answer::Undecided(_), _) => None,
        };
        let age = self.age(&found.summary);
        let view = view(&found.summary, &asked, age, schedule, control);
        Ok(Inquired { found, asked, view })
    }

    fn service(&self) -> Result<Arc<dyn AskService>, Refusal> {
        let none = "there is no gateway here that knows how to ask; use --admin with the address of one";
        self.service.clone().ok_or_else(|| Refusal::CannotAsk(none.to_owned()))
    }

    /// How long a claim has been in doubt, by the clock of this machine.
    fn age(&self, claim: &Summary) -> Duration {
        let now = self.ledger.settings().clock.now();
        Duration::from_millis(claim.doubt_since.map_or(0, |since| now.ms_since(since)))
    }
}

impl Audited {
    /// Asks the service about a claim. If an operator has confirmed what follows from its answer, resolves the claim.
    pub async fn ask(
        &self,
        selector: &ClaimSelector,
        confirmed: Option<&Confirmed>,
    ) -> Result<AskedClaim, Refusal> {
        let Inquired { found, asked, view } = self.operator.inquire(selector).await?;
        let Some(confirmed) = confirmed else { return Ok(view) };
        if view.version != confirmed.version {
            return Err(Refusal::Changed);
        }
        let ending = match (asked.answer, confirmed.resolve) {
            (Answer::Done(outcome), ResolveKind::Done) => Ending::Done(outcome),
            (Answer::Absent, ResolveKind::Absent) if view.follows == Some(ResolveKind::Absent) => {
                Ending::Absent
            }
            (Answer::Done(_) | Answer::Absent | Answer::Undecided(_), _) => {
                return Err(Refusal::CannotAsk(format!("{}: {}", view.detail, view.means)));
            }
        };
        let resolved = self.resolve_seen(&found.key, &confirmed.version, ending, Some(&view.detail)).await?;
        Ok(AskedClaim { resolved: Some(resolved.state), ..view })
    }
}

fn view(
    claim: &Summary,
    asked: &Asked,
    age: Duration,
    schedule: Schedule,
    control: Option<Control>,
) -> AskedClaim {
    let mut wait_seconds = None;
    let (follows, means) = match (claim.state, &asked.answer) {
        (StateName::InDoubt, Answer::Done(_)) => {
            (Some(ResolveKind::Done), "it would be resolved as done".to_owned())
        }
        (StateName::InDoubt, Answer::Absent) if age < schedule.settle => {
            let wait = (schedule.settle - age).as_secs() + 1;
            wait_seconds = Some(wait);
            (None, format!("too early: the effect may still happen; ask again in {wait} s"))
        }
        (StateName::InDoubt, Answer::Absent) => {
            let caution = control.map_or("", Control::caution);
            let means = "it would be resolved as absent, and the next retry would run the effect";
            (Some(ResolveKind::Absent), format!("{means}{caution}"))
        }
        (StateName::InDoubt, Answer::Undecided(_)) => (None, "this decides nothing".to_owned()),
        (StateName::Running | StateName::Done, _) => {
            (None, format!("nothing follows: the claim is {}", claim.state.as_str()))
        }
    };
    AskedClaim {
        key: claim.key.clone(),
        tenant: claim.tenant.clone(),
        route: claim.route.clone(),
        index: claim.index.clone(),
        state: claim.state,
        version: claim.version.clone(),
        answer: asked.answer.name().to_owned(),
        status: asked.status.map(|status| status.as_u16()),
        detail: describe(asked),
        follows,
        means,
        control: control.map(|control| control.name().to_owned()),
        wait_seconds,
        resolved: None,
    }
}

/// What the service said, for the audit log and the history. It is the service's word, and nothing else was checked.
pub(crate) fn describe(asked: &Asked) -> String {
    match (&asked.answer, asked.status) {
        (Answer::Undecided(why), _) => why.clone(),
        (Answer::Done(_), status) => format!("the service says that it happened{}", with(status)),
        (Answer::Absent, status) => format!("the service says that it did not happen{}", with(status)),
    }
}

fn with(status: Option<http::StatusCode>) -> String {
    status.map_or_else(String::new, |status| format!(" (status {})", status.as_u16()))
}
