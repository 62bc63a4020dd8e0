//! Reads the histories of one or more instances, and merges them.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;

use rusqlite::{Connection, params};
use serde::Serialize;

use crate::record::tag;
use crate::{Error, schema};

const HOUR_MS: u64 = 3_600_000;
/// Decisions in one timeline: the newest ones.
const TIMELINE_MAX: usize = 10_000;

/// The files to read.
#[derive(Clone, Debug)]
pub struct History {
    files: Vec<PathBuf>,
}

/// What decisions are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The hour in which they were made.
    Hour,
    /// The route.
    Route,
    /// The channel, repository or account that they came from.
    Source,
    /// The instance that made them.
    Instance,
    /// What was decided.
    Result,
}

/// Decisions that have the same value and the same result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Count {
    /// The start of an hour in milliseconds since 1970, or a name. Empty if decisions have no source.
    pub group: String,
    /// What was decided.
    pub result: String,
    /// How many.
    pub count: u64,
    /// How many of them were made in the fallback ledger.
    pub degraded: u64,
    /// The mean latency of the ledger, in microseconds.
    pub latency_mean_us: u64,
    /// The largest latency.
    pub latency_max_us: u64,
}

/// One decision about a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// The instance that made it.
    pub instance: String,
    /// The route.
    pub route: String,
    /// Where it came from.
    pub source: Option<String>,
    /// The key.
    pub key: String,
    /// The start of the key's hash, as the log prints it.
    pub hash: String,
    /// What was decided.
    pub result: String,
    /// The latency of the ledger, in microseconds.
    pub latency_us: u64,
    /// Whether it was made in the fallback ledger.
    pub degraded: bool,
    /// A reason, if there is one.
    pub detail: Option<String>,
}

/// Which decisions a timeline contains.
#[derive(Clone, Copy, Debug)]
pub enum Find<'a> {
    /// Those about a key with this text, on every route.
    Key(&'a str),
    /// Those about the key with this hash: at least its first eight bytes.
    Hash(&'a [u8]),
}

impl History {
    /// Finds the files of these directories. A path to a file is that file.
    pub fn open(paths: &[PathBuf]) -> Result<Self, Error> {
        let mut files = Vec::new();
        for path in paths {
            if path.is_file() {
                files.push(path.clone());
                continue;
            }
            let entries = match std::fs::read_dir(path) {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(Error::new(path, error)),
            };
            let found = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
            files
                .extend(found.filter(|file| file.extension().is_some_and(|extension| extension == "sqlite")));
        }
        files.sort();
        match files.is_empty() {
            true => Err(Error {
                file: paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "),
                text: "nothing was recorded here yet".to_owned(),
            }),
            false => Ok(Self { files }),
        }
    }

    /// Counts the decisions from one time to another, in milliseconds since 1970, by the hour.
    pub fn counts(&self, by: By, from: u64, to: u64) -> Result<Vec<Count>, Error> {
        let mut sums: BTreeMap<(String, String), [u64; 4]> = BTreeMap::new();
        self.each(|instance, connection| {
            let group = match by {
                By::Hour => "CAST(hour * 3600000 AS TEXT)",
                By::Route => "route",
                By::Source => "source",
                By::Instance => "''",
                By::Result => "result",
            };
            let sql = format!(
                "SELECT {group}, result, sum(count), sum(count * degraded), sum(latency_us), max(latency_max_us)
                 FROM hours WHERE hour BETWEEN ?1 AND ?2 GROUP BY 1, 2"
            );
            let hours = [from / HOUR_MS, to / HOUR_MS].map(|hour| i64::try_from(hour).unwrap_or(i64::MAX));
            let mut statement = connection.prepare(&sql)?;
            let mut rows = statement.query(hours)?;
            while let Some(row) = rows.next()? {
                let group = if by == By::Instance { instance.to_owned() } else { row.get(0)? };
                let sum = sums.entry((group, row.get(1)?)).or_default();
                let number = |column| row.get::<_, i64>(column).map(|number| u64::try_from(number).unwrap_or(0));
                let [count, degraded, latency, max] = [number(2)?, number(3)?, number(4)?, number(5)?];
                *sum = [sum[0] + count, sum[1] + degraded, sum[2] + latency, sum[3].max(max)];
            }
            Ok(())
        })?;
        let counts = sums.into_iter().map(|((group, result), [count, degraded, latency, max])| Count {
            group,
            result,
            count,
            degraded,
            latency_mean_us: latency / count.max(1),
            latency_max_us: max,
        });
        Ok(counts.collect())
    }

    /// What was decided about a key, the oldest first.
    pub fn timeline(&self, find: Find<'_>) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::new();
        self.each(|instance, connection| {
            let condition = match find {
                Find::Key(_) => "key = ?1",
                Find::Hash(_) => "tag = ?1",
            };
            let sql = format!(
                "SELECT at, tag, key, route, source, result, latency_us, degraded, detail FROM decisions
                 WHERE {condition} ORDER BY id DESC LIMIT {TIMELINE_MAX}"
            );
            let mut statement = connection.prepare(&sql)?;
            let mut rows = match find {
                Find::Key(key) => statement.query(params![key])?,
                Find::Hash(hash) => statement.query(params![tag(hash)])?,
            };
            while let Some(row) = rows.next()? {
                let number =
                    |column| row.get::<_, i64>(column).map(|number| u64::try_from(number).unwrap_or(0));
                entries.push(Entry {
                    at: number(0)?,
                    instance: instance.to_owned(),
                    hash: format!("{:016x}", row.get::<_, i64>(1)?),
                    key: row.get(2)?,
                    route: row.get(3)?,
                    source: row.get(4)?,
                    result: row.get(5)?,
                    latency_us: number(6)?,
                    degraded: row.get(7)?,
                    detail: row.get(8)?,
                });
            }
            Ok(())
        })?;
        entries.reverse();
        entries.sort_by_key(|entry| entry.at);
        Ok(entries)
    }

    pub(crate) fn each(
        &self,
        mut visit: impl FnMut(&str, &Connection) -> rusqlite::Result<()>,
    ) -> Result<(), Error> {
        for file in &self.files {
            let failed = |error: rusqlite::Error| Error::new(file, error);
            let Some(connection) = schema::open_to_read(file).map_err(failed)? else {
                return Err(Error::new(file, "it was written by another version"));
            };
            let instance =
                connection.query_row("SELECT name FROM instance", [], |row| row.get::<_, String>(0));
            visit(&instance.unwrap_or_default(), &connection).map_err(failed)?;
        }
        Ok(())
    }
}
