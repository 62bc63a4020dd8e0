//! Queries.

use deadpool_postgres::Client;
use ichido_postgres::typed_params;
use ichido_usage::money::Sum;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql};

use super::error::classify;
use super::schema::in_schema;
use crate::announcement::Announcement;
use crate::repeats::{Repeats, RepeatsQuery};
use crate::report::{CountedRecord, FoundRecord, GROUPS_MAX, Group, Page, PageQuery, ReportQuery};
use crate::store::{ERASED_USER, Error, Grain, Receipt, ReceiptEntry, Result, check_group_count};

pub(super) const OPERATION: &str = "querying what was counted";

/// Runs a query without preparing it: reports are rare, and the server plans each for its own days.
async fn query_rows(client: &Client, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
    client.query_typed(sql, &typed_params(sql, values)).await.map_err(|error| classify(OPERATION, error))
}

fn get<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> Result<T> {
    row.try_get(index).map_err(|error| classify(OPERATION, error))
}

/// Formats a sum like every other amount.
fn money(text: &str) -> Result<String> {
    Sum::parse(text).map(|sum| sum.to_string()).map_err(|error| Error::corrupt(OPERATION, error))
}

pub(super) async fn report(client: &Client, schema: &str, query: &ReportQuery) -> Result<Vec<Group>> {
    let columns = query.columns();
    let list: String = columns.iter().map(|column| format!("{column}, ")).collect();
    let shown = list.replace("usage_date", "usage_date::text");
    let name = if columns.contains(&"app_id") { "max(app_name)" } else { "NULL::text" };
    let sql = format!(
        "SELECT {shown}{name}, aggregation_method, currency, count(*), sum(request_count)::bigint,
                sum(input_tokens)::bigint, sum(output_tokens)::bigint, sum(total_tokens)::bigint, sum(cost)::text,
                count(*) FILTER (WHERE received_at > $6::bigint)
         FROM ichido.records WHERE tenant = $1::text AND usage_date BETWEEN $2::text::date AND $3::text::date
               AND ($5::text IS NULL OR app_id = $5)
         GROUP BY {list}aggregation_method, currency ORDER BY {list}aggregation_method, currency LIMIT $4::bigint"
    );
    let (from, to) = query.days();
    let limit = i64::try_from(GROUPS_MAX + 1).unwrap_or(i64::MAX);
    let written_after = query.written_after.unwrap_or(i64::MAX);
    let values: [&(dyn ToSql + Sync); 6] = [&query.tenant, &from, &to, &limit, &query.app, &written_after];
    let rows = query_rows(client, &in_schema(&sql, schema), &values).await?;
    let groups = rows.iter().map(|row| {
        let mut group = Group::default();
        for (index, column) in columns.iter().enumerate() {
            if let Some(field) = group.column_mut(column) {
                *field = get(row, index)?;
            }
        }
        let at = columns.len();
        group.app_name = get(row, at)?;
        group.aggregation_method = get(row, at + 1)?;
        group.currency = get(row, at + 2)?;
        group.records = get(row, at + 3)?;
        group.request_count = get(row, at + 4)?;
        group.input_tokens = get(row, at + 5)?;
        group.output_tokens = get(row, at + 6)?;
        group.total_tokens = get(row, at + 7)?;
        group.cost_actual = money(get(row, at + 8)?)?;
        group.written_after = get(row, at + 9)?;
        Ok(group)
    });
    check_group_count(groups.collect::<Result<_>>()?)
}

pub(super) async fn page(client: &Client, schema: &str, query: &PageQuery) -> Result<Page> {
    let sql = format!(
        "SELECT {RECORD}, slot FROM ichido.records
         WHERE tenant = $1::text AND slot > $2::text AND usage_date BETWEEN $3::text::date AND $4::text::date
         ORDER BY slot LIMIT $5::bigint"
    );
    let (from, to) = query.days();
    let after = query.after.as_deref().unwrap_or_default();
    let limit = i64::try_from(query.limit + 1).unwrap_or(i64::MAX);
    let rows =
        query_rows(client, &in_schema(&sql, schema), &[&query.tenant, &after, &from, &to, &limit]).await?;
    let records = rows.iter().map(|row| Ok((get(row, RECORD_COLUMNS)?, record(row)?)));
    Ok(Page::new(records.collect::<Result<_>>()?, query.limit))
}

/// The columns of a record.
const RECORD: &str = "usage_date::text, provider, model, input_tokens, output_tokens, total_tokens, request_count, \
     cost::text, currency, coalesce(event_id, slot), app_id, user_id, aggregation_method";
const RECORD_COLUMNS: usize = 13;

fn record(row: &Row) -> Result<CountedRecord> {
    Ok(CountedRecord {
        usage_date: get(row, 0)?,
        provider: get(row, 1)?,
        model: get(row, 2)?,
        input_tokens: get(row, 3)?,
        output_tokens: get(row, 4)?,
        total_tokens: get(row, 5)?,
        request_count: get(row, 6)?,
        cost_actual: money(get(row, 7)?)?,
        currency: get(row, 8)?,
        source_event_id: get(row, 9)?,
        app_id: get(row, 10)?,
        user_id: get(row, 11)?,
        aggregation_method: get(row, 12)?,
    })
}

pub(super) async fn find(
    client: &Client,
    schema: &str,
    grain: Grain,
    tenant: &str,
    event_id: &str,
) -> Result<Option<FoundRecord>> {
    for column in grain.id_columns() {
        let sql = format!(
            "SELECT {RECORD}, received_at, batch FROM ichido.records
             WHERE tenant = $1::text AND {column} = $2::text LIMIT 1"
        );
        let rows = query_rows(client, &in_schema(&sql, schema), &[&tenant, &event_id]).await?;
        if let Some(row) = rows.first() {
            let (received_at, batch) = (get(row, RECORD_COLUMNS)?, get(row, RECORD_COLUMNS + 1)?);
            return Ok(Some(FoundRecord { record: record(row)?, received_at, batch }));
        }
    }
    Ok(None)
}

pub(super) async fn receipt(
    client: &Client,
    schema: &str,
    tenant: &str,
    batch: &str,
) -> Result<Option<Receipt>> {
    let sql = "SELECT times, first_at, first, last_at, last FROM ichido.receipts
         WHERE tenant = $1::text AND batch = $2::text";
    let rows = query_rows(client, &in_schema(sql, schema), &[&tenant, &batch]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some(Receipt {
        batch: batch.to_owned(),
        times: get(row, 0)?,
        first: ReceiptEntry::new(OPERATION, get(row, 1)?, get(row, 2)?)?,
        last: ReceiptEntry::new(OPERATION, get(row, 3)?, get(row, 4)?)?,
    }))
}

pub(super) async fn repeats(client: &Client, schema: &str, query: &RepeatsQuery) -> Result<Repeats> {
    let sql = "SELECT result, sum(records)::bigint FROM ichido.repeats
               WHERE tenant = $1::text AND month = $2::text AND ($3::text IS NULL OR app_id = $3) GROUP BY result";
    let values: [&(dyn ToSql + Sync); 3] = [&query.tenant, &query.month, &query.app];
    let mut repeats = Repeats::default();
    for row in query_rows(client, &in_schema(sql, schema), &values).await? {
        repeats.add(get(&row, 0)?, get(&row, 1)?);
    }
    let since = "SELECT last_at FROM ichido.repeats WHERE tenant = '' AND result = 'since'";
    let rows = query_rows(client, &in_schema(since, schema), &[]).await?;
    repeats.since = rows.first().map(|row| get(row, 0)).transpose()?;
    Ok(repeats)
}

pub(super) async fn announced(client: &Client, schema: &str, month: &str) -> Result<Vec<Announcement>> {
    let sql = "SELECT budget, threshold FROM ichido.budget_notices WHERE month = $1::text";
    let rows = query_rows(client, &in_schema(sql, schema), &[&month]).await?;
    let announcements = rows.iter().map(|row| {
        let threshold: i32 = get(row, 1)?;
        let threshold = u8::try_from(threshold).map_err(|error| Error::corrupt(OPERATION, error))?;
        Ok(Announcement { month: month.to_owned(), budget: get(row, 0)?, threshold })
    });
    announcements.collect()
}

pub(super) async fn count_user(client: &Client, schema: &str, user: &str) -> Result<u64> {
    let sql = in_schema("SELECT count(*) FROM ichido.records WHERE user_id = $1::text", schema);
    let rows = query_rows(client, &sql, &[&user]).await?;
    rows.first().map_or(Ok(0), |row| get::<i64>(row, 0).map(i64::unsigned_abs))
}

pub(super) async fn erase_user(client: &Client, schema: &str, user: &str) -> Result<u64> {
    let sql =
        "WITH erased AS (UPDATE ichido.records SET user_id = $2::text WHERE user_id = $1::text RETURNING 1)
               SELECT count(*) FROM erased";
    let rows = query_rows(client, &in_schema(sql, schema), &[&user, &ERASED_USER]).await?;
    rows.first().map_or(Ok(0), |row| get::<i64>(row, 0).map(i64::unsigned_abs))
}

pub(super) async fn note_announced(
    client: &Client,
    schema: &str,
    announcement: &Announcement,
    at: i64,
) -> Result<()> {
    let sql = "INSERT INTO ichido.budget_notices VALUES ($1::text, $2::text, $3::integer, $4::bigint)
               ON CONFLICT DO NOTHING";
    let Announcement { month, budget, threshold } = announcement;
    let values: [&(dyn ToSql + Sync); 4] = [month, budget, &i32::from(*threshold), &at];
    query_rows(client, &in_schema(sql, schema), &values).await.map(drop)
}
