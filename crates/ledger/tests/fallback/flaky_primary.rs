//! A primary in memory that fails on demand, fast enough for thousands of switches.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ichido_core::mark::{self, Mark};
use ichido_core::{
    Adopted, Claim, ClaimRequest, Key, Record, Resolution, Resolved, Settle, Settled, SystemClock, Token,
};
use ichido_ledger::memory::Memory;
use ichido_ledger::{Backend, Capabilities, Error, Kind, Maintain, Page, Query, Result, Stats, Swept};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

#[derive(Debug)]
pub(crate) struct FlakyPrimary {
    memory: Memory,
    unavailable: AtomicBool,
    rng: Mutex<StdRng>,
}

impl FlakyPrimary {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        let memory = Memory::new(Arc::new(SystemClock::default()), 100_000);
        Arc::new(Self {
            memory,
            unavailable: AtomicBool::new(false),
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
        })
    }

    pub(crate) fn set_unavailable(&self, out: bool) {
        self.unavailable.store(out, Ordering::SeqCst);
    }

    fn up_to(&self, most: u64) -> u64 {
        self.rng.lock().unwrap().random_range(0..=most)
    }

    /// A call takes a little while. During an outage, its request or its reply is lost.
    async fn call<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.pause().await;
        if self.unavailable.load(Ordering::SeqCst) && self.up_to(1) == 0 {
            return Err(Error::new(Kind::Unavailable, "calling").with_unknown_effect());
        }
        let answer = call.await;
        self.pause().await;
        if self.unavailable.load(Ordering::SeqCst) {
            return Err(Error::new(Kind::Unavailable, "calling").with_unknown_effect());
        }
        answer
    }

    async fn pause(&self) {
        let pause_us = self.up_to(3_000);
        if pause_us > 1_000 {
            tokio::time::sleep(Duration::from_micros(pause_us)).await;
        }
    }
}

#[async_trait]
impl Backend for FlakyPrimary {
    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        self.call(self.memory.claim(request)).await
    }

    async fn settle(&self, key: &Key, token: Token, action: &Settle) -> Result<Settled> {
        self.call(self.memory.settle(key, token, action)).await
    }

    async fn mark(&self, requests: &[mark::Request]) -> Result<Vec<Mark>> {
        self.call(self.memory.mark(requests)).await
    }

    async fn adopt(&self, record: &Record) -> Result<Adopted> {
        self.call(self.memory.adopt(record)).await
    }
}

#[async_trait]
impl Maintain for FlakyPrimary {
    async fn init(&self) -> Result<()> {
        self.memory.init().await
    }

    async fn check(&self) -> Result<Vec<String>> {
        self.call(self.memory.check()).await
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>> {
        self.call(self.memory.get(key)).await
    }

    async fn list(&self, query: &Query) -> Result<Page> {
        self.memory.list(query).await
    }

    async fn resolve(&self, key: &Key, resolution: &Resolution) -> Result<Resolved> {
        self.memory.resolve(key, resolution).await
    }

    async fn sweep(&self, limit: usize) -> Result<Swept> {
        self.memory.sweep(limit).await
    }

    async fn stats(&self) -> Result<Stats> {
        self.memory.stats().await
    }

    async fn close(&self) -> Result<()> {
        self.memory.close().await
    }
}
