//! A ledger that fails on demand.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ichido_core::mark::{self, Erased, Forgotten, Mark};
use ichido_core::{
    Adopted, Claim, ClaimRequest, Key, MarkKey, Record, Resolution, Resolved, Settle, Settled, Token,
};
use ichido_ledger::{
    Backend, Capabilities, Error, Kind, Maintain, MarkPage, MarkQuery, Page, Query, Result, Stats, Swept,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// What happens to a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behavior {
    /// It works.
    #[default]
    Normal,
    /// It fails and has no effect.
    Refused,
    /// It fails permanently and has no effect.
    Denied,
    /// It takes effect, but its result is lost.
    Lost,
    /// It takes effect, but never returns.
    Late,
    /// It has no effect and never returns.
    Hangs,
    /// At random, either the request or the result is lost: the caller cannot know which.
    RandomlyLost,
}

/// A backend around another.
#[derive(Debug)]
pub struct FaultyBackend {
    inner: Arc<dyn Backend>,
    claims: Knob,
    renewals: Knob,
    settlements: Knob,
    marks: Knob,
    reads: Knob,
    /// Keys whose claims cannot be settled.
    stuck: Mutex<Vec<String>>,
    /// Chance, for [`Behavior::RandomlyLost`] and for the pauses.
    rng: Mutex<StdRng>,
    has_pauses: bool,
}

#[derive(Debug, Default)]
struct Knob {
    behavior: Mutex<Behavior>,
    calls: AtomicUsize,
    failed: AtomicUsize,
}

impl Knob {
    fn set(&self, behavior: Behavior) {
        *self.behavior.lock().unwrap_or_else(PoisonError::into_inner) = behavior;
    }

    fn get(&self) -> Behavior {
        *self.behavior.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FaultyBackend {
    /// Works like `inner` until told otherwise.
    pub fn wrap(inner: Arc<dyn Backend>) -> Arc<Self> {
        Arc::new(Self::new(inner, 0, false))
    }

    /// Like [`FaultyBackend::wrap`]; calls also take a random time of up to a few milliseconds.
    pub fn with_pauses(inner: Arc<dyn Backend>, seed: u64) -> Arc<Self> {
        Arc::new(Self::new(inner, seed, true))
    }

    fn new(inner: Arc<dyn Backend>, seed: u64, has_pauses: bool) -> Self {
        Self {
            inner,
            claims: Knob::default(),
            renewals: Knob::default(),
            settlements: Knob::default(),
            marks: Knob::default(),
            reads: Knob::default(),
            stuck: Mutex::default(),
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
            has_pauses,
        }
    }

    /// Sets the behavior of claims.
    pub fn claims(&self, behavior: Behavior) {
        self.claims.set(behavior);
    }

    /// Sets the behavior of lease renewals.
    pub fn renewals(&self, behavior: Behavior) {
        self.renewals.set(behavior);
    }

    /// Sets the behavior of completion, release and doubt.
    pub fn settlements(&self, behavior: Behavior) {
        self.settlements.set(behavior);
    }

    /// Sets the behavior of everything that concerns claims.
    pub fn all_claims(&self, behavior: Behavior) {
        self.claims(behavior);
        self.renewals(behavior);
        self.settlements(behavior);
    }

    /// Sets the behavior of claims, marks and reads.
    pub fn all(&self, behavior: Behavior) {
        self.all_claims(behavior);
        self.marks.set(behavior);
        self.reads.set(behavior);
    }

    /// Makes settlements time out for these keys only.
    pub fn stuck(&self, keys: &[&str]) {
        *self.stuck.lock().unwrap() = keys.iter().map(|key| (*key).to_owned()).collect();
    }

    /// How many renewals did not work.
    pub fn failed_renewals(&self) -> usize {
        self.renewals.failed.load(Ordering::SeqCst)
    }

    /// How many claims did not work.
    pub fn failed_claims(&self) -> usize {
        self.claims.failed.load(Ordering::SeqCst)
    }

    /// How many calls made marks.
    pub fn mark_calls(&self) -> usize {
        self.marks.calls.load(Ordering::SeqCst)
    }

    async fn call<T>(&self, knob: &Knob, call: impl Future<Output = Result<T>>) -> Result<T> {
        knob.calls.fetch_add(1, Ordering::SeqCst);
        self.pause().await;
        let unavailable = || Error::new(Kind::Unavailable, "calling an unavailable ledger");
        let behavior = knob.get();
        if behavior != Behavior::Normal {
            knob.failed.fetch_add(1, Ordering::SeqCst);
        }
        match behavior {
            Behavior::Normal => {}
            Behavior::Refused => return Err(unavailable()),
            Behavior::Denied => {
                return Err(Error::new(Kind::Denied("no permission".to_owned()), "calling a ledger"));
            }
            Behavior::Lost => {
                call.await?;
                return Err(unavailable().with_unknown_effect());
            }
            Behavior::Late => {
                call.await?;
                return std::future::pending().await;
            }
            Behavior::Hangs => return std::future::pending().await,
            Behavior::RandomlyLost if self.up_to(1) == 0 => return Err(unavailable().with_unknown_effect()),
            Behavior::RandomlyLost => {}
        }
        let result = call.await;
        self.pause().await;
        // The outage may have begun during the call.
        if knob.get() == Behavior::RandomlyLost {
            return Err(unavailable().with_unknown_effect());
        }
        result
    }

    fn up_to(&self, most: u64) -> u64 {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).random_range(0..=most)
    }

    async fn pause(&self) {
        if !self.has_pauses {
            return;
        }
        let pause_us = self.up_to(3_000);
        if pause_us > 1_000 {
            tokio::time::sleep(Duration::from_micros(pause_us)).await;
        }
    }
}

#[async_trait]
impl Backend for FaultyBackend {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        self.call(&self.claims, self.inner.claim(request)).await
    }

    async fn settle(&self, key: &Key, token: Token, action: &Settle) -> Result<Settled> {
        let knob = match action {
            Settle::Renew { .. } => &self.renewals,
            Settle::Complete(_) | Settle::Release | Settle::Doubt(_) => &self.settlements,
        };
        if self.stuck.lock().unwrap().iter().any(|stuck| stuck == key.text()) {
            return Err(Error::new(Kind::Timeout, "settling a stuck claim"));
        }
        self.call(knob, self.inner.settle(key, token, action)).await
    }

    async fn mark(&self, requests: &[mark::Request]) -> Result<Vec<Mark>> {
        self.call(&self.marks, self.inner.mark(requests)).await
    }

    async fn adopt(&self, record: &Record) -> Result<Adopted> {
        self.call(&self.settlements, self.inner.adopt(record)).await
    }
}

#[async_trait]
impl Maintain for FaultyBackend {
    async fn init(&self) -> Result<()> {
        self.inner.init().await
    }

    async fn check(&self) -> Result<Vec<String>> {
        self.call(&self.claims, self.inner.check()).await
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>> {
        self.call(&self.reads, self.inner.get(key)).await
    }

    async fn list(&self, query: &Query) -> Result<Page> {
        self.inner.list(query).await
    }

    async fn resolve(&self, key: &Key, resolution: &Resolution) -> Result<Resolved> {
        self.inner.resolve(key, resolution).await
    }

    async fn get_mark(&self, key: &MarkKey) -> Result<Option<mark::Record>> {
        self.call(&self.reads, self.inner.get_mark(key)).await
    }

    async fn list_marks(&self, query: &MarkQuery) -> Result<MarkPage> {
        self.inner.list_marks(query).await
    }

    async fn forget_mark(&self, seen: &mark::Record) -> Result<Forgotten> {
        self.inner.forget_mark(seen).await
    }

    async fn erase_mark(&self, seen: &mark::Record) -> Result<Erased> {
        self.inner.erase_mark(seen).await
    }

    async fn sweep(&self, limit: usize) -> Result<Swept> {
        self.inner.sweep(limit).await
    }

    async fn stats(&self) -> Result<Stats> {
        self.inner.stats().await
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}
