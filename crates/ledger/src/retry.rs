//! The guard around a backend: deadline, retry and metrics, once for all backends.
//!
//! Every verb may be asked again: a claim and a mark carry a nonce, a settle carries the token, so a repeat of an
//! applied call gets the first answer. The one exception is a release, whose repeat finds nothing; the guard knows
//! when its own earlier try may have been the one that removed the claim.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ichido_core::mark::{self, Mark};
use ichido_core::{Adopted, Claim, ClaimRequest, Key, Now, Outcome, Record, Settle, Settled, Token};
use tokio::time::{Instant, sleep_until};

use crate::metrics::{Meters, Verb};
use crate::{Backend, Effect, Error, Kind, Result, Settings, lazy_timeout};

/// Marks that share one call and one deadline: a large batch does not time out for being large, and a try that failed
/// repeats no more than this.
const MARKS_PER_CALL: usize = 500;

/// Work on many records may take so many times as long as a call.
const MAINTENANCE: u32 = 12;

#[derive(Clone)]
pub(crate) struct RetryingBackend {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) meters: Arc<Meters>,
}

/// How the tries before this one ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// None of them can have been applied.
    Nothing,
    /// One of them may have been applied.
    Perhaps,
}

impl RetryingBackend {
    pub(crate) fn new(backend: Arc<dyn Backend>, settings: Arc<Settings>) -> Self {
        let meters = Arc::new(Meters::new(backend.capabilities().backend));
        Self { backend, settings, meters }
    }

    pub(crate) async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        let (claim, _) = self.call(Verb::Claim, || self.backend.claim(request)).await?;
        self.meters.claimed(&claim);
        Ok(claim)
    }

    /// The outcome of a claim, if the backend has it in memory.
    pub(crate) fn recall(&self, request: &ClaimRequest) -> Option<Outcome> {
        let started = Instant::now();
        let claim = self.backend.recall(request)?;
        let Claim::Done(outcome) = &claim else { return None };
        self.meters.call(Verb::Claim, started.elapsed(), false);
        self.meters.claimed(&claim);
        Some(outcome.clone())
    }

    pub(crate) async fn settle(&self, key: &Key, token: Token, word: &Settle) -> Result<Settled> {
        let (settled, before) = self.call(Verb::Settle, || self.backend.settle(key, token, word)).await?;
        let settled = match (settled, word, before) {
            (Settled::Stale(Now::Absent), Settle::Release, Before::Perhaps) => Settled::Applied,
            (settled, _, _) => settled,
        };
        self.meters.settled(&settled);
        Ok(settled)
    }

    pub(crate) async fn mark(&self, requests: &[mark::Request]) -> Result<Vec<Mark>> {
        let mut marks = Vec::with_capacity(requests.len());
        for chunk in requests.chunks(MARKS_PER_CALL) {
            marks.extend(self.call(Verb::Mark, || self.backend.mark(chunk)).await?.0);
        }
        self.meters.marked(&marks);
        Ok(marks)
    }

    pub(crate) async fn adopt(&self, record: &Record) -> Result<Adopted> {
        Ok(self.call(Verb::Adopt, || self.backend.adopt(record)).await?.0)
    }

    /// A question of an operator: measured, and bounded like a caller's, not repeated.
    pub(crate) async fn consult<T>(
        &self,
        doing: &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.within(self.settings.timeout, doing, call).await
    }

    /// Work that an operator orders, which may touch many records: measured, and bounded more generously.
    pub(crate) async fn maintain<T>(
        &self,
        doing: &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.within(self.settings.timeout.saturating_mul(MAINTENANCE), doing, call).await
    }

    async fn within<T>(
        &self,
        bound: Duration,
        doing: &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let started = Instant::now();
        let late = |_| Err(Error::new(Kind::Timeout, doing).perhaps_done());
        let result = lazy_timeout(bound, call).await.unwrap_or_else(late);
        self.meters.call(Verb::Maintain, started.elapsed(), result.is_err());
        result
    }

    async fn call<T, F>(&self, verb: Verb, ask: impl Fn() -> F) -> Result<(T, Before)>
    where
        F: Future<Output = Result<T>>,
    {
        let started = Instant::now();
        let result = self.ask_until(started + self.settings.timeout, verb, ask).await;
        self.meters.call(verb, started.elapsed(), result.is_err());
        result
    }

    async fn ask_until<T, F>(&self, deadline: Instant, verb: Verb, ask: impl Fn() -> F) -> Result<(T, Before)>
    where
        F: Future<Output = Result<T>>,
    {
        let mut limit = self.settings.try_timeout.min(self.settings.timeout);
        let mut before = Before::Nothing;
        let mut pause = self.settings.backoff;
        loop {
            let error = match lazy_timeout(limit, ask()).await {
                Ok(Ok(answer)) => return Ok((answer, before)),
                Ok(Err(error)) => error,
                Err(_) => Error::new(Kind::Timeout, verb.as_str()).perhaps_done(),
            };
            if error.effect() == Effect::Unknown {
                before = Before::Perhaps;
            }
            // A concurrent change is over by now; a server that is out is not.
            let wait = if *error.kind() == Kind::Contended { pause / 16 } else { pause };
            let next = Instant::now() + self.jitter(wait);
            if !error.is_transient() || next >= deadline {
                return Err(if before == Before::Perhaps { error.perhaps_done() } else { error });
            }
            self.meters.retried();
            tracing::debug!(verb = verb.as_str(), %error, "the ledger did not answer; asking again");
            Box::pin(sleep_until(next)).await;
            pause = (pause * 2).min(self.settings.backoff_max);
            limit = self.settings.try_timeout.min(deadline.saturating_duration_since(next));
        }
    }

    /// Between half of the pause and all of it: callers that failed together do not come back together.
    fn jitter(&self, pause: Duration) -> Duration {
        let chance = f64::from(self.settings.entropy.draw()[0]) / 255.0;
        pause.mul_f64(0.5 + chance / 2.0)
    }
}

impl fmt::Debug for RetryingBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryingBackend").field("backend", &self.backend).finish_non_exhaustive()
    }
}
