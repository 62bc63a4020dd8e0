//! One batch, in an open transaction.

use ichido_usage::Profile;
use rusqlite::{Connection, OptionalExtension, Row, params};
use rust_decimal::Decimal;

use super::error::failed;
use crate::batch::{Batch, Entry, Item, counted};
use crate::outcome::{Outcome, Summary};
use crate::rules::{Kept, Meeting, meet};
use crate::store::{Error, Result, foreign};

const DOING: &str = "counting a batch";

const INSERT: &str = "
    INSERT INTO records VALUES (
        ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22
    ) ON CONFLICT DO NOTHING";
const KEPT: &str = "
    SELECT coalesce(event_id, slot), digest, exported_at, request_count, total_tokens, cost
    FROM records WHERE tenant = ?1 AND slot = ?2";
const REPLACE: &str = "REPLACE INTO records VALUES (
        ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22
    )";
const TOUCH: &str = "UPDATE records SET exported_at = ?3 WHERE tenant = ?1 AND slot = ?2";
const RECEIPT: &str = "
    INSERT INTO receipts VALUES (?1, ?2, 1, ?3, ?4, ?3, ?4)
    ON CONFLICT DO UPDATE SET times = times + 1, last_at = ?3, last = ?4";

pub(super) fn count(connection: &Connection, profile: Profile, batch: &Batch) -> Result<Vec<Outcome>> {
    let outcomes = batch.entries.iter().map(|entry| match entry {
        Entry::Good(item) => one(connection, profile, batch, item),
        Entry::Bad { fault, .. } => Ok(Outcome::Invalid(fault.clone())),
    });
    let outcomes: Vec<Outcome> = outcomes.collect::<Result<_>>()?;
    if let Some(key) = &batch.key {
        let answer = Summary::new(batch, &outcomes, profile).text();
        connection
            .prepare_cached(RECEIPT)
            .and_then(|mut statement| {
                statement.execute(params![batch.tenant, key, batch.received_at, answer])
            })
            .map_err(|error| failed(DOING, error))?;
    }
    Ok(outcomes)
}

fn one(connection: &Connection, profile: Profile, batch: &Batch, item: &Item) -> Result<Outcome> {
    if write(connection, INSERT, batch, item)? {
        return Ok(Outcome::Inserted);
    }
    let kept = connection
        .prepare_cached(KEPT)
        .and_then(|mut statement| statement.query_row(params![batch.tenant, item.slot], kept).optional())
        .map_err(|error| failed(DOING, error))?;
    let kept = kept.ok_or(Error::Broken { doing: DOING, source: None })?;
    Ok(match meet(profile, &kept, &item.kept) {
        Meeting::Same => Outcome::Duplicate,
        Meeting::SameLater => {
            connection
                .prepare_cached(TOUCH)
                .and_then(|mut statement| {
                    statement.execute(params![batch.tenant, item.slot, item.kept.exported_at])
                })
                .map_err(|error| failed(DOING, error))?;
            Outcome::Duplicate
        }
        Meeting::Conflict => Outcome::Conflict,
        Meeting::Stale => Outcome::Stale,
        Meeting::Newer => {
            write(connection, REPLACE, batch, item)?;
            Outcome::Updated
        }
        Meeting::Foreign => foreign(&kept),
    })
}

/// Whether a row was written.
fn write(connection: &Connection, sql: &str, batch: &Batch, item: &Item) -> Result<bool> {
    let (record, meta) = (&item.record, &item.record.metadata);
    let own_id = Some(&item.kept.event_id).filter(|id| **id != item.slot);
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
            counted(record.input_tokens),
            counted(record.output_tokens),
            counted(record.total_tokens),
            counted(record.request_count),
            record.cost_actual.to_string(),
            record.currency,
            item.kept.digest,
            item.kept.exported_at,
            batch.received_at,
            batch.key,
        ])
    });
    written.map(|rows| rows > 0).map_err(|error| failed(DOING, error))
}

fn kept(row: &Row<'_>) -> rusqlite::Result<Kept> {
    let cost: String = row.get(5)?;
    let cost = cost.parse::<Decimal>().map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(5, rusqlite::types::Type::Text, Box::new(error))
    })?;
    Ok(Kept {
        event_id: row.get(0)?,
        digest: row.get(1)?,
        exported_at: row.get(2)?,
        request_count: row.get(3)?,
        total_tokens: row.get(4)?,
        cost,
    })
}
