//! Queries, on a pool of read-only connections.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::Semaphore;

use super::blocking::blocking;
use super::error::classify;
use super::schema;
use crate::announcement::Announcement;
use crate::repeats::{Repeats, RepeatsQuery};
use crate::report::{CountedRecord, FoundRecord, GROUPS_MAX, Group, Page, PageQuery, ReportQuery};
use crate::store::{Error, Grain, Receipt, ReceiptEntry, Result, check_group_count};

const OPERATION: &str = "querying what was counted";
/// The most concurrent readers. Others wait.
const READERS_MAX: usize = 4;

/// Read-only connections, opened on demand.
pub(super) struct Readers {
    file: PathBuf,
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(file: PathBuf) -> Self {
        Self { file, idle: Arc::default(), permits: Arc::new(Semaphore::new(READERS_MAX)) }
    }

    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let permit = self.permits.clone().acquire_owned().await;
        let permit = permit.map_err(|error| Error::unavailable(OPERATION, "the meter is closed", error))?;
        let (file, idle) = (self.file.clone(), self.idle.clone());
        blocking(move || {
            let _permit = permit;
            let connection = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = match connection {
                Some(connection) => connection,
                None => schema::open_read_only(&file)?,
            };
            let done = work(&connection);
            // A connection whose query classify may be in any state, so it is dropped.
            if done.is_ok() {
                idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            }
            done
        })
        .await?
    }

    pub(super) fn close(&self) {
        self.permits.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

pub(super) fn report(connection: &Connection, query: &ReportQuery) -> Result<Vec<Group>> {
    let columns = query.columns();
    let list: String = columns.iter().map(|column| format!("{column}, ")).collect();
    let name = if columns.contains(&"app_id") { "max(app_name)" } else { "NULL" };
    let sql = format!(
        "SELECT {list}{name}, aggregation_method, currency, count(*), sum(request_count), sum(input_tokens),
                sum(output_tokens), sum(total_tokens), sum_of_money(cost), count(*) FILTER (WHERE received_at > ?6)
         FROM records WHERE tenant = ?1 AND usage_date BETWEEN ?2 AND ?3 AND (?5 IS NULL OR app_id = ?5)
         GROUP BY {list}aggregation_method, currency ORDER BY {list}aggregation_method, currency LIMIT ?4"
    );
    let (from, to) = query.days();
    let limit = i64::try_from(GROUPS_MAX + 1).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(&sql).map_err(|error| classify(OPERATION, error))?;
    let written_after = query.written_after.unwrap_or(i64::MAX);
    let values = params![query.tenant, from, to, limit, query.app, written_after];
    let rows = statement.query_map(values, |row| {
        let mut group = Group::default();
        for (index, column) in columns.iter().enumerate() {
            if let Some(field) = group.column_mut(column) {
                *field = row.get(index)?;
            }
        }
        let at = columns.len();
        group.app_name = row.get(at)?;
        group.aggregation_method = row.get(at + 1)?;
        group.currency = row.get(at + 2)?;
        group.records = row.get(at + 3)?;
        group.request_count = row.get(at + 4)?;
        group.input_tokens = row.get(at + 5)?;
        group.output_tokens = row.get(at + 6)?;
        group.total_tokens = row.get(at + 7)?;
        group.cost_actual = row.get(at + 8)?;
        group.written_after = row.get(at + 9)?;
        Ok(group)
    });
    let groups = rows.and_then(Iterator::collect).map_err(|error| classify(OPERATION, error))?;
    check_group_count(groups)
}

pub(super) fn page(connection: &Connection, query: &PageQuery) -> Result<Page> {
    let sql = format!(
        "SELECT {RECORD}, slot FROM records
         WHERE tenant = ?1 AND slot > ?2 AND usage_date BETWEEN ?3 AND ?4 ORDER BY slot LIMIT ?5"
    );
    let (from, to) = query.days();
    let after = query.after.as_deref().unwrap_or_default();
    let limit = i64::try_from(query.limit + 1).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(&sql).map_err(|error| classify(OPERATION, error))?;
    let rows = statement.query_map(params![query.tenant, after, from, to, limit], |row| {
        Ok((row.get(RECORD_COLUMNS)?, record(row)?))
    });
    let records: Vec<(String, CountedRecord)> =
        rows.and_then(Iterator::collect).map_err(|error| classify(OPERATION, error))?;
    Ok(Page::new(records, query.limit))
}

/// The columns of a record.
const RECORD: &str = "usage_date, provider, model, input_tokens, output_tokens, total_tokens, request_count, cost, currency, \
     coalesce(event_id, slot), app_id, user_id, aggregation_method";
const RECORD_COLUMNS: usize = 13;

fn record(row: &rusqlite::Row<'_>) -> rusqlite::Result<CountedRecord> {
    Ok(CountedRecord {
        usage_date: row.get(0)?,
        provider: row.get(1)?,
        model: row.get(2)?,
        input_tokens: row.get(3)?,
        output_tokens: row.get(4)?,
        total_tokens: row.get(5)?,
        request_count: row.get(6)?,
        cost_actual: row.get(7)?,
        currency: row.get(8)?,
        source_event_id: row.get(9)?,
        app_id: row.get(10)?,
        user_id: row.get(11)?,
        aggregation_method: row.get(12)?,
    })
}

pub(super) fn find(
    connection: &Connection,
    grain: Grain,
    tenant: &str,
    event_id: &str,
) -> Result<Option<FoundRecord>> {
    for column in grain.id_columns() {
        let sql = format!(
            "SELECT {RECORD}, received_at, batch FROM records WHERE tenant = ?1 AND {column} = ?2 LIMIT 1"
        );
        let found = connection
            .prepare_cached(&sql)
            .and_then(|mut statement| {
                let read = |row: &rusqlite::Row<'_>| {
                    let (received_at, batch) = (row.get(RECORD_COLUMNS)?, row.get(RECORD_COLUMNS + 1)?);
                    Ok(FoundRecord { record: record(row)?, received_at, batch })
                };
                statement.query_row(params![tenant, event_id], read).optional()
            })
            .map_err(|error| classify(OPERATION, error))?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

pub(super) fn receipt(connection: &Connection, tenant: &str, batch: &str) -> Result<Option<Receipt>> {
    let sql = "SELECT times, first_at, first, last_at, last FROM receipts WHERE tenant = ?1 AND batch = ?2";
    let row = connection
        .prepare_cached(sql)
        .and_then(|mut statement| {
            let read = |row: &rusqlite::Row<'_>| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
            };
            statement.query_row(params![tenant, batch], read).optional()
        })
        .map_err(|error| classify(OPERATION, error))?;
    let Some((times, first_at, first, last_at, last)) = row else { return Ok(None) };
    Ok(Some(Receipt {
        batch: batch.to_owned(),
        times,
        first: ReceiptEntry::new(OPERATION, first_at, first)?,
        last: ReceiptEntry::new(OPERATION, last_at, last)?,
    }))
}

pub(super) fn repeats(connection: &Connection, query: &RepeatsQuery) -> Result<Repeats> {
    let fail = |error| classify(OPERATION, error);
    let sql = "SELECT result, sum(records) FROM repeats
               WHERE tenant = ?1 AND month = ?2 AND (?3 IS NULL OR app_id = ?3) GROUP BY result";
    let mut statement = connection.prepare_cached(sql).map_err(fail)?;
    let rows = statement.query_map(params![query.tenant, query.month, query.app], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
    });
    let mut repeats = Repeats::default();
    for row in rows.map_err(fail)? {
        let (result, records) = row.map_err(fail)?;
        repeats.add(&result, records);
    }
    let since = "SELECT last_at FROM repeats WHERE tenant = '' AND result = 'since'";
    repeats.since = connection.query_row(since, [], |row| row.get(0)).optional().map_err(fail)?;
    Ok(repeats)
}

pub(super) fn count_user(connection: &Connection, user: &str) -> Result<u64> {
    let sql = "SELECT count(*) FROM records WHERE user_id = ?1";
    let count = connection.query_row(sql, [user], |row| row.get::<_, i64>(0));
    count.map(i64::unsigned_abs).map_err(|error| classify(OPERATION, error))
}

pub(super) fn announced(connection: &Connection, month: &str) -> Result<Vec<Announcement>> {
    let sql = "SELECT budget, threshold FROM budget_notices WHERE month = ?1";
    let mut statement = connection.prepare_cached(sql).map_err(|error| classify(OPERATION, error))?;
    let rows = statement.query_map([month], |row| {
        Ok(Announcement { month: month.to_owned(), budget: row.get(0)?, threshold: row.get(1)? })
    });
    rows.and_then(Iterator::collect).map_err(|error| classify(OPERATION, error))
}
