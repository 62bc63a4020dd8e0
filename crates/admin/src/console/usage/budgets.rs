//! The budgets of the shown tenant, for the month of the last shown day.

use ichido_meter::budget::BudgetStatus;
use ichido_serve::visible;
use jiff::civil::Date;
use maud::{Markup, html};

use super::super::page::table_under_heading;
use super::super::translations::Translations;
use crate::state::UsageSource;

/// How much of each budget is used.
pub(super) async fn read(usage: &UsageSource, tenant: &str, day: Date) -> Result<Vec<BudgetStatus>, String> {
    let mut statuses = Vec::new();
    for budget in usage.budgets.iter().filter(|budget| budget.tenant == tenant) {
        let status = budget.status(&*usage.store, day).await;
        statuses.push(status.map_err(|error| error.to_string())?);
    }
    Ok(statuses)
}

pub(super) fn section(statuses: &[BudgetStatus], t: &Translations) -> Markup {
    let Some(first) = statuses.first() else { return html! {} };
    let row = |status: &BudgetStatus| {
        vec![
            html! { span.key { (status.app.as_deref().map_or(t.all_apps.into(), visible)) } },
            html! { span.amount { (status.used) " " (unit(status, t)) } },
            html! { span.amount { (status.limit) " " (unit(status, t)) } },
            html! { (status.percent) " %" },
        ]
    };
    let rows: Vec<_> = statuses.iter().map(row).collect();
    let title = format!("{}{}", t.budgets, t.in_parentheses(&first.month));
    html! {
        section {
            h2 { (title) }
            (table_under_heading(&title, &[t.app, t.budget_used, t.budget_limit, t.budget_part], &rows))
        }
    }
}

fn unit<'a>(status: &'a BudgetStatus, t: &'a Translations) -> &'a str {
    if status.unit == "tokens" { t.budget_tokens } else { &status.unit }
}
