//! Settles claims in doubt by asking the service behind them, without an operator.
//!
//! # Why this is safe
//!
//! A claim in doubt may be ended in two ways, and they are not equally dangerous.
//!
//! - **Done** keeps the key taken. If the service is wrong, an effect that did not happen is reported as done. Nothing runs
//!   twice. A service that says `done` knows the effect, so this is believed at once (`automatic = "done"`, the default).
//! - **Absent** frees the key, and the next retry runs the effect. If the service is wrong, it runs twice, which is what a key
//!   exists to prevent. "Not found" is weak evidence: the request may still be running or queued in the service, a replica
//!   may lag behind, the path may be mistyped, a load balancer may answer 404 for a service that is being deployed. So this is
//!   believed only if the operator has opted in (`automatic = "both"`) and said how long a request may still take effect
//!   (`settle_seconds`), and then only if all of this holds ([`decision`]):
//!   1. The last two answers were `absent`, asked at different times, with no other answer in between.
//!   2. The second one was asked when this process had known of the doubt for `settle_seconds`. It measures that on its own
//!      steady clock, so neither a clock that is wrong nor a restart makes it shorter.
//!   3. Right after that, the same question finds an effect that is known to have happened ([`control`]).
//!
//! Everything else decides nothing: an error, a redirect, a timeout, a response that is too large. The question is repeated
//! with growing pauses, and then the claim is left to a person.
//!
//! The resolution names the exact claim that was seen before the question was asked, by its token and by the number of its
//! renewals. If its holder came back meanwhile, or somebody resolved the claim and the key was claimed anew, nothing is changed.
//!
//! Several instances may ask about the same claim. A question changes nothing, and only the first resolution is applied.
//!
//! # Limits
//!
//! At most [`QUESTIONS_MAX`] questions at a time and one every [`PAUSE`], each with its own timeout and size limit; at most
//! [`TRACKED_MAX`] claims are kept in mind, others wait for the next look.
//!
//! [`control`]: crate::operator::control

mod decision;
mod hints;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ichido_core::{Index, Key, Scope};
use ichido_http::{Answer, AskService, Asked, Automatic};
use ichido_ledger::{Ledger, Listing, Query, StateName, Summary};
use metrics::counter;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::decision::{Next, Progress};
pub use self::hints::{DoubtHints, HintReceiver, hints};
use crate::operator::control::{Control, control};
use crate::operator::{Audited, Ending, PAGE_MAX, Refusal, describe, questions};

/// The most questions at a time.
const QUESTIONS_MAX: usize = 4;
/// The shortest time between two questions.
const PAUSE: Duration = Duration::from_millis(20);
/// The most claims in doubt that are kept in mind.
const TRACKED_MAX: usize = 10_000;
/// How often the ledger is searched for claims in doubt, if it has an index of them, and if it must read everything.
const SEARCH_INTERVAL: Duration = Duration::from_secs(5);
const SCAN_INTERVAL: Duration = Duration::from_secs(900);

/// Settles claims in doubt until `stop`. `audited` acts for this process.
pub async fn settle_doubts(
    audited: Audited,
    service: Arc<dyn AskService>,
    mut hints: HintReceiver,
    stop: CancellationToken,
) {
    register();
    let mut doubts =
        Doubts { audited, service, tracked: HashMap::new(), asking: JoinSet::new(), search_at: None };
    let mut asked_last = None;
    loop {
        doubts.search_if_due().await;
        let due = doubts.next_due(asked_last);
        let now = doubts.now();
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(ended) = doubts.asking.join_next(), if !doubts.asking.is_empty() => {
                if let Ok((index, progress)) = ended {
                    doubts.put_back(index, progress);
                }
            }
            Some(key) = hints.next() => doubts.consider_hint(&key).await,
            () = tokio::time::sleep(due.saturating_sub(now)) => {
                if doubts.start_next(&stop) {
                    asked_last = Some(doubts.now());
                }
            }
        }
    }
    // A question is given up; a resolution that has begun is finished and recorded.
    while doubts.asking.join_next().await.is_some() {}
}

/// Claims in doubt, and what is known of them.
struct Doubts {
    audited: Audited,
    service: Arc<dyn AskService>,
    tracked: HashMap<Index, Tracked>,
    asking: JoinSet<(Index, Progress)>,
    /// When the ledger is searched again, on the steady clock. `None`: now.
    search_at: Option<Duration>,
}

/// A claim in doubt.
#[derive(Clone, Debug)]
struct Tracked {
    key: Key,
    version: String,
    /// `None` while it is being asked about.
    progress: Option<Progress>,
}

impl Doubts {
    fn ledger(&self) -> &Ledger {
        &self.audited.operator.ledger
    }

    fn now(&self) -> Duration {
        self.ledger().settings().clock.steady()
    }

    /// When there is something to do, on the steady clock.
    fn next_due(&self, asked_last: Option<Duration>) -> Duration {
        let search = self.search_at.unwrap_or_default();
        let due = self.tracked.values().filter_map(|tracked| tracked.progress.as_ref()?.due()).min();
        let due = due.filter(|_| self.asking.len() < QUESTIONS_MAX);
        due.map_or(search, |due| due.max(asked_last.map_or(due, |last| last + PAUSE)).min(search))
    }

    /// Searches the ledger for claims in doubt, and forgets those that are no longer.
    async fn search_if_due(&mut self) {
        let now = self.now();
        if self.search_at.is_some_and(|at| now < at) {
            return;
        }
        if !self.service.is_automatic() {
            self.search_at = Some(now + SEARCH_INTERVAL);
            return;
        }
        let interval = match self.ledger().capabilities().listing {
            Listing::Indexed => SEARCH_INTERVAL,
            Listing::Scan => SCAN_INTERVAL,
        };
        let mut query =
            Query { state: Some(StateName::InDoubt), prefix: None, limit: PAGE_MAX, cursor: None };
        let mut found = HashSet::new();
        loop {
            let page = match self.ledger().list(&query).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::warn!(%error, "cannot list claims in doubt; trying again later");
                    break;
                }
            };
            for claim in &page.claims {
                found.extend(claim.index.parse::<Index>());
                self.consider(claim);
            }
            query.cursor = page.cursor;
            if query.cursor.is_none() {
                self.tracked.retain(|index, tracked| tracked.progress.is_none() || found.contains(index));
                break;
            }
            if found.len() >= TRACKED_MAX {
                break;
            }
        }
        self.search_at = Some(self.now() + interval);
    }

    /// A request met this claim in doubt, or declared it.
    async fn consider_hint(&mut self, key: &Key) {
        if self.tracked.contains_key(&key.index()) || self.service.schedule(key.scope()).is_err() {
            return;
        }
        let now = self.ledger().settings().clock.now();
        if let Ok(Some(record)) = self.ledger().get(key).await
            && let Some(claim) = Summary::of(&record, now).filter(|claim| claim.state == StateName::InDoubt)
        {
            self.consider(&claim);
        }
    }

    fn consider(&mut self, claim: &Summary) {
        let Ok(key) = Key::new(Scope::new(&claim.tenant, &claim.route), claim.key.clone()) else { return };
        let now = self.now();
        if let Some(tracked) = self.tracked.get_mut(&key.index()) {
            // Its holder came back, or it was claimed anew: whatever the service said was about the past.
            if tracked.version != claim.version && tracked.progress.is_some() {
                tracked.version.clone_from(&claim.version);
                tracked.progress = None;
            } else {
                return;
            }
        }
        match self.service.schedule(key.scope()) {
            Ok(schedule) if schedule.automatic != Automatic::Off && self.has_room(&key) => {
                let progress = Some(Progress::new(now, &schedule));
                let version = claim.version.clone();
                self.tracked.insert(key.index(), Tracked { key, version, progress });
            }
            Ok(_) | Err(_) => drop(self.tracked.remove(&key.index())),
        }
    }

    fn has_room(&self, key: &Key) -> bool {
        self.tracked.len() < TRACKED_MAX || self.tracked.contains_key(&key.index())
    }

    /// Starts the question that is due first. Returns whether there was one.
    fn start_next(&mut self, stop: &CancellationToken) -> bool {
        let now = self.now();
        if self.asking.len() >= QUESTIONS_MAX {
            return false;
        }
        let is_due = |tracked: &&mut Tracked| {
            tracked.progress.as_ref().and_then(Progress::due).is_some_and(|due| due <= now)
        };
        let first = self
            .tracked
            .values_mut()
            .filter(is_due)
            .min_by_key(|tracked| tracked.progress.as_ref().and_then(Progress::due));
        let Some((tracked, progress)) = first.and_then(|tracked| {
            let progress = tracked.progress.take()?;
            Some((tracked.clone(), progress))
        }) else {
            return false;
        };
        let question = OneQuestion {
            audited: self.audited.clone(),
            service: self.service.clone(),
            key: tracked.key,
            version: tracked.version,
        };
        let stop = stop.clone();
        self.asking.spawn(async move {
            let index = question.key.index();
            (index, question.run(progress, &stop).await)
        });
        true
    }

    fn put_back(&mut self, index: Index, progress: Progress) {
        if progress.is_settled() {
            self.tracked.remove(&index);
        } else if let Some(tracked) = self.tracked.get_mut(&index) {
            tracked.progress = Some(progress);
        }
    }
}

/// One question about one claim.
struct OneQuestion {
    audited: Audited,
    service: Arc<dyn AskService>,
    key: Key,
    version: String,
}

impl OneQuestion {
    async fn run(&self, mut progress: Progress, stop: &CancellationToken) -> Progress {
        let asked = tokio::select! {
            () = stop.cancelled() => return progress,
            asked = questions::ask(&*self.service, &self.key) => asked,
        };
        // A reload may have removed the question meanwhile.
        let (Ok(asked), Ok(schedule)) = (asked, self.service.schedule(self.key.scope())) else {
            return Progress::Settled;
        };
        let now = self.audited.operator.ledger.settings().clock.steady();
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

fn register() {
    questions::register();
    counter!("ichido_doubts_left_total").increment(0);
    for as_state in ["done", "absent"] {
        counter!("ichido_doubts_settled_total", "as" => as_state).increment(0);
    }
}
