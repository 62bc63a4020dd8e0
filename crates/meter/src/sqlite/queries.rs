//! Those that read.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::Semaphore;

use super::blocking::blocking;
use super::error::failed;
use super::schema;
use crate::report::{Group, Line, MOST_GROUPS, Page, PageQuery, Query};
use crate::store::{Answered, Error, Receipt, Result, too_many_groups};

const DOING: &str = "reading what was counted";
/// Readers at once; others wait.
const READERS: usize = 4;

/// Connections that read, made when they are needed.
pub(super) struct Readers {
    file: PathBuf,
    idle: Arc<Mutex<Vec<Connection>>>,
    room: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(file: PathBuf) -> Self {
        Self { file, idle: Arc::default(), room: Arc::new(Semaphore::new(READERS)) }
    }

    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let permit = self.room.clone().acquire_owned().await;
        let permit = permit.map_err(|error| Error::unavailable(DOING, "the meter is closed", error))?;
        let (file, idle) = (self.file.clone(), self.idle.clone());
        blocking(move || {
            let _permit = permit;
            let connection = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = match connection {
                Some(connection) => connection,
                None => schema::open_to_read(&file)?,
            };
            let done = work(&connection);
            // One that failed may be in any state.
            if done.is_ok() {
                idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            }
            done
        })
        .await?
    }

    pub(super) fn close(&self) {
        self.room.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

pub(super) fn report(connection: &Connection, query: &Query) -> Result<Vec<Group>> {
    let columns = query.columns();
    let list: String = columns.iter().map(|column| format!("{column}, ")).collect();
    let name = if columns.contains(&"app_id") { "max(app_name)" } else { "NULL" };
    let sql = format!(
        "SELECT {list}{name}, aggregation_method, currency, count(*), sum(request_count), sum(input_tokens),
                sum(output_tokens), sum(total_tokens), sum_of_money(cost)
         FROM records WHERE tenant = ?1 AND usage_date BETWEEN ?2 AND ?3
         GROUP BY {list}aggregation_method, currency ORDER BY {list}aggregation_method, currency LIMIT ?4"
    );
    let (from, to) = query.days();
    let limit = i64::try_from(MOST_GROUPS + 1).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(&sql).map_err(|error| failed(DOING, error))?;
    let rows = statement.query_map(params![query.tenant, from, to, limit], |row| {
        let mut group = Group::default();
        for (place, column) in columns.iter().enumerate() {
            if let Some(field) = group.field(column) {
                *field = row.get(place)?;
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
        Ok(group)
    });
    let groups = rows.and_then(Iterator::collect).map_err(|error| failed(DOING, error))?;
    too_many_groups(groups)
}

pub(super) fn page(connection: &Connection, query: &PageQuery) -> Result<Page> {
    let sql = "
        SELECT slot, usage_date, provider, model, input_tokens, output_tokens, total_tokens, request_count, cost, currency,
               coalesce(event_id, slot), app_id, user_id, aggregation_method
        FROM records WHERE tenant = ?1 AND slot > ?2 AND usage_date BETWEEN ?3 AND ?4 ORDER BY slot LIMIT ?5";
    let (from, to) = query.days();
    let after = query.after.as_deref().unwrap_or_default();
    let limit = i64::try_from(query.limit + 1).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(sql).map_err(|error| failed(DOING, error))?;
    let rows = statement.query_map(params![query.tenant, after, from, to, limit], |row| {
        let line = Line {
            usage_date: row.get(1)?,
            provider: row.get(2)?,
            model: row.get(3)?,
            input_tokens: row.get(4)?,
            output_tokens: row.get(5)?,
            total_tokens: row.get(6)?,
            request_count: row.get(7)?,
            cost_actual: row.get(8)?,
            currency: row.get(9)?,
            source_event_id: row.get(10)?,
            app_id: row.get(11)?,
            user_id: row.get(12)?,
            aggregation_method: row.get(13)?,
        };
        Ok((row.get(0)?, line))
    });
    let lines: Vec<(String, Line)> =
        rows.and_then(Iterator::collect).map_err(|error| failed(DOING, error))?;
    Ok(Page::cut(lines, query.limit))
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
        .map_err(|error| failed(DOING, error))?;
    let Some((times, first_at, first, last_at, last)) = row else { return Ok(None) };
    Ok(Some(Receipt {
        batch: batch.to_owned(),
        times,
        first: Answered::new(DOING, first_at, first)?,
        last: Answered::new(DOING, last_at, last)?,
    }))
}
