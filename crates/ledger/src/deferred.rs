//! A ledger that was unreachable when the process started. The first call that reaches it opens it.
//!
//! Opening a store does more than connecting: it checks the version, the tables, the nodes. No backend can work
//! without that, so this is done once for all of them here.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use ichido_core::mark::{self, Erased, Forgotten, Mark};
use ichido_core::{
    Adopted, Claim, ClaimRequest, Key, Limits, MarkKey, Record, Resolution, Resolved, Settle, Settled, Token,
};
use tokio::sync::OnceCell;

use crate::{
    Backend, Backup, Capabilities, Expiry, Fencing, Listing, Maintain, MarkPage, MarkQuery, Page, Query,
    Reach, Result, Stats, StoreClock, Sweeping, Swept, Verified,
};

/// Opens the store.
type Open = Box<dyn Fn() -> BoxFuture<'static, Result<Arc<dyn Backend>>> + Send + Sync>;

pub(crate) struct Deferred {
    scheme: String,
    open: Open,
    opened: OnceCell<Arc<dyn Backend>>,
}

impl Deferred {
    /// `scheme` is that of the URL.
    pub(crate) fn new(scheme: &str, open: Open) -> Self {
        Self { scheme: scheme.to_owned(), open, opened: OnceCell::new() }
    }

    async fn backend(&self) -> Result<&Arc<dyn Backend>> {
        self.opened.get_or_try_init(|| (self.open)()).await
    }
}

/// Does not show `open`, which knows the URL: it may contain a password.
impl fmt::Debug for Deferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deferred").field("opened", &self.opened.get()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Backend for Deferred {
    /// Until the store is open, this promises no more than every server can keep.
    fn capabilities(&self) -> Capabilities {
        if let Some(backend) = self.opened.get() {
            return backend.capabilities();
        }
        let (backend, reach, clock) = match self.scheme.as_str() {
            "dynamodb" => ("dynamodb", Reach::Region, StoreClock::Watched),
            "redis" | "rediss" => ("redis", Reach::SinglePrimary, StoreClock::Server),
            _ => ("postgres", Reach::SinglePrimary, StoreClock::Server),
        };
        Capabilities {
            backend,
            reach,
            survives: Vec::new(),
            expiry: Expiry::Lazy,
            fencing: Fencing::Unique,
            listing: Listing::Scan,
            clock,
            outcome_bytes: Limits::STANDARD.outcome_bytes,
        }
    }

    fn sweeping(&self) -> Sweeping {
        self.opened.get().map_or(Sweeping::ByStore, |backend| backend.sweeping())
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        self.backend().await?.claim(request).await
    }

    fn cached_claim(&self, request: &ClaimRequest) -> Option<Claim> {
        self.opened.get()?.cached_claim(request)
    }

    async fn settle(&self, key: &Key, token: Token, action: &Settle) -> Result<Settled> {
        self.backend().await?.settle(key, token, action).await
    }

    async fn mark(&self, requests: &[mark::Request]) -> Result<Vec<Mark>> {
        self.backend().await?.mark(requests).await
    }

    async fn adopt(&self, record: &Record) -> Result<Adopted> {
        self.backend().await?.adopt(record).await
    }
}

#[async_trait]
impl Maintain for Deferred {
    async fn init(&self) -> Result<()> {
        self.backend().await?.init().await
    }

    async fn check(&self) -> Result<Vec<String>> {
        self.backend().await?.check().await
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>> {
        self.backend().await?.get(key).await
    }

    async fn list(&self, query: &Query) -> Result<Page> {
        self.backend().await?.list(query).await
    }

    async fn resolve(&self, key: &Key, resolution: &Resolution) -> Result<Resolved> {
        self.backend().await?.resolve(key, resolution).await
    }

    async fn get_mark(&self, key: &MarkKey) -> Result<Option<mark::Record>> {
        self.backend().await?.get_mark(key).await
    }

    async fn list_marks(&self, query: &MarkQuery) -> Result<MarkPage> {
        self.backend().await?.list_marks(query).await
    }

    async fn forget_mark(&self, seen: &mark::Record) -> Result<Forgotten> {
        self.backend().await?.forget_mark(seen).await
    }

    async fn erase_mark(&self, seen: &mark::Record) -> Result<Erased> {
        self.backend().await?.erase_mark(seen).await
    }

    async fn sweep(&self, limit: usize) -> Result<Swept> {
        self.backend().await?.sweep(limit).await
    }

    async fn stats(&self) -> Result<Stats> {
        self.backend().await?.stats().await
    }

    async fn verify(&self) -> Result<Verified> {
        self.backend().await?.verify().await
    }

    async fn backup(&self, to: &Path) -> Result<Backup> {
        self.backend().await?.backup(to).await
    }

    async fn compact(&self) -> Result<Swept> {
        self.backend().await?.compact().await
    }

    async fn close(&self) -> Result<()> {
        match self.opened.get() {
            Some(backend) => backend.close().await,
            None => Ok(()),
        }
    }
}
