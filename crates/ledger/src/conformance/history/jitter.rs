//! Random pauses before and after each call, so that calls overlap and can be dropped halfway even on a fast store.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ichido_core::mark::{self, Erased, Forgotten, Mark};
use ichido_core::{
    Adopted, Claim, ClaimRequest, Key, MarkKey, Record, Resolution, Resolved, Settle, Settled, Token,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::{Backend, Capabilities, Maintain, MarkPage, MarkQuery, Page, Query, Result, Stats, Swept};

#[derive(Debug)]
pub(super) struct WithJitter {
    backend: Arc<dyn Backend>,
    rng: Mutex<StdRng>,
}

impl WithJitter {
    pub(super) fn new(backend: Arc<dyn Backend>, seed: u64) -> Self {
        Self { backend, rng: Mutex::new(StdRng::seed_from_u64(seed)) }
    }

    async fn around<T>(&self, call: impl Future<Output = T>) -> T {
        self.pause().await;
        let answer = call.await;
        self.pause().await;
        answer
    }

    async fn pause(&self) {
        let pause_us = {
            let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
            if rng.random_bool(0.5) { rng.random_range(0..6_000) } else { 0 }
        };
        if pause_us > 0 {
            tokio::time::sleep(Duration::from_micros(pause_us)).await;
        }
    }
}

#[async_trait]
impl Backend for WithJitter {
    fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        self.around(self.backend.claim(request)).await
    }

    async fn settle(&self, key: &Key, token: Token, action: &Settle) -> Result<Settled> {
        self.around(self.backend.settle(key, token, action)).await
    }

    async fn mark(&self, requests: &[mark::Request]) -> Result<Vec<Mark>> {
        self.around(self.backend.mark(requests)).await
    }

    async fn adopt(&self, record: &Record) -> Result<Adopted> {
        self.around(self.backend.adopt(record)).await
    }
}

#[async_trait]
impl Maintain for WithJitter {
    async fn init(&self) -> Result<()> {
        self.backend.init().await
    }

    async fn check(&self) -> Result<Vec<String>> {
        self.backend.check().await
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>> {
        self.around(self.backend.get(key)).await
    }

    async fn list(&self, query: &Query) -> Result<Page> {
        self.backend.list(query).await
    }

    async fn resolve(&self, key: &Key, resolution: &Resolution) -> Result<Resolved> {
        self.around(self.backend.resolve(key, resolution)).await
    }

    async fn get_mark(&self, key: &MarkKey) -> Result<Option<mark::Record>> {
        self.around(self.backend.get_mark(key)).await
    }

    async fn list_marks(&self, query: &MarkQuery) -> Result<MarkPage> {
        self.backend.list_marks(query).await
    }

    async fn forget_mark(&self, seen: &mark::Record) -> Result<Forgotten> {
        self.around(self.backend.forget_mark(seen)).await
    }

    async fn erase_mark(&self, seen: &mark::Record) -> Result<Erased> {
        self.around(self.backend.erase_mark(seen)).await
    }

    async fn sweep(&self, limit: usize) -> Result<Swept> {
        self.backend.sweep(limit).await
    }

    async fn stats(&self) -> Result<Stats> {
        self.backend.stats().await
    }

    async fn close(&self) -> Result<()> {
        self.backend.close().await
    }
}
