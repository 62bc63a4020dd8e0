//! `file:DIR` — claims in a directory, held by one process.
//!
//! ```text
//! callers ──look──▶ cache, view ──answered: done, held, mismatch, seen          (without the writer)
//!    │
//!    └──may change something──▶ queue ──▶ writer: decide, commit, publish, answer
//!                                           ▲
//!                       housekeeper: indexes, spare files, compaction, backups
//! ```
//!
//! The store itself is [`crate::log`], which has no threads. Here are the two that run it: the writer, the only one that
//! changes the store, and the housekeeper, which does everything that no caller should wait for.
//!
//! Reads happen on the caller's thread. They are short, and mostly in memory; a claim whose record must come from the disk
//! holds its thread for that one read.

mod backup;
mod cache;
mod holder;
mod housekeeper;
mod listing;
mod maintain;
mod queue;
mod shared;
mod tasks;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

use std::path::Path;
use std::sync::{Arc, RwLock};

use async_trait::async_trait;
use ichido_core::mark::{self, Mark};
use ichido_core::{
    Adopted, Claim, ClaimRequest, Clock, Key, Limits, Record, Settle, Settled, SteadyTime, Token,
};
use tokio::sync::{oneshot, watch};

pub use self::backup::restore;
pub use self::holder::HeldBy;
pub use self::verify::verify;

use self::holder::Held;
use self::housekeeper::Housekeeper;
use self::queue::Queue;
use self::shared::{Look, Shared};
use self::tasks::Tasks;
use self::writer::Writer;
use crate::log::storage::Disk;
use crate::log::{self, Call, Options, Reason, Reply};
use crate::{
    Backend, Capabilities, Error, Expiry, Fencing, Kind, Listing, Reach, Result, StoreClock, Survives,
    Sweeping,
};

/// Marks that a caller looks up before it lets other tasks run.
const MARKS_PER_TURN: usize = 128;

/// Settings of a file ledger, in addition to its directory.
#[derive(Clone, Debug)]
pub struct FileSettings {
    /// The address of this process's admin port, shown to other processes that find the store in use.
    pub admin: Option<String>,
    /// Memory for completed claims that are claimed again.
    pub cache_bytes: usize,
}

impl Default for FileSettings {
    fn default() -> Self {
        Self { admin: None, cache_bytes: 64 * 1024 * 1024 }
    }
}

/// Claims in a directory.
///
/// Dropping it finishes what was accepted and releases the directory in the background; [`crate::Maintain::close`] waits for
/// that.
#[derive(Debug)]
pub struct File {
    shared: Arc<Shared>,
    ended: watch::Receiver<bool>,
}

impl File {
    /// Opens the ledger in `dir`, and creates it if there is none. Blocks for as long as that takes.
    pub fn open(dir: &Path, settings: FileSettings, clock: Arc<dyn Clock>) -> Result<File> {
        let held = Held::take(dir, settings.admin.as_deref())?;
        let storage = Arc::new(Disk::new(held.dir()));
        let options = Options::standard(held.dir().display().to_string());
        let start = |floor| SteadyTime::start(clock.clone(), floor);
        let opened = log::open(storage, options, &Reason::Start(&start), rand::random);
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                held.release();
                return Err(error);
            }
        };
        let time = opened.time.unwrap_or_else(|| start(ichido_core::Timestamp(0)));
        let shared = Arc::new(Shared {
            dir: held.dir().to_owned(),
            time,
            cache: cache::Cache::new(settings.cache_bytes),
            queue: Queue::new(),
            view: RwLock::new(Some(opened.engine.view().clone())),
            tasks: Tasks::default(),
        });
        let (ending, ended) = watch::channel(false);
        let housekeeper = Housekeeper::new(shared.clone());
        let keeping = spawn("ichido:keeper", dir, move || housekeeper.run())?;
        let writer = Writer::new(shared.clone(), held, opened.engine);
        spawn("ichido:ledger", dir, move || writer.run(keeping, &ending))?;
        Ok(File { shared, ended })
    }

    /// Bytes of zeros that were written ahead of records since the store was opened, for measurements.
    pub fn zeros_written(&self) -> u64 {
        self.shared.view().map_or(0, |view| view.spares.zeros())
    }

    /// Hands a call to the writer and waits for its answer.
    async fn ask<T>(&self, call: impl FnOnce(Reply<T>) -> Call) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.shared.queue.push(call(reply)).await?;
        match answer.await {
            Ok(answer) => answer,
            Err(_) => Err(Error::new(Kind::Unavailable, "waiting for the file ledger, whose writer stopped")
                .with_unknown_effect()),
        }
    }

    fn check_open(&self) -> Result<()> {
        if self.shared.queue.is_closed() { Err(queue::closed()) } else { Ok(()) }
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    dir: &Path,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<std::thread::JoinHandle<T>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(|error| {
        let doing = format!("starting a thread for file:{}", dir.display());
        Error::new(Kind::Unavailable, doing).caused_by(error)
    })
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

    /// The housekeeper reclaims space in the background.
    fn sweeping(&self) -> Sweeping {
        Sweeping::ByStore
    }

    /// # Cancel safety
    /// A dropped call may be granted all the same. If it is retried with the same nonce, it is granted again.
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        self.check_open()?;
        match self.shared.look_claim(request)? {
            Look::Answer(answer) => Ok(answer),
            Look::Ask => {
                let request = request.clone();
                self.ask(|reply| Call::Claim { request, reply }).await
            }
        }
    }

    fn cached_claim(&self, request: &ClaimRequest) -> Option<Claim> {
        self.check_open().ok()?;
        self.shared.recall(request)
    }

    async fn settle(&self, key: &Key, token: Token, action: &Settle) -> Result<Settled> {
        let (key, action) = (key.clone(), action.clone());
        self.ask(|reply| Call::Settle { key, token, action, reply }).await
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
                Look::Ask => {
                    asked.push(request.clone());
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
