//! A memory ledger with one bug.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ichido_core::mark::{self, Mark};
use ichido_core::{
    Adopted, Claim, ClaimRequest, Fingerprint, Grant, InDoubtPolicy, Index, Key, Nonce, Outcome, Record,
    Resolution, Resolved, Settle, Settled, SystemClock, SystemEntropy, Token,
};
use ichido_ledger::memory::{DEFAULT_BOUND, Memory};
use ichido_ledger::{Backend, Capabilities, Maintain, Page, Query, Result, Stats, Swept};

/// The bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    LapseIsFreedom,
    AnyTokenCompletes,
    NonceForgotten,
    StaleRead,
    CheckThenAct,
    EarlyLapse,
    RenewalLost,
    ImpatientTakeover,
    LastOutcomeWins,
    AttemptNotCounted,
    FingerprintIgnored,
    OperatorOverrules,
    MarkTwiceNew,
    MarkForgottenEarly,
}

#[derive(Debug)]
pub(super) struct Flawed {
    flaw: Flaw,
    memory: Memory,
    /// What each key held before its last change, and what it holds.
    before: Mutex<HashMap<Index, [Option<Record>; 2]>>,
    /// Outcomes that were written over others.
    outcomes: Mutex<HashMap<Index, Outcome>>,
}

impl Flawed {
    pub(super) fn new(flaw: Flaw) -> Self {
        let memory = Memory::new(Arc::new(SystemClock::default()), DEFAULT_BOUND);
        Self { flaw, memory, before: Mutex::default(), outcomes: Mutex::default() }
    }

    /// Makes the key free, whatever is there.
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

    async fn flawed_claim(&self, request: &ClaimRequest) -> Result<Claim> {
        let mut asked = request.clone();
        match self.flaw {
            Flaw::NonceForgotten => asked.nonce = Nonce::draw(&SystemEntropy),
            Flaw::EarlyLapse => asked.lease_ms = request.lease_ms * 2 / 3,
            Flaw::FingerprintIgnored => asked.fingerprint = Fingerprint::NONE,
            Flaw::ImpatientTakeover if request.in_doubt != InDoubtPolicy::Reject => {
                asked.in_doubt = InDoubtPolicy::Retry { silent_ms: 0 };
            }
            Flaw::CheckThenAct => {
                let found = self.memory.get(&request.key).await?;
                tokio::time::sleep(Duration::from_millis(2)).await;
                if found.is_none() {
                    self.free(&request.key).await?;
                }
            }
            _ => {}
        }
        match self.memory.claim(&asked).await? {
            Claim::InDoubt(_) if self.flaw == Flaw::LapseIsFreedom => {
                self.free(&request.key).await?;
                self.memory.claim(&asked).await
            }
            Claim::Granted(grant) if self.flaw == Flaw::EarlyLapse => {
                let (lease_ms, left_ms) = (grant.lease_ms * 3 / 2, grant.left_ms * 3 / 2);
                Ok(Claim::Granted(Grant { lease_ms, left_ms, ..grant }))
            }
            Claim::Granted(grant) if self.flaw == Flaw::AttemptNotCounted => {
                Ok(Claim::Granted(Grant { attempt: 1, ..grant }))
            }
            answer => Ok(answer),
        }
    }

    async fn flawed_settle(&self, key: &Key, token: Token, action: &Settle) -> Result<Settled> {
        let Some(record) = self.memory.get(key).await? else {
            return self.memory.settle(key, token, action).await;
        };
        match (self.flaw, action) {
            (Flaw::AnyTokenCompletes, Settle::Complete(_)) => {
                self.memory.settle(key, record.token, action).await
            }
            (Flaw::RenewalLost, Settle::Renew { .. }) if record.token == token => Ok(Settled::Applied),
            (Flaw::LastOutcomeWins, Settle::Complete(outcome)) => {
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
impl Backend for Flawed {
    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        let claim = self.flawed_claim(request).await?;
        if self.flaw == Flaw::StaleRead {
            self.remember(&request.key).await?;
        }
        let last = self.outcomes.lock().unwrap().get(&request.key.index()).cloned();
        Ok(match (claim, last) {
            (Claim::Done(_), Some(last)) => Claim::Done(last),
            (claim, _) => claim,
        })
    }

    async fn settle(&self, key: &Key, token: Token, word: &Settle) -> Result<Settled> {
        let settled = self.flawed_settle(key, token, word).await?;
        if self.flaw == Flaw::StaleRead {
            self.remember(key).await?;
        }
        Ok(settled)
    }

    async fn mark(&self, requests: &[mark::Request]) -> Result<Vec<Mark>> {
        let mut requests = requests.to_vec();
        for request in &mut requests {
            match self.flaw {
                Flaw::MarkForgottenEarly => request.retention_ms = request.retention_ms * 2 / 3,
                // Two in sixteen callers are taken for the first one.
                Flaw::MarkTwiceNew if request.nonce.as_bytes()[0] < 32 => {
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
impl Maintain for Flawed {
    async fn init(&self) -> Result<()> {
        self.memory.init().await
    }

    async fn check(&self) -> Result<Vec<String>> {
        self.memory.check().await
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>> {
        if self.flaw == Flaw::StaleRead {
            return Ok(self.before.lock().unwrap().get(&key.index()).and_then(|kept| kept[0].clone()));
        }
        self.memory.get(key).await
    }

    async fn list(&self, query: &Query) -> Result<Page> {
        self.memory.list(query).await
    }

    async fn resolve(&self, key: &Key, resolution: &Resolution) -> Result<Resolved> {
        let resolution = match (self.flaw, resolution) {
            (Flaw::OperatorOverrules, Resolution::Absent) => &Resolution::Release,
            (_, resolution) => resolution,
        };
        let resolved = self.memory.resolve(key, resolution).await?;
        if self.flaw == Flaw::StaleRead {
            self.remember(key).await?;
        }
        Ok(resolved)
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
