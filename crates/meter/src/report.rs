//! Queries over what was counted.
//!
//! Sums never mix currencies, nor days with weeks or months: groups are always kept apart by both.

use jiff::civil::Date;
use serde::Serialize;

/// The most groups in a report.
pub const GROUPS_MAX: usize = 100_000;
/// The most records on a page.
pub const PAGE_RECORDS_MAX: usize = 10_000;

/// What records are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupBy {
    /// The day, or the first day of the week or month.
    Day,
    /// Provider and model.
    Model,
    /// The app.
    App,
    /// The user.
    User,
}

impl GroupBy {
    /// The names on the wire.
    pub const NAMES: [(&'static str, Self); 4] =
        [("day", Self::Day), ("model", Self::Model), ("app", Self::App), ("user", Self::User)];

    /// The columns that define groups. The name of an app is not one of them: it may change.
    pub(crate) fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Day => &["usage_date"],
            Self::Model => &["provider", "model"],
            Self::App => &["app_id"],
            Self::User => &["user_type", "user_id"],
        }
    }
}

/// A query for a report.
#[derive(Clone, Debug, Default)]
pub struct ReportQuery {
    /// The tenant.
    pub tenant: String,
    /// The first day.
    pub from: Option<Date>,
    /// The last day.
    pub to: Option<Date>,
    /// What to group by; if empty, the report is one sum per currency and aggregation method.
    pub group_by: Vec<GroupBy>,
    /// Only records of this app.
    pub app: Option<String>,
    /// Count the records of each group that were written after this time, in milliseconds since the epoch.
    pub written_after: Option<i64>,
}

/// Days as text that sorts like the days.
fn days(from: Option<Date>, to: Option<Date>) -> (String, String) {
    let text = |day: Option<Date>, open: &str| day.map_or_else(|| open.to_owned(), |day| day.to_string());
    (text(from, "0001-01-01"), text(to, "9999-12-31"))
}

impl ReportQuery {
    pub(crate) fn days(&self) -> (String, String) {
        days(self.from, self.to)
    }

    /// The columns that define groups.
    pub(crate) fn columns(&self) -> Vec<&'static str> {
        self.group_by.iter().flat_map(|by| by.columns()).copied().collect()
    }
}

/// The sums of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Group {
    /// The day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_date: Option<String>,
    /// The provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The app; empty for records that cover all apps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_id: Option<String>,
    /// The name of the app.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_name: Option<String>,
    /// The kind of user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_type: Option<String>,
    /// The user; empty for records that cover all users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// What each record covers.
    pub aggregation_method: String,
    /// The currency.
    pub currency: String,
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
    /// The cost, as text with all its digits, so that no reader turns it into a float.
    pub cost_actual: String,
    /// The number of records that were written after the time in the query.
    #[serde(skip)]
    pub written_after: i64,
}

impl Group {
    /// The field of a column.
    pub(crate) fn column_mut(&mut self, column: &str) -> Option<&mut Option<String>> {
        match column {
            "usage_date" => Some(&mut self.usage_date),
            "provider" => Some(&mut self.provider),
            "model" => Some(&mut self.model),
            "app_id" => Some(&mut self.app_id),
            "app_name" => Some(&mut self.app_name),
            "user_type" => Some(&mut self.user_type),
            "user_id" => Some(&mut self.user_id),
            _ => None,
        }
    }
}

/// A query for single records, in the order of their slots.
#[derive(Clone, Debug)]
pub struct PageQuery {
    /// The tenant.
    pub tenant: String,
    /// The first day.
    pub from: Option<Date>,
    /// The last day.
    pub to: Option<Date>,
    /// Start after this record: the `next` of the page before.
    pub after: Option<String>,
    /// The most records to return.
    pub limit: usize,
}

impl PageQuery {
    pub(crate) fn days(&self) -> (String, String) {
        days(self.from, self.to)
    }
}

/// A page of records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Page {
    /// The records.
    pub records: Vec<CountedRecord>,
    /// The `after` of the next page; `None` on the last page.
    pub next: Option<String>,
}

impl Page {
    /// Creates a page from one record more than was asked for, each with its slot.
    pub(crate) fn new(mut records: Vec<(String, CountedRecord)>, limit: usize) -> Self {
        let more = records.len() > limit;
        records.truncate(limit);
        let next = records.last().filter(|_| more).map(|(slot, _)| slot.clone());
        Self { records: records.into_iter().map(|(_, record)| record).collect(), next }
    }
}

/// A record as it was counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CountedRecord {
    /// The day.
    pub usage_date: String,
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// Prompt tokens.
    pub input_tokens: i64,
    /// Completion tokens.
    pub output_tokens: i64,
    /// Both together.
    pub total_tokens: i64,
    /// The number of model calls.
    pub request_count: i64,
    /// The cost, as text with all its digits.
    pub cost_actual: String,
    /// The currency.
    pub currency: String,
    /// The id.
    pub source_event_id: String,
    /// The app.
    pub app_id: String,
    /// The user.
    pub user_id: String,
    /// What the record covers.
    pub aggregation_method: String,
}

/// A record that was looked up by its id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FoundRecord {
    /// The record.
    pub record: CountedRecord,
    /// When it was received last, in milliseconds since 1970.
    pub received_at: i64,
    /// The key of the batch that it came in.
    pub batch: Option<String>,
}
