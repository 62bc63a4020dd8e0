//! A backend that fails on demand, around one that does not.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ichido_core::mark::{self, Mark};
use ichido_core::{Adopted, Claim, ClaimRequest, Key, Record, Resolution, Resolved, Settle, Settled, Token};
use ichido_ledger::{Backend, Capabilities, Error, Kind, Maintain, Page, Query, Result, Stats, Swept};

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It is made.
    Sound,
    /// It is refused, and certainly not made.
    Refused,
    /// It is refused for good: asking again is no use.
    Denied,
    /// It is made, and its answer is lost.
    Lost,
    /// It is made, and its answer does not come in time.
    Late,
    /// It never ends.
    Hangs,
}

#[derive(Debug)]
pub(crate) struct Faulty {
    inner: Arc<dyn Backend>,
    claims: Knob,
    renewals: Knob,
    words: Knob,
    /// Keys on which no last word is taken.
    stuck: Mutex<Vec<String>>,
    marks: AtomicUsize,
}

#[derive(Debug, Default)]
struct Knob {
    way: AtomicU8,
    failed: AtomicUsize,
}

impl Knob {
    fn set(&self, way: Way) {
        self.way.store(way as u8, Ordering::SeqCst);
    }

    async fn turn<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let way = self.way.load(Ordering::SeqCst);
        if way == Way::Sound as u8 {
            return call.await;
        }
        self.failed.fetch_add(1, Ordering::SeqCst);
        let error = Error::new(Kind::Unavailable, "calling a ledger that is out");
        if way == Way::Refused as u8 {
            return Err(error);
        }
        if way == Way::Denied as u8 {
            return Err(Error::new(Kind::Denied("no rights".to_owned()), "calling a ledger"));
        }
        if way == Way::Hangs as u8 {
            std::future::pending::<()>().await;
        }
        call.await?;
        if way == Way::Late as u8 {
            std::future::pending::<()>().await;
        }
        Err(error.with_unknown_effect())
    }
}

impl Faulty {
    pub(crate) fn around(inner: Arc<dyn Backend>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            claims: Knob::default(),
            renewals: Knob::default(),
            words: Knob::default(),
            stuck: Mutex::default(),
            marks: AtomicUsize::new(0),
        })
    }

    pub(crate) fn claims(&self, way: Way) {
        self.claims.set(way);
    }

    pub(crate) fn renewals(&self, way: Way) {
        self.renewals.set(way);
    }

    /// The last words on claims: completion, release, doubt.
    pub(crate) fn words(&self, way: Way) {
        self.words.set(way);
    }

    /// The same on these keys only.
    pub(crate) fn stuck(&self, keys: &[&str]) {
        *self.stuck.lock().unwrap() = keys.iter().map(|key| (*key).to_owned()).collect();
    }

    pub(crate) fn all(&self, way: Way) {
        self.claims(way);
        self.renewals(way);
        self.words(way);
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
impl Backend for Faulty {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        self.claims.turn(self.inner.claim(request)).await
    }

    async fn settle(&self, key: &Key, token: Token, word: &Settle) -> Result<Settled> {
        let knob = match word {
            Settle::Renew { .. } => &self.renewals,
            Settle::Complete(_) | Settle::Release | Settle::Doubt(_) => &self.words,
        };
        if self.stuck.lock().unwrap().iter().any(|stuck| stuck == key.text()) {
            return Err(Error::new(Kind::Timeout, "settling a claim that is stuck"));
        }
        knob.turn(self.inner.settle(key, token, word)).await
    }

    async fn mark(&self, requests: &[mark::Request]) -> Result<Vec<Mark>> {
        self.marks.fetch_add(1, Ordering::SeqCst);
        self.inner.mark(requests).await
    }

    async fn adopt(&self, record: &Record) -> Result<Adopted> {
        self.words.turn(self.inner.adopt(record)).await
    }
}

#[async_trait]
impl Maintain for Faulty {
    async fn init(&self) -> Result<()> {
        self.inner.init().await
    }

    async fn check(&self) -> Result<Vec<String>> {
        self.claims.turn(self.inner.check()).await
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>> {
        self.inner.get(key).await
    }

    async fn list(&self, query: &Query) -> Result<Page> {
        self.inner.list(query).await
    }

    async fn resolve(&self, key: &Key, word: &Resolution) -> Result<Resolved> {
        self.inner.resolve(key, word).await
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
