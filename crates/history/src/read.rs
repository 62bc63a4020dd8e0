//! Reads the histories of one or more instances, and merges them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::PathBuf;

use rusqlite::{Connection, Rows, ToSql};
use serde::{Deserialize, Serialize};

use crate::record::tag;
use crate::{Error, schema};

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
const HOURS_PER_YEAR: i64 = 366 * 24;
/// Decisions in one timeline: the newest ones.
const TIMELINE_MAX: usize = 10_000;
/// Keys that one request id leads to.
const KEYS_MAX: usize = 100;
/// Bytes of a hash that identify a key: as many as the log prints.
const HASH_BYTES: usize = 8;

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

/// The decisions on one route: all, or those about keys from one source, or those of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfRoute {
    /// The route.
    pub route: String,
    /// The channel, repository or account.
    pub source: Option<String>,
    /// The instance that made them.
    pub instance: Option<String>,
}

/// Decisions about keys from one source that have the same result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceCount {
    /// The channel, repository or account. Empty if decisions have no source.
    pub source: String,
    /// What was decided.
    pub result: String,
    /// How many.
    pub count: u64,
}

/// One decision about a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// A reason, or who did it, if that is known.
    pub detail: Option<String>,
    /// The id of the request, if it had one.
    pub request_id: Option<String>,
}

impl Entry {
    /// Whether the key was known already.
    pub fn is_repeat(&self) -> bool {
        is_repeat(&self.result)
    }
}

/// Whether a result says that a key was used for the first time.
pub fn is_first(result: &str) -> bool {
    ["new", "granted"].contains(&result)
}

/// Whether a result says that a key was known already.
pub fn is_repeat(result: &str) -> bool {
    ["duplicate", "replayed", "in-flight", "in-doubt", "key-reused", "caller-changed"].contains(&result)
}

/// Which decisions a timeline contains.
#[derive(Clone, Copy, Debug)]
pub enum Find<'a> {
    /// Those about a key with this text, on every route.
    Key(&'a str),
    /// Those about the key with this hash: at least its first eight bytes.
    Hash(&'a [u8]),
    /// Those about the keys that the request with this id used.
    Request(&'a str),
}

/// The hash in a text, if it is one: at least 16 hexadecimal digits.
pub fn parse_hash(text: &str) -> Option<Vec<u8>> {
    hex::decode(text).ok().filter(|hash| hash.len() >= HASH_BYTES)
}

impl History {
    /// Finds the files of these directories. A path to a file is that file. It is an error if there are none.
    pub fn open(paths: &[PathBuf]) -> Result<Self, Error> {
        let found = Self::open_if_any(paths)?;
        match found.files.is_empty() {
            true => Err(Error {
                file: paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "),
                text: "nothing was recorded here yet".to_owned(),
            }),
            false => Ok(found),
        }
    }

    /// The same, but a history without files is empty.
    pub fn open_if_any(paths: &[PathBuf]) -> Result<Self, Error> {
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
        // Two directories may be the same one.
        files.dedup();
        Ok(Self { files })
    }

    /// The files.
    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Counts the decisions from one time to another, in milliseconds since 1970, by the hour.
    pub fn counts(&self, by: By, from: u64, to: u64) -> Result<Vec<Count>, Error> {
        let mut sums = Sums::default();
        self.each(|instance, connection| {
            let (group, table) = match by {
                By::Hour => ("CAST(hour * 3600000 AS TEXT)", "totals"),
                By::Route => ("route", "hours"),
                By::Source => ("source", "hours"),
                By::Instance => ("''", "totals"),
                By::Result => ("result", "totals"),
            };
            let sql =
                format!("SELECT {group}, {COUNTED} FROM {table} WHERE hour BETWEEN ?1 AND ?2 GROUP BY 1, 2");
            let mut statement = connection.prepare(&sql)?;
            let group = (by == By::Instance).then_some(instance);
            sums.add(statement.query(hours(from, to))?, group)
        })?;
        Ok(sums.counts())
    }

    /// Counts the decisions on a route by the hour, in at most a year. Fast for one source, however many there are.
    pub fn hours_of(&self, route: &OfRoute, from: u64, to: u64) -> Result<Vec<Count>, Error> {
        let OfRoute { route, source, instance: wanted } = route;
        // The first columns of the key are all given, so nothing else is read.
        let of_source = if source.is_some() { "AND source = ?4" } else { "AND ?4 IS NULL" };
        let sql = format!(
            "WITH RECURSIVE wanted(at) AS (SELECT ?1 UNION ALL SELECT at + 1 FROM wanted WHERE at < ?2)
             SELECT CAST(hour * 3600000 AS TEXT), {COUNTED} FROM wanted CROSS JOIN hours
             WHERE hour = at AND route = ?3 {of_source} GROUP BY hour, 2"
        );
        let [from, to] = hours(from, to);
        let to = to.min(from.saturating_add(HOURS_PER_YEAR));
        let mut sums = Sums::default();
        self.each(|instance, connection| {
            if wanted.as_ref().is_some_and(|wanted| wanted != instance) {
                return Ok(());
            }
            let mut statement = connection.prepare(&sql)?;
            sums.add(statement.query((from, to, route, source))?, None)
        })?;
        Ok(sums.counts())
    }

    /// Counts the decisions of whole days by source, from the day of one time to the day of another. Unlike [`By::Source`], this takes
    /// no longer if there are many routes and hours.
    pub fn sources(&self, from: u64, to: u64) -> Result<Vec<SourceCount>, Error> {
        let mut sums: BTreeMap<(String, String), u64> = BTreeMap::new();
        let days = [from / DAY_MS, to / DAY_MS].map(|day| i64::try_from(day).unwrap_or(i64::MAX));
        self.each(|_, connection| {
            let mut statement = connection.prepare(
                "SELECT source, result, sum(count) FROM days WHERE day BETWEEN ?1 AND ?2 GROUP BY 1, 2",
            )?;
            let mut rows = statement.query(days)?;
            while let Some(row) = rows.next()? {
                let count = u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0);
                *sums.entry((row.get(0)?, row.get(1)?)).or_default() += count;
            }
            Ok(())
        })?;
        let counts = sums.into_iter().map(|((source, result), count)| SourceCount { source, result, count });
        Ok(counts.collect())
    }

    /// What was decided about a key, the oldest first.
    pub fn timeline(&self, find: Find<'_>) -> Result<Vec<Entry>, Error> {
        let mut entries = match find {
            Find::Key(key) => self.entries("key = ?1", &key)?,
            Find::Hash(hash) => self.entries("tag = ?1", &tag(hash))?,
            Find::Request(id) => {
                let mut found = Vec::new();
                for tag in self.tags_of_request(id)? {
                    found.extend(self.entries("tag = ?1", &tag)?);
                }
                found
            }
        };
        entries.reverse();
        entries.sort_by_key(|entry| entry.at);
        Ok(entries)
    }

    /// The timeline of what a person has at hand: a key, a hash that the log printed, or the id of a request.
    pub fn search(&self, text: &str) -> Result<Vec<Entry>, Error> {
        let mut entries = self.timeline(Find::Key(text))?;
        if let (true, Some(hash)) = (entries.is_empty(), parse_hash(text)) {
            entries = self.timeline(Find::Hash(&hash))?;
        }
        if entries.is_empty() {
            entries = self.timeline(Find::Request(text))?;
        }
        Ok(entries)
    }

    fn tags_of_request(&self, id: &str) -> Result<BTreeSet<i64>, Error> {
        let mut tags = BTreeSet::new();
        self.each(|_, connection| {
            let sql = format!("SELECT DISTINCT tag FROM decisions WHERE request_id = ?1 LIMIT {KEYS_MAX}");
            let mut statement = connection.prepare(&sql)?;
            for tag in statement.query_map([id], |row| row.get(0))? {
                tags.insert(tag?);
            }
            Ok(())
        })?;
        Ok(tags)
    }

    /// The newest decisions that meet a condition, the newest of each file first.
    fn entries(&self, condition: &str, value: &dyn ToSql) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::new();
        self.each(|instance, connection| {
            let sql = format!(
                "SELECT at, tag, key, route, source, result, latency_us, degraded, detail, request_id FROM decisions
                 WHERE {condition} ORDER BY id DESC LIMIT {TIMELINE_MAX}"
            );
            let mut statement = connection.prepare(&sql)?;
            let mut rows = statement.query([value])?;
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
                    request_id: row.get(9)?,
                });
            }
            Ok(())
        })?;
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

/// What is counted of the decisions with one result.
const COUNTED: &str = "result, sum(count), sum(count * degraded), sum(latency_us), max(latency_max_us)";

/// The counts of several files, by group and result.
#[derive(Default)]
struct Sums(BTreeMap<(String, String), [u64; 4]>);

impl Sums {
    /// Adds rows of a group and [`COUNTED`]. All of them belong to the group, if one is given.
    fn add(&mut self, mut rows: Rows<'_>, group: Option<&str>) -> rusqlite::Result<()> {
        while let Some(row) = rows.next()? {
            let group = group.map_or_else(|| row.get(0), |group| Ok(group.to_owned()))?;
            let sum = self.0.entry((group, row.get(1)?)).or_default();
            let number = |column| row.get::<_, i64>(column).map(|number| u64::try_from(number).unwrap_or(0));
            let [count, degraded, latency, max] = [number(2)?, number(3)?, number(4)?, number(5)?];
            *sum = [sum[0] + count, sum[1] + degraded, sum[2] + latency, sum[3].max(max)];
        }
        Ok(())
    }

    fn counts(self) -> Vec<Count> {
        let counts = self.0.into_iter().map(|((group, result), [count, degraded, latency, max])| Count {
            group,
            result,
            count,
            degraded,
            latency_mean_us: latency / count.max(1),
            latency_max_us: max,
        });
        counts.collect()
    }
}

fn hours(from: u64, to: u64) -> [i64; 2] {
    [from / HOUR_MS, to / HOUR_MS].map(|hour| i64::try_from(hour).unwrap_or(i64::MAX))
}
