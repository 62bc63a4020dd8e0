//! The handle that programs use.
//!
//! It implements what must be the same for every backend: limits, nonces, deadlines, retries, metrics, lease
//! renewal, waiting and the fallback. Cloning is cheap; all clones share one ledger.

mod observed;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ichido_core::mark::{self, Erased, Forgotten};
use ichido_core::{
    Adopted, Claim, ClaimRequest, CurrentState, Fingerprint, Holder, InDoubtPolicy, Key, LimitError, Limits,
    MarkKey, Metadata, Nonce, Outcome, Record, Resolution, Resolved, Settle, Settled, Token,
};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::fallback::{Fallback, FallbackSettings};
use crate::retry::RetryingBackend;
use crate::waiters::Waiters;
use crate::{
    Backend, Backup, Capabilities, Claimed, FallbackStatus, LocalBackend, MarkPage, MarkQuery, Marked, Page,
    Query, Result, Settings, Stats, Sweeping, Swept, Verified,
};

/// Shortest and longest pause between two polls for a key whose holder is in another process.
const POLL_PAUSE: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(500));

/// A ledger of claims.
#[derive(Clone)]
pub struct Ledger {
    backend: RetryingBackend,
    fallback: Option<Arc<Fallback>>,
    waiters: Arc<Waiters>,
    tasks: TaskTracker,
    renewals: Renewals,
    /// Who uses this handle, if that is an operator.
    operator: Option<Arc<str>>,
}

/// The renewals of a ledger.
#[derive(Clone, Debug, Default)]
pub(crate) struct Renewals {
    pub(crate) tasks: TaskTracker,
    pub(crate) end: CancellationToken,
}

impl Renewals {
    /// Stops all of them. Their claims lapse unless they are settled.
    pub(crate) async fn end(&self) {
        self.end.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Ledger {
    /// Wraps a backend.
    pub fn new(backend: Arc<dyn Backend>, settings: Settings) -> Self {
        let backend = RetryingBackend::new(backend, Arc::new(settings));
        let (tasks, renewals) = (TaskTracker::new(), Renewals::default());
        Self { backend, fallback: None, waiters: Arc::default(), tasks, renewals, operator: None }
    }

    /// The same ledger for an operator. The observer learns who resolved or forgot a key, and why, from this text.
    pub fn on_behalf_of(&self, operator: impl Into<Arc<str>>) -> Self {
        Self { operator: Some(operator.into()), ..self.clone() }
    }

    /// The same ledger for callers that prefer answers from a local ledger over errors during an outage.
    ///
    /// Whatever `local` holds is pending handover to this ledger. It is handed over first if this ledger can be
    /// reached.
    pub async fn with_fallback(
        &self,
        local: Arc<dyn LocalBackend>,
        settings: FallbackSettings,
    ) -> Result<Self> {
        let fallback = Some(Fallback::open(self.backend.clone(), local, settings).await?);
        Ok(Self { fallback, ..self.clone() })
    }

    /// A request with a fresh nonce and token, and the defaults of the settings.
    pub fn request(&self, key: Key) -> ClaimRequest {
        let settings = &self.backend.settings;
        ClaimRequest {
            key,
            fingerprint: Fingerprint::NONE,
            caller: None,
            nonce: Nonce::draw(&*settings.entropy),
            token: Token::draw(&*settings.entropy),
            lease_ms: settings.lease_ms,
            retention_ms: settings.retention_ms,
            holder: Holder::Process,
            metadata: Metadata::default(),
            in_doubt: InDoubtPolicy::Reject,
        }
    }

    /// A mark with a fresh nonce, and the defaults of the settings.
    pub fn mark_request(&self, key: MarkKey) -> mark::Request {
        let settings = &self.backend.settings;
        let nonce = Nonce::draw(&*settings.entropy);
        mark::Request { key, nonce, retention_ms: settings.mark_retention_ms, metadata: Metadata::default() }
    }

    /// Claims a key.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the claim granted. Call again with the same request to get the same grant.
    /// Otherwise the lease lapses, and the claim becomes in doubt although nothing ran.
    pub async fn claim(&self, request: &ClaimRequest) -> Result<Claimed> {
        request.check()?;
        let observed = self.observed();
        let claimed = self.ask(request).await;
        if let Some(observed) = observed {
            observed.claimed(request, &claimed);
        }
        claimed
    }

    async fn ask(&self, request: &ClaimRequest) -> Result<Claimed> {
        match &self.fallback {
            None => Ok(Claimed { claim: self.backend.claim(request).await?, degraded: false }),
            Some(fallback) => Box::pin(fallback.claim(request)).await,
        }
    }

    /// The outcome that a retry should get, if it is in memory and costs no waiting. `None` says nothing about the
    /// claim: call [`Ledger::claim`].
    pub fn cached_outcome(&self, request: &ClaimRequest) -> Option<Outcome> {
        let observed = self.observed();
        let outcome = match self.fallback {
            None if request.check().is_ok() => self.backend.cached_outcome(request),
            None | Some(_) => None,
        };
        if let (Some(observed), Some(outcome)) = (observed, &outcome) {
            let claim = Claim::Done(outcome.clone());
            observed.claimed(request, &Ok(Claimed { claim, degraded: false }));
        }
        outcome
    }

    /// Claims a key, and waits for at most `wait` while another holder runs it.
    ///
    /// A holder in this process wakes its waiters. A holder in another process is polled for every 25 to 500 ms.
    pub async fn claim_or_wait(&self, request: &ClaimRequest, wait: Duration) -> Result<Claimed> {
        request.check()?;
        let deadline = Instant::now() + wait;
        let waiter = self.waiters.subscribe(request.key.index());
        let mut pause = POLL_PAUSE.0;
        loop {
            // Created before the claim, so that a completion in between is not missed.
            let woken = waiter.notify.notified();
            let observed = self.observed();
            let claimed = self.ask(request).await;
            let is_held = claimed.as_ref().is_ok_and(|claimed| matches!(claimed.claim, Claim::Held { .. }));
            if !is_held || Instant::now() >= deadline {
                // However often it asked, this is one call with one answer.
                if let Some(observed) = observed {
                    observed.claimed(request, &claimed);
                }
                return claimed;
            }
            let poll_at = deadline.min(Instant::now() + pause);
            if timeout_at(poll_at, woken).await.is_err() {
                pause = (pause * 2).min(POLL_PAUSE.1);
            }
        }
    }

    /// Renews the lease of a running claim.
    pub async fn renew(&self, key: &Key, token: Token, lease_ms: u64) -> Result<Settled> {
        self.settle(key, token, &Settle::Renew { lease_ms }).await
    }

    /// Records the outcome of the effect. Later calls do not change the first outcome.
    pub async fn complete(&self, key: &Key, token: Token, outcome: Outcome) -> Result<Settled> {
        self.settle(key, token, &Settle::Complete(outcome)).await
    }

    /// Releases the key. Only call this if the effect provably did not happen.
    pub async fn release(&self, key: &Key, token: Token) -> Result<Settled> {
        self.settle(key, token, &Settle::Release).await
    }

    /// Declares the claim in doubt: the effect may have happened.
    pub async fn declare_in_doubt(
        &self,
        key: &Key,
        token: Token,
        reason: impl Into<String>,
    ) -> Result<Settled> {
        self.settle(key, token, &Settle::Doubt(reason.into())).await
    }

    /// Renews, completes, releases or declares in doubt: for callers that hold the action as a value.
    pub async fn settle(&self, key: &Key, token: Token, action: &Settle) -> Result<Settled> {
        action.check()?;
        let observed = self.observed();
        let settled = match &self.fallback {
            None => self.backend.settle(key, token, action).await,
            Some(fallback) => Box::pin(fallback.settle(key, token, action)).await,
        };
        if let Some(observed) = observed {
            observed.settled(key, action, &settled);
        }
        if !matches!(action, Settle::Renew { .. }) {
            self.waiters.wake(key.index());
        }
        if let (
            Settle::Complete(_),
            Ok(Settled::Stale(now @ (CurrentState::Running | CurrentState::InDoubt | CurrentState::Done(_)))),
        ) = (action, &settled)
        {
            self.backend.metrics.suspected_twice.increment(1);
            let now = now.name();
            tracing::warn!(index = %key.index(), now, "claim completed after it was taken over; the effect may have run twice");
        }
        settled
    }

    /// Marks events, and reports for each whether it is new. A key that occurs twice in one batch is new once.
    pub async fn mark(&self, requests: &[mark::Request]) -> Result<Vec<Marked>> {
        LimitError::check_batch(requests.len(), &Limits::STANDARD)?;
        for request in requests {
            request.check()?;
        }
        let observed = self.observed();
        let marked = self.mark_unobserved(requests).await;
        if let Some(observed) = observed {
            observed.marked(requests, &marked);
        }
        marked
    }

    /// Makes marks that are not events, so that the history does not count them.
    pub(crate) async fn mark_unobserved(&self, requests: &[mark::Request]) -> Result<Vec<Marked>> {
        match crate::mark_batch::deduplicate(requests) {
            None => self.mark_distinct(requests).await,
            Some((distinct, positions)) => self.mark_distinct(&distinct).await.map(|marked| {
                let now = self.backend.settings.clock.now();
                crate::mark_batch::expand(&distinct, &positions, &marked, now)
            }),
        }
    }

    async fn mark_distinct(&self, requests: &[mark::Request]) -> Result<Vec<Marked>> {
        match &self.fallback {
            None => {
                let marks = self.backend.mark(requests).await?;
                Ok(marks.into_iter().map(|mark| Marked { mark, degraded: false }).collect())
            }
            Some(fallback) => fallback.mark(requests).await,
        }
    }

    /// The record of a key, including its outcome.
    pub async fn get(&self, key: &Key) -> Result<Option<Record>> {
        match &self.fallback {
            None => self.backend.call_once("reading a claim", self.backend.inner.get(key)).await,
            Some(fallback) => fallback.get(key).await,
        }
    }

    /// One page of claims.
    pub async fn list(&self, query: &Query) -> Result<Page> {
        match &self.fallback {
            None => self.backend.call_once_long("listing claims", self.backend.inner.list(query)).await,
            Some(fallback) => fallback.list(query).await,
        }
    }

    /// Whether this process granted a claim during an outage and has not handed it over yet.
    pub fn is_pending_handover(&self, key: &Key) -> bool {
        self.fallback.as_ref().is_some_and(|fallback| fallback.is_pending(key))
    }

    /// Whether this process marked an event during an outage and has not handed the mark over yet.
    pub fn is_mark_pending_handover(&self, key: &MarkKey) -> bool {
        self.fallback.as_ref().is_some_and(|fallback| fallback.is_mark_pending(key))
    }

    /// The state of the fallback, if there is one.
    pub async fn fallback_status(&self) -> Option<FallbackStatus> {
        match &self.fallback {
            None => None,
            Some(fallback) => Some(fallback.status().await),
        }
    }

    /// Stores a record of another ledger, in any state, unless the key is taken.
    pub async fn adopt(&self, record: &Record) -> Result<Adopted> {
        self.backend.adopt(record).await
    }

    /// Resolves or forgets a claim on behalf of an operator.
    pub async fn resolve(&self, key: &Key, resolution: &Resolution) -> Result<Resolved> {
        if let Some(outcome) = resolution.outcome() {
            outcome.check()?;
        }
        let observed = self.observed();
        let resolved = match &self.fallback {
            None => {
                self.backend.call_once("resolving a claim", self.backend.inner.resolve(key, resolution)).await
            }
            Some(fallback) => fallback.resolve(key, resolution).await,
        };
        if let Some(observed) = observed {
            observed.resolved(key, resolution, &resolved);
        }
        self.waiters.wake(key.index());
        resolved
    }

    /// The mark of an event.
    pub async fn get_mark(&self, key: &MarkKey) -> Result<Option<mark::Record>> {
        match &self.fallback {
            None => self.backend.call_once("reading a mark", self.backend.inner.get_mark(key)).await,
            Some(fallback) => fallback.get_mark(key).await,
        }
    }

    /// One page of marks.
    pub async fn list_marks(&self, query: &MarkQuery) -> Result<MarkPage> {
        match &self.fallback {
            None => self.backend.call_once_long("listing marks", self.backend.inner.list_marks(query)).await,
            Some(fallback) => fallback.list_marks(query).await,
        }
    }

    /// Removes a mark on behalf of an operator, if it is still the one that was seen. The event is then new again, for
    /// everyone who uses the store.
    pub async fn forget_mark(&self, seen: &mark::Record) -> Result<Forgotten> {
        let observed = self.observed();
        let forgotten = self.forget_unobserved(seen).await;
        if let Some(observed) = observed {
            observed.forgotten(seen, &forgotten);
        }
        forgotten
    }

    /// Erases what callers wrote in a mark, if it is still the one that was seen. The event stays marked.
    pub async fn erase_mark(&self, seen: &mark::Record) -> Result<Erased> {
        let observed = self.observed();
        let erased = match &self.fallback {
            None => self.backend.call_once("erasing a mark", self.backend.inner.erase_mark(seen)).await,
            Some(fallback) => fallback.erase_mark(seen).await,
        };
        if let Some(observed) = observed {
            observed.erased(seen, &erased);
        }
        erased
    }

    /// Erases what callers wrote in a completed claim, if it is still the one that was seen. It keeps protecting its effect:
    /// retries learn that the outcome was not kept.
    pub async fn erase(&self, key: &Key, token: Token) -> Result<Resolved> {
        // The observer must not learn the text again.
        self.resolve(&key.erased(), &Resolution::Erase(token)).await
    }

    /// Removes a mark that is not an event.
    pub(crate) async fn forget_unobserved(&self, seen: &mark::Record) -> Result<Forgotten> {
        match &self.fallback {
            None => self.backend.call_once("forgetting a mark", self.backend.inner.forget_mark(seen)).await,
            Some(fallback) => fallback.forget_mark(seen).await,
        }
    }

    /// Tells the observer that an event was refused because of its content.
    pub(crate) fn observe_same_content(&self, request: &mark::Request, first: Option<&str>, degraded: bool) {
        if let Some(observed) = self.observed() {
            observed.same_content(request, first, degraded);
        }
    }

    /// Removes at most `limit` records whose retention is over.
    pub async fn sweep(&self, limit: usize) -> Result<Swept> {
        self.backend.call_once_long("sweeping the ledger", self.backend.inner.sweep(limit)).await
    }

    /// Reads and checks everything that is stored. Takes as long as that takes.
    pub async fn verify(&self) -> Result<Verified> {
        self.backend.inner.verify().await
    }

    /// Copies the store, as it is after some commit, to a new directory. Takes as long as that takes.
    pub async fn backup(&self, to: &Path) -> Result<Backup> {
        self.backend.inner.backup(to).await
    }

    /// Reclaims all space that expired and replaced records take. Takes as long as that takes.
    pub async fn compact(&self) -> Result<Swept> {
        self.backend.inner.compact().await
    }

    /// How many records the ledger holds.
    pub async fn stats(&self) -> Result<Stats> {
        match &self.fallback {
            None => self.backend.call_once_long("counting records", self.backend.inner.stats()).await,
            Some(fallback) => fallback.stats().await,
        }
    }

    /// Creates whatever the ledger needs, or checks that it exists.
    pub async fn init(&self) -> Result<()> {
        self.backend.call_once_long("initializing the ledger", self.backend.inner.init()).await
    }

    /// Connects to the store and checks its settings. Returns warnings for the operator.
    pub async fn check(&self) -> Result<Vec<String>> {
        self.backend.call_once("checking the ledger", self.backend.inner.check()).await
    }

    /// What the backend guarantees.
    pub fn capabilities(&self) -> Capabilities {
        self.backend.inner.capabilities()
    }

    /// Who removes expired records.
    pub fn sweeping(&self) -> Sweeping {
        self.backend.inner.sweeping()
    }

    /// Probes an unreachable primary when its pause is over, even if no caller comes. Call this periodically.
    pub async fn maintain_fallback(&self) {
        if let Some(fallback) = &self.fallback {
            fallback.maintain().await;
        }
    }

    /// Hands over whatever is pending if the primary can be reached: call this before the process exits. Returns
    /// how many claims and marks are still pending.
    pub async fn hand_over_now(&self) -> usize {
        match &self.fallback {
            Some(fallback) => fallback.hand_over_now().await,
            None => 0,
        }
    }

    /// The settings of this handle.
    pub fn settings(&self) -> &Settings {
        &self.backend.settings
    }

    /// Waits for effects that were started through this handle, then releases the store. Renewal of all other
    /// leases stops.
    pub async fn close(&self) -> Result<()> {
        self.tasks.close();
        self.tasks.wait().await;
        self.renewals.end().await;
        if let Some(fallback) = &self.fallback {
            fallback.close().await?;
        }
        self.backend.inner.close().await
    }

    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    pub(crate) fn renewals(&self) -> &Renewals {
        &self.renewals
    }

    pub(crate) fn renewal_failed(&self) {
        self.backend.metrics.renewals_failed.increment(1);
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger")
            .field("backend", &self.backend)
            .field("fallback", &self.fallback.is_some())
            .finish_non_exhaustive()
    }
}
