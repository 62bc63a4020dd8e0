//! Statements for terminals, spreadsheets and programs.

use std::fmt::Write;

use ichido_meter::csv::defused;
use ichido_meter::statement::{Row, RowKey, Sums};

use super::statement::{Reconciliation, RepeatedRecords, Statement};
use crate::output;
use ichido_serve::Failure;

const CSV_COLUMNS: [&str; 16] = [
    "month",
    "tenant",
    "app_id",
    "app_name",
    "user_type",
    "user_id",
    "provider",
    "model",
    "aggregation_method",
    "currency",
    "records",
    "request_count",
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "cost",
];

pub(super) fn json(statement: &Statement) -> Result<String, Failure> {
    let json = serde_json::to_string_pretty(statement);
    json.map(|json| json + "\n").map_err(|error| Failure::internal(format!("cannot write JSON: {error}")))
}

/// The rows as CSV (RFC 4180).
pub(super) fn csv(statement: &Statement) -> String {
    let mut writer = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(Vec::new());
    // Writing to memory does not fail, and every line has as many cells as the header.
    let _ = writer.write_record(CSV_COLUMNS);
    for Row { key, app_name, sums } in &statement.usage.rows {
        let RowKey { app_id, user_type, user_id, provider, model, aggregation_method, currency } = key;
        let texts = [
            &statement.usage.month,
            &statement.usage.tenant,
            app_id,
            app_name,
            user_type,
            user_id,
            provider,
            model,
        ];
        let texts = texts.into_iter().chain([aggregation_method, currency]);
        let Sums { records, request_count, input_tokens, output_tokens, total_tokens, cost } = sums;
        let numbers = [records, request_count, input_tokens, output_tokens, total_tokens];
        let cells = texts.map(|text| defused(text).into_owned());
        let cells = cells.chain(numbers.into_iter().map(ToString::to_string)).chain([cost.clone()]);
        let _ = writer.write_record(cells.collect::<Vec<_>>());
    }
    writer.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

/// The statement for a terminal.
pub(super) fn table(statement: &Statement) -> String {
    let mut text = String::new();
    let usage = &statement.usage;
    let app = usage.app.as_ref().map_or_else(String::new, |app| format!(", app {app}"));
    let open = if statement.month_is_over { "" } else { " (the month is not over)" };
    let _ = writeln!(
        text,
        "usage of {} for tenant {}{app}, at {}{open}",
        usage.month, usage.tenant, statement.created_at
    );
    if usage.rows.is_empty() {
        let _ = writeln!(text, "nothing was counted");
    } else {
        let _ = writeln!(text, "{}", rows(statement));
        for total in &statement.totals {
            let Sums { records, request_count, input_tokens, output_tokens, total_tokens, cost } =
                &total.sums;
            let _ = writeln!(
                text,
                "total ({}): {cost} {}, {total_tokens} tokens ({input_tokens} in, {output_tokens} out), {request_count} calls, \
                 {records} records",
                total.aggregation_method, total.currency
            );
        }
    }
    changes(statement, &mut text);
    let _ = writeln!(text, "{}", repeats(&statement.repeats));
    reconciliation(statement.reconciliation.as_ref(), &mut text);
    for budget in &statement.budgets {
        let of = budget.app.as_ref().map_or_else(|| "all apps".to_owned(), |app| format!("app {app}"));
        let _ = writeln!(
            text,
            "budget of {of}: {} of {} {} used ({} %)",
            budget.used, budget.limit, budget.unit, budget.percent
        );
    }
    let _ = writeln!(text, "digest {}", statement.digest);
    text
}

fn rows(statement: &Statement) -> output::Table {
    let mut table =
        output::table(&["app", "user", "model", "covers", "calls", "input", "output", "cost", ""]);
    for Row { key, app_name, sums } in &statement.usage.rows {
        table.add_row([
            app_of(app_name, &key.app_id).to_owned(),
            key.user_id.clone(),
            format!("{} {}", key.provider, key.model),
            key.aggregation_method.clone(),
            sums.request_count.to_string(),
            sums.input_tokens.to_string(),
            sums.output_tokens.to_string(),
            sums.cost.clone(),
            key.currency.clone(),
        ]);
    }
    table
}

fn changes(statement: &Statement, text: &mut String) {
    let Some(changes) = &statement.changes else {
        let _ = writeln!(text, "changes: this is the first statement of the month");
        return;
    };
    if changes.rows.is_empty() {
        let _ = writeln!(text, "changes since the statement of {}: none", changes.since);
        return;
    }
    let _ = writeln!(text, "changes since the statement of {}:", changes.since);
    let mut table =
        output::table(&["app", "user", "model", "covers", "counted later", "replaced", "tokens", "cost", ""]);
    for change in &changes.rows {
        table.add_row([
            app_of(&change.app_name, &change.key.app_id).to_owned(),
            change.key.user_id.clone(),
            format!("{} {}", change.key.provider, change.key.model),
            change.key.aggregation_method.clone(),
            change.counted_later.to_string(),
            change.replaced.to_string(),
            signed(&change.total_tokens_difference.to_string()),
            signed(&change.cost_difference),
            change.key.currency.clone(),
        ]);
    }
    let _ = writeln!(text, "{table}");
}

fn repeats(repeats: &RepeatedRecords) -> String {
    let RepeatedRecords { duplicates, conflicts, stale, replaced, counted_since } = repeats;
    let since = counted_since.as_ref().map_or_else(String::new, |since| format!(", counted since {since}"));
    format!(
        "refused: {} ({duplicates} duplicates, {conflicts} conflicts, {stale} stale); replaced: {replaced}{since}",
        output::count(repeats.refused().unsigned_abs(), "record", "records"),
    )
}

fn reconciliation(reconciliation: Option<&Reconciliation>, text: &mut String) {
    let Some(Reconciliation { last_at, periods, receiver_answers, differences, found }) = reconciliation
    else {
        let _ = writeln!(text, "reconciliation: none was run here for this month (ichido reconcile)");
        return;
    };
    let counted = if *receiver_answers { "" } else { "; the receiver did not say what it counted" };
    let _ = writeln!(
        text,
        "reconciliation: {} in {}, last run at {last_at}{counted}",
        output::count(*differences as u64, "difference", "differences"),
        output::count(*periods as u64, "period", "periods"),
    );
    for difference in found {
        let _ = writeln!(text, "  {} {}: {}", difference.period, difference.id, difference.what.describe());
    }
}

/// The name of an app, or its id.
pub(super) fn app_of<'a>(name: &'a str, id: &'a str) -> &'a str {
    if name.is_empty() { id } else { name }
}

/// A difference with its sign.
pub(super) fn signed(number: &str) -> String {
    if number == "0" || number.starts_with('-') { number.to_owned() } else { format!("+{number}") }
}
