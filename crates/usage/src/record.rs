//! What a receiver takes: the record and the envelope of API_Meter, field for field.
//!
//! `cost_actual` is a JSON number with the decimal's own digits. Fields that are not known here are passed over when a record is read.

use jiff::Timestamp;
use jiff::civil::Date;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::event::UserKind;
use crate::money;
use crate::period::Period;

/// `source_system` of everything that comes from Dify.
pub const SOURCE_SYSTEM: &str = "dify";
/// The longest text in any field, in bytes.
pub const LONGEST_TEXT: usize = 2048;

/// A sum of usage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The day, or the first day of the week or month.
    #[serde(with = "day")]
    pub usage_date: Date,
    /// The provider, normalised.
    pub provider: String,
    /// The model, normalised.
    pub model: String,
    /// Tokens of prompts.
    pub input_tokens: u64,
    /// Tokens of answers.
    pub output_tokens: u64,
    /// Both together.
    pub total_tokens: u64,
    /// How many calls.
    pub request_count: u64,
    /// What it cost.
    #[serde(with = "money")]
    pub cost_actual: Decimal,
    /// In which money.
    pub currency: String,
    /// Where it comes from.
    pub metadata: Metadata,
}

/// Where a record comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// `dify`
    pub source_system: String,
    /// The id under which it is counted once.
    pub source_event_id: String,
    /// The app; empty if the record is of all apps.
    #[serde(default)]
    pub source_app_id: String,
    /// The app's name.
    #[serde(default)]
    pub source_app_name: String,
    /// `daily_sum`, `weekly_sum` or `monthly_sum`.
    #[serde(default)]
    pub aggregation_method: String,
    /// The user. Not in API_Meter's schema: without it nobody could count by user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_user_id: Option<String>,
    /// What kind of user it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_user_type: Option<UserKind>,
    /// How many of the calls only tried an app out; not there if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debugger_request_count: Option<u64>,
}

/// Records on their way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope<R = Record> {
    /// Whose they are.
    pub tenant_id: String,
    /// What they are.
    pub export_metadata: ExportMetadata,
    /// The records. Read as raw values (`Envelope<Box<RawValue>>`), a broken one does not hide the others.
    pub records: Vec<R>,
}

/// What the records of an envelope are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportMetadata {
    /// The version of the exporter.
    pub exporter_version: String,
    /// When they were exported.
    #[serde(with = "moment")]
    pub export_timestamp: Timestamp,
    /// What each record sums up.
    pub aggregation_period: Period,
    /// `dify`
    pub source_system: String,
    /// The days they tell of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date_range: Option<DateRange>,
}

/// The first and the last day. Some exporters write days and some moments, so both are only kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DateRange {
    /// The first day.
    pub start: String,
    /// The last day.
    pub end: String,
}

/// Why a record is refused: the field, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {reason}")]
pub struct Error {
    /// The field's name.
    pub field: &'static str,
    /// What is wrong.
    pub reason: String,
}

impl Record {
    /// Whether the record makes sense in itself.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |field, reason: &str| Err(Error { field, reason: reason.to_owned() });
        for (field, text) in [
            ("provider", &self.provider),
            ("model", &self.model),
            ("metadata.source_system", &self.metadata.source_system),
            ("metadata.source_event_id", &self.metadata.source_event_id),
        ] {
            if text.trim().is_empty() {
                return refuse(field, "must not be empty");
            }
        }
        if let Some((field, _)) = self.texts().into_iter().find(|(_, text)| text.len() > LONGEST_TEXT) {
            return refuse(field, "is too long");
        }
        if self.input_tokens.checked_add(self.output_tokens) != Some(self.total_tokens) {
            return refuse("total_tokens", "must be input_tokens + output_tokens");
        }
        if self.cost_actual.is_sign_negative() && !self.cost_actual.is_zero() {
            return refuse("cost_actual", "must not be negative");
        }
        if self.currency.len() != 3 || !self.currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return refuse("currency", "must be three capital letters, as in USD");
        }
        Ok(())
    }

    fn texts(&self) -> [(&'static str, &str); 6] {
        [
            ("provider", &self.provider),
            ("model", &self.model),
            ("metadata.source_system", &self.metadata.source_system),
            ("metadata.source_event_id", &self.metadata.source_event_id),
            ("metadata.source_app_id", &self.metadata.source_app_id),
            ("metadata.source_app_name", &self.metadata.source_app_name),
        ]
    }
}

/// A day as `YYYY-MM-DD`, and in no other form.
pub mod day {
    use std::borrow::Cow;

    use jiff::civil::Date;
    use serde::{Deserialize, Deserializer, Serializer, de};

    /// Reads a day.
    pub fn parse(text: &str) -> Option<Date> {
        let shape = text.bytes().enumerate().all(|(place, byte)| match place {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
        if text.len() == 10 && shape { text.parse().ok() } else { None }
    }

    /// Writes a day.
    pub fn serialize<S: Serializer>(day: &Date, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(day)
    }

    /// Reads a day from a string.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Date, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        parse(&text).ok_or_else(|| de::Error::custom("must be a day as YYYY-MM-DD"))
    }
}

/// A moment as RFC 3339 has it.
mod moment {
    use std::borrow::Cow;

    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(moment: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(moment)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(|_| de::Error::custom("must be a moment as 2025-11-29T12:00:00Z"))
    }
}
