//! Deadlines, retries and metrics around a backend, once for all backends.
//!
//! Every call can be retried: claims and marks carry a nonce, a settlement carries the token, so the retry of an
//! applied call gets the first answer. The one exception is a release: its retry finds no claim. The earlier tries
//! of the same call tell whether one of them may have removed it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ichido_core::mark::{self, Mark};
use ichido_core::{Adopted, Claim, ClaimRequest, CurrentState, Key, Outcome, Record, Settle, Settled, Token};
use tokio::time::{Instant, sleep_until};

use crate::metrics::{Metrics, Verb};
use crate::{Backend, Effect, Error, Kind, Result, Settings, lazy_timeout};

/// Marks that share one call and one deadline. So a large batch does not time out because of its size, and a failed
/// try repeats at most this many.
const MARKS_PER_CALL: usize = 500;

/// How many times longer an operation on many records may take than a call.
const MAINTENANCE_FACTOR: u32 = 12;

#[derive(Clone)]
pub(crate) struct RetryingBackend {
    pub(crate) inner: Arc<dyn Backend>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) metrics: Arc<Metrics>,
}

/// How the earlier tries of this call ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EarlierTries {
    /// None of them can have been applied.
    NotApplied,
    /// One of them may have been applied.
    MaybeApplied,
}

impl RetryingBackend {
    pub(crate) fn new(inner: Arc<dyn Backend>, settings: Arc<Settings>) -> Self {
        let metrics = Arc::new(Metrics::new(inner.capabilities().backend));
        Self { inner, settings, metrics }
    }

    pub(crate) async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        let (claim, _) = self.measured(Verb::Claim, || self.inner.claim(request)).await?;
        self.metrics.claimed(&claim);
        Ok(claim)
    }

    /// The outcome of a claim, if the backend has it in memory.
    pub(crate) fn cached_outcome(&self, request: &ClaimRequest) -> Option<Outcome> {
        let started = Instant::now();
        let claim = self.inner.cached_claim(request)?;
        let Claim::Done(outcome) = &claim else { return None };
        self.metrics.call(Verb::Claim, started.elapsed(), false);
        self.metrics.claimed(&claim);
        Some(outcome.clone())
    }

    pub(crate) async fn settle(&self, key: &Key, token: Token, action: &Settle) -> Result<Settled> {
        let (settled, earlier) =
            self.measured(Verb::Settle, || self.inner.settle(key, token, action)).await?;
        let settled = match (settled, action, earlier) {
            (Settled::Stale(CurrentState::Absent), Settle::Release, EarlierTries::MaybeApplied) => {
                Settled::Applied
            }
            (settled, _, _) => settled,
        };
        self.metrics.settled(&settled);
        Ok(settled)
    }

    pub(crate) async fn mark(&self, requests: &[mark::Request]) -> Result<Vec<Mark>> {
        let mut marks = Vec::with_capacity(requests.len());
        for chunk in requests.chunks(MARKS_PER_CALL) {
            marks.extend(self.measured(Verb::Mark, || self.inner.mark(chunk)).await?.0);
        }
        self.metrics.marked(&marks);
        Ok(marks)
    }

    pub(crate) async fn adopt(&self, record: &Record) -> Result<Adopted> {
        Ok(self.measured(Verb::Adopt, || self.inner.adopt(record)).await?.0)
    }

    /// An operator's call: measured, with the deadline of a caller's call, not retried.
    pub(crate) async fn call_once<T>(
        &self,
        doing: &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.bounded(self.settings.timeout, doing, call).await
    }

    /// An operator's call that may touch many records: measured, with a longer deadline, not retried.
    pub(crate) async fn call_once_long<T>(
        &self,
        doing: &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.bounded(self.settings.timeout.saturating_mul(MAINTENANCE_FACTOR), doing, call).await
    }

    async fn bounded<T>(
        &self,
        bound: Duration,
        doing: &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let started = Instant::now();
        let result = lazy_timeout(bound, call).await.unwrap_or_else(|_| Err(self.timed_out(doing)));
        self.metrics.call(Verb::Maintain, started.elapsed(), result.is_err());
        result
    }

    async fn measured<T, F>(&self, verb: Verb, call: impl Fn() -> F) -> Result<(T, EarlierTries)>
    where
        F: Future<Output = Result<T>>,
    {
        let started = Instant::now();
        let result = self.retry_until(started + self.settings.timeout, verb, call).await;
        self.metrics.call(verb, started.elapsed(), result.is_err());
        result
    }

    async fn retry_until<T, F>(
        &self,
        deadline: Instant,
        verb: Verb,
        call: impl Fn() -> F,
    ) -> Result<(T, EarlierTries)>
    where
        F: Future<Output = Result<T>>,
    {
        let mut limit = self.settings.try_timeout.min(self.settings.timeout);
        let mut earlier = EarlierTries::NotApplied;
        let mut pause = self.settings.backoff;
        loop {
            let error = match lazy_timeout(limit, call()).await {
                Ok(Ok(answer)) => return Ok((answer, earlier)),
                Ok(Err(error)) => error,
                Err(_) => self.timed_out(verb.doing()),
            };
            if error.effect() == Effect::Unknown {
                earlier = EarlierTries::MaybeApplied;
            }
            // A concurrent change is over soon; an outage is not.
            let wait = if *error.kind() == Kind::Contended { pause / 16 } else { pause };
            let next = Instant::now() + self.jitter(wait);
            if !error.is_transient() || next >= deadline {
                return Err(if earlier == EarlierTries::MaybeApplied {
                    error.with_unknown_effect()
                } else {
                    error
                });
            }
            self.metrics.retried();
            tracing::debug!(verb = verb.as_str(), %error, "ledger call failed; retrying");
            Box::pin(sleep_until(next)).await;
            pause = (pause * 2).min(self.settings.backoff_max);
            limit = self.settings.try_timeout.min(deadline.saturating_duration_since(next));
        }
    }

    /// The call may have been applied.
    fn timed_out(&self, doing: &'static str) -> Error {
        let doing = format!("{doing} in the {} ledger", self.inner.capabilities().backend);
        Error::new(Kind::Timeout, doing).with_unknown_effect()
    }

    /// Between half of the pause and all of it, so that callers that failed together do not come back together.
    fn jitter(&self, pause: Duration) -> Duration {
        let chance = f64::from(self.settings.entropy.draw()[0]) / 255.0;
        pause.mul_f64(0.5 + chance / 2.0)
    }
}

impl fmt::Debug for RetryingBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryingBackend").field("inner", &self.inner).finish_non_exhaustive()
    }
}
