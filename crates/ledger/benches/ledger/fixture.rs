//! Ledgers to measure, and calls on them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use ichido_core::{
    Claim, ClaimRequest, Clock, Entropy, Fingerprint, Holder, InDoubtPolicy, Key, Metadata, Nonce, Outcome,
    Settled, SystemClock, SystemEntropy, Token,
};
use ichido_ledger::file::{File, FileSettings};
use ichido_ledger::{Ledger, Settings};
use tokio::time::Instant;

use crate::load::{Measurement, Until, run_load, run_timed};
use crate::outcomes::Outcomes;
use crate::raw_log::RawLog;

pub(crate) const HOUR_MS: u64 = 3_600_000;
/// Of this many keys, one is never completed: a store of running claims only is not one that occurs.
const ONE_OPEN_OF: u64 = 1_000;

/// A directory on the disk that is measured.
pub(crate) fn scratch() -> tempfile::TempDir {
    let base = std::env::var_os("ICHIDO_BENCH_DIR").map_or_else(|| PathBuf::from("."), PathBuf::from);
    tempfile::Builder::new().prefix("ledger-bench-").tempdir_in(base).unwrap()
}

/// A ledger as programs use it: the store with the handle's deadlines and metrics.
pub(crate) fn open(dir: &Path) -> Ledger {
    open_at(dir, Arc::new(SystemClock::default()))
}

pub(crate) fn open_at(dir: &Path, clock: Arc<dyn Clock>) -> Ledger {
    let file = File::open(dir, FileSettings::default(), clock).unwrap();
    Ledger::new(Arc::new(file), Settings::default())
}

/// A request for key number `number` of a family.
pub(crate) fn request(family: &str, number: u64) -> ClaimRequest {
    let draw = || SystemEntropy.draw();
    ClaimRequest {
        key: Key::unscoped(format!("{family}-{number:010}")).unwrap(),
        fingerprint: Fingerprint::from_bytes([7; 32]),
        caller: None,
        nonce: Nonce::from_bytes(draw()),
        token: Token::from_bytes(draw()),
        lease_ms: 30_000,
        retention_ms: 24 * HOUR_MS,
        holder: Holder::Process,
        metadata: Metadata::default(),
        in_doubt: InDoubtPolicy::Reject,
    }
}

/// What claims are made on.
#[derive(Clone)]
pub(crate) enum Store {
    Ledger(Ledger),
    RawLog(Arc<RawLog>),
}

impl Store {
    /// A ledger in a directory.
    pub(crate) fn ledger(dir: &Path) -> Self {
        Self::Ledger(open(dir))
    }

    /// An empty log in a directory.
    pub(crate) fn raw_log(dir: &Path) -> Self {
        Self::RawLog(Arc::new(RawLog::start(&dir.join("log"))))
    }

    /// Claims a key, which must be new.
    async fn claim(&self, request: &ClaimRequest) {
        match self {
            Self::Ledger(ledger) => {
                let claim = ledger.claim(request).await.unwrap().claim;
                assert!(matches!(claim, Claim::Granted(_)), "{claim:?}");
            }
            Self::RawLog(log) => assert!(log.claim(request).await),
        }
    }

    /// Completes a claim, which must be held.
    async fn complete(&self, request: &ClaimRequest, outcome: Bytes) {
        match self {
            Self::Ledger(ledger) => {
                let outcome = Outcome::kept(outcome);
                let settled = ledger.complete(&request.key, request.token, outcome).await.unwrap();
                assert_eq!(settled, Settled::Applied);
            }
            Self::RawLog(log) => assert!(log.complete(request, outcome).await),
        }
    }

    pub(crate) async fn close(self) {
        match self {
            Self::Ledger(ledger) => ledger.close().await.unwrap(),
            Self::RawLog(log) => drop(log),
        }
    }

    /// Callers that only claim.
    pub(crate) async fn run_claims(&self, family: &'static str, callers: u64, until: Until) -> Measurement {
        let store = self.clone();
        run_load(callers, until, move |number| {
            let store = store.clone();
            async move { store.claim(&request(family, number)).await }
        })
        .await
    }

    /// Callers that claim these requests.
    pub(crate) async fn run_claims_of(&self, requests: &Arc<[ClaimRequest]>, callers: u64) -> Measurement {
        let (store, requests) = (self.clone(), requests.clone());
        let until = Until::Calls(requests.len() as u64);
        run_load(callers, until, move |number| {
            let (store, requests) = (store.clone(), requests.clone());
            async move { store.claim(&requests[number as usize]).await }
        })
        .await
    }

    /// Callers that complete these requests.
    pub(crate) async fn run_completions_of(
        &self,
        requests: &Arc<[ClaimRequest]>,
        callers: u64,
        outcomes: &Outcomes,
    ) -> Measurement {
        let (store, requests, outcomes) = (self.clone(), requests.clone(), outcomes.clone());
        let until = Until::Calls(requests.len() as u64);
        run_load(callers, until, move |number| {
            let (store, requests, outcome) = (store.clone(), requests.clone(), outcomes.get(number));
            async move { store.complete(&requests[number as usize], outcome).await }
        })
        .await
    }

    /// Callers that claim keys and complete most of them, each before its next claim. Only claims are timed.
    pub(crate) async fn run_keyed(
        &self,
        callers: u64,
        until: Until,
        outcomes: &Outcomes,
        request_of: impl Fn(u64) -> ClaimRequest + Clone + Send + Sync + 'static,
    ) -> Measurement {
        let (store, outcomes) = (self.clone(), outcomes.clone());
        run_timed(callers, until, move |number| {
            let (store, outcome, request_of) = (store.clone(), outcomes.get(number), request_of.clone());
            async move {
                let request = request_of(number);
                store.claim(&request).await;
                let claimed = Instant::now();
                if number % ONE_OPEN_OF != 0 {
                    store.complete(&request, outcome).await;
                }
                claimed
            }
        })
        .await
    }
}
