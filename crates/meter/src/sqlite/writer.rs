//! The thread that writes.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use ichido_usage::Profile;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::blocking::blocking;
use super::count;
use super::error::classify;
use crate::batch::Batch;
use crate::outcome::Outcome;
use crate::store::{Error, Result};

const OPERATION: &str = "counting a batch";
/// The most batches in the queue. Others wait to be queued.
const QUEUE_MAX: usize = 256;
/// The most batches and records per commit, so that no batch waits long for others.
const COMMIT_BATCHES_MAX: usize = 64;
const COMMIT_RECORDS_MAX: usize = 20_000;

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
        let (queue, jobs) = mpsc::channel(QUEUE_MAX);
        let thread = std::thread::Builder::new()
            .name("meter-writer".to_owned())
            .spawn(move || work(&connection, profile, jobs))
            .map_err(|error| {
                Error::unavailable("starting the meter's writer", "cannot start a thread", error)
            })?;
        Ok(Self { queue: Mutex::new(Some(queue)), thread: Mutex::new(Some(thread)) })
    }

    pub(super) async fn count(&self, batch: Arc<Batch>) -> Result<Vec<Outcome>> {
        let queue = self.queue()?;
        let (reply, outcomes) = oneshot::channel();
        queue.send(Job { batch, reply }).await.map_err(|_| closed())?;
        drop(queue);
        outcomes.await.map_err(|_| closed())?
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.queue()?.is_closed() { Err(closed()) } else { Ok(()) }
    }

    /// Stops after everything in the queue is written.
    pub(super) async fn close(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = blocking(move || thread.join()).await;
        }
    }

    fn queue(&self) -> Result<mpsc::Sender<Job>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(closed)
    }
}

fn closed() -> Error {
    Error::Unavailable { operation: OPERATION, problem: "the meter is closed".into(), source: None }
}

fn work(connection: &Connection, profile: Profile, mut jobs: mpsc::Receiver<Job>) {
    while let Some(first) = jobs.blocking_recv() {
        let mut records = first.batch.entries.len();
        let mut group = vec![first];
        while group.len() < COMMIT_BATCHES_MAX && records < COMMIT_RECORDS_MAX {
            let Ok(job) = jobs.try_recv() else { break };
            records += job.batch.entries.len();
            group.push(job);
        }
        commit(connection, profile, group);
    }
}

/// Counts a group of batches in one transaction, and replies when it is durable.
fn commit(connection: &Connection, profile: Profile, group: Vec<Job>) {
    let began = connection.execute_batch("BEGIN IMMEDIATE");
    if let Err(error) = began {
        return fail_all(group, &error);
    }
    let mut done: Vec<(Reply, Result<Vec<Outcome>>)> = Vec::with_capacity(group.len());
    for Job { batch, reply } in group {
        let outcomes = count_batch(connection, profile, &batch);
        done.push((reply, outcomes));
    }
    let committed = connection.execute_batch("COMMIT");
    if committed.is_err() && !connection.is_autocommit() {
        let _ = connection.execute_batch("ROLLBACK");
    }
    metrics::histogram!("ichido_meter_group_batches").record(u32::try_from(done.len()).unwrap_or(u32::MAX));
    for (reply, outcomes) in done {
        let outcomes = match &committed {
            Ok(()) => outcomes,
            Err(error) => Err(copy_of(error)),
        };
        // A sender that disconnected will retry.
        let _ = reply.send(outcomes);
    }
}

/// Counts one batch, completely or not at all.
fn count_batch(connection: &Connection, profile: Profile, batch: &Batch) -> Result<Vec<Outcome>> {
    let execute = |sql: &str| connection.execute_batch(sql).map_err(|error| classify(OPERATION, error));
    execute("SAVEPOINT batch")?;
    match count::count(connection, profile, batch) {
        Ok(outcomes) => execute("RELEASE batch").map(|()| outcomes),
        Err(error) => {
            let _ = connection.execute_batch("ROLLBACK TO batch; RELEASE batch");
            Err(error)
        }
    }
}

fn fail_all(group: Vec<Job>, error: &rusqlite::Error) {
    for job in group {
        let _ = job.reply.send(Err(copy_of(error)));
    }
}

/// Copies an error for each batch of a group.
fn copy_of(error: &rusqlite::Error) -> Error {
    if let rusqlite::Error::SqliteFailure(code, text) = error {
        return classify(OPERATION, rusqlite::Error::SqliteFailure(*code, text.clone()));
    }
    Error::unavailable(OPERATION, "the file cannot be accessed", error.to_string())
}
