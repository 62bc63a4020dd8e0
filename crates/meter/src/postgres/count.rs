//! Counts one batch in its own transaction.

use std::collections::{HashMap, HashSet};

use deadpool_postgres::{Client, Transaction};
use ichido_postgres::{StatementMode, typed_params};
use ichido_usage::Profile;
use rust_decimal::Decimal;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::error::classify;
use super::schema::in_schema;
use crate::batch::{Batch, Entry, ValidRecord, to_i64};
use crate::outcome::{Outcome, ReceiptSummary};
use crate::repeats::repeats_of;
use crate::rules::{Comparison, Revision, compare};
use crate::store::{Error, Result, other_record};

const OPERATION: &str = "counting a batch";

const COLUMNS: &str = "slot, event_id, usage_date, provider, model, app_id, app_name, user_id, user_type, source_system,
    aggregation_method, input_tokens, output_tokens, total_tokens, request_count, cost, currency, digest, exported_at";

/// The records of a batch, as a table.
const GIVEN: &str = "unnest($4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[],
    $12::text[], $13::text[], $14::text[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], $19::text[],
    $20::text[], $21::bytea[], $22::bigint[])";

/// The SQL statements for a schema.
pub(super) struct Statements {
    insert: String,
    stored: String,
    replace: String,
    touch: String,
    receipt: String,
    repeats: String,
}

impl Statements {
    pub(super) fn of(schema: &str, profile: Profile) -> Self {
        let values = COLUMNS.replace("usage_date", "usage_date::date").replace(" cost,", " cost::numeric,");
        let insert = format!(
            "INSERT INTO ichido.records (tenant, received_at, batch, {COLUMNS})
             SELECT $1::text, $2::bigint, $3::text, {values} FROM {GIVEN} AS given ({COLUMNS}) ORDER BY slot COLLATE \"C\"
             ON CONFLICT DO NOTHING RETURNING slot"
        );
        let columns: Vec<&str> =
            COLUMNS.split(',').map(str::trim).filter(|column| *column != "slot").collect();
        let set: Vec<String> = columns
            .iter()
            .map(|column| match *column {
                "usage_date" => "usage_date = given.usage_date::date".to_owned(),
                "cost" => "cost = given.cost::numeric".to_owned(),
                column => format!("{column} = given.{column}"),
            })
            .collect();
        let replace = format!(
            "UPDATE ichido.records AS r SET received_at = $2::bigint, batch = $3::text, {} FROM {GIVEN} AS given ({COLUMNS})
             WHERE r.tenant = $1::text AND r.slot = given.slot",
            set.join(", ")
        );
        // Records that are never replaced need no lock.
        let lock = if profile.upserts() { "FOR UPDATE" } else { "" };
        let of = |sql: &str| in_schema(sql, schema);
        Self {
            insert: of(&insert),
            stored: of(&format!(
                "SELECT slot, coalesce(event_id, slot) AS event_id, digest, exported_at, request_count, total_tokens,
                        cost::text AS cost
                 FROM ichido.records WHERE tenant = $1::text AND slot = ANY($2::text[]) ORDER BY slot {lock}"
            )),
            replace: of(&replace),
            touch: of("UPDATE ichido.records AS r SET exported_at = $3::bigint
                       WHERE tenant = $1::text AND slot = ANY($2::text[])"),
            receipt: of("INSERT INTO ichido.receipts AS r VALUES ($1::text, $2::text, 1, $3::bigint, $4::text, $3, $4)
                         ON CONFLICT (tenant, batch) DO UPDATE SET times = r.times + 1, last_at = $3, last = $4"),
            repeats: of("INSERT INTO ichido.repeats AS r
                         SELECT $1::text, month, app_id, result, records, $2::bigint
                         FROM unnest($3::text[], $4::text[], $5::text[], $6::bigint[]) AS given (month, app_id, result, records)
                         ON CONFLICT (tenant, month, app_id, result)
                         DO UPDATE SET records = r.records + excluded.records, last_at = excluded.last_at"),
        }
    }
}

pub(super) async fn count(
    connection: &mut Client,
    statements: &Statements,
    statement_mode: &StatementMode,
    profile: Profile,
    batch: &Batch,
) -> Result<Vec<Outcome>> {
    let fail = |error| classify(OPERATION, error);
    let transaction = connection.transaction().await.map_err(fail)?;
    let executor = Executor { transaction: &transaction, statement_mode };
    let mut slots = BatchSlots::new(profile, batch);
    if !slots.first_records.is_empty() {
        let inserted = run_for(&executor, &statements.insert, batch, &slots.first_records).await?;
        slots.note_inserted(&inserted)?;
    }
    if !slots.taken.is_empty() {
        let found = executor.query(&statements.stored, &[&batch.tenant, &slots.taken]).await?;
        slots.note_stored(&found)?;
    }
    let (outcomes, changes) = slots.compare_all()?;
    if !changes.replaced.is_empty() {
        run_for(&executor, &statements.replace, batch, &changes.replaced).await?;
    }
    if !changes.touched.is_empty() {
        executor.query(&statements.touch, &[&batch.tenant, &changes.touched, &batch.exported_at]).await?;
    }
    count_repeats(&executor, statements, batch, &outcomes).await?;
    if let Some(key) = &batch.key {
        let summary = ReceiptSummary::new(batch, &outcomes, profile).to_json();
        executor.query(&statements.receipt, &[&batch.tenant, key, &batch.received_at, &summary]).await?;
    }
    transaction.commit().await.map_err(fail)?;
    Ok(outcomes)
}

/// Counts the records that were already counted. Every batch locks these rows after those of its records and in the same
/// order, so batches wait for each other but never deadlock.
async fn count_repeats(
    executor: &Executor<'_>,
    statements: &Statements,
    batch: &Batch,
    outcomes: &[Outcome],
) -> Result<()> {
    let (mut months, mut apps, mut results, mut counts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for ((month, app, result), records) in repeats_of(batch, outcomes) {
        months.push(month);
        apps.push(app);
        results.push(result);
        counts.push(records);
    }
    if months.is_empty() {
        return Ok(());
    }
    let values: [&(dyn ToSql + Sync); 6] =
        [&batch.tenant, &batch.received_at, &months, &apps, &results, &counts];
    executor.query(&statements.repeats, &values).await.map(drop)
}

/// A transaction, and how statements are sent in it.
struct Executor<'a> {
    transaction: &'a Transaction<'a>,
    statement_mode: &'a StatementMode,
}

impl Executor<'_> {
    async fn query(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let transaction = self.transaction;
        let rows = match self.statement_mode.is_unnamed() {
            true => transaction.query_typed(sql, &typed_params(sql, values)).await,
            false => match transaction.prepare_cached(sql).await {
                Ok(statement) => transaction.query(&statement, values).await,
                Err(error) => Err(error),
            },
        };
        rows.map_err(|error| classify(OPERATION, error))
    }
}

/// What is known about the slots of a batch.
struct BatchSlots<'a> {
    profile: Profile,
    batch: &'a Batch,
    /// The first record of each slot.
    first_records: Vec<&'a ValidRecord>,
    /// The revision now stored in each slot.
    stored: HashMap<&'a str, Revision>,
    /// Slots that were already taken.
    taken: Vec<&'a str>,
}

#[derive(Default)]
struct Changes<'a> {
    replaced: Vec<&'a ValidRecord>,
    touched: Vec<&'a str>,
}

impl<'a> BatchSlots<'a> {
    fn new(profile: Profile, batch: &'a Batch) -> Self {
        let mut slots: HashMap<&str, &ValidRecord> = HashMap::new();
        for item in batch.entries.iter().filter_map(valid) {
            slots.entry(&item.slot).or_insert(item);
        }
        Self {
            profile,
            batch,
            first_records: slots.into_values().collect(),
            stored: HashMap::new(),
            taken: Vec::new(),
        }
    }

    /// Notes which records were inserted; the slots of the others were taken.
    fn note_inserted(&mut self, inserted: &[Row]) -> Result<()> {
        let mut new: HashSet<&str> = HashSet::new();
        for row in inserted {
            new.insert(row.try_get(0).map_err(|error| classify(OPERATION, error))?);
        }
        for item in &self.first_records {
            match new.contains(&*item.slot) {
                true => drop(self.stored.insert(&item.slot, item.revision.clone())),
                false => self.taken.push(&item.slot),
            }
        }
        self.first_records.retain(|item| new.contains(&*item.slot));
        Ok(())
    }

    fn note_stored(&mut self, rows: &[Row]) -> Result<()> {
        let slots: HashMap<&str, &'a str> = self.taken.iter().map(|slot| (*slot, *slot)).collect();
        for row in rows {
            let slot: &str = row.try_get("slot").map_err(|error| classify(OPERATION, error))?;
            if let Some(slot) = slots.get(slot) {
                self.stored.insert(slot, stored(row)?);
            }
        }
        Ok(())
    }

    /// Compares each record with the revision in its slot, in the order of the batch.
    fn compare_all(mut self) -> Result<(Vec<Outcome>, Changes<'a>)> {
        let mut first: HashMap<&str, &ValidRecord> =
            self.first_records.iter().map(|item| (&*item.slot, *item)).collect();
        let mut newest: HashMap<&str, &'a ValidRecord> = HashMap::new();
        let mut touched = HashSet::new();
        let mut outcomes = Vec::with_capacity(self.batch.entries.len());
        for entry in &self.batch.entries {
            let item = match entry {
                Entry::Valid(item) => item,
                Entry::Invalid { fault, .. } => {
                    outcomes.push(Outcome::Invalid(fault.clone()));
                    continue;
                }
            };
            if first.remove(&*item.slot).is_some() {
                outcomes.push(Outcome::Inserted);
                continue;
            }
            let stored = self
                .stored
                .get_mut(&*item.slot)
                .ok_or(Error::Corrupt { operation: OPERATION, source: None })?;
            outcomes.push(match compare(self.profile, stored, &item.revision) {
                Comparison::Same => Outcome::Duplicate,
                Comparison::SameLater => {
                    stored.exported_at = item.revision.exported_at;
                    touched.insert(&*item.slot);
                    Outcome::Duplicate
                }
                Comparison::Conflict => Outcome::Conflict,
                Comparison::Stale => Outcome::Stale,
                Comparison::Newer => {
                    *stored = item.revision.clone();
                    newest.insert(&item.slot, item);
                    Outcome::Updated
                }
                Comparison::OtherRecord => other_record(stored),
            });
        }
        let changes = Changes {
            touched: touched.into_iter().filter(|slot| !newest.contains_key(slot)).collect(),
            replaced: newest.into_values().collect(),
        };
        Ok((outcomes, changes))
    }
}

fn valid(entry: &Entry) -> Option<&ValidRecord> {
    match entry {
        Entry::Valid(item) => Some(item),
        Entry::Invalid { .. } => None,
    }
}

fn stored(row: &Row) -> Result<Revision> {
    let fail = |error| classify(OPERATION, error);
    let corrupt = |error: Box<dyn std::error::Error + Send + Sync>| Error::corrupt(OPERATION, error);
    let digest: &[u8] = row.try_get("digest").map_err(fail)?;
    let cost: &str = row.try_get("cost").map_err(fail)?;
    Ok(Revision {
        event_id: row.try_get("event_id").map_err(fail)?,
        digest: digest.try_into().map_err(|_| Error::Corrupt { operation: OPERATION, source: None })?,
        exported_at: row.try_get("exported_at").map_err(fail)?,
        request_count: row.try_get("request_count").map_err(fail)?,
        total_tokens: row.try_get("total_tokens").map_err(fail)?,
        cost: cost.parse::<Decimal>().map_err(|error| corrupt(error.into()))?,
    })
}

/// Runs a statement for some records.
async fn run_for(
    executor: &Executor<'_>,
    sql: &str,
    batch: &Batch,
    items: &[&ValidRecord],
) -> Result<Vec<Row>> {
    fn column<'a, T>(items: &[&'a ValidRecord], of: impl Fn(&'a ValidRecord) -> T) -> Vec<T> {
        items.iter().map(|item| of(item)).collect()
    }
    let text = |of: fn(&ValidRecord) -> &str| column(items, of);
    let number = |of: fn(&ValidRecord) -> u64| column(items, |item| to_i64(of(item)));
    let slots = text(|item| &item.slot);
    let ids = column(items, |item| Some(item.revision.event_id.as_str()).filter(|id| *id != item.slot));
    let days = column(items, |item| item.record.usage_date.to_string());
    let kinds = text(|item| item.record.metadata.source_user_type.map_or("", |kind| kind.as_str()));
    let costs = column(items, |item| item.record.cost_actual.to_string());
    let digests = column(items, |item| item.revision.digest.as_slice());
    let exported = column(items, |item| item.revision.exported_at);
    let texts = [
        text(|item| &item.record.provider),
        text(|item| &item.record.model),
        text(|item| &item.record.metadata.source_app_id),
        text(|item| &item.record.metadata.source_app_name),
        text(|item| item.record.metadata.source_user_id.as_deref().unwrap_or_default()),
    ];
    let systems = text(|item| &item.record.metadata.source_system);
    let methods = text(|item| &item.record.metadata.aggregation_method);
    let numbers = [
        number(|item| item.record.input_tokens),
        number(|item| item.record.output_tokens),
        number(|item| item.record.total_tokens),
        number(|item| item.record.request_count),
    ];
    let currencies = text(|item| &item.record.currency);
    let values: [&(dyn ToSql + Sync); 22] = [
        &batch.tenant,
        &batch.received_at,
        &batch.key,
        &slots,
        &ids,
        &days,
        &texts[0],
        &texts[1],
        &texts[2],
        &texts[3],
        &texts[4],
        &kinds,
        &systems,
        &methods,
        &numbers[0],
        &numbers[1],
        &numbers[2],
        &numbers[3],
        &costs,
        &currencies,
        &digests,
        &exported,
    ];
    executor.query(sql, &values).await
}
