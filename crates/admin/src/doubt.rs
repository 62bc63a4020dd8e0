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
mod inquiry;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ichido_core::{Index, Key, Scope};
use ichido_http::{AskService, Automatic};
use ichido_ledger::{Ledger, Listing, Query, StateName, Summary};
use metrics::counter;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::decision::Progress;
pub use self::hints::{DoubtHints, HintReceiver, hints};
use self::inquiry::Inquiry;
use crate::operator::{Audited, PAGE_MAX, questions};

/// The most questions at a time.
const QUESTIONS_MAX: usize = 4;
/// The shortest time between two questions.
const PAUSE: Duration = Duration::from_millis(20);
/// The most claims in doubt that are kept in mind.
const TRACKED_MAX: usize = 10_000;
/// How often hints are taken.
const HINT_INTERVAL: Duration = Duration::from_millis(50);
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
    let mut doubts = Doubts {
        audited,
        service,
        tracked: HashMap::new(),
        asking: JoinSet::new(),
        ask_from: Duration::ZERO,
        search_at: None,
    };
    // Many requests may meet claims in doubt. Their hints are taken together, a few times a second.
    let mut hints_from = Duration::ZERO;
    loop {
        doubts.search_if_due().await;
        let now = doubts.now();
        let takes_hints = now >= hints_from;
        let due = doubts.next_due();
        let due = if takes_hints { due } else { due.min(hints_from) };
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(ended) = doubts.asking.join_next(), if !doubts.asking.is_empty() => {
                if let Ok((index, progress)) = ended {
                    doubts.put_back(index, progress);
                }
            }
            keys = hints.next(), if takes_hints => {
                hints_from = now + HINT_INTERVAL;
                for key in keys {
                    doubts.consider_hint(&key).await;
                }
            }
            () = tokio::time::sleep(due.saturating_sub(now)) => doubts.start_next(&stop),
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
    /// When the next question may begin, on the steady clock.
    ask_from: Duration,
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
    fn next_due(&self) -> Duration {
        let search = self.search_at.unwrap_or_default();
        let due = self.tracked.values().filter_map(|tracked| tracked.progress.as_ref()?.due()).min();
        let due = due.filter(|_| self.asking.len() < QUESTIONS_MAX);
        due.map_or(search, |due| due.max(self.ask_from).min(search))
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

    /// Starts the question that is due first, if there is one.
    fn start_next(&mut self, stop: &CancellationToken) {
        let now = self.now();
        if self.asking.len() >= QUESTIONS_MAX || now < self.ask_from {
            return;
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
            return;
        };
        self.ask_from = now + PAUSE;
        let question = Inquiry {
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
    }

    fn put_back(&mut self, index: Index, progress: Progress) {
        if progress.is_settled() {
            self.tracked.remove(&index);
        } else if let Some(tracked) = self.tracked.get_mut(&index) {
            tracked.progress = Some(progress);
        }
    }
}

fn register() {
    questions::register();
    counter!("ichido_doubts_left_total").increment(0);
    for as_state in ["done", "absent"] {
        counter!("ichido_doubts_settled_total", "as" => as_state).increment(0);
    }
}
