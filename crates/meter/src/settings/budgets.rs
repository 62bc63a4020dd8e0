//! `[[meter.budgets]]`.

use ichido_settings::Invalid;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::budget::{Budget, Limit, amount};

/// The most entries.
const BUDGETS_MAX: usize = 100;

/// One of `[[meter.budgets]]` as it was written.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawBudget {
    /// The tenant. It may be left out if there is only one.
    tenant: Option<String>,
    /// Only this app, by its id. Default: all apps of the tenant.
    app: Option<String>,
    /// The cost per month, as a decimal in quotes, such as `"100.00"`.
    month_cost: Option<String>,
    /// With `month_cost`: its currency, such as `USD`.
    currency: Option<String>,
    /// The tokens per month.
    month_tokens: Option<u64>,
}

/// Checks the budgets. One with a cost and tokens is two.
pub(super) fn check_budgets(raw: &[RawBudget], tenants: &[String]) -> Result<Vec<Budget>, Invalid> {
    if raw.len() > BUDGETS_MAX {
        return Err(Invalid::new("meter.budgets", format!("must not have more than {BUDGETS_MAX} entries")));
    }
    let mut budgets: Vec<Budget> = Vec::new();
    for (at, raw) in raw.iter().enumerate() {
        let wrong = |field: &str, problem: &str| {
            let dot = if field.is_empty() { "" } else { "." };
            Invalid::new(format!("meter.budgets[{at}]{dot}{field}"), problem)
        };
        let tenant = match (&raw.tenant, tenants) {
            (Some(tenant), _) if tenant.is_empty() => return Err(wrong("tenant", "must not be empty")),
            (Some(tenant), _) => tenant.clone(),
            (None, [only]) => only.clone(),
            (None, _) => return Err(wrong("tenant", "is missing: the meter has several tenants")),
        };
        let mut limits = Vec::new();
        match (&raw.month_cost, &raw.currency) {
            (Some(cost), Some(currency)) => {
                let amount = amount(cost).map_err(|problem| wrong("month_cost", problem))?;
                if currency.len() != 3 || !currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
                    return Err(wrong("currency", "must be three capital letters, such as USD"));
                }
                limits.push(Limit::Cost { amount, currency: currency.clone() });
            }
            (Some(_), None) => return Err(wrong("currency", "is missing: set the currency of month_cost")),
            (None, Some(_)) => {
                return Err(wrong("month_cost", "is missing: set the amount, or remove currency"));
            }
            (None, None) => {}
        }
        match raw.month_tokens {
            Some(0) => return Err(wrong("month_tokens", "must be more than 0")),
            Some(tokens) => limits.push(Limit::Tokens(tokens)),
            None => {}
        }
        if limits.is_empty() {
            return Err(wrong("", "sets no limit: set month_cost and currency, or month_tokens"));
        }
        let app = raw.app.clone().filter(|app| !app.is_empty());
        for limit in limits {
            let budget = Budget { tenant: tenant.clone(), app: app.clone(), limit };
            if budgets.contains(&budget) {
                return Err(wrong("", "is the same as another budget"));
            }
            budgets.push(budget);
        }
    }
    Ok(budgets)
}
