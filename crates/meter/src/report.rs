//! What was counted, summed.
//!
//! Sums never mix currencies, nor days with weeks or months: both always tell groups apart.

use jiff::civil::Date;
use serde::Serialize;

/// Groups in one report at most.
pub const MOST_GROUPS: usize = 100_000;
/// Records on one page at most.
pub const MOST_RECORDS: usize = 10_000;

/// What records are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// The day, or the first day of the week or month.
    Day,
    /// Provider and model.
    Model,
    /// The app.
    App,
    /// The user.
    User,
}

impl By {
    /// Its word.
    pub const WORDS: [(&'static str, Self); 4] =
        [("day", Self::Day), ("model", Self::Model), ("app", Self::App), ("user", Self::User)];

    /// The columns that tell groups apart; the name of an app is the last one that was told.
    pub(crate) fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Day => &["usage_date"],
            Self::Model => &["provider", "model"],
            Self::App => &["app_id"],
            Self::User => &["user_type", "user_id"],
        }
    }
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Query {
    /// Whose usage.
    pub tenant: String,
    /// The first day.
    pub from: Option<Date>,
    /// The last day.
    pub to: Option<Date>,
    /// What is told apart; nothing gives one sum.
    pub by: Vec<By>,
}

/// Days as texts that compare like days.
fn days(from: Option<Date>, to: Option<Date>) -> (String, String) {
    let text = |day: Option<Date>, open: &str| day.map_or_else(|| open.to_owned(), |day| day.to_string());
    (text(from, "0001-01-01"), text(to, "9999-12-31"))
}

impl Query {
    pub(crate) fn days(&self) -> (String, String) {
        days(self.from, self.to)
    }

    /// The columns of the groups.
    pub(crate) fn columns(&self) -> Vec<&'static str> {
        self.by.iter().flat_map(|by| by.columns()).copied().collect()
    }
}

/// One group's sums.
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
    /// The app; empty for records of all apps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_id: Option<String>,
    /// The name of the app.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_name: Option<String>,
    /// The kind of user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_type: Option<String>,
    /// The user; empty for records of all users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// What each record is a sum of.
    pub aggregation_method: String,
    /// The money.
    pub currency: String,
    /// Records.
    pub records: i64,
    /// Calls.
    pub request_count: i64,
    /// Tokens of prompts.
    pub input_tokens: i64,
    /// Tokens of answers.
    pub output_tokens: i64,
    /// Both together.
    pub total_tokens: i64,
    /// What it cost: all digits, as text, so that no reader makes a float of it.
    pub cost_actual: String,
}

impl Group {
    /// The field of a column.
    pub(crate) fn field(&mut self, column: &str) -> Option<&mut Option<String>> {
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

/// Records one by one, in the order of their places: what is asked.
#[derive(Clone, Debug)]
pub struct PageQuery {
    /// Whose records.
    pub tenant: String,
    /// The first day.
    pub from: Option<Date>,
    /// The last day.
    pub to: Option<Date>,
    /// After this record: the `next` of the page before.
    pub after: Option<String>,
    /// How many.
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
    pub records: Vec<Line>,
    /// What to ask for next; nothing at the end.
    pub next: Option<String>,
}

impl Page {
    /// The page of one line more than was asked for, each with its place.
    pub(crate) fn cut(mut lines: Vec<(String, Line)>, limit: usize) -> Self {
        let more = lines.len() > limit;
        lines.truncate(limit);
        let next = lines.last().filter(|_| more).map(|(place, _)| place.clone());
        Self { records: lines.into_iter().map(|(_, line)| line).collect(), next }
    }
}

/// A record as it is counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The day.
    pub usage_date: String,
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// Tokens of prompts.
    pub input_tokens: i64,
    /// Tokens of answers.
    pub output_tokens: i64,
    /// Both together.
    pub total_tokens: i64,
    /// Calls.
    pub request_count: i64,
    /// What it cost: all digits, as text.
    pub cost_actual: String,
    /// The money.
    pub currency: String,
    /// The id.
    pub source_event_id: String,
    /// The app.
    pub app_id: String,
    /// The user.
    pub user_id: String,
    /// What the record is a sum of.
    pub aggregation_method: String,
}
