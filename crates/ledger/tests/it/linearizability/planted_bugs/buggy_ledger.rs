//! A memory ledger with one bug.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ichido_core::mark::{self, Erased, Forgotten, Mark};
use ichido_core::{
    Adopted, Claim, ClaimRequest, Fingerprint, Grant, InDoubtPolicy, Index, Key, MarkKey, Nonce, Outcome,
    Record, Resolution, Resolved, Settle, Settled, SystemClock, SystemEntropy, Token,
};
use ichido_ledger::memory::{DEFAULT_BOUND, Memory};
use ichido_ledger::{
    Backend, Capabilities, Maintain, MarkPage, MarkQuery, Page, Query, Result, Stats, Swept,
};

/// The bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    LapsedLeaseIsGranted,
    AnyTokenCompletes,
    NonceIgnored,
    StaleRead,
    CheckThenAct,
    EarlyLapse,
    RenewalIgnored,
    EarlyTakeover,
    LastOutcomeWins,
    AttemptNotCounted,
    FingerprintIgnored,
    OperatorResolvesRunning,
    MarkNewTwice,
    MarkExpiresEarly,
}

#[derive(Debug)]
pub(super) struct BuggyLedger {
    bug: Bug,
    memory: Memory,
    /// The record of each key before its last change, and the current one.
    before: Mutex<HashMap<Index, [Option<Record>; 2]>>,
    /// Outcomes that overwrote others.
    outcomes: Mutex<HashMap<Index, Outcome>>,
}

impl BuggyLedger {
    pub(super) fn new(bug: Bug) -> Self {
        let memory = Memory::new(Arc::new(SystemClock::default()), DEFAULT_BOUND);
        Self { bug, memory, before: Mutex::default(), outcomes: Mutex::default() }
    }

    /// Frees the key, whatever its state.
    async fn free(&self, key: &Key) -> Result<()> {
        let _ = self.memory.resolve(key, &Resolution::Release).await?;
        Ok(())
    }

    async fn remember(&self, key: &Key) -> Result<()> {
        let now = self.memory.get(key).await?;
        let mut before = self.before.lock().unwrap();
        let kept = before.entry(key.index()).or_default();
        if kept[1] != now {
            *kept = [kept[1].take(), now];
        }
        Ok(())
    }

    async fn buggy_claim(&self, request: &ClaimRequest) -> Result<Claim> {
        let mut asked = request.clone();
        match self.bug {
            Bug::NonceIgnored => asked.nonce = Nonce::draw(&SystemEntropy),
            Bug::EarlyLapse => asked.lease_ms = request.lease_ms * 2 / 3,
            Bug::FingerprintIgnored => asked.fingerprint = Fingerprint::NONE,
            Bug::EarlyTakeover if request.in_doubt != InDoubtPolicy::Reject => {
                asked.in_doubt = InDoubtPolicy::Retry { silent_ms: 0 };
            }
            Bug::CheckThenAct => {
                let found = self.memory.get(&request.key).await?;
                tokio::time::sleep(Duration::from_millis(2)).await;
                if found.is_none() {
                    self.free(&request.key).await?;
                }
            }
            _ => {}
        }
        match self.memory.claim(&asked).await? {
            Claim::InDoubt(_) if self.bug == Bug::LapsedLeaseIsGranted => {
                self.free(&request.key).await?;
                self.memory.claim(&asked).await
            }
            Claim::Granted(grant) if self.bug == Bug::EarlyLapse => {
                let (lease_ms, left_ms) = (grant.lease_ms * 3 / 2, grant.left_ms * 3 / 2);
                Ok(Claim::Granted(Grant { lease_ms, left_ms, ..grant }))
            }
            Claim::Granted(grant) if self.bug == Bug::AttemptNotCounted => {
                Ok(Claim::Granted(Grant { attempt: 1, ..grant }))
            }
            answer => Ok(answer),
        }
    }

    async fn buggy_settle(&self, key: &Key, token: Token, action: &Settle) -> Result<Settled> {
        let Some(record) = self.memory.get(key).await? else {
            return self.memory.settle(key, token, action).await;
        };
        match (self.bug, action) {
            (Bug::AnyTokenCompletes, Settle::Complete(_)) => {
                self.memory.settle(key, record.token, action).await
            }
            (Bug::RenewalIgnored, Settle::Renew { .. }) if record.token == token => Ok(Settled::Applied),
            (Bug::LastOutcomeWins, Settle::Complete(outcome)) => {
                let settled = self.memory.settle(key, token, action).await?;
                if settled == Settled::Applied {
                    self.outcomes.lock().unwrap().insert(key.index(), outcome.clone());
                }
                Ok(settled)
            }
            _ => self.memory.settle(key, token, action).await,
        }
    }
}

#[async_trait]
impl Backend for BuggyLedger {
    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        let claim = self.buggy_claim(request).await?;
        if self.bug == Bug::StaleRead {
            self.remember(&request.key).await?;
        }
        let last = self.outcomes.lock().unwrap().get(&request.key.index()).cloned();
        Ok(match (claim, last) {
            (Claim::Done(_), Some(last)) => Claim::Done(last),
            (claim, _) => claim,
        })
    }

    async fn settle(&self, key: &Key, token: Token, action: &Settle) -> Result<Settled> {
        let settled = self.buggy_settle(key, token, action).await?;
        if self.bug == Bug::StaleRead {
            self.remember(key).await?;
        }
        Ok(settled)
    }

    async fn mark(&self, requests: &[mark::Request]) -> Result<Vec<Mark>> {
        let mut requests = requests.to_vec();
        for request in &mut requests {
            match self.bug {
                Bug::MarkExpiresEarly => request.retention_ms = request.retention_ms * 2 / 3,
                // One in eight callers is taken for the first one.
                Bug::MarkNewTwice if request.nonce.as_bytes()[0] < 32 => {
                    request.nonce = Nonce::from_bytes([0; 16])
                }
                _ => {}
            }
        }
        self.memory.mark(&requests).await
    }

    async fn adopt(&self, record: &Record) -> Result<Adopted> {
        self.memory.adopt(record).await
    }
}

#[async_trait]
impl Maintain for BuggyLedger {
    async fn init(&self) -> Result<()> {
        self.memory.init().await
    }

    async fn check(&self) -> Result<Vec<String>> {
        self.memory.check().await
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>> {
        if self.bug == Bug::StaleRead {
            return Ok(self.before.lock().unwrap().get(&key.index()).and_then(|kept| kept[0].clone()));
        }
        self.memory.get(key).await
    }

    async fn list(&self, query: &Query) -> Result<Page> {
        self.memory.list(query).await
    }

    async fn resolve(&self, key: &Key, resolution: &Resolution) -> Result<Resolved> {
        let resolution = match (self.bug, resolution) {
            (Bug::OperatorResolvesRunning, Resolution::Absent) => &Resolution::Release,
            (_, resolution) => resolution,
        };
        let resolved = self.memory.resolve(key, resolution).await?;
        if self.bug == Bug::StaleRead {
            self.remember(key).await?;
        }
        Ok(resolved)
    }

    async fn get_mark(&self, key: &MarkKey) -> Result<Option<mark::Record>> {
        self.memory.get_mark(key).await
    }

    async fn list_marks(&self, query: &MarkQuery) -> Result<MarkPage> {
        self.memory.list_marks(query).await
    }

    async fn forget_mark(&self, seen: &mark::Record) -> Result<Forgotten> {
        self.memory.forget_mark(seen).await
    }

    async fn erase_mark(&self, seen: &mark::Record) -> Result<Erased> {
        self.memory.erase_mark(seen).await
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
