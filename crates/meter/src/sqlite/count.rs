//! Counts one batch in an open transaction.

use ichido_usage::Profile;
use rusqlite::{Connection, OptionalExtension, Row, params};
use rust_decimal::Decimal;

use super::error::classify;
use crate::batch::{Batch, Entry, ValidRecord, to_i64};
use crate::outcome::{Outcome, ReceiptSummary};
use crate::repeats::repeats_of;
use crate::rules::{Comparison, Revision, compare};
use crate::store::{Error, Result, other_record};

const OPERATION: &str = "counting a batch";

const INSERT: &str = "
    INSERT INTO records VALUES (
        ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22
    ) ON CONFLICT DO NOTHING";
const STORED: &str = "
    SELECT coalesce(event_id, slot), digest, exported_at, request_count, total_tokens, cost
    FROM records WHERE tenant = ?1 AND slot = ?2";
const REPLACE: &str = "REPLACE INTO records VALUES (
        ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22
    )";
const TOUCH: &str = "UPDATE records SET exported_at = ?3 WHERE tenant = ?1 AND slot = ?2";
const RECEIPT: &str = "
    INSERT INTO receipts VALUES (?1, ?2, 1, ?3, ?4, ?3, ?4)
    ON CONFLICT DO UPDATE SET times = times + 1, last_at = ?3, last = ?4";
const REPEATS: &str = "
    INSERT INTO repeats VALUES (?1, ?2, ?3, ?4, ?5, ?6)
    ON CONFLICT DO UPDATE SET records = records + ?5, last_at = ?6";

pub(super) fn count(connection: &Connection, profile: Profile, batch: &Batch) -> Result<Vec<Outcome>> {
    let outcomes = batch.entries.iter().map(|entry| match entry {
        Entry::Valid(item) => count_record(connection, profile, batch, item),
        Entry::Invalid { fault, .. } => Ok(Outcome::Invalid(fault.clone())),
    });
    let outcomes: Vec<Outcome> = outcomes.collect::<Result<_>>()?;
    for ((month, app, result), records) in repeats_of(batch, &outcomes) {
        connection
            .prepare_cached(REPEATS)
            .and_then(|mut statement| {
                statement.execute(params![batch.tenant, month, app, result, records, batch.received_at])
            })
            .map_err(|error| classify(OPERATION, error))?;
    }
    if let Some(key) = &batch.key {
        let summary = ReceiptSummary::new(batch, &outcomes, profile).to_json();
        connection
            .prepare_cached(RECEIPT)
            .and_then(|mut statement| {
                statement.execute(params![batch.tenant, key, batch.received_at, summary])
            })
            .map_err(|error| classify(OPERATION, error))?;
    }
    Ok(outcomes)
}

fn count_record(
    connection: &Connection,
    profile: Profile,
    batch: &Batch,
    item: &ValidRecord,
) -> Result<Outcome> {
    if write(connection, INSERT, batch, item)? {
        return Ok(Outcome::Inserted);
    }
    let stored = connection
        .prepare_cached(STORED)
        .and_then(|mut statement| statement.query_row(params![batch.tenant, item.slot], revision).optional())
        .map_err(|error| classify(OPERATION, error))?;
    let stored = stored.ok_or(Error::Corrupt { operation: OPERATION, source: None })?;
    Ok(match compare(profile, &stored, &item.revision) {
        Comparison::Same => Outcome::Duplicate,
        Comparison::SameLater => {
            connection
                .prepare_cached(TOUCH)
                .and_then(|mut statement| {
                    statement.execute(params![batch.tenant, item.slot, item.revision.exported_at])
                })
                .map_err(|error| classify(OPERATION, error))?;
            Outcome::Duplicate
        }
        Comparison::Conflict => Outcome::Conflict,
        Comparison::Stale => Outcome::Stale,
        Comparison::Newer => {
            write(connection, REPLACE, batch, item)?;
            Outcome::Updated
        }
        Comparison::OtherRecord => other_record(&stored),
    })
}

/// Writes a record. Returns whether a row changed.
fn write(connection: &Connection, sql: &str, batch: &Batch, item: &ValidRecord) -> Result<bool> {
    let (record, meta) = (&item.record, &item.record.metadata);
    let own_id = Some(&item.revision.event_id).filter(|id| **id != item.slot);
    let written = connection.prepare_cached(sql).and_then(|mut statement| {
        statement.execute(params![
            batch.tenant,
            item.slot,
            own_id,
            record.usage_date.to_string(),
            record.provider,
            record.model,
            meta.source_app_id,
            meta.source_app_name,
            meta.source_user_id.as_deref().unwrap_or_default(),
            meta.source_user_type.map_or("", |kind| kind.as_str()),
            meta.source_system,
            meta.aggregation_method,
            to_i64(record.input_tokens),
            to_i64(record.output_tokens),
            to_i64(record.total_tokens),
            to_i64(record.request_count),
            record.cost_actual.to_string(),
            record.currency,
            item.revision.digest,
            item.revision.exported_at,
            batch.received_at,
            batch.key,
        ])
    });
    written.map(|rows| rows > 0).map_err(|error| classify(OPERATION, error))
}

fn revision(row: &Row<'_>) -> rusqlite::Result<Revision> {
    let cost: String = row.get(5)?;
    let cost = cost.parse::<Decimal>().map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(5, rusqlite::types::Type::Text, Box::new(error))
    })?;
    Ok(Revision {
        event_id: row.get(0)?,
        digest: row.get(1)?,
        exported_at: row.get(2)?,
        request_count: row.get(3)?,
        total_tokens: row.get(4)?,
        cost,
    })
}
