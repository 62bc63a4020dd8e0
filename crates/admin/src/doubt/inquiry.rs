//! One question about one claim in doubt, and what follows from its answer.

use std::sync::Arc;

use ichido_core::Key;
use ichido_http::{Answer, AskService, Asked, Automatic};
use ichido_ledger::{StateName, Summary};
use metrics::counter;
use tokio_util::sync::CancellationToken;

use super::decision::{Next, Progress};
use crate::operator::control::{Control, control};
use crate::operator::{Audited, Ending, Refusal, describe, questions};

/// One question about one claim.
pub(super) struct Inquiry {
    pub(super) audited: Audited,
    pub(super) service: Arc<dyn AskService>,
    pub(super) key: Key,
    pub(super) version: String,
}

impl Inquiry {
    pub(super) async fn run(&self, mut progress: Progress, stop: &CancellationToken) -> Progress {
        // A reload may have removed the question.
        let schedule = self.service.schedule(self.key.scope());
        let Some(schedule) = schedule.ok().filter(|schedule| schedule.automatic != Automatic::Off) else {
            return Progress::Settled;
        };
        // The service may have looked at any time from now on.
        let now = self.audited.operator.ledger.settings().clock.steady();
        let asked = tokio::select! {
            () = stop.cancelled() => return progress,
            asked = questions::ask(&*self.service, &self.key) => asked,
        };
        let Ok(asked) = asked else { return Progress::Settled };
        let next = progress.answered(&asked, now, &schedule);
        let Asked { status, answer } = asked.clone();
        let (index, route) = (self.key.index(), &self.key.scope().route);
        let status = status.map(|status| status.as_u16());
        tracing::debug!(%index, route, status, answer = answer.name(), "asked the service about a claim in doubt");
        match (next, answer) {
            (Next::Settle, Answer::Done(outcome)) => {
                self.settle(Ending::Done(outcome), &asked, progress).await
            }
            (Next::Settle, Answer::Absent) => {
                let ledger = &self.audited.operator.ledger;
                match control(ledger, &*self.service, &self.key).await {
                    Control::Found => self.settle(Ending::Absent, &asked, progress).await,
                    failed @ (Control::NotFound | Control::Nothing) => {
                        let why = failed.why_not();
                        if progress.distrusted(why, now, &schedule) == Next::LeaveToAPerson {
                            self.leave(&progress);
                        }
                        progress
                    }
                }
            }
            (Next::LeaveToAPerson, _) => {
                self.leave(&progress);
                progress
            }
            (Next::Settle | Next::AskAgain, _) => progress,
        }
    }

    async fn settle(&self, ending: Ending, asked: &Asked, progress: Progress) -> Progress {
        let as_state = match &ending {
            Ending::Done(_) => "done",
            Ending::Absent => "absent",
        };
        let reason = describe(asked);
        let (index, route) = (self.key.index(), &self.key.scope().route);
        if !self.is_still_in_doubt().await {
            return Progress::Settled;
        }
        match self.audited.resolve_seen(&self.key, &self.version, ending, Some(&reason)).await {
            Ok(_) => {
                counter!("ichido_doubts_settled_total", "as" => as_state).increment(1);
                tracing::info!(%index, route, r#as = as_state, reason, "settled a claim in doubt by asking the service");
                Progress::Settled
            }
            // Somebody else was faster, or the claim is another one by now.
            Err(
                Refusal::Changed
                | Refusal::NoSuchClaim
                | Refusal::WrongState(_)
                | Refusal::Running
                | Refusal::NotCompleted(_),
            ) => Progress::Settled,
            Err(
                refusal @ (Refusal::Ledger(_)
                | Refusal::AuditUnavailable(_)
                | Refusal::AuditIncomplete(_)
                | Refusal::CannotAsk(_)
                | Refusal::NoSuchEvent
                | Refusal::Ambiguous { .. }
                | Refusal::Failed(_)),
            ) => {
                let error = refusal.into_failure(&index.to_string());
                tracing::warn!(%index, route, %error, "cannot settle a claim in doubt; trying again later");
                progress
            }
        }
    }

    /// Several instances may have asked. An attempt that cannot succeed would only fill the audit log.
    async fn is_still_in_doubt(&self) -> bool {
        let ledger = &self.audited.operator.ledger;
        let Ok(Some(record)) = ledger.get(&self.key).await else { return true };
        Summary::of(&record, ledger.settings().clock.now())
            .is_some_and(|claim| claim.state == StateName::InDoubt && claim.version == self.version)
    }

    fn leave(&self, progress: &Progress) {
        counter!("ichido_doubts_left_total").increment(1);
        let (index, route) = (self.key.index(), &self.key.scope().route);
        let (questions, reason) = progress.summary();
        tracing::warn!(%index, route, questions, reason, "a claim in doubt needs a person: the service did not settle it");
    }
}
