//! The one that writes.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use ichido_usage::Profile;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::blocking::blocking;
use super::count;
use super::error::failed;
use crate::batch::Batch;
use crate::outcome::Outcome;
use crate::store::{Error, Result};

const DOING: &str = "counting a batch";
/// Batches that wait for their turn; more wait outside.
const QUEUE: usize = 256;
/// Batches and records in one commit at most: nobody waits long for others.
const BATCHES: usize = 64;
const RECORDS: usize = 20_000;

type Reply = oneshot::Sender<Result<Vec<Outcome>>>;

struct Job {
    batch: Arc<Batch>,
    reply: Reply,
}

pub(super) struct Writer {
    queue: Mutex<Option<mpsc::Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    pub(super) fn start(connection: Connection, profile: Profile) -> Result<Self> {
        let (queue, jobs) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("meter-writer".to_owned())
            .spawn(move || work(&connection, profile, jobs))
            .map_err(|error| Error::unavailable("starting the meter's writer", "no thread", error))?;
        Ok(Self { queue: Mutex::new(Some(queue)), thread: Mutex::new(Some(thread)) })
    }

    pub(super) async fn count(&self, batch: Arc<Batch>) -> Result<Vec<Outcome>> {
        let queue = self.queue()?;
        let (reply, answer) = oneshot::channel();
        queue.send(Job { batch, reply }).await.map_err(|_| gone())?;
        drop(queue);
        answer.await.map_err(|_| gone())?
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.queue()?.is_closed() { Err(gone()) } else { Ok(()) }
    }

    /// Ends after what is in the queue.
    pub(super) async fn close(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = blocking(move || thread.join()).await;
        }
    }

    fn queue(&self) -> Result<mpsc::Sender<Job>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(gone)
    }
}

fn gone() -> Error {
    Error::Unavailable { doing: DOING, what: "the meter is closed".into(), source: None }
}

fn work(connection: &Connection, profile: Profile, mut jobs: mpsc::Receiver<Job>) {
    while let Some(first) = jobs.blocking_recv() {
        let mut records = first.batch.entries.len();
        let mut group = vec![first];
        while group.len() < BATCHES && records < RECORDS {
            let Ok(job) = jobs.try_recv() else { break };
            records += job.batch.entries.len();
            group.push(job);
        }
        commit(connection, profile, group);
    }
}

/// Counts some batches in one transaction, and tells their senders when it is durable.
fn commit(connection: &Connection, profile: Profile, group: Vec<Job>) {
    let began = connection.execute_batch("BEGIN IMMEDIATE");
    if let Err(error) = began {
        return refuse(group, &error);
    }
    let mut done: Vec<(Reply, Result<Vec<Outcome>>)> = Vec::with_capacity(group.len());
    for Job { batch, reply } in group {
        let counted = one(connection, profile, &batch);
        done.push((reply, counted));
    }
    let committed = connection.execute_batch("COMMIT");
    if committed.is_err() && !connection.is_autocommit() {
        let _ = connection.execute_batch("ROLLBACK");
    }
    metrics::histogram!("ichido_meter_group_batches").record(u32::try_from(done.len()).unwrap_or(u32::MAX));
    for (reply, counted) in done {
        let counted = match &committed {
            Ok(()) => counted,
            Err(error) => Err(again(error)),
        };
        // Whoever hung up will ask again.
        let _ = reply.send(counted);
    }
}

/// One batch, whole or not at all.
fn one(connection: &Connection, profile: Profile, batch: &Batch) -> Result<Vec<Outcome>> {
    let step = |sql: &str| connection.execute_batch(sql).map_err(|error| failed(DOING, error));
    step("SAVEPOINT batch")?;
    match count::count(connection, profile, batch) {
        Ok(outcomes) => step("RELEASE batch").map(|()| outcomes),
        Err(error) => {
            let _ = connection.execute_batch("ROLLBACK TO batch; RELEASE batch");
            Err(error)
        }
    }
}

fn refuse(group: Vec<Job>, error: &rusqlite::Error) {
    for job in group {
        let _ = job.reply.send(Err(again(error)));
    }
}

/// The same error for everyone in the group.
fn again(error: &rusqlite::Error) -> Error {
    if let rusqlite::Error::SqliteFailure(code, text) = error {
        return failed(DOING, rusqlite::Error::SqliteFailure(*code, text.clone()));
    }
    Error::unavailable(DOING, "the file cannot be worked on", error.to_string())
}
