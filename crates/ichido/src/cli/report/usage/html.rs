//! A statement as one page of HTML: no scripts, nothing from elsewhere, and fit for printing.

use ichido_meter::statement::{Change, Row, Sums};
use ichido_serve::visible;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::html_texts::{Texts, difference, texts};
use super::statement::{Reconciliation, Statement};
use super::text::{app_of, signed};
use crate::args::StatementLanguage;

const STYLE: &str = "\
:root{color-scheme:light;font:15px/1.5 system-ui,'Hiragino Sans','Noto Sans JP',sans-serif;color:#1a1a1a;background:#fff}\
body{max-width:70rem;margin:2rem auto;padding:0 1rem}h1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:2rem}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1.5rem}dt{color:#555}dd{margin:0}\
table{border-collapse:collapse;width:100%}th,td{padding:.3rem .6rem;border-bottom:1px solid #ccc;text-align:left;\
vertical-align:top;overflow-wrap:anywhere}th{border-bottom:2px solid #555}\
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}.h{color:#555}code{overflow-wrap:anywhere}\
@media print{body{max-width:none;margin:0;padding:0;font-size:11px}thead{display:table-header-group}tr{break-inside:avoid}\
h2{break-after:avoid}}";

/// A column, and whether it has numbers.
type Head<'a> = (&'a str, bool);

pub(super) fn page(statement: &Statement, language: StatementLanguage) -> String {
    let t = texts(language);
    let usage = &statement.usage;
    let title = format!("{} {}", t.title, usage.month);
    let page = html! {
        (DOCTYPE)
        html lang=(t.lang) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                dl {
                    dt { (t.tenant) } dd { (visible(&usage.tenant)) }
                    dt { (t.app) } dd { (usage.app.as_deref().map_or(t.all_apps.into(), visible)) }
                    dt { (t.created_at) } dd { (time(&statement.created_at)) }
                }
                @if !statement.month_is_over { p { strong { (t.month_open) } } }
                (totals(statement, t))
                (rows(statement, t))
                (changes(statement, t))
                (repeats(statement, t))
                (reconciliation(statement.reconciliation.as_ref(), language, t))
                (budgets(statement, t))
                h2 { (t.digest) }
                p { code { (statement.digest) } }
                p.h { (t.digest_hint) " " code { "ichido report usage --verify FILE" } }
            }
        }
    };
    page.into_string() + "\n"
}

fn totals(statement: &Statement, t: &Texts) -> Markup {
    if statement.totals.is_empty() {
        return html! { h2 { (t.totals) } p { (t.nothing) } };
    }
    let heads = [
        (t.covers, false),
        (t.records, true),
        (t.calls, true),
        (t.tokens_in, true),
        (t.tokens_out, true),
        (t.cost, true),
    ];
    let lines = statement.totals.iter().map(|total| {
        let Sums { records, request_count, input_tokens, output_tokens, cost, .. } = &total.sums;
        let mut cells = vec![total.aggregation_method.clone()];
        cells.extend([*records, *request_count, *input_tokens, *output_tokens].map(grouped));
        cells.push(format!("{cost} {}", total.currency));
        cells
    });
    html! { h2 { (t.totals) } (table(&heads, lines)) p.h { (t.totals_hint) } }
}

fn rows(statement: &Statement, t: &Texts) -> Markup {
    if statement.usage.rows.is_empty() {
        return html! {};
    }
    let heads = [
        (t.app, false),
        (t.user, false),
        (t.model, false),
        (t.covers, false),
        (t.calls, true),
        (t.tokens_in, true),
        (t.tokens_out, true),
        (t.cost, true),
    ];
    let lines = statement.usage.rows.iter().map(|Row { key, app_name, sums }| {
        let mut cells = vec![
            app_of(app_name, &key.app_id).to_owned(),
            key.user_id.clone(),
            format!("{} {}", key.provider, key.model),
            key.aggregation_method.clone(),
        ];
        cells.extend([sums.request_count, sums.input_tokens, sums.output_tokens].map(grouped));
        cells.push(format!("{} {}", sums.cost, key.currency));
        cells
    });
    html! { h2 { (t.rows) } (table(&heads, lines)) }
}

fn changes(statement: &Statement, t: &Texts) -> Markup {
    let Some(changes) = &statement.changes else {
        return html! { h2 { (t.changes) } p { (t.first) } };
    };
    if changes.rows.is_empty() {
        return html! { h2 { (t.changes) } p { (around(t.no_changes, &time(&changes.since))) } };
    }
    let heads = [
        (t.app, false),
        (t.user, false),
        (t.model, false),
        (t.covers, false),
        (t.counted_later, true),
        (t.replaced, true),
        (t.tokens, true),
        (t.difference, true),
    ];
    let lines = changes.rows.iter().map(|change| {
        let Change {
            key, app_name, counted_later, replaced, total_tokens_difference, cost_difference, ..
        } = change;
        vec![
            app_of(app_name, &key.app_id).to_owned(),
            key.user_id.clone(),
            format!("{} {}", key.provider, key.model),
            key.aggregation_method.clone(),
            grouped(*counted_later),
            grouped(*replaced),
            signed(&grouped(*total_tokens_difference)),
            format!("{} {}", signed(cost_difference), key.currency),
        ]
    });
    html! {
        h2 { (t.changes) }
        p { (around(t.since, &time(&changes.since))) code { (changes.previous_digest) } }
        (table(&heads, lines))
    }
}

fn repeats(statement: &Statement, t: &Texts) -> Markup {
    let repeats = &statement.repeats;
    html! {
        h2 { (t.repeats) }
        dl {
            dt { (t.duplicates) } dd { (grouped(repeats.duplicates)) }
            dt { (t.conflicts) } dd { (grouped(repeats.conflicts)) }
            dt { (t.stale) } dd { (grouped(repeats.stale)) }
            dt { (t.replaced_records) } dd { (grouped(repeats.replaced)) }
        }
        @if let Some(since) = &repeats.counted_since { p.h { (around(t.repeats_since, &time(since))) } }
    }
}

fn reconciliation(reconciliation: Option<&Reconciliation>, language: StatementLanguage, t: &Texts) -> Markup {
    let Some(found) = reconciliation else {
        return html! { h2 { (t.reconciliation) } p { (t.not_reconciled) } };
    };
    let lines = found.found.iter().map(|found| {
        vec![found.period.clone(), found.id.clone(), difference(found.what, language).to_owned()]
    });
    html! {
        h2 { (t.reconciliation) }
        dl {
            dt { (t.reconciled_at) } dd { (time(&found.last_at)) }
            dt { (t.periods) } dd { (found.periods) }
            dt { (t.differences) } dd { (found.differences) }
        }
        @if !found.receiver_answers { p { (t.receiver_silent) } }
        @if !found.found.is_empty() {
            (table(&[(t.period, false), (t.record, false), (t.deviation, false)], lines))
        }
    }
}

fn budgets(statement: &Statement, t: &Texts) -> Markup {
    if statement.budgets.is_empty() {
        return html! {};
    }
    let lines = statement.budgets.iter().map(|budget| {
        let unit = if budget.unit == "tokens" { t.unit_tokens } else { &budget.unit };
        vec![
            budget.app.clone().unwrap_or_else(|| t.all_apps.to_owned()),
            format!("{} {unit}", budget.used),
            format!("{} {unit}", budget.limit),
            format!("{} %", budget.percent),
        ]
    });
    let heads = [(t.app, false), (t.used, true), (t.limit, true), (t.part, true)];
    html! { h2 { (t.budgets) } (table(&heads, lines)) }
}

fn table(heads: &[Head<'_>], lines: impl Iterator<Item = Vec<String>>) -> Markup {
    html! {
        table {
            thead { tr { @for (head, is_number) in heads { th.n[*is_number] scope="col" { (head) } } } }
            tbody {
                @for line in lines {
                    tr { @for (cell, (_, is_number)) in line.iter().zip(heads) { td.n[*is_number] { (visible(cell)) } } }
                }
            }
        }
    }
}

fn time(text: &str) -> Markup {
    html! { time datetime=(text) { (text) } }
}

/// A text with its placeholder filled.
fn around(text: &str, value: &Markup) -> Markup {
    let (before, after) = text.split_once("{}").unwrap_or((text, ""));
    html! { (before) (value) (after) }
}

/// A number with separators: 1,234,567.
fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = if number < 0 { "-".to_owned() } else { String::new() };
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators() {
        let numbers = [0, 12, 123, 1_234, -1_234_567, 100_000].map(grouped);
        assert_eq!(numbers, ["0", "12", "123", "1,234", "-1,234,567", "100,000"]);
    }
}
