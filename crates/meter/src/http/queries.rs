//! Queries: `GET /v1/usage`, `GET /v1/records`, `GET /v1/receipts`.

use axum::Json;
use axum::extract::{Query as Params, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};
use ichido_serve::Problem;
use ichido_usage::record::day;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use super::problem;
use super::state::AppState;
use crate::csv;
use crate::report::{Group, GroupBy, PAGE_RECORDS_MAX, Page, PageQuery, ReportQuery};
use crate::store::Receipt;

const DEFAULT_PAGE_RECORDS: usize = 1_000;

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

type QueryParams<T> = Result<Params<T>, axum::extract::rejection::QueryRejection>;

pub(super) async fn usage(
    State(state): State<AppState>,
    headers: HeaderMap,
    params: QueryParams<UsageParams>,
) -> Result<Response, Problem> {
    let tenant = state.tenant(&headers)?;
    let params = parsed(params)?;
    let (from, to) = parse_days(params.from.as_deref(), params.to.as_deref())?;
    let group_by = parse_group_by(params.group_by.as_deref())?;
    let as_csv = match params.format.as_deref() {
        None | Some("json") => false,
        Some("csv") => true,
        Some(_) => return Err(problem::invalid_field("format", "must be json or csv")),
    };
    let query = ReportQuery { tenant, from, to, group_by, ..ReportQuery::default() };
    let rows = state.options.store.report(&query).await?;
    if as_csv {
        let mut response = csv::table(&csv_columns(&query), &rows).into_response();
        let kind = HeaderValue::from_static("text/csv; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        return Ok(response);
    }
    let names = query.group_by.iter().filter_map(|by| GroupBy::NAMES.iter().find(|(_, known)| known == by));
    let group_by = names.map(|(name, _)| *name).collect();
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
    State(state): State<AppState>,
    headers: HeaderMap,
    params: QueryParams<RecordsParams>,
) -> Result<Json<Page>, Problem> {
    let tenant = state.tenant(&headers)?;
    let params = parsed(params)?;
    let (from, to) = parse_days(params.from.as_deref(), params.to.as_deref())?;
    let limit = params.limit.unwrap_or(DEFAULT_PAGE_RECORDS);
    if !(1..=PAGE_RECORDS_MAX).contains(&limit) {
        return Err(problem::invalid_field("limit", format!("must be between 1 and {PAGE_RECORDS_MAX}")));
    }
    if params.after.as_ref().is_some_and(|after| after.contains('\0')) {
        return Err(problem::invalid_field("after", "must be the `next` of the page before"));
    }
    let query = PageQuery { tenant, from, to, after: params.after, limit };
    Ok(Json(state.options.store.page(&query).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReceiptParams {
    batch: Option<String>,
}

pub(super) async fn receipts(
    State(state): State<AppState>,
    headers: HeaderMap,
    params: QueryParams<ReceiptParams>,
) -> Result<Json<Receipt>, Problem> {
    let tenant = state.tenant(&headers)?;
    let batch = parsed(params)?.batch.filter(|batch| !batch.is_empty() && !batch.contains('\0'));
    let batch = batch.ok_or_else(|| problem::invalid_field("batch", "must be the key of a batch"))?;
    let receipt = state.options.store.receipt(&tenant, &batch).await?;
    receipt.map(Json).ok_or_else(problem::no_receipt)
}

fn csv_columns(query: &ReportQuery) -> Vec<&'static str> {
    let mut columns = query.columns();
    if query.group_by.contains(&GroupBy::App) {
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

fn parsed<T>(params: QueryParams<T>) -> Result<T, Problem> {
    match params {
        Ok(Params(params)) => Ok(params),
        Err(rejection) => Err(problem::invalid_field("query", rejection.body_text())),
    }
}

fn parse_days(from: Option<&str>, to: Option<&str>) -> Result<(Option<Date>, Option<Date>), Problem> {
    let read = |field: &str, text: Option<&str>| match text {
        None => Ok(None),
        Some(text) => {
            let read = day::parse(text).filter(|day| day.year() > 0).map(Some);
            read.ok_or_else(|| problem::invalid_field(field, "must be a day in the form YYYY-MM-DD"))
        }
    };
    let (from, to) = (read("from", from)?, read("to", to)?);
    match (from, to) {
        (Some(first), Some(last)) if first > last => {
            Err(problem::invalid_field("to", "must not be before from"))
        }
        _ => Ok((from, to)),
    }
}

fn parse_group_by(text: Option<&str>) -> Result<Vec<GroupBy>, Problem> {
    let mut groups = Vec::new();
    for name in text.unwrap_or("day").split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let known = GroupBy::NAMES.iter().find(|(known, _)| *known == name);
        let (_, by) = known.ok_or_else(|| {
            problem::invalid_field("group_by", "must be a comma-separated list of day, model, app and user")
        })?;
        if !groups.contains(by) {
            groups.push(*by);
        }
    }
    Ok(groups)
}
