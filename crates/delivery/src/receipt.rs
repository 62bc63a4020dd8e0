//! Receipts: what happened to each batch.
//!
//! ```text
//! data/receipts/                                      0700
//!   receipts_20250118_<pid>-<start>.jsonl             0600: one process, one day (UTC)
//! ```
//!
//! Each pass over a batch ends with a line: its key, a digest of its content, the ids of its records, the requests that
//! were made, where the batch came from, and the disposition. Receipts are history and evidence: [`read`] finds a record in
//! them, and [`crate::slo`] measures a period. If a receipt says that a batch was delivered, the
//! receiver has it ([`crate::conflict`]), and a leftover file of that batch is removed instead of sent.
//!
//! A line is appended before the batch's file is removed, and synced in groups. So it survives a crash of the
//! process, and a power failure costs at most the last group. A batch without a receipt is sent again; nothing
//! depends on a receipt. If a process crashes, its last line may be torn, and is skipped.

mod lines;
mod lookup;
pub mod read;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ichido_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::batch::Batch;
use crate::conflict::Proof;
use crate::disk::{self, Disk};
use crate::next_action::Origin;
use crate::record::Record;
use crate::time::iso;

const PREFIX: &str = "receipts_";
const SUFFIX: &str = ".jsonl";
/// The most lines that are synced together. A sender writes fewer in [`SYNC_GROUP_MS`], unless it is very fast: a sync takes as long
/// as a request.
const SYNC_GROUP: u32 = 1_024;
/// The longest that a line waits for its sync while others follow.
const SYNC_GROUP_MS: u64 = 1_000;
/// How long receipts are kept by default.
pub const RETENTION: Duration = Duration::from_secs(90 * DAY_MS / 1_000);
const DAY_MS: u64 = 86_400_000;

/// What happened to a batch at the end of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Disposition {
    /// The receiver has it.
    Delivered,
    /// It is in the spool.
    Spooled,
    /// It was moved to failed.
    Failed,
    /// It was split. Its parts have receipts of their own.
    Split,
    /// An operator declared that the receiver has it.
    Accepted,
}

/// One request of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// When it started.
    pub at: String,
    /// The status of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The kind of error, if there was no response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
    /// How long it took.
    pub latency_ms: u64,
}

/// What a receipt records.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The batch.
    pub batch: &'a Batch,
    /// What happened to it.
    pub disposition: Disposition,
    /// The proof that the receiver already had it.
    pub proof: Option<Proof>,
    /// The requests of this pass, oldest first.
    pub attempts: &'a [Attempt],
    /// Where the pass found the batch. `None` if there was no pass: an operator accepted it.
    pub origin: Option<Origin>,
    /// When the batch was first tried.
    pub first_attempt: Timestamp,
    /// The key of the batch that was split into this one and others.
    pub part_of: Option<&'a str>,
    /// Of a batch that was split: the indexes of the records that the receiver accepted all the same.
    pub accepted: &'a [usize],
}

impl<'a> Entry<'a> {
    /// A pass over a batch, without requests.
    pub fn new(batch: &'a Batch, disposition: Disposition, first_attempt: Timestamp) -> Self {
        Self {
            batch,
            disposition,
            proof: None,
            attempts: &[],
            origin: None,
            first_attempt,
            part_of: None,
            accepted: &[],
        }
    }
}

/// A line. The key and the digest come first, so that a lookup does not have to parse every line.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    batch_idempotency_key: &'a str,
    digest: &'a str,
    #[serde(rename = "ending")]
    disposition: Disposition,
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate: Option<&'static str>,
    at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<&'static str>,
    first_attempt: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    part_of: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_ms: Option<u64>,
    attempts: &'a [Attempt],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    accepted: Vec<&'a str>,
    records: Vec<&'a str>,
}

/// Writes the receipts of this process, and looks into those of all processes.
#[derive(Debug)]
pub struct Receipts {
    disk: Disk,
    dir: PathBuf,
    process: String,
    retention: Duration,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    day: String,
    file: Option<(File, PathBuf)>,
    unsynced: u32,
    /// When the first unsynced line was written.
    since: Timestamp,
    is_torn: bool,
}

impl Receipts {
    /// The receipts below a data directory. Nothing is created before the first line is written.
    pub(crate) fn new(disk: Disk, root: &Path, process: String, retention: Duration) -> Self {
        Self { disk, dir: root.join("receipts"), process, retention, open: Mutex::default() }
    }

    /// Appends a line. It is synced with its group, or by [`Receipts::sync`]. What is kept for no time is not written.
    pub fn write(&self, entry: &Entry<'_>, now: Timestamp) -> io::Result<()> {
        if self.retention.is_zero() {
            return Ok(());
        }
        let mut line = line(entry, now);
        let mut open = self.open();
        self.roll_over(&mut open, now)?;
        if open.is_torn {
            line.insert(0, '\n');
        }
        let Open { file: Some((file, path)), .. } = &mut *open else { return Ok(()) };
        let written = self.disk.append(file, path, line.as_bytes());
        open.is_torn = written.is_err();
        written?;
        if open.unsynced == 0 {
            open.since = now;
        }
        open.unsynced += 1;
        match open.unsynced >= SYNC_GROUP || now.ms_since(open.since) >= SYNC_GROUP_MS {
            true => self.sync_open(&mut open),
            false => Ok(()),
        }
    }

    /// Syncs all lines.
    pub fn sync(&self) -> io::Result<()> {
        self.sync_open(&mut self.open())
    }

    /// Whether a receipt says that the receiver has exactly this batch.
    pub fn has_delivered(&self, batch: &Batch) -> io::Result<bool> {
        lookup::is_delivered(&self.dir, batch, |_| true)
    }

    /// The same, limited to the receipts of one process.
    pub(crate) fn has_delivered_by(&self, process: &str, batch: &Batch) -> io::Result<bool> {
        let end = format!("_{process}{SUFFIX}");
        lookup::is_delivered(&self.dir, batch, |name| name.ends_with(&end))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sync_open(&self, open: &mut Open) -> io::Result<()> {
        if open.unsynced > 0
            && let Some((file, path)) = &open.file
        {
            self.disk.sync_data(file, path)?;
        }
        open.unsynced = 0;
        Ok(())
    }

    /// Opens the file of a new day, and removes expired files.
    fn roll_over(&self, open: &mut Open, now: Timestamp) -> io::Result<()> {
        let day = day(now);
        if open.file.is_some() && open.day == day {
            return Ok(());
        }
        self.sync_open(open)?;
        disk::create_private_dir(&self.dir)?;
        self.clean_up(now);
        let path = self.dir.join(format!("{PREFIX}{day}_{}{SUFFIX}", self.process));
        let file = self.disk.open_append(&path)?;
        self.disk.sync_dir(&self.dir)?;
        *open = Open { day, file: Some((file, path)), ..Open::default() };
        Ok(())
    }

    fn clean_up(&self, now: Timestamp) {
        let retention = u64::try_from(self.retention.as_millis()).unwrap_or(u64::MAX);
        let oldest = day(Timestamp(now.0.saturating_sub(retention)));
        for name in disk::file_names(&self.dir).unwrap_or_default() {
            if name_day(&name).is_some_and(|day| *day < *oldest)
                && let Err(error) = fs::remove_file(self.dir.join(&name))
            {
                tracing::warn!(%error, file = name, "cannot remove expired receipts");
            }
        }
    }
}

fn line(entry: &Entry<'_>, now: Timestamp) -> String {
    let records = entry.batch.records();
    let line = Line {
        batch_idempotency_key: entry.batch.key(),
        digest: entry.batch.digest(),
        disposition: entry.disposition,
        duplicate: entry.proof.map(Proof::as_str),
        at: iso(now),
        origin: entry.origin.map(Origin::as_str),
        first_attempt: iso(entry.first_attempt),
        part_of: entry.part_of,
        latency_ms: entry.attempts.last().map(|attempt| attempt.latency_ms),
        attempts: entry.attempts,
        accepted: entry.accepted.iter().filter_map(|index| records.get(*index)).map(Record::key).collect(),
        records: records.iter().map(Record::key).collect(),
    };
    serde_json::to_string(&line).map(|line| line + "\n").unwrap_or_default()
}

/// The day in the name of a receipt file: `20250118`.
fn name_day(name: &str) -> Option<&str> {
    let rest = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let (day, _) = rest.split_once('_')?;
    (day.len() == 8 && day.bytes().all(|byte| byte.is_ascii_digit())).then_some(day)
}

fn day(at: Timestamp) -> String {
    iso(at).chars().filter(char::is_ascii_digit).take(8).collect()
}

#[cfg(test)]
mod tests;
