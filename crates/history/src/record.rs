//! A decision, as it waits in the queue and is written to the file.

use std::collections::HashSet;
use std::collections::hash_map::{Entry, HashMap};
use std::hash::BuildHasher;
use std::time::Duration;

use foldhash::quality::RandomState;
use ichido_ledger::{Decision, Subject};
use rusqlite::{Connection, Transaction, params};

use crate::settings::Settings;

/// Longer texts are cut.
const TEXT_BYTES_MAX: usize = 1024;
/// Names of metadata that tell where an event or a request comes from, the best first.
const SOURCES: [&str; 6] = ["source", "channel_id", "repository", "account", "tenant", "app_id"];
/// Different sources that are counted for one route in one hour. The others are counted together.
const SOURCES_MAX: usize = 100;
/// Counts the sources beyond `SOURCES_MAX`.
pub const OTHER: &str = "(other)";
/// Different sources that are counted for one day, on all routes together.
const SOURCES_BY_DAY_MAX: usize = 300;
/// The name of metadata that identifies a request in the logs of the systems it passes.
const REQUEST_ID: &str = "request_id";
const HOUR_MS: u64 = 3_600_000;
const HOURS_PER_DAY: u64 = 24;

/// A decision that waits to be written.
#[derive(Debug)]
pub(crate) struct Recorded {
    at: u64,
    /// The first eight bytes of the key's hash, which the log prints too.
    tag: i64,
    key: Box<str>,
    route: Box<str>,
    source: Option<Box<str>>,
    result: &'static str,
    latency_us: u64,
    degraded: bool,
    detail: Option<Box<str>>,
    request_id: Option<Box<str>>,
}

impl Recorded {
    pub(crate) fn of(decision: &Decision<'_>) -> Self {
        let (index, key) = match decision.subject {
            Subject::Claim(key) => (key.index(), key.text()),
            Subject::Mark(key) => (key.index(), key.text()),
        };
        Self {
            at: decision.at.0,
            tag: tag(index.as_bytes()),
            key: cut(key),
            route: cut(route_of(decision)),
            source: source_of(decision).map(cut),
            result: decision.result,
            latency_us: latency_us(decision),
            degraded: decision.is_degraded,
            detail: decision.detail.map(cut),
            request_id: decision.metadata.and_then(|metadata| metadata.get(REQUEST_ID)).map(cut),
        }
    }
}

fn route_of<'a>(decision: &Decision<'a>) -> &'a str {
    match decision.subject {
        Subject::Claim(key) => &key.scope().route,
        Subject::Mark(_) => "events",
    }
}

fn source_of<'a>(decision: &Decision<'a>) -> Option<&'a str> {
    decision.metadata.and_then(|metadata| SOURCES.iter().find_map(|name| metadata.get(name)))
}

fn latency_us(decision: &Decision<'_>) -> u64 {
    u64::try_from(decision.latency.as_micros()).unwrap_or(u64::MAX)
}

/// The first eight bytes of a hash as a number that SQLite can store.
pub(crate) fn tag(hash: &[u8]) -> i64 {
    hash.first_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes))
}

fn cut(text: &str) -> Box<str> {
    let end = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[..end].into()
}

/// The sources that are counted by themselves: for each route in the present hour, and in the present day.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    hour: u64,
    known: HashMap<Box<str>, HashSet<Box<str>>>,
    day: u64,
    known_by_day: HashSet<Box<str>>,
}

impl Sources {
    fn admit<'a>(&mut self, hour: u64, route: &str, source: &'a str) -> &'a str {
        if source.is_empty() {
            return source;
        }
        if hour != self.hour {
            self.hour = hour;
            self.known.clear();
        }
        let known = self.known.entry(route.into()).or_default();
        if known.contains(source) || (known.len() < SOURCES_MAX && known.insert(source.into())) {
            source
        } else {
            OTHER
        }
    }

    fn admit_to_day<'a>(&mut self, day: u64, source: &'a str) -> &'a str {
        if day != self.day {
            self.day = day;
            self.known_by_day.clear();
        }
        let has_room = self.known_by_day.len() < SOURCES_BY_DAY_MAX;
        if self.known_by_day.contains(source) || (has_room && self.known_by_day.insert(source.into())) {
            source
        } else {
            OTHER
        }
    }
}

/// Decisions of one transaction that are kept one by one. At a high rate the others are only counted: keeping them would
/// cost more than the requests can spare, and they would be removed again within seconds.
const KEPT_MAX: usize = 1_000;
/// The same for decisions that tell more than that a key was used: repeats, doubt, errors, what operators did.
const KEPT_TELLING_MAX: usize = 2_000;
/// Different groups that are counted in one transaction. There are more only if the file cannot be written for long.
const GROUPS_MAX: usize = 16 * 1024;

/// What was decided since the last transaction: everything counted, and the first decisions one by one.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    kept: Vec<Recorded>,
    /// How many of them tell more than that a key was used.
    telling: usize,
    /// By the hash of the group, so that a group that is known costs no allocation.
    sums: HashMap<u64, (Group, Sums)>,
    hasher: RandomState,
    decisions: u64,
}

/// What decisions are counted by.
#[derive(Debug)]
struct Group {
    hour: u64,
    route: Box<str>,
    /// Empty without a source.
    source: Box<str>,
    result: &'static str,
    degraded: bool,
}

/// Number of decisions, and their latencies in microseconds: all together, and the largest.
type Sums = (u64, u64, u64);

impl Batch {
    /// Adds a decision, unless there is no room for its group.
    pub(crate) fn add(&mut self, decision: &Decision<'_>) -> bool {
        let (hour, result, degraded) = (decision.at.0 / HOUR_MS, decision.result, decision.is_degraded);
        let (route, source) = (route_of(decision), source_of(decision).unwrap_or_default());
        let hash = self.hasher.hash_one((hour, route, source, result, degraded));
        let has_room = self.sums.len() < GROUPS_MAX;
        let sum = match self.sums.entry(hash) {
            Entry::Occupied(known) => &mut known.into_mut().1,
            Entry::Vacant(_) if !has_room => return false,
            Entry::Vacant(new) => {
                let group = Group { hour, route: cut(route), source: cut(source), result, degraded };
                &mut new.insert((group, Sums::default())).1
            }
        };
        let latency_us = latency_us(decision);
        *sum = (sum.0 + 1, sum.1 + latency_us, sum.2.max(latency_us));
        self.decisions += 1;
        let is_telling = !matches!(result, "new" | "granted" | "completed" | "renewed");
        if self.kept.len() < KEPT_MAX || (is_telling && self.telling < KEPT_TELLING_MAX) {
            self.kept.push(Recorded::of(decision));
            self.telling += usize::from(is_telling);
        }
        true
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.decisions == 0
    }

    /// How many decisions there are.
    pub(crate) fn decisions(&self) -> u64 {
        self.decisions
    }

    /// How many of them are kept one by one.
    pub(crate) fn kept(&self) -> u64 {
        self.kept.len() as u64
    }
}

/// Writes decisions in one transaction.
pub(crate) fn write(
    connection: &mut Connection,
    batch: &Batch,
    sources: &mut Sources,
) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    {
        let mut insert = transaction.prepare_cached(
            "INSERT INTO decisions (at, tag, key, route, source, result, latency_us, degraded, detail, request_id)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?;
        for record in &batch.kept {
            insert.execute(params![
                i64::try_from(record.at).unwrap_or(i64::MAX),
                record.tag,
                &*record.key,
                &*record.route,
                record.source.as_deref(),
                record.result,
                i64::try_from(record.latency_us).unwrap_or(i64::MAX),
                record.degraded,
                record.detail.as_deref(),
                record.request_id.as_deref(),
            ])?;
        }
    }
    add(&transaction, batch.sums.values(), sources)?;
    transaction.commit()
}

/// Notes for how long an hour was recorded, so that an hour without decisions differs from one without a recorder.
pub(crate) fn add_recorded(connection: &Connection, hour_of_ms: u64, seconds: u64) -> rusqlite::Result<()> {
    let [hour, seconds] =
        [hour_of_ms / HOUR_MS, seconds].map(|number| i64::try_from(number).unwrap_or(i64::MAX));
    let mut add = connection.prepare_cached(
        "INSERT INTO recorded (hour, seconds) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET seconds = seconds + excluded.seconds",
    )?;
    add.execute([hour, seconds]).map(drop)
}

/// Adds sums to the counts: by hour, route and source, by hour alone, and by day and source.
fn add<'s>(
    transaction: &Transaction<'_>,
    sums: impl Iterator<Item = &'s (Group, Sums)>,
    sources: &mut Sources,
) -> rusqlite::Result<()> {
    let mut by_source = transaction.prepare_cached(
        "INSERT INTO hours (hour, route, source, result, degraded, count, latency_us, latency_max_us)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
         ON CONFLICT DO UPDATE SET count = count + excluded.count, latency_us = latency_us + excluded.latency_us,
             latency_max_us = max(latency_max_us, excluded.latency_max_us)",
    )?;
    let mut by_hour = transaction.prepare_cached(
        "INSERT INTO totals (hour, result, degraded, count, latency_us, latency_max_us) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT DO UPDATE SET count = count + excluded.count, latency_us = latency_us + excluded.latency_us,
             latency_max_us = max(latency_max_us, excluded.latency_max_us)",
    )?;
    let mut by_day = transaction.prepare_cached(
        "INSERT INTO days (day, source, result, count) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT DO UPDATE SET count = count + excluded.count",
    )?;
    for (Group { hour, route, source, result, degraded }, (count, total, max)) in sums {
        let (day, source) = (hour / HOURS_PER_DAY, sources.admit(*hour, route, source));
        let day_source = sources.admit_to_day(day, source);
        let [hour, day, count, total, max] =
            [*hour, day, *count, *total, *max].map(|number| i64::try_from(number).unwrap_or(i64::MAX));
        by_source.execute(params![hour, route, source, result, degraded, count, total, max])?;
        by_hour.execute(params![hour, result, degraded, count, total, max])?;
        by_day.execute(params![day, day_source, result, count])?;
    }
    Ok(())
}

/// How much of a file is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) decisions_max: u64,
    pub(crate) decisions_ms: u64,
    pub(crate) counts_ms: u64,
}

impl Limits {
    pub(crate) fn of(settings: &Settings) -> Self {
        let ms = |age: Duration| u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let Settings { decisions_max, decisions_age, counts_age, .. } = settings;
        Self { decisions_max: *decisions_max, decisions_ms: ms(*decisions_age), counts_ms: ms(*counts_age) }
    }
}

/// Removes what is too old, and the oldest decisions if there are too many.
pub(crate) fn prune(connection: &Connection, now_ms: u64, limits: &Limits) -> rusqlite::Result<()> {
    let Limits { decisions_max, decisions_ms, counts_ms } = *limits;
    let before = |age: u64| i64::try_from(now_ms.saturating_sub(age)).unwrap_or(i64::MAX);
    let max = i64::try_from(decisions_max).unwrap_or(i64::MAX);
    connection.execute(
        "DELETE FROM decisions WHERE id <= (SELECT coalesce(max(id), 0) FROM decisions) - ?1 OR at < ?2",
        params![max, before(decisions_ms)],
    )?;
    let [hour_ms, day_hours] =
        [HOUR_MS, HOURS_PER_DAY].map(|number| i64::try_from(number).unwrap_or(i64::MAX));
    let hour = before(counts_ms) / hour_ms;
    for table in ["hours", "totals", "recorded"] {
        connection.execute(&format!("DELETE FROM {table} WHERE hour < ?1"), [hour])?;
    }
    connection.execute("DELETE FROM days WHERE day < ?1", [hour / day_hours])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use ichido_core::{MarkKey, Metadata, Timestamp};

    use super::*;

    fn add(batch: &mut Batch, source: usize) -> bool {
        let key = MarkKey::new("E1").unwrap();
        let metadata = Metadata::new([("source".to_owned(), source.to_string())]).unwrap();
        batch.add(&Decision {
            at: Timestamp(0),
            subject: Subject::Mark(&key),
            metadata: Some(&metadata),
            result: "new",
            detail: None,
            latency: Duration::from_micros(5),
            is_degraded: false,
        })
    }

    #[test]
    fn full_batch_counts_known_groups_and_refuses_others() {
        let mut batch = Batch::default();
        assert!((0..GROUPS_MAX).all(|source| add(&mut batch, source)));
        assert!(!add(&mut batch, GROUPS_MAX), "there is no room for another group");
        assert!(add(&mut batch, 7));
        assert_eq!((batch.decisions(), batch.kept()), (GROUPS_MAX as u64 + 1, KEPT_MAX as u64));
        let largest = batch.sums.values().map(|(_, sums)| *sums).max();
        assert_eq!(largest, Some((2, 10, 5)), "the count and latencies of the group that came twice");
    }
}
