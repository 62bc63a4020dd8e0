//! A message, the same for every channel.

use ichido_core::to_hex;
use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::event::Notice;

/// The version of the JSON. Fields may be added to it; a change of their meaning is a new version.
const SCHEMA: u32 = 1;
/// The most characters of a detail.
const DETAIL_CHARS_MAX: usize = 2_000;

/// A message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// Identifies the message: a digest of the ids of its notices.
    pub id: String,
    /// One line.
    pub subject: String,
    /// Several lines.
    pub text: String,
    /// When the first of its notices was written, as in `2025-01-18T12:05:30Z`.
    pub first_at: Option<String>,
    /// When the last of them was written.
    pub last_at: Option<String>,
    /// The number of notices.
    pub count: u64,
    /// The first of them.
    pub notices: Vec<ListedNotice>,
}

/// A notice in a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedNotice {
    /// Its id, which is the same in every message.
    pub id: String,
    /// When it was written.
    pub at: String,
    /// The kind of event.
    pub event: &'static str,
    /// One line.
    pub text: String,
    /// The fields of the event.
    pub details: Map<String, Value>,
}

impl Message {
    /// A message to try a channel with.
    pub fn test(at: String) -> Self {
        let text = "This is a test of the notification channels. No action is needed.".to_owned();
        let id = to_hex(&Sha256::digest(format!("test {at}")))[..16].to_owned();
        let notice = ListedNotice {
            id: id.clone(),
            at: at.clone(),
            event: "test",
            text: text.clone(),
            details: Map::new(),
        };
        Self {
            id,
            subject: "ichido: test notice".to_owned(),
            text: format!("At {at}\n\n{text}\n"),
            first_at: Some(at.clone()),
            last_at: Some(at),
            count: 1,
            notices: vec![notice],
        }
    }

    /// The message as JSON, for webhooks and commands. docs/delivery.md documents it.
    pub fn to_json(&self) -> Value {
        let Self { id, subject, text, first_at, last_at, count, notices } = self;
        json!({
            "schema": SCHEMA,
            "id": id,
            "subject": subject,
            "text": text,
            "first_at": first_at,
            "last_at": last_at,
            "count": count,
            "notices": notices,
            "omitted": count.saturating_sub(notices.len() as u64),
        })
    }
}

impl ListedNotice {
    pub(super) fn new(id: String, notice: &Notice, text: String) -> Self {
        let details = match serde_json::to_value(&notice.event) {
            Ok(Value::Object(fields)) => fields,
            Ok(_) | Err(_) => Map::new(),
        };
        let details = details.into_iter().filter(|(name, _)| name != "event");
        let details = details.map(|(name, value)| (snake_case(&name), shortened(value))).collect();
        Self { id, at: notice.at.clone(), event: notice.event.name(), text, details }
    }
}

fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 2);
    for char in name.chars() {
        if char.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(char.to_ascii_lowercase());
    }
    snake
}

fn shortened(value: Value) -> Value {
    match value.as_str() {
        Some(text) if text.chars().nth(DETAIL_CHARS_MAX).is_some() => {
            Value::String(text.chars().take(DETAIL_CHARS_MAX).chain(['…']).collect())
        }
        Some(_) | None => value,
    }
}
