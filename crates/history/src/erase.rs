//! Erases decisions about keys and from a source.
//!
//! Decisions are removed. Counts stay, and a source in them loses its name. Each file is rewritten afterwards, so that nothing
//! is left in free pages or in its log. A process that records may hold that up: then the caller is told.

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::{Connection, ToSql, Transaction};

use crate::record::tag;
use crate::{Error, History, schema};

/// How long to wait for the process that records.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// What the counts of an erased source are counted under.
const ERASED: &str = "(erased)";

/// Which decisions are erased.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Those about a key with this text.
    pub key: Option<String>,
    /// Those from this source.
    pub source: Option<String>,
    /// Those about keys with these hashes.
    pub hashes: Vec<[u8; 32]>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Erased {
    /// Decisions.
    pub decisions: u64,
    /// Counts under the source.
    pub counts: u64,
    /// Files whose free pages could not be cleared, because a process uses them or the disk is full.
    pub busy: Vec<PathBuf>,
}

/// Finds decisions, or erases them with `erase`.
pub fn erase(paths: &[PathBuf], selection: &Selection, erase: bool) -> Result<Erased, Error> {
    let mut total = Erased::default();
    for file in History::open_if_any(paths)?.files() {
        let failed = |error: rusqlite::Error| Error::new(file, error);
        // A file of another version is set aside by whoever records next.
        let Some(mut connection) = schema::open_abandoned(file).map_err(failed)? else { continue };
        let found = erase_in(&mut connection, selection, erase).map_err(failed)?;
        total.decisions += found.decisions;
        total.counts += found.counts;
        // What failed here is tried again by the next erasure. The decisions are gone all the same.
        if erase && found != Erased::default() && !is_cleared(&connection).unwrap_or(false) {
            total.busy.push(file.clone());
        }
    }
    Ok(total)
}

fn erase_in(connection: &mut Connection, selection: &Selection, erase: bool) -> rusqlite::Result<Erased> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    let transaction = connection.transaction_with_behavior(match erase {
        true => rusqlite::TransactionBehavior::Immediate,
        false => rusqlite::TransactionBehavior::Deferred,
    })?;
    let mut found = Erased::default();
    if let Some(key) = &selection.key {
        // A decision about another key may name this one, as in "same content as".
        found.decisions += decisions(&transaction, "key = ?1 OR instr(detail, ?1) > 0", key, erase)?;
    }
    for hash in &selection.hashes {
        let filter = "tag = ?1 AND key NOT LIKE 'erased:%'";
        found.decisions += decisions(&transaction, filter, &tag(hash), erase)?;
    }
    if let Some(source) = &selection.source {
        found.decisions += decisions(&transaction, "source = ?1", source, erase)?;
        found.counts = count(&transaction, "SELECT count(*) FROM hours WHERE source = ?1", source)?
            + count(&transaction, "SELECT count(*) FROM days WHERE source = ?1", source)?;
        if erase && found.counts > 0 {
            rename_source(&transaction, source)?;
        }
    }
    transaction.commit()?;
    Ok(found)
}

/// Counts decisions, or removes them with `erase`.
fn decisions(
    transaction: &Transaction<'_>,
    filter: &str,
    value: &dyn ToSql,
    erase: bool,
) -> rusqlite::Result<u64> {
    match erase {
        true => {
            let sql = format!("DELETE FROM decisions WHERE {filter}");
            Ok(transaction.prepare_cached(&sql)?.execute([value])? as u64)
        }
        false => count(transaction, &format!("SELECT count(*) FROM decisions WHERE {filter}"), value),
    }
}

fn count(transaction: &Transaction<'_>, sql: &str, value: &dyn ToSql) -> rusqlite::Result<u64> {
    let count = transaction.prepare_cached(sql)?.query_row([value], |row| row.get::<_, i64>(0));
    count.map(i64::unsigned_abs)
}

/// Counts what came from a source as erased.
fn rename_source(transaction: &Transaction<'_>, source: &str) -> rusqlite::Result<()> {
    transaction.execute(
        "INSERT INTO hours SELECT hour, route, ?2, result, degraded, count, latency_us, latency_max_us
         FROM hours WHERE source = ?1
         ON CONFLICT DO UPDATE SET count = count + excluded.count, latency_us = latency_us + excluded.latency_us,
             latency_max_us = max(latency_max_us, excluded.latency_max_us)",
        [source, ERASED],
    )?;
    transaction.execute(
        "INSERT INTO days SELECT day, ?2, result, count FROM days WHERE source = ?1
         ON CONFLICT DO UPDATE SET count = count + excluded.count",
        [source, ERASED],
    )?;
    for table in ["hours", "days"] {
        transaction.execute(&format!("DELETE FROM {table} WHERE source = ?1"), [source])?;
    }
    Ok(())
}

/// Rewrites the file, so that no free page has the text, and empties its log. `false`: another process reads it.
fn is_cleared(connection: &Connection) -> rusqlite::Result<bool> {
    connection.execute_batch("VACUUM")?;
    let busy: i64 = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    Ok(busy == 0)
}
