//! What was counted, asked for: `GET /v1/usage`, `GET /v1/records`, `GET /v1/receipts`.

use axum::Json;
use axum::extract::{Query as Params, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};
use ichido_usage::record::day;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use super::problem::Problem;
use super::state::Served;
use crate::csv;
use crate::report::{By, Group, MOST_RECORDS, Page, PageQuery, Query};
use crate::store::Receipt;

const PAGE: usize = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UsageParams {
    from: Option<String>,
    to: Option<String>,
    group_by: Option<String>,
    format: Option<String>,
}

#[derive(Serialize)]
struct Report {
    from: Option<String>,
    to: Option<String>,
    group_by: Vec<&'static str>,
    rows: Vec<Group>,
}

type Asked<T> = Result<Params<T>, axum::extract::rejection::QueryRejection>;

pub(super) async fn usage(
    State(served): State<Served>,
    headers: HeaderMap,
    params: Asked<UsageParams>,
) -> Result<Response, Problem> {
    let tenant = served.tenant(&headers)?;
    let params = understood(params)?;
    let (from, to) = days(params.from.as_deref(), params.to.as_deref())?;
    let by = group_by(params.group_by.as_deref())?;
    let as_csv = match params.format.as_deref() {
        None | Some("json") => false,
        Some("csv") => true,
        Some(_) => return Err(Problem::wrong("format", "must be json or csv")),
    };
    let query = Query { tenant, from, to, by };
    let rows = served.parts.store.report(&query).await?;
    if as_csv {
        let mut response = csv::table(&csv_columns(&query), &rows).into_response();
        let kind = HeaderValue::from_static("text/csv; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        return Ok(response);
    }
    let words = query.by.iter().filter_map(|by| By::WORDS.iter().find(|(_, known)| known == by));
    let group_by = words.map(|(word, _)| *word).collect();
    let text = |day: Option<Date>| day.map(|day| day.to_string());
    Ok(Json(Report { from: text(from), to: text(to), group_by, rows }).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordsParams {
    from: Option<String>,
    to: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

pub(super) async fn records(
    State(served): State<Served>,
    headers: HeaderMap,
    params: Asked<RecordsParams>,
) -> Result<Json<Page>, Problem> {
    let tenant = served.tenant(&headers)?;
    let params = understood(params)?;
    let (from, to) = days(params.from.as_deref(), params.to.as_deref())?;
    let limit = params.limit.unwrap_or(PAGE);
    if !(1..=MOST_RECORDS).contains(&limit) {
        return Err(Problem::wrong("limit", format!("must be between 1 and {MOST_RECORDS}")));
    }
    if params.after.as_ref().is_some_and(|after| after.contains('\0')) {
        return Err(Problem::wrong("after", "must be the next of the page before"));
    }
    let query = PageQuery { tenant, from, to, after: params.after, limit };
    Ok(Json(served.parts.store.page(&query).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReceiptParams {
    batch: Option<String>,
}

pub(super) async fn receipts(
    State(served): State<Served>,
    headers: HeaderMap,
    params: Asked<ReceiptParams>,
) -> Result<Json<Receipt>, Problem> {
    let tenant = served.tenant(&headers)?;
    let batch = understood(params)?.batch.filter(|batch| !batch.is_empty() && !batch.contains('\0'));
    let batch = batch.ok_or_else(|| Problem::wrong("batch", "must be the key of a batch"))?;
    let receipt = served.parts.store.receipt(&tenant, &batch).await?;
    receipt.map(Json).ok_or_else(Problem::no_receipt)
}

fn csv_columns(query: &Query) -> Vec<&'static str> {
    let mut columns = query.columns();
    if query.by.contains(&By::App) {
        columns.push("app_name");
    }
    columns.extend([
        "aggregation_method",
        "currency",
        "records",
        "request_count",
        "input_tokens",
        "output_tokens",
        "total_tokens",
        "cost_actual",
    ]);
    columns
}

fn understood<T>(params: Asked<T>) -> Result<T, Problem> {
    match params {
        Ok(Params(params)) => Ok(params),
        Err(rejection) => Err(Problem::wrong("query", rejection.body_text())),
    }
}

fn days(from: Option<&str>, to: Option<&str>) -> Result<(Option<Date>, Option<Date>), Problem> {
    let read = |field: &str, text: Option<&str>| match text {
        None => Ok(None),
        Some(text) => {
            let read = day::parse(text).filter(|day| day.year() > 0).map(Some);
            read.ok_or_else(|| Problem::wrong(field, "must be a day as YYYY-MM-DD"))
        }
    };
    let (from, to) = (read("from", from)?, read("to", to)?);
    match (from, to) {
        (Some(first), Some(last)) if first > last => Err(Problem::wrong("to", "must not be before from")),
        _ => Ok((from, to)),
    }
}

fn group_by(text: Option<&str>) -> Result<Vec<By>, Problem> {
    let mut groups = Vec::new();
    for word in text.unwrap_or("day").split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let known = By::WORDS.iter().find(|(known, _)| *known == word);
        let (_, by) = known.ok_or_else(|| {
            Problem::wrong("group_by", "must be some of day, model, app and user, separated by commas")
        })?;
        if !groups.contains(by) {
            groups.push(*by);
        }
    }
    Ok(groups)
}
