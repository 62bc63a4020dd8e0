//! What was counted, read.

use deadpool_postgres::Client;
use ichido_postgres::typed_params;
use ichido_usage::money::Sum;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql};

use super::error::failed;
use super::schema::in_schema;
use crate::report::{Group, Line, MOST_GROUPS, Page, PageQuery, Query};
use crate::store::{Answered, Error, Receipt, Result, too_many_groups};

pub(super) const DOING: &str = "reading what was counted";

/// Nothing is prepared here: reports are rare, and the server plans each one for its days.
async fn ask(client: &Client, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
    client.query_typed(sql, &typed_params(sql, values)).await.map_err(|error| failed(DOING, error))
}

fn get<'a, T: FromSql<'a>>(row: &'a Row, place: usize) -> Result<T> {
    row.try_get(place).map_err(|error| failed(DOING, error))
}

/// A sum in the same form as everywhere.
fn money(text: &str) -> Result<String> {
    Sum::parse(text).map(|sum| sum.to_string()).map_err(|error| Error::broken(DOING, error))
}

pub(super) async fn report(client: &Client, schema: &str, query: &Query) -> Result<Vec<Group>> {
    let columns = query.columns();
    let list: String = columns.iter().map(|column| format!("{column}, ")).collect();
    let shown = list.replace("usage_date", "usage_date::text");
    let name = if columns.contains(&"app_id") { "max(app_name)" } else { "NULL::text" };
    let sql = format!(
        "SELECT {shown}{name}, aggregation_method, currency, count(*), sum(request_count)::bigint,
                sum(input_tokens)::bigint, sum(output_tokens)::bigint, sum(total_tokens)::bigint, sum(cost)::text
         FROM ichido.records WHERE tenant = $1::text AND usage_date BETWEEN $2::text::date AND $3::text::date
         GROUP BY {list}aggregation_method, currency ORDER BY {list}aggregation_method, currency LIMIT $4::bigint"
    );
    let (from, to) = query.days();
    let limit = i64::try_from(MOST_GROUPS + 1).unwrap_or(i64::MAX);
    let rows = ask(client, &in_schema(&sql, schema), &[&query.tenant, &from, &to, &limit]).await?;
    let groups = rows.iter().map(|row| {
        let mut group = Group::default();
        for (place, column) in columns.iter().enumerate() {
            if let Some(field) = group.field(column) {
                *field = get(row, place)?;
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
        Ok(group)
    });
    too_many_groups(groups.collect::<Result<_>>()?)
}

pub(super) async fn page(client: &Client, schema: &str, query: &PageQuery) -> Result<Page> {
    let sql = "
        SELECT slot, usage_date::text, provider, model, input_tokens, output_tokens, total_tokens, request_count,
               cost::text, currency, coalesce(event_id, slot), app_id, user_id, aggregation_method
        FROM ichido.records
        WHERE tenant = $1::text AND slot > $2::text AND usage_date BETWEEN $3::text::date AND $4::text::date
        ORDER BY slot LIMIT $5::bigint";
    let (from, to) = query.days();
    let after = query.after.as_deref().unwrap_or_default();
    let limit = i64::try_from(query.limit + 1).unwrap_or(i64::MAX);
    let rows = ask(client, &in_schema(sql, schema), &[&query.tenant, &after, &from, &to, &limit]).await?;
    let lines = rows.iter().map(|row| {
        let line = Line {
            usage_date: get(row, 1)?,
            provider: get(row, 2)?,
            model: get(row, 3)?,
            input_tokens: get(row, 4)?,
            output_tokens: get(row, 5)?,
            total_tokens: get(row, 6)?,
            request_count: get(row, 7)?,
            cost_actual: money(get(row, 8)?)?,
            currency: get(row, 9)?,
            source_event_id: get(row, 10)?,
            app_id: get(row, 11)?,
            user_id: get(row, 12)?,
            aggregation_method: get(row, 13)?,
        };
        Ok((get(row, 0)?, line))
    });
    Ok(Page::cut(lines.collect::<Result<_>>()?, query.limit))
}

pub(super) async fn receipt(
    client: &Client,
    schema: &str,
    tenant: &str,
    batch: &str,
) -> Result<Option<Receipt>> {
    let sql = "SELECT times, first_at, first, last_at, last FROM ichido.receipts
         WHERE tenant = $1::text AND batch = $2::text";
    let rows = ask(client, &in_schema(sql, schema), &[&tenant, &batch]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some(Receipt {
        batch: batch.to_owned(),
        times: get(row, 0)?,
        first: Answered::new(DOING, get(row, 1)?, get(row, 2)?)?,
        last: Answered::new(DOING, get(row, 3)?, get(row, 4)?)?,
    }))
}
