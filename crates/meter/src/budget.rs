//! Monthly budgets, for a tenant or one of its apps.
//!
//! A budget limits tokens, or the cost in one currency. Sums of different aggregation methods cover the same usage, so they
//! are not added: the largest one counts.

use std::collections::BTreeMap;

use ichido_usage::money::{self, Sum};
use jiff::civil::Date;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

pub use crate::announcement::Announcement;
use crate::report::{Group, ReportQuery};
use crate::store::{Result, Store};

/// The parts of a budget, in percent, of which operators are notified.
pub const THRESHOLDS: [u8; 2] = [80, 100];

/// What may be used in a month.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The tenant.
    pub tenant: String,
    /// Only this app.
    pub app: Option<String>,
    /// What may be used.
    pub limit: Limit,
}

/// What may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Cost in one currency.
    Cost {
        /// The amount.
        amount: Decimal,
        /// The currency.
        currency: String,
    },
    /// Tokens of both kinds.
    Tokens(u64),
}

/// How much of a budget is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetStatus {
    /// The tenant.
    pub tenant: String,
    /// Only this app.
    pub app: Option<String>,
    /// The month, as in `2026-11`.
    pub month: String,
    /// `tokens`, or the currency.
    pub unit: String,
    /// What may be used, as an exact decimal.
    pub limit: String,
    /// What is used, as an exact decimal.
    pub used: String,
    /// The same as a part of the limit, in whole percent, rounded down.
    pub percent: u64,
}

impl Budget {
    /// How much of it is used in the month of `day`.
    pub async fn status(&self, store: &dyn Store, day: Date) -> Result<BudgetStatus> {
        let query = ReportQuery {
            tenant: self.tenant.clone(),
            from: Some(day.first_of_month()),
            to: Some(day.last_of_month()),
            app: self.app.clone(),
            ..ReportQuery::default()
        };
        Ok(self.status_of(&day.strftime("%Y-%m").to_string(), &store.report(&query).await?))
    }

    /// How much of it the sums of a month use.
    fn status_of(&self, month: &str, sums: &[Group]) -> BudgetStatus {
        let (unit, limit) = match &self.limit {
            Limit::Cost { amount, currency } => (currency.clone(), amount.normalize()),
            Limit::Tokens(tokens) => ("tokens".to_owned(), Decimal::from(*tokens)),
        };
        let mut by_method: BTreeMap<&str, Decimal> = BTreeMap::new();
        for sum in sums {
            let used = by_method.entry(&sum.aggregation_method).or_default();
            *used = used.saturating_add(self.used_by(sum));
        }
        let used = by_method.into_values().max().unwrap_or_default().normalize();
        BudgetStatus {
            tenant: self.tenant.clone(),
            app: self.app.clone(),
            month: month.to_owned(),
            unit,
            percent: percent(used, limit),
            limit: limit.to_string(),
            used: used.to_string(),
        }
    }

    fn used_by(&self, sum: &Group) -> Decimal {
        match &self.limit {
            Limit::Tokens(_) => Decimal::from(sum.total_tokens),
            Limit::Cost { currency, .. } if *currency == sum.currency => {
                // A sum with more digits than a decimal holds is far beyond any budget.
                Sum::parse(&sum.cost_actual).and_then(Sum::total).unwrap_or(Decimal::MAX)
            }
            Limit::Cost { .. } => Decimal::ZERO,
        }
    }
}

fn percent(used: Decimal, limit: Decimal) -> u64 {
    let percent = used.checked_div(limit).and_then(|part| part.checked_mul(Decimal::ONE_HUNDRED));
    percent.and_then(|percent| u64::try_from(percent.floor()).ok()).unwrap_or(u64::MAX)
}

impl BudgetStatus {
    /// Identifies the budget. A budget with another limit is another one, so its notices are sent as well.
    pub fn key(&self) -> String {
        let Self { tenant, app, unit, limit, .. } = self;
        serde_json::json!([tenant, app, unit, limit]).to_string()
    }

    /// The thresholds that are reached.
    pub fn reached(&self) -> impl Iterator<Item = Announcement> + '_ {
        let reached = THRESHOLDS.into_iter().filter(|threshold| self.percent >= u64::from(*threshold));
        reached.map(|threshold| Announcement { month: self.month.clone(), budget: self.key(), threshold })
    }
}

/// Parses the amount of a budget.
pub(crate) fn amount(text: &str) -> std::result::Result<Decimal, &'static str> {
    let amount = money::parse(text.trim()).map_err(|_| "must be a decimal such as \"100.00\"")?;
    match amount > Decimal::ZERO {
        true => Ok(amount),
        false => Err("must be more than 0"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(method: &str, currency: &str, tokens: i64, cost: &str) -> Group {
        Group {
            aggregation_method: method.to_owned(),
            currency: currency.to_owned(),
            total_tokens: tokens,
            cost_actual: cost.to_owned(),
            ..Group::default()
        }
    }

    fn budget(limit: Limit) -> Budget {
        Budget { tenant: "t".to_owned(), app: None, limit }
    }

    fn cost(amount: &str) -> Budget {
        budget(Limit::Cost { amount: amount.parse().unwrap(), currency: "USD".to_owned() })
    }

    #[test]
    fn neither_currencies_nor_aggregation_methods_are_added_up() {
        let sums = [
            sum("daily_sum", "USD", 100, "79.99"),
            sum("daily_sum", "JPY", 200, "9000"),
            sum("monthly_sum", "USD", 50, "60"),
        ];
        let of = |budget: Budget| budget.status_of("2026-11", &sums);
        let status = of(cost("100.00"));
        assert_eq!((status.used.as_str(), status.limit.as_str(), status.percent), ("79.99", "100", 79));
        assert_eq!(of(budget(Limit::Tokens(300))).percent, 100, "tokens have no currency");
        assert_eq!(of(budget(Limit::Tokens(301))).reached().count(), 1);
    }

    #[test]
    fn threshold_is_reached_exactly() {
        for (used, reached) in [("79.999999", 0), ("80", 1), ("99.99", 1), ("100.00", 2), ("1e9", 2)] {
            let used = money::parse(used).unwrap().to_string();
            let status = cost("100").status_of("2026-11", &[sum("daily_sum", "USD", 0, &used)]);
            assert_eq!(status.reached().count(), reached, "{used}");
        }
        assert_eq!(cost("100").status_of("2026-11", &[]).percent, 0);
    }
}
