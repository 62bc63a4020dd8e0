//! A backend that fails on demand.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ichido_core::mark::{self, Mark};
use ichido_core::{Adopted, Claim, ClaimRequest, Key, Record, Resolution, Resolved, Settle, Settled, Token};
use ichido_ledger::{Backend, Capabilities, Error, Kind, Maintain, Page, Query, Result, Stats, Swept};

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behavior {
    /// It works.
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
}

#[derive(Debug)]
pub(crate) struct FaultyBackend {
    inner: Arc<dyn Backend>,
    claims: Knob,
    renewals: Knob,
    settlements: Knob,
    /// Keys whose claims cannot be settled.
    stuck: Mutex<Vec<String>>,
    marks: AtomicUsize,
}

#[derive(Debug, Default)]
struct Knob {
    behavior: AtomicU8,
    failed: AtomicUsize,
}

impl Knob {
    fn set(&self, behavior: Behavior) {
        self.behavior.store(behavior as u8, Ordering::SeqCst);
    }

    async fn call<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let behavior = self.behavior.load(Ordering::SeqCst);
        if behavior == Behavior::Normal as u8 {
            return call.await;
        }
        self.failed.fetch_add(1, Ordering::SeqCst);
        let error = Error::new(Kind::Unavailable, "calling an unavailable ledger");
        if behavior == Behavior::Refused as u8 {
            return Err(error);
        }
        if behavior == Behavior::Denied as u8 {
            return Err(Error::new(Kind::Denied("no permission".to_owned()), "calling a ledger"));
        }
        if behavior == Behavior::Hangs as u8 {
            std::future::pending::<()>().await;
        }
        call.await?;
        if behavior == Behavior::Late as u8 {
            std::future::pending::<()>().await;
        }
        Err(error.with_unknown_effect())
    }
}

impl FaultyBackend {
    pub(crate) fn wrap(inner: Arc<dyn Backend>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            claims: Knob::default(),
            renewals: Knob::default(),
            settlements: Knob::default(),
            stuck: Mutex::default(),
            marks: AtomicUsize::new(0),
        })
    }

    pub(crate) fn claims(&self, behavior: Behavior) {
        self.claims.set(behavior);
    }

    pub(crate) fn renewals(&self, behavior: Behavior) {
        self.renewals.set(behavior);
    }

    /// Sets the behavior of completion, release and doubt.
    pub(crate) fn settlements(&self, behavior: Behavior) {
        self.settlements.set(behavior);
    }

    /// Makes settlements time out for these keys only.
    pub(crate) fn stuck(&self, keys: &[&str]) {
        *self.stuck.lock().unwrap() = keys.iter().map(|key| (*key).to_owned()).collect();
    }

    pub(crate) fn all(&self, behavior: Behavior) {
        self.claims(behavior);
        self.renewals(behavior);
        self.settlements(behavior);
    }

    pub(crate) fn failed_renewals(&self) -> usize {
        self.renewals.failed.load(Ordering::SeqCst)
    }

    pub(crate) fn failed_claims(&self) -> usize {
        self.claims.failed.load(Ordering::SeqCst)
    }

    pub(crate) fn mark_calls(&self) -> usize {
        self.marks.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Backend for FaultyBackend {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        self.claims.call(self.inner.claim(request)).await
    }

    async fn settle(&self, key: &Key, token: Token, action: &Settle) -> Result<Settled> {
        let knob = match action {
            Settle::Renew { .. } => &self.renewals,
            Settle::Complete(_) | Settle::Release | Settle::Doubt(_) => &self.settlements,
        };
        if self.stuck.lock().unwrap().iter().any(|stuck| stuck == key.text()) {
            return Err(Error::new(Kind::Timeout, "settling a stuck claim"));
        }
        knob.call(self.inner.settle(key, token, action)).await
    }

    async fn mark(&self, requests: &[mark::Request]) -> Result<Vec<Mark>> {
        self.marks.fetch_add(1, Ordering::SeqCst);
        self.inner.mark(requests).await
    }

    async fn adopt(&self, record: &Record) -> Result<Adopted> {
        self.settlements.call(self.inner.adopt(record)).await
    }
}

#[async_trait]
impl Maintain for FaultyBackend {
    async fn init(&self) -> Result<()> {
        self.inner.init().await
    }

    async fn check(&self) -> Result<Vec<String>> {
        self.claims.call(self.inner.check()).await
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>> {
        self.inner.get(key).await
    }

    async fn list(&self, query: &Query) -> Result<Page> {
        self.inner.list(query).await
    }

    async fn resolve(&self, key: &Key, resolution: &Resolution) -> Result<Resolved> {
        self.inner.resolve(key, resolution).await
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
