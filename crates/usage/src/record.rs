//! The record that a receiver accepts: API_Meter's, field by field.
//!
//! `cost_actual` is a JSON number with all digits of the decimal. Unknown fields are ignored when a record is read.

use jiff::civil::Date;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::event::UserKind;
use crate::money;

/// The `source_system` of all usage from Dify.
pub const SOURCE_SYSTEM: &str = "dify";
/// The most bytes a text field may have.
pub const TEXT_MAX_BYTES: usize = 2048;
/// The largest count that every JSON reader keeps exactly.
pub const COUNT_MAX: u64 = (1 << 53) - 1;

/// The usage of one period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The day, or the first day of the week or month.
    #[serde(with = "day")]
    pub usage_date: Date,
    /// The normalized name of the provider.
    pub provider: String,
    /// The normalized name of the model.
    pub model: String,
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Completion tokens.
    pub output_tokens: u64,
    /// Both together.
    pub total_tokens: u64,
    /// The number of model calls.
    pub request_count: u64,
    /// The cost.
    #[serde(with = "money")]
    pub cost_actual: Decimal,
    /// The currency of the cost.
    pub currency: String,
    /// The origin of the record.
    pub metadata: Metadata,
}

/// The origin of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// `dify`
    pub source_system: String,
    /// The id that the record is deduplicated by.
    pub source_event_id: String,
    /// The app; empty if the record covers all apps.
    #[serde(default)]
    pub source_app_id: String,
    /// The app's name.
    #[serde(default)]
    pub source_app_name: String,
    /// `daily_sum`, `weekly_sum` or `monthly_sum`.
    #[serde(default)]
    pub aggregation_method: String,
    /// The user. Not in API_Meter's schema, but needed to count by user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_user_id: Option<String>,
    /// The kind of user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_user_type: Option<UserKind>,
    /// The number of calls that came from the debugger; absent if zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debugger_request_count: Option<u64>,
}

/// Why a record is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {reason}")]
pub struct Error {
    /// The invalid field.
    pub field: &'static str,
    /// What is wrong with it.
    pub reason: String,
}

impl Record {
    /// Checks that the record is consistent in itself.
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
        if let Some((field, _)) = self.texts().into_iter().find(|(_, text)| text.len() > TEXT_MAX_BYTES) {
            return refuse(field, "is too long");
        }
        if self.input_tokens.checked_add(self.output_tokens) != Some(self.total_tokens) {
            return refuse("total_tokens", "must be input_tokens + output_tokens");
        }
        for (field, count) in [("total_tokens", self.total_tokens), ("request_count", self.request_count)] {
            if count > COUNT_MAX {
                return refuse(field, "is larger than JSON readers keep exactly");
            }
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

/// A day in the form `YYYY-MM-DD`, and no other.
pub mod day {
    use std::borrow::Cow;

    use jiff::civil::Date;
    use serde::{Deserialize, Deserializer, Serializer, de};

    /// Parses a day.
    pub fn parse(text: &str) -> Option<Date> {
        if has_shape(text) { text.parse().ok() } else { None }
    }

    pub(crate) fn has_shape(text: &str) -> bool {
        let digits = |(index, byte): (usize, u8)| match index {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        };
        text.len() == 10 && text.bytes().enumerate().all(digits)
    }

    /// Serializes a day.
    pub fn serialize<S: Serializer>(day: &Date, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(day)
    }

    /// Deserializes a day from a string.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Date, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        parse(&text).ok_or_else(|| de::Error::custom("must be a day in the form YYYY-MM-DD"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"usage_date":"2025-11-29","provider":"anthropic","model":"claude","input_tokens":12,"output_tokens":30,"total_tokens":42,"request_count":1,"cost_actual":1.50,"currency":"USD","metadata":{"source_system":"dify","source_event_id":"dify-2025-11-29-anthropic-claude-01785a60786c","source_app_id":"a","source_app_name":"n","aggregation_method":"daily_sum"}}"#;

    #[test]
    fn record_is_written_as_it_was_read() {
        let record: Record = serde_json::from_str(TEXT).unwrap();
        record.check().unwrap();
        assert_eq!(serde_json::to_string(&record).unwrap(), TEXT);
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let text = TEXT.replace("\"currency\"", "\"colour\":{\"a\":[1]},\"currency\"");
        let text = text.replace("\"source_app_id\"", "\"time_range\":{},\"source_app_id\"");
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), serde_json::from_str(TEXT).unwrap());
    }

    #[test]
    fn inconsistent_field_is_named() {
        for (old, new, field) in [
            ("\"provider\":\"anthropic\"", "\"provider\":\" \"", "provider"),
            ("\"model\":\"claude\"", "\"model\":\"\"", "model"),
            ("\"total_tokens\":42", "\"total_tokens\":43", "total_tokens"),
            ("1.50", "-1.50", "cost_actual"),
            ("USD", "usd", "currency"),
            ("USD", "", "currency"),
            ("dify-2025-11-29-anthropic-claude-01785a60786c", "", "metadata.source_event_id"),
            ("\"request_count\":1", "\"request_count\":9007199254740992", "request_count"),
        ] {
            let record: Record = serde_json::from_str(&TEXT.replace(old, new)).unwrap();
            assert_eq!(record.check().unwrap_err().field, field);
        }
        for (old, new) in [
            ("2025-11-29\",", "2025-02-30\","),
            ("2025-11-29\",", "20251129\","),
            ("2025-11-29\",", "2025-11-29T00:00\","),
            (":12", ":-12"),
            (":12", ":1.5"),
            ("1.50", "\"cheap\""),
        ] {
            assert!(serde_json::from_str::<Record>(&TEXT.replacen(old, new, 1)).is_err(), "{new}");
        }
    }
}
