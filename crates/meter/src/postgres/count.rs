//! One batch, in a transaction of its own.

use std::collections::HashMap;

use deadpool_postgres::{Client, Transaction};
use ichido_postgres::{StatementMode, typed_params};
use ichido_usage::Profile;
use rust_decimal::Decimal;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::error::failed;
use super::schema::in_schema;
use crate::batch::{Batch, Entry, Item, counted};
use crate::outcome::{Outcome, Summary};
use crate::rules::{Kept, Meeting, meet};
use crate::store::{Error, Result, foreign};

const DOING: &str = "counting a batch";

const COLUMNS: &str = "slot, event_id, usage_date, provider, model, app_id, app_name, user_id, user_type, source_system,
    aggregation_method, input_tokens, output_tokens, total_tokens, request_count, cost, currency, digest, exported_at";

/// The records of a batch as a table.
const GIVEN: &str = "unnest($4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[],
    $12::text[], $13::text[], $14::text[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], $19::text[],
    $20::text[], $21::bytea[], $22::bigint[])";

/// The statements for a schema.
pub(super) struct Statements {
    insert: String,
    kept: String,
    replace: String,
    touch: String,
    receipt: String,
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
        // What is never replaced need not be locked.
        let lock = if profile.upserts() { "FOR UPDATE" } else { "" };
        let of = |sql: &str| in_schema(sql, schema);
        Self {
            insert: of(&insert),
            kept: of(&format!(
                "SELECT slot, coalesce(event_id, slot) AS event_id, digest, exported_at, request_count, total_tokens,
                        cost::text AS cost
                 FROM ichido.records WHERE tenant = $1::text AND slot = ANY($2::text[]) ORDER BY slot {lock}"
            )),
            replace: of(&replace),
            touch: of("UPDATE ichido.records AS r SET exported_at = $3::bigint
                       WHERE tenant = $1::text AND slot = ANY($2::text[])"),
            receipt: of("INSERT INTO ichido.receipts AS r VALUES ($1::text, $2::text, 1, $3::bigint, $4::text, $3, $4)
                         ON CONFLICT (tenant, batch) DO UPDATE SET times = r.times + 1, last_at = $3, last = $4"),
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
    let fail = |error| failed(DOING, error);
    let transaction = connection.transaction().await.map_err(fail)?;
    let asking = Asking { transaction: &transaction, statement_mode };
    let mut plan = Plan::new(profile, batch);
    if !plan.firsts.is_empty() {
        let fresh = rows(&asking, &statements.insert, batch, &plan.firsts).await?;
        plan.inserted(&fresh)?;
    }
    if !plan.unknown.is_empty() {
        let found = asking.query(&statements.kept, &[&batch.tenant, &plan.unknown]).await?;
        plan.found(&found)?;
    }
    let (outcomes, changes) = plan.judge()?;
    if !changes.replaced.is_empty() {
        rows(&asking, &statements.replace, batch, &changes.replaced).await?;
    }
    if !changes.touched.is_empty() {
        asking.query(&statements.touch, &[&batch.tenant, &changes.touched, &batch.exported_at]).await?;
    }
    if let Some(key) = &batch.key {
        let answer = Summary::new(batch, &outcomes, profile).text();
        asking.query(&statements.receipt, &[&batch.tenant, key, &batch.received_at, &answer]).await?;
    }
    transaction.commit().await.map_err(fail)?;
    Ok(outcomes)
}

/// A transaction, and how statements are sent in it.
struct Asking<'a> {
    transaction: &'a Transaction<'a>,
    statement_mode: &'a StatementMode,
}

impl Asking<'_> {
    async fn query(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let transaction = self.transaction;
        let rows = match self.statement_mode.is_unnamed() {
            true => transaction.query_typed(sql, &typed_params(sql, values)).await,
            false => match transaction.prepare_cached(sql).await {
                Ok(statement) => transaction.query(&statement, values).await,
                Err(error) => Err(error),
            },
        };
        rows.map_err(|error| failed(DOING, error))
    }
}

/// What is known of the places of a batch.
struct Plan<'a> {
    profile: Profile,
    batch: &'a Batch,
    /// The first record of each place.
    firsts: Vec<&'a Item>,
    /// What has each place now.
    kept: HashMap<&'a str, Kept>,
    /// Places that were taken before.
    unknown: Vec<&'a str>,
}

#[derive(Default)]
struct Changes<'a> {
    replaced: Vec<&'a Item>,
    touched: Vec<&'a str>,
}

impl<'a> Plan<'a> {
    fn new(profile: Profile, batch: &'a Batch) -> Self {
        let mut places: HashMap<&str, &Item> = HashMap::new();
        for item in batch.entries.iter().filter_map(good) {
            places.entry(&item.slot).or_insert(item);
        }
        Self {
            profile,
            batch,
            firsts: places.into_values().collect(),
            kept: HashMap::new(),
            unknown: Vec::new(),
        }
    }

    /// These were inserted; the others were there.
    fn inserted(&mut self, fresh: &[Row]) -> Result<()> {
        let mut new: std::collections::HashSet<&str> = std::collections::HashSet::new();
        for row in fresh {
            new.insert(row.try_get(0).map_err(|error| failed(DOING, error))?);
        }
        for item in &self.firsts {
            match new.contains(&*item.slot) {
                true => drop(self.kept.insert(&item.slot, item.kept.clone())),
                false => self.unknown.push(&item.slot),
            }
        }
        self.firsts.retain(|item| new.contains(&*item.slot));
        Ok(())
    }

    fn found(&mut self, rows: &[Row]) -> Result<()> {
        let places: HashMap<&str, &'a str> = self.unknown.iter().map(|place| (*place, *place)).collect();
        for row in rows {
            let slot: &str = row.try_get("slot").map_err(|error| failed(DOING, error))?;
            if let Some(place) = places.get(slot) {
                self.kept.insert(place, kept(row)?);
            }
        }
        Ok(())
    }

    /// Each record meets what has its place, in the order of the batch.
    fn judge(mut self) -> Result<(Vec<Outcome>, Changes<'a>)> {
        let mut first: HashMap<&str, &Item> = self.firsts.iter().map(|item| (&*item.slot, *item)).collect();
        let mut newest: HashMap<&str, &'a Item> = HashMap::new();
        let mut touched = std::collections::HashSet::new();
        let mut outcomes = Vec::with_capacity(self.batch.entries.len());
        for entry in &self.batch.entries {
            let item = match entry {
                Entry::Good(item) => item,
                Entry::Bad { fault, .. } => {
                    outcomes.push(Outcome::Invalid(fault.clone()));
                    continue;
                }
            };
            if first.remove(&*item.slot).is_some() {
                outcomes.push(Outcome::Inserted);
                continue;
            }
            let kept = self.kept.get_mut(&*item.slot).ok_or(Error::Broken { doing: DOING, source: None })?;
            outcomes.push(match meet(self.profile, kept, &item.kept) {
                Meeting::Same => Outcome::Duplicate,
                Meeting::SameLater => {
                    kept.exported_at = item.kept.exported_at;
                    touched.insert(&*item.slot);
                    Outcome::Duplicate
                }
                Meeting::Conflict => Outcome::Conflict,
                Meeting::Stale => Outcome::Stale,
                Meeting::Newer => {
                    *kept = item.kept.clone();
                    newest.insert(&item.slot, item);
                    Outcome::Updated
                }
                Meeting::Foreign => foreign(kept),
            });
        }
        let changes = Changes {
            touched: touched.into_iter().filter(|slot| !newest.contains_key(slot)).collect(),
            replaced: newest.into_values().collect(),
        };
        Ok((outcomes, changes))
    }
}

fn good(entry: &Entry) -> Option<&Item> {
    match entry {
        Entry::Good(item) => Some(item),
        Entry::Bad { .. } => None,
    }
}

fn kept(row: &Row) -> Result<Kept> {
    let fail = |error| failed(DOING, error);
    let broken = |error: Box<dyn std::error::Error + Send + Sync>| Error::broken(DOING, error);
    let digest: &[u8] = row.try_get("digest").map_err(fail)?;
    let cost: &str = row.try_get("cost").map_err(fail)?;
    Ok(Kept {
        event_id: row.try_get("event_id").map_err(fail)?,
        digest: digest.try_into().map_err(|_| Error::Broken { doing: DOING, source: None })?,
        exported_at: row.try_get("exported_at").map_err(fail)?,
        request_count: row.try_get("request_count").map_err(fail)?,
        total_tokens: row.try_get("total_tokens").map_err(fail)?,
        cost: cost.parse::<Decimal>().map_err(|error| broken(error.into()))?,
    })
}

/// Runs a statement over records.
async fn rows(asking: &Asking<'_>, sql: &str, batch: &Batch, items: &[&Item]) -> Result<Vec<Row>> {
    fn column<'a, T>(items: &[&'a Item], of: impl Fn(&'a Item) -> T) -> Vec<T> {
        items.iter().map(|item| of(item)).collect()
    }
    let text = |of: fn(&Item) -> &str| column(items, of);
    let number = |of: fn(&Item) -> u64| column(items, |item| counted(of(item)));
    let slots = text(|item| &item.slot);
    let ids = column(items, |item| Some(item.kept.event_id.as_str()).filter(|id| *id != item.slot));
    let days = column(items, |item| item.record.usage_date.to_string());
    let kinds = text(|item| item.record.metadata.source_user_type.map_or("", |kind| kind.as_str()));
    let costs = column(items, |item| item.record.cost_actual.to_string());
    let digests = column(items, |item| item.kept.digest.as_slice());
    let exported = column(items, |item| item.kept.exported_at);
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
    asking.query(sql, &values).await
}
