//! The handle that programs use.
//!
//! It holds what must be the same for every backend: limits, nonces, deadline, retry, metrics, lease renewal, waiting
//! and the fallback. Cloning it is cheap; all clones are one ledger.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ichido_core::mark;
use ichido_core::{
    Adopted, Claim, ClaimRequest, Fingerprint, Holder, InDoubtPolicy, Key, LimitError, Limits, MarkKey,
    Metadata, Nonce, Now, Outcome, Record, Resolution, Resolved, Settle, Settled, Token,
};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::fallback::{Fallback, FallbackSettings};
use crate::retry::RetryingBackend;
use crate::waiters::Waiters;
use crate::{
    Backend, Capabilities, Claimed, FallbackStatus, Local, Marked, Page, Query, Result, Settings, Stats,
    Swept,
};

/// The shortest and the longest pause of a waiter whose holder is in another process.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(500));

/// A ledger of claims.
#[derive(Clone)]
pub struct Ledger {
    guard: RetryingBackend,
    fallback: Option<Arc<Fallback>>,
    waiters: Arc<Waiters>,
    tasks: TaskTracker,
    renewals: Renewals,
}

/// The renewals of a ledger.
#[derive(Clone, Debug, Default)]
pub(crate) struct Renewals {
    pub(crate) tasks: TaskTracker,
    pub(crate) end: CancellationToken,
}

impl Renewals {
    /// Ends all of them: their claims lapse unless they are settled.
    pub(crate) async fn end(&self) {
        self.end.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Ledger {
    /// A handle around a backend.
    pub fn new(backend: Arc<dyn Backend>, settings: Settings) -> Self {
        let guard = RetryingBackend::new(backend, Arc::new(settings));
        let (tasks, renewals) = (TaskTracker::new(), Renewals::default());
        Self { guard, fallback: None, waiters: Arc::default(), tasks, renewals }
    }

    /// The same ledger, for callers that would rather go on with a local one while it is out.
    ///
    /// What the local ledger holds is owed to this one. It is handed over first if this one can be reached.
    pub async fn with_fallback(&self, local: Arc<dyn Local>, settings: FallbackSettings) -> Result<Self> {
        let fallback = Some(Fallback::open(self.guard.clone(), local, settings).await?);
        Ok(Self { fallback, ..self.clone() })
    }

    /// A request with a nonce and token of its own, and the defaults of the settings.
    pub fn request(&self, key: Key) -> ClaimRequest {
        let settings = &self.guard.settings;
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

    /// A mark with a nonce of its own, and the defaults of the settings.
    pub fn mark_request(&self, key: MarkKey) -> mark::Request {
        let settings = &self.guard.settings;
        let nonce = Nonce::draw(&*settings.entropy);
        mark::Request { key, nonce, retention_ms: settings.mark_retention_ms, metadata: Metadata::default() }
    }

    /// Asks for a key.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the claim granted. Ask again with the same request to get the same grant;
    /// otherwise the lease lapses, and the claim is in doubt although nothing ran.
    pub async fn claim(&self, request: &ClaimRequest) -> Result<Claimed> {
        request.check()?;
        match &self.fallback {
            None => Ok(Claimed { claim: self.guard.claim(request).await?, degraded: false }),
            Some(fallback) => Box::pin(fallback.claim(request)).await,
        }
    }

    /// The outcome that a repeat is to get, if it is in memory and need not be waited for. `None` says nothing of the
    /// claim: ask.
    pub fn recall(&self, request: &ClaimRequest) -> Option<Outcome> {
        match self.fallback {
            None if request.check().is_ok() => self.guard.recall(request),
            None | Some(_) => None,
        }
    }

    /// Asks for a key, and while another holder runs it, waits for its end for at most `wait`.
    ///
    /// A holder in this process wakes its waiters; one in another process is looked for every 25 to 500 ms.
    pub async fn claim_or_wait(&self, request: &ClaimRequest, wait: Duration) -> Result<Claimed> {
        let deadline = Instant::now() + wait;
        let waiter = self.waiters.subscribe(request.key.index());
        let mut pause = LOOK_AGAIN.0;
        loop {
            // Created before the question: a completion between the two is not missed.
            let woken = waiter.notify.notified();
            let claimed = self.claim(request).await?;
            match claimed.claim {
                Claim::Held { .. } if Instant::now() < deadline => {}
                Claim::Held { .. }
                | Claim::Granted(_)
                | Claim::InDoubt(_)
                | Claim::Done(_)
                | Claim::Mismatch
                | Claim::CallerChanged => return Ok(claimed),
            }
            let look_again = deadline.min(Instant::now() + pause);
            if timeout_at(look_again, woken).await.is_err() {
                pause = (pause * 2).min(LOOK_AGAIN.1);
            }
        }
    }

    /// Says that the holder is still at work.
    pub async fn renew(&self, key: &Key, token: Token, lease_ms: u64) -> Result<Settled> {
        self.settle(key, token, &Settle::Renew { lease_ms }).await
    }

    /// Records the outcome of the effect. Asked again, the first outcome stays.
    pub async fn complete(&self, key: &Key, token: Token, outcome: Outcome) -> Result<Settled> {
        self.settle(key, token, &Settle::Complete(outcome)).await
    }

    /// Gives the key back: the effect provably did not happen.
    pub async fn release(&self, key: &Key, token: Token) -> Result<Settled> {
        self.settle(key, token, &Settle::Release).await
    }

    /// Says that the effect may have happened.
    pub async fn doubt(&self, key: &Key, token: Token, reason: impl Into<String>) -> Result<Settled> {
        self.settle(key, token, &Settle::Doubt(reason.into())).await
    }

    /// Renews, completes, releases or declares in doubt: for callers that hold the action as a value.
    pub async fn settle(&self, key: &Key, token: Token, action: &Settle) -> Result<Settled> {
        action.check()?;
        let settled = match &self.fallback {
            None => self.guard.settle(key, token, action).await,
            Some(fallback) => Box::pin(fallback.settle(key, token, action)).await,
        };
        if !matches!(action, Settle::Renew { .. }) {
            self.waiters.wake(key.index());
        }
        if let (Settle::Complete(_), Ok(Settled::Stale(now @ (Now::Running | Now::InDoubt | Now::Done(_))))) =
            (action, &settled)
        {
            self.guard.meters.suspected_twice.increment(1);
            let now = now.name();
            tracing::warn!(index = %key.index(), now, "claim completed after it was taken over; the effect may have run twice");
        }
        settled
    }

    /// Marks events: for each, whether it is new. A key that comes twice in one batch is new once.
    pub async fn mark(&self, requests: &[mark::Request]) -> Result<Vec<Marked>> {
        LimitError::check_batch(requests.len(), &Limits::STANDARD)?;
        for request in requests {
            request.check()?;
        }
        let Some((distinct, positions)) = crate::mark_batch::distinct(requests) else {
            return self.mark_distinct(requests).await;
        };
        let marked = self.mark_distinct(&distinct).await?;
        Ok(crate::mark_batch::spread(&distinct, &positions, &marked, self.guard.settings.clock.now()))
    }

    async fn mark_distinct(&self, requests: &[mark::Request]) -> Result<Vec<Marked>> {
        match &self.fallback {
            None => {
                let marks = self.guard.mark(requests).await?;
                Ok(marks.into_iter().map(|mark| Marked { mark, degraded: false }).collect())
            }
            Some(fallback) => fallback.mark(requests).await,
        }
    }

    /// What is remembered of a key, with its outcome.
    pub async fn look(&self, key: &Key) -> Result<Option<Record>> {
        match &self.fallback {
            None => self.guard.consult("looking at a claim", self.guard.backend.look(key)).await,
            Some(fallback) => fallback.look(key).await,
        }
    }

    /// A page of claims.
    pub async fn list(&self, query: &Query) -> Result<Page> {
        match &self.fallback {
            None => self.guard.maintain("listing claims", self.guard.backend.list(query)).await,
            Some(fallback) => fallback.list(query).await,
        }
    }

    /// Whether this process granted a claim while the ledger was out, and has not handed it over yet.
    pub fn holds_locally(&self, key: &Key) -> bool {
        self.fallback.as_ref().is_some_and(|fallback| fallback.holds(key))
    }

    /// What is answered and owed in place of the ledger, if there is a fallback.
    pub async fn fallback_status(&self) -> Option<FallbackStatus> {
        match &self.fallback {
            None => None,
            Some(fallback) => Some(fallback.status().await),
        }
    }

    /// Puts a record of another ledger, in any state, unless the key is taken.
    pub async fn adopt(&self, record: &Record) -> Result<Adopted> {
        self.guard.adopt(record).await
    }

    /// Takes an operator's word on a claim.
    pub async fn resolve(&self, key: &Key, word: &Resolution) -> Result<Resolved> {
        if let Resolution::Done(outcome) = word {
            outcome.check()?;
        }
        let resolved = match &self.fallback {
            None => self.guard.consult("resolving a claim", self.guard.backend.resolve(key, word)).await,
            Some(fallback) => fallback.resolve(key, word).await,
        };
        self.waiters.wake(key.index());
        resolved
    }

    /// Removes at most `limit` records whose retention is over.
    pub async fn sweep(&self, limit: usize) -> Result<Swept> {
        self.guard.maintain("sweeping", self.guard.backend.sweep(limit)).await
    }

    /// How much is stored.
    pub async fn stats(&self) -> Result<Stats> {
        match &self.fallback {
            None => self.guard.maintain("counting records", self.guard.backend.stats()).await,
            Some(fallback) => fallback.stats().await,
        }
    }

    /// Creates what the ledger needs, or checks that it is there.
    pub async fn init(&self) -> Result<()> {
        self.guard.maintain("preparing the ledger", self.guard.backend.init()).await
    }

    /// Reaches the store and looks at its settings; the strings are warnings for the operator.
    pub async fn check(&self) -> Result<Vec<String>> {
        self.guard.consult("checking the ledger", self.guard.backend.check()).await
    }

    /// What the backend promises.
    pub fn capabilities(&self) -> Capabilities {
        self.guard.backend.capabilities()
    }

    /// Asks for a primary that is out as soon as its pause is over, also if no caller comes: to be called now and then.
    pub async fn look_after_fallback(&self) {
        if let Some(fallback) = &self.fallback {
            fallback.look_after().await;
        }
    }

    /// Tells the primary what it does not know yet, if it can be reached: before the process ends. What is left untold.
    pub async fn tell_primary(&self) -> usize {
        match &self.fallback {
            Some(fallback) => fallback.tell_now().await,
            None => 0,
        }
    }

    /// The settings of this handle.
    pub fn settings(&self) -> &Settings {
        &self.guard.settings
    }

    /// Waits for the work that was started through this handle, then lets go of the store. Leases of other work are
    /// renewed no more.
    pub async fn close(&self) -> Result<()> {
        self.tasks.close();
        self.tasks.wait().await;
        self.renewals.end().await;
        if let Some(fallback) = &self.fallback {
            fallback.close().await?;
        }
        self.guard.backend.close().await
    }

    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    pub(crate) fn renewals(&self) -> &Renewals {
        &self.renewals
    }

    pub(crate) fn renewal_failed(&self) {
        self.guard.meters.renewals_failed.increment(1);
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger")
            .field("guard", &self.guard)
            .field("fallback", &self.fallback.is_some())
            .finish_non_exhaustive()
    }
}
