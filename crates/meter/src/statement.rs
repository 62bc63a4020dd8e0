//! The usage statement of a month: what was counted for a tenant, by app, user and model, with a digest.
//!
//! The digest covers what was counted, and nothing that may change without it: not the names of apps, not how often
//! records arrived again, not when the statement was made. So a statement can be verified for as long as the meter has
//! its records. docs/meter.md says how the digest is computed.

mod changes;

use std::collections::BTreeMap;
use std::str::FromStr;

use ichido_core::to_hex;
use ichido_usage::money::Sum;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use self::changes::{Change, Changes, compare};
use crate::report::{Group, GroupBy, ReportQuery};
use crate::store::{Error, Result, Store};

const OPERATION: &str = "adding up a statement";
/// The first line of what is hashed.
const DIGEST_HEADER: &str = "ichido usage statement 1";

/// A month, as in `2026-11`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Month(Date);

impl FromStr for Month {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let wrong = "must be a month in the form YYYY-MM";
        let is_shaped = text.len() == 7 && text.as_bytes().get(4) == Some(&b'-');
        let first: Date = format!("{text}-01").parse().map_err(|_| wrong)?;
        if is_shaped && first.year() > 0 { Ok(Self(first)) } else { Err(wrong) }
    }
}

impl std::fmt::Display for Month {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.strftime("%Y-%m"))
    }
}

impl Month {
    /// Its first day.
    pub fn first(self) -> Date {
        self.0
    }

    /// Its last day.
    pub fn last(self) -> Date {
        self.0.last_of_month()
    }
}

/// What was counted for a tenant in a month.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// The tenant.
    pub tenant: String,
    /// The month, as in `2026-11`.
    pub month: String,
    /// Only this app.
    pub app: Option<String>,
    /// The sums, in the order of their keys.
    pub rows: Vec<Row>,
}

/// The sums of one app, user and model, in one currency and of one aggregation method.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// What the sums are for.
    #[serde(flatten)]
    pub key: RowKey,
    /// The name of the app. It is only a label.
    #[serde(default)]
    pub app_name: String,
    /// The sums.
    #[serde(flatten)]
    pub sums: Sums,
}

/// What sums are for. Sums with different keys are never added, unless only app, user and model differ.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RowKey {
    /// The app; empty for records that cover all apps.
    pub app_id: String,
    /// The kind of user.
    pub user_type: String,
    /// The user; empty for records that cover all users.
    pub user_id: String,
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// What each record covers.
    pub aggregation_method: String,
    /// The currency.
    pub currency: String,
}

/// Exact sums.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// The number of records.
    pub records: i64,
    /// The number of model calls.
    pub request_count: i64,
    /// Prompt tokens.
    pub input_tokens: i64,
    /// Completion tokens.
    pub output_tokens: i64,
    /// Both together.
    pub total_tokens: i64,
    /// The cost, as text with all its digits.
    pub cost: String,
}

/// The sums of everything with the same currency and aggregation method.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// What each record covers.
    pub aggregation_method: String,
    /// The currency.
    pub currency: String,
    /// The sums.
    #[serde(flatten)]
    pub sums: Sums,
}

/// What was counted, and how many records of each row were written after a time.
#[derive(Clone, Debug)]
pub struct ReadUsage {
    /// What was counted.
    pub usage: Usage,
    /// In the order of the rows.
    pub written_after: Vec<i64>,
}

impl Usage {
    /// Reads what a store has counted. `written_after` is in milliseconds since the epoch.
    pub async fn read(
        store: &dyn Store,
        tenant: &str,
        month: Month,
        app: Option<&str>,
        written_after: Option<i64>,
    ) -> Result<ReadUsage> {
        let query = ReportQuery {
            tenant: tenant.to_owned(),
            from: Some(month.first()),
            to: Some(month.last()),
            group_by: vec![GroupBy::App, GroupBy::User, GroupBy::Model],
            app: app.map(str::to_owned),
            written_after,
        };
        let groups = store.report(&query).await.map_err(|error| match error {
            Error::TooLarge(_) => {
                Error::TooLarge("the month has more than 100,000 rows: request one app at a time")
            }
            other @ (Error::Unavailable { .. } | Error::Settings(_) | Error::Corrupt { .. }) => other,
        })?;
        let mut rows: Vec<(Row, i64)> = groups.into_iter().map(Row::of).collect();
        rows.sort_by(|(one, _), (other, _)| one.key.cmp(&other.key));
        let (rows, written_after) = rows.into_iter().unzip();
        let (tenant, month) = (tenant.to_owned(), month.to_string());
        Ok(ReadUsage { usage: Self { tenant, month, app: app.map(str::to_owned), rows }, written_after })
    }

    /// The digest: `sha256:` and 64 hex digits.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        let mut line = |fields: &[&str]| {
            // JSON delimits the fields, whatever is in them.
            hash.update(serde_json::to_string(fields).unwrap_or_default());
            hash.update("\n");
        };
        line(&[DIGEST_HEADER, &self.tenant, &self.month, self.app.as_deref().unwrap_or_default()]);
        for Row { key, sums, .. } in &self.rows {
            let numbers =
                [sums.records, sums.request_count, sums.input_tokens, sums.output_tokens, sums.total_tokens];
            let numbers = numbers.map(|number| number.to_string());
            let [records, requests, input, output, total] = &numbers;
            line(&[
                &key.app_id,
                &key.user_type,
                &key.user_id,
                &key.provider,
                &key.model,
                &key.aggregation_method,
                &key.currency,
                records,
                requests,
                input,
                output,
                total,
                &sums.cost,
            ]);
        }
        format!("sha256:{}", to_hex(&hash.finalize()))
    }

    /// The sums by aggregation method and currency.
    pub fn totals(&self) -> Result<Vec<Total>> {
        let mut totals: BTreeMap<(&str, &str), (Sums, Sum)> = BTreeMap::new();
        for Row { key, sums, .. } in &self.rows {
            let (total, cost) = totals
                .entry((&key.aggregation_method, &key.currency))
                .or_insert_with(|| (Sums::zero(), Sum::default()));
            total.records += sums.records;
            total.request_count += sums.request_count;
            total.input_tokens += sums.input_tokens;
            total.output_tokens += sums.output_tokens;
            total.total_tokens += sums.total_tokens;
            Sum::parse(&sums.cost)
                .and_then(|amount| cost.join(amount))
                .map_err(|error| Error::corrupt(OPERATION, error))?;
        }
        let total = |((method, currency), (sums, cost)): ((&str, &str), (Sums, Sum))| Total {
            aggregation_method: method.to_owned(),
            currency: currency.to_owned(),
            sums: Sums { cost: cost.to_string(), ..sums },
        };
        Ok(totals.into_iter().map(total).collect())
    }
}

impl Row {
    fn of(group: Group) -> (Self, i64) {
        let key = RowKey {
            app_id: group.app_id.unwrap_or_default(),
            user_type: group.user_type.unwrap_or_default(),
            user_id: group.user_id.unwrap_or_default(),
            provider: group.provider.unwrap_or_default(),
            model: group.model.unwrap_or_default(),
            aggregation_method: group.aggregation_method,
            currency: group.currency,
        };
        let sums = Sums {
            records: group.records,
            request_count: group.request_count,
            input_tokens: group.input_tokens,
            output_tokens: group.output_tokens,
            total_tokens: group.total_tokens,
            cost: group.cost_actual,
        };
        (Self { key, app_name: group.app_name.unwrap_or_default(), sums }, group.written_after)
    }
}

impl Sums {
    fn zero() -> Self {
        Self {
            records: 0,
            request_count: 0,
            input_tokens: 0,
            output_tokens: 0,
            total_tokens: 0,
            cost: "0".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn month_has_one_form() {
        assert_eq!("2026-02".parse::<Month>().unwrap().last().to_string(), "2026-02-28");
        for wrong in ["2026", "2026-13", "2026-1", "26-01", "2026-01-01", "-026-01", "now"] {
            assert!(wrong.parse::<Month>().is_err(), "{wrong}");
        }
    }

    fn usage(app: &str, cost: &str) -> Usage {
        let key = RowKey {
            app_id: app.to_owned(),
            user_type: "end_user".to_owned(),
            user_id: "u\t1".to_owned(),
            provider: "openai".to_owned(),
            model: "gpt-4o".to_owned(),
            aggregation_method: "daily_sum".to_owned(),
            currency: "USD".to_owned(),
        };
        let sums = Sums { records: 2, request_count: 3, cost: cost.to_owned(), ..Sums::zero() };
        let row = Row { key, app_name: "Support".to_owned(), sums };
        Usage { tenant: "t".to_owned(), month: "2026-11".to_owned(), app: None, rows: vec![row] }
    }

    #[test]
    fn digest_is_that_of_the_documented_lines() {
        let text = "[\"ichido usage statement 1\",\"t\",\"2026-11\",\"\"]\n\
            [\"a\",\"end_user\",\"u\\t1\",\"openai\",\"gpt-4o\",\"daily_sum\",\"USD\",\"2\",\"3\",\"0\",\"0\",\"0\",\"0.1\"]\n";
        assert_eq!(usage("a", "0.1").digest(), format!("sha256:{}", to_hex(&Sha256::digest(text))));
        let mut renamed = usage("a", "0.1");
        renamed.rows[0].app_name = "Sales".to_owned();
        assert_eq!(renamed.digest(), usage("a", "0.1").digest());
        assert_ne!(usage("a", "0.2").digest(), usage("a", "0.1").digest());
        assert_ne!(usage("b", "0.1").digest(), usage("a", "0.1").digest());
    }
}
