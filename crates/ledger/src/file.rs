//! `file:DIR` — claims in a directory, held by one process.
//!
//! ```text
//! callers ──look──▶ cache ─▶ engine ──answered: done, held, mismatch, seen        (never through the writer)
//!    │
//!    └──may change something──▶ queue ──▶ writer: decide, commit, raise the mark, publish, answer
//! ```
//!
//! What must stay true:
//!
//! - **Nothing is answered that is not durable.** A commit is synced before readers can see it, and its callers are
//!   answered after that. Calls that are queued while a commit runs make up the next one; no delay is added.
//! - **A failed commit stops the ledger** until its engine was opened again and found whole (`writer`).
//! - **A store that fell behind what it acknowledged is not opened** (`highwater`, `journal`).
//! - **Bytes that do not decode are an error**, never an absent claim (`codec` draws the format).
//! - **Repeats do not wait for the disk**: they are answered from memory or the engine's tables (`cache`, `view`).
//! - **A claim that ends soon is written once** (`fresh`).
//! - **What is over is gone at its time**, judged on every read; sweeping only makes room (`sweep`).
//! - **The dead hold nothing**: claims of an earlier process are in doubt from this opening on (`openings`).
//!
//! Reads happen on the caller's thread. They are short, and mostly in memory; a claim whose record has to come from the
//! disk holds its thread for that one read.

mod ahead;
mod cache;
mod codec;
mod engine;
mod fault;
mod fresh;
mod highwater;
mod holder;
mod items;
mod journal;
mod maintain;
mod manifest;
mod meta;
mod openings;
mod queue;
mod reader;
mod recent;
mod replies;
mod round;
mod shared;
mod store;
mod sweep;
#[cfg(test)]
mod tests;
mod view;
mod writer;

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, RwLock};

use async_trait::async_trait;
use ichido_core::mark::{self, Mark};
use ichido_core::{Adopted, Claim, ClaimRequest, Clock, Key, Limits, Record, Settle, Settled, Token};
use tokio::sync::{oneshot, watch};

pub use self::holder::HeldBy;

use self::holder::Held;
use self::queue::{Call, Queue, Reply};
use self::shared::{Look, Shared};
use self::writer::Writer;
use crate::{
    Backend, Capabilities, Error, Expiry, Fencing, Kind, Listing, Reach, Result, StoreClock, Survives,
    Sweeping,
};

/// Marks that a caller looks up before it lets others run.
const MARKS_PER_TURN: usize = 128;

/// What a file ledger needs to know besides its directory.
#[derive(Clone, Debug)]
pub struct FileSettings {
    /// The address of this process's admin port, for others who find the store held.
    pub admin: Option<String>,
    /// Memory for completed claims that are asked for again.
    pub cache_bytes: usize,
}

impl Default for FileSettings {
    fn default() -> Self {
        Self { admin: None, cache_bytes: 64 * 1024 * 1024 }
    }
}

/// Claims in a directory.
///
/// Dropping it finishes what was accepted and lets go of the directory in the background; [`crate::Maintain::close`]
/// waits for that.
#[derive(Debug)]
pub struct File {
    shared: Arc<Shared>,
    ended: watch::Receiver<bool>,
}

impl File {
    /// Opens the ledger in `dir`, and makes it if there is none. Blocks for as long as that takes.
    pub fn open(dir: &Path, settings: FileSettings, clock: Arc<dyn Clock>) -> Result<File> {
        let held = Held::take(dir, settings.admin.as_deref())?;
        let begun = match store::begin(&held, clock) {
            Ok(begun) => begun,
            Err(error) => {
                held.release();
                return Err(error);
            }
        };
        let engine = Arc::new(begun.store.engine);
        let shared = Arc::new(Shared {
            dir: held.dir().to_owned(),
            time: begun.time,
            openings: begun.openings,
            cache: cache::Cache::new(settings.cache_bytes),
            queue: Queue::new(),
            engine: RwLock::new(Some(engine.clone())),
            published: AtomicU64::new(0),
            sweeping: Mutex::default(),
        });
        let writer = Writer::new(shared.clone(), held, begun.high_water, engine, begun.store.last);
        let (ending, ended) = watch::channel(false);
        std::thread::Builder::new()
            .name("ichido:ledger".to_owned())
            .spawn(move || writer.run(&ending))
            .map_err(|error| fault::io(dir, "starting the writer of", error))?;
        Ok(File { shared, ended })
    }

    /// Hands a call to the writer and waits for its answer.
    async fn ask<T>(&self, call: impl FnOnce(Reply<T>) -> Call) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.shared.queue.push(call(reply)).await?;
        match answer.await {
            Ok(answer) => answer,
            Err(_) => Err(Error::new(Kind::Unavailable, "asking the file ledger, whose writer broke off")
                .with_unknown_effect()),
        }
    }

    fn check_open(&self) -> Result<()> {
        if self.shared.queue.is_closed() { Err(queue::closed()) } else { Ok(()) }
    }
}

/// What was accepted is finished in the background.
impl Drop for File {
    fn drop(&mut self) {
        self.shared.queue.close();
    }
}

#[async_trait]
impl Backend for File {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "file",
            reach: Reach::Host,
            survives: vec![Survives::ProcessKill, Survives::PowerLoss],
            expiry: Expiry::Exact,
            fencing: Fencing::Unique,
            listing: Listing::Indexed,
            clock: StoreClock::Own,
            outcome_bytes: Limits::STANDARD.outcome_bytes,
        }
    }

    /// The writer starts sweeps in the background.
    fn sweeping(&self) -> Sweeping {
        Sweeping::ByStore
    }

    /// # Cancel safety
    /// A dropped call may be granted all the same; asked again with the same nonce, it is granted again.
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        self.check_open()?;
        match self.shared.look_claim(request)? {
            Look::Answer(answer) => Ok(answer),
            Look::Ask { absent_at } => {
                let request = request.clone();
                self.ask(|reply| Call::Claim { request, absent_at, reply }).await
            }
        }
    }

    fn cached_claim(&self, request: &ClaimRequest) -> Option<Claim> {
        self.check_open().ok()?;
        self.shared.recall(request)
    }

    async fn settle(&self, key: &Key, token: Token, word: &Settle) -> Result<Settled> {
        let (key, word) = (key.clone(), word.clone());
        self.ask(|reply| Call::Settle { key, token, word, reply }).await
    }

    async fn mark(&self, requests: &[mark::Request]) -> Result<Vec<Mark>> {
        self.check_open()?;
        let mut answers = Vec::with_capacity(requests.len());
        let mut asked = Vec::new();
        for (number, request) in requests.iter().enumerate() {
            if number % MARKS_PER_TURN == MARKS_PER_TURN - 1 {
                tokio::task::yield_now().await;
            }
            match self.shared.look_mark(request)? {
                Look::Answer(answer) => answers.push(Some(answer)),
                Look::Ask { absent_at } => {
                    asked.push((request.clone(), absent_at));
                    answers.push(None);
                }
            }
        }
        let mut decided = match asked.is_empty() {
            true => Vec::new(),
            false => self.ask(|reply| Call::Mark { requests: asked, reply }).await?,
        }
        .into_iter();
        let answers = answers.into_iter().map(|answer| answer.or_else(|| decided.next()));
        let answers = answers.collect::<Option<Vec<_>>>();
        answers.ok_or_else(|| Error::new(Kind::Unavailable, "marking events").with_unknown_effect())
    }

    async fn adopt(&self, record: &Record) -> Result<Adopted> {
        let record = Box::new(record.clone());
        self.ask(|reply| Call::Adopt { record, reply }).await
    }
}
