//! Reads the receipts of all processes: searches for an id, or goes through a period.
//!
//! A search looks for the text of the id first, and parses only the lines that contain it. Torn lines are skipped. A file
//! that cannot be read is reported, and does not hide the others.

use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use ichido_core::Timestamp;
use memchr::memmem::Finder;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use super::{Disposition, day, lines, name_day};
use crate::time::parse_iso;

/// The most receipts that a search returns.
const MATCHES_MAX: usize = 1_000;
/// The most threads of a search.
const WORKERS_MAX: usize = 4;
/// The fewest characters that select a batch by the start of its key: as many as a file name has.
pub const KEY_PREFIX_CHARS: usize = 12;

/// A receipt as it was read. `R` are the ids of the records.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt<R = Vec<String>> {
    /// The key of the batch.
    pub batch_idempotency_key: String,
    /// What happened to it.
    #[serde(rename = "ending")]
    pub disposition: Disposition,
    /// The proof that the receiver already had it.
    #[serde(default)]
    pub duplicate: Option<String>,
    /// When.
    #[serde(deserialize_with = "timestamp")]
    pub at: Timestamp,
    /// Where the pass found the batch. `None` in lines of earlier versions, and if there was no pass.
    #[serde(default)]
    pub origin: Option<Origin>,
    /// When the batch was first tried. `None` in lines of earlier versions.
    #[serde(default, deserialize_with = "optional_timestamp")]
    pub first_attempt: Option<Timestamp>,
    /// The key of the batch that was split into this one and others.
    #[serde(default)]
    pub part_of: Option<String>,
    /// The requests of the pass, oldest first.
    #[serde(default)]
    pub attempts: Vec<Attempt>,
    /// Of a batch that was split: the ids of the records that the receiver accepted all the same.
    #[serde(default)]
    pub accepted: Vec<String>,
    /// The ids of its records.
    pub records: R,
}

/// Where a pass found a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// It was just accepted.
    Fresh,
    /// It was in the spool, or in failed.
    Spool,
}

impl Origin {
    /// The name in receipts.
    pub fn as_str(self) -> &'static str {
        match self {
            Origin::Fresh => "fresh",
            Origin::Spool => "spool",
        }
    }
}

/// One request, as it was read.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// When it started.
    #[serde(deserialize_with = "timestamp")]
    pub at: Timestamp,
    /// The status of the response.
    #[serde(default)]
    pub status: Option<u16>,
    /// The kind of error, if there was no response.
    #[serde(default)]
    pub error: Option<String>,
    /// How long it took.
    pub latency_ms: u64,
}

impl<R> Receipt<R> {
    /// How long the pass took, from its first request to the last response.
    pub fn took_ms(&self) -> Option<u64> {
        let (first, last) = (self.attempts.first()?, self.attempts.last()?);
        Some((last.at + last.latency_ms).ms_since(first.at))
    }
}

impl Receipt {
    /// Whether it is about this batch or record, or about a part of this batch.
    fn is_about(&self, id: &str) -> bool {
        self.batch_idempotency_key == id
            || self.part_of.as_deref() == Some(id)
            || (is_key_prefix(id) && self.batch_idempotency_key.starts_with(id))
            || self.records.iter().any(|record| record == id)
    }
}

/// The receipt files of a data directory.
#[derive(Clone, Debug)]
pub struct ReceiptFiles {
    dir: PathBuf,
    /// Oldest day first.
    names: Vec<String>,
}

/// What a search found.
#[derive(Debug, Default)]
pub struct Matches {
    /// The receipts, oldest first.
    pub receipts: Vec<Receipt>,
    /// Whether there may be more.
    pub is_truncated: bool,
    /// What could not be read, and why.
    pub unreadable: Vec<String>,
}

impl ReceiptFiles {
    /// Lists the files below a data directory.
    pub fn list(root: &Path) -> io::Result<Self> {
        let dir = root.join("receipts");
        Ok(Self { names: lines::names(&dir)?, dir })
    }

    /// Their directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Their paths, oldest day first.
    pub(crate) fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.names.iter().map(|name| self.dir.join(name))
    }

    /// The number of files.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// The day of the oldest file: `20250118`.
    pub fn first_day(&self) -> Option<&str> {
        self.names.first().and_then(|name| name_day(name))
    }

    /// Finds the receipts about an id: of a record, or of a batch, or the first 12 or more characters of a batch key.
    pub fn search(&self, id: &str) -> Matches {
        let needle = needle(id);
        let next = AtomicUsize::new(0);
        let work = || {
            let (mut found, finder) = (Matches::default(), Finder::new(&needle));
            while let Some(name) = self.names.get(next.fetch_add(1, Relaxed)) {
                self.search_file(name, id, &finder, &mut found);
            }
            found
        };
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(WORKERS_MAX);
        let mut all = std::thread::scope(|scope| {
            let others: Vec<_> = (1..workers.min(self.names.len())).map(|_| scope.spawn(work)).collect();
            let mut all = work();
            for other in others {
                match other.join() {
                    Ok(found) => all.add(found),
                    Err(_) => all.unreadable.push("a search thread panicked".to_owned()),
                }
            }
            all
        });
        all.receipts.sort_by_key(|receipt| receipt.at);
        all.is_truncated |= all.receipts.len() > MATCHES_MAX;
        all.receipts.truncate(MATCHES_MAX);
        all
    }

    fn search_file(&self, name: &str, id: &str, finder: &Finder<'_>, found: &mut Matches) {
        let path = self.dir.join(name);
        let read = lines::open(&path).and_then(|file| {
            let Some(file) = file else { return Ok(()) };
            lines::each_block(file, |block| {
                let mut from = 0;
                while let Some(at) = finder.find(&block[from..]) {
                    let (start, end) = lines::line_at(block, from + at);
                    // A line that cannot be parsed is torn.
                    if let Ok(receipt) = serde_json::from_slice::<Receipt>(&block[start..end])
                        && receipt.is_about(id)
                    {
                        found.receipts.push(receipt);
                    }
                    from = end;
                }
                match found.receipts.len() > MATCHES_MAX {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            })
        });
        if let Err(error) = read {
            found.unreadable.push(format!("{}: {error}", path.display()));
        }
    }

    /// Calls `see` for every receipt of a period, by file: the order of time is kept within a file only.
    pub fn each<R: DeserializeOwned>(
        &self,
        from: Timestamp,
        to: Timestamp,
        mut see: impl FnMut(Receipt<R>),
    ) -> Skipped {
        let (first, last) = (day(from), day(to));
        let is_within = |name: &&String| name_day(name).is_some_and(|day| *first <= *day && *day <= *last);
        let mut skipped = Skipped::default();
        for name in self.names.iter().filter(is_within) {
            let path = self.dir.join(name);
            let read = lines::open(&path).and_then(|file| {
                let Some(file) = file else { return Ok(()) };
                lines::each_block(file, |block| {
                    for line in lines::lines(block) {
                        match serde_json::from_slice::<Receipt<R>>(line) {
                            Ok(receipt) if from <= receipt.at && receipt.at < to => see(receipt),
                            Ok(_) => {}
                            Err(_) => skipped.torn_lines += 1,
                        }
                    }
                    ControlFlow::Continue(())
                })
            });
            if let Err(error) = read {
                skipped.unreadable.push(format!("{}: {error}", path.display()));
            }
        }
        skipped
    }
}

/// What was not read.
#[derive(Clone, Debug, Default)]
pub struct Skipped {
    /// Lines that a crash cut off.
    pub torn_lines: u64,
    /// Files that could not be read, and why.
    pub unreadable: Vec<String>,
}

impl Matches {
    fn add(&mut self, other: Self) {
        self.receipts.extend(other.receipts);
        self.is_truncated |= other.is_truncated;
        self.unreadable.extend(other.unreadable);
    }

    /// The keys of the batches, each once.
    pub fn batches(&self) -> BTreeSet<&str> {
        self.receipts.iter().map(|receipt| receipt.batch_idempotency_key.as_str()).collect()
    }
}

/// Whether a text may be the start of a batch key.
pub fn is_key_prefix(id: &str) -> bool {
    (KEY_PREFIX_CHARS..64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The id as it is written in a line. The start of a key has no closing quote.
fn needle(id: &str) -> String {
    let mut quoted = serde_json::Value::from(id).to_string();
    if is_key_prefix(id) {
        quoted.pop();
    }
    quoted
}

fn timestamp<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
    parse_iso(&text).ok_or_else(|| serde::de::Error::custom("not a timestamp"))
}

fn optional_timestamp<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    timestamp(deserializer).map(Some)
}
