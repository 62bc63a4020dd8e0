//! A ledger on a simulated disk, in virtual time and without threads, for simulations of what runs on top of it.
//!
//! A call takes effect at one moment, between two waits of random length. When the disk crashes, the process is gone: the
//! calls under way never return, and [`SimulatedLedger::crashed`] does.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ichido_core::mark::{self, Erased, Forgotten, Mark};
use ichido_core::{
    Adopted, Claim, ClaimRequest, Clock, Key, Limits, MarkKey, Record, Resolution, Resolved, Settle, Settled,
    SteadyTime, Token,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::{Notify, oneshot};

use super::disk::SimulatedDisk;
use crate::log::{self, Call, Compaction, Effort, Engine, Next, Options, PlantedBug, Reason, Reply};
use crate::{
    Backend, Backup, Capabilities, Error, Expiry, Fencing, Kind, Listing, Maintain, MarkPage, MarkQuery,
    Page, Query, Reach, Result, Stats, StoreClock, Survives, Sweeping, Swept,
};

/// The longest wait before and after a call takes effect.
const WAIT_MAX_MS: u64 = 20;

/// A ledger on a simulated disk.
#[derive(Debug)]
pub struct SimulatedLedger {
    disk: SimulatedDisk,
    state: Mutex<State>,
    time: SteadyTime,
    crash: Notify,
}

#[derive(Debug)]
struct State {
    engine: Engine,
    compaction: Compaction,
    random: StdRng,
}

impl SimulatedLedger {
    /// Opens the ledger as a process that starts, possibly with a bug. Segments are small, so that many are filled.
    pub fn open(
        disk: &SimulatedDisk,
        clock: &Arc<dyn Clock>,
        seed: u64,
        planted: Option<PlantedBug>,
    ) -> Result<Self> {
        let options = Options {
            segment_bytes: 16 * 1024,
            frame_bytes: 2 * 1024,
            inline_outcome_bytes: 256,
            fill_bytes: 4096,
            open_cached: 8,
            open_files: 2,
            planted,
            ..Options::standard("simulated")
        };
        let start = |floor| SteadyTime::start(clock.clone(), floor);
        let key = u128::from(seed).to_be_bytes();
        let opened = log::open(Arc::new(disk.clone()), options, &Reason::Start(&start), || key)?;
        let time = opened.time.unwrap_or_else(|| start(clock.now()));
        let random = StdRng::seed_from_u64(seed);
        let state = State { engine: opened.engine, compaction: Compaction::default(), random };
        Ok(Self { disk: disk.clone(), state: Mutex::new(state), time, crash: Notify::new() })
    }

    /// Waits until the disk has crashed.
    pub async fn crashed(&self) {
        self.crash.notified().await;
    }

    async fn ask<T>(&self, call: impl FnOnce(Reply<T>) -> Call) -> Result<T> {
        self.wait().await;
        let (reply, mut answer) = oneshot::channel();
        let result = {
            let mut state = self.lock();
            state.run(call(reply), self.time.now());
            answer.try_recv()
        };
        if self.disk.is_crashed() {
            self.crash.notify_one();
            return std::future::pending().await;
        }
        self.wait().await;
        result.unwrap_or_else(|_| {
            Err(Error::new(Kind::Unavailable, "waiting for the simulated ledger").with_unknown_effect())
        })
    }

    async fn wait(&self) {
        let ms = self.lock().random.random_range(0..=WAIT_MAX_MS);
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Runs a call, and sometimes a step of the maintenance.
    fn run(&mut self, call: Call, now: ichido_core::Timestamp) {
        self.engine.run(vec![call], now);
        if self.random.random_range(0..4) > 0 || self.engine.failure().is_some() {
            return;
        }
        let view = self.engine.view().clone();
        if let Some(job) = view.next_job() {
            // A job that fails is done by the next opening.
            drop(job.run(&view));
        }
        let next = self.compaction.next(&view, now, Effort::Sweep).unwrap_or(Next::Nothing);
        let call = match next {
            Next::Nothing => return,
            Next::Move(records) => Call::Move { records, reply: oneshot::channel().0 },
            Next::Drop(segment) => Call::Drop { segment, reply: oneshot::channel().0 },
        };
        self.engine.run(vec![call], now);
    }
}

#[async_trait]
impl Backend for SimulatedLedger {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "simulated",
            reach: Reach::Process,
            survives: vec![Survives::ProcessKill, Survives::PowerLoss],
            expiry: Expiry::Exact,
            fencing: Fencing::Unique,
            listing: Listing::Indexed,
            clock: StoreClock::Own,
            outcome_bytes: Limits::STANDARD.outcome_bytes,
        }
    }

    fn sweeping(&self) -> Sweeping {
        Sweeping::ByStore
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        let request = request.clone();
        self.ask(|reply| Call::Claim { request, reply }).await
    }

    async fn settle(&self, key: &Key, token: Token, action: &Settle) -> Result<Settled> {
        let (key, action) = (key.clone(), action.clone());
        self.ask(|reply| Call::Settle { key, token, action, reply }).await
    }

    async fn mark(&self, requests: &[mark::Request]) -> Result<Vec<Mark>> {
        let requests = requests.to_vec();
        self.ask(|reply| Call::Mark { requests, reply }).await
    }

    async fn adopt(&self, record: &Record) -> Result<Adopted> {
        let record = Box::new(record.clone());
        self.ask(|reply| Call::Adopt { record, reply }).await
    }
}

#[async_trait]
impl Maintain for SimulatedLedger {
    async fn init(&self) -> Result<()> {
        Ok(())
    }

    async fn check(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>> {
        let view = self.lock().engine.view().clone();
        Ok(view.claim(&key.index())?.map(|found| found.record))
    }

    async fn list(&self, _query: &Query) -> Result<Page> {
        Err(unsupported("listing claims"))
    }

    async fn resolve(&self, key: &Key, resolution: &Resolution) -> Result<Resolved> {
        let (key, resolution) = (key.clone(), resolution.clone());
        self.ask(|reply| Call::Resolve { key, resolution, reply }).await
    }

    async fn get_mark(&self, key: &MarkKey) -> Result<Option<mark::Record>> {
        let view = self.lock().engine.view().clone();
        Ok(view.mark(&key.index())?.map(|found| found.record))
    }

    async fn list_marks(&self, _query: &MarkQuery) -> Result<MarkPage> {
        Err(unsupported("listing marks"))
    }

    async fn forget_mark(&self, seen: &mark::Record) -> Result<Forgotten> {
        let (index, nonce) = (seen.key.index(), seen.nonce);
        self.ask(|reply| Call::ForgetMark { index, nonce, reply }).await
    }

    async fn erase_mark(&self, seen: &mark::Record) -> Result<Erased> {
        let (index, nonce) = (seen.key.index(), seen.nonce);
        self.ask(|reply| Call::EraseMark { index, nonce, reply }).await
    }

    async fn sweep(&self, _limit: usize) -> Result<Swept> {
        Ok(Swept::default())
    }

    async fn stats(&self) -> Result<Stats> {
        Err(unsupported("counting records"))
    }

    async fn backup(&self, _to: &Path) -> Result<Backup> {
        Err(unsupported("backing up the ledger"))
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

fn unsupported(doing: &'static str) -> Error {
    Error::new(Kind::Unsupported("the simulated ledger does not support this".to_owned()), doing)
}
