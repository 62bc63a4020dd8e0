//! Erases what is stored about a key, a user or a channel: records of batches, ids in receipts, notices that wait.
//!
//! Each place is searched in chunks, so memory is bounded by a chunk. With [`Mode::Find`], nothing is changed. What another
//! process is sending is not touched: it is counted as kept.

mod batches;
mod notices;
mod receipts;

use crate::record::Record;
use crate::store::StoredBatch;

pub use self::batches::{batches, in_flight};
pub use self::notices::notices;
pub use self::receipts::receipts;

/// The names under which records and metadata have the id of a user.
const USER_NAMES: [&str; 3] = ["user_id", "user", "source_user_id"];
/// The names under which they have where an event came from.
const CHANNEL_NAMES: [&str; 4] = ["channel_id", "channel", "repository", "source"];

/// Whose data is erased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A key of a claim, an event or a batch, or the id of a record.
    Key(String),
    /// A user.
    User(String),
    /// A channel, or another source of events.
    Channel(String),
}

impl Subject {
    /// The text that is erased.
    pub fn text(&self) -> &str {
        match self {
            Self::Key(text) | Self::User(text) | Self::Channel(text) => text,
        }
    }

    /// What the text is.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Key(_) => "key",
            Self::User(_) => "user",
            Self::Channel(_) => "channel",
        }
    }

    /// The names of fields whose value is the text. None for a key, which is not in a field.
    pub fn names(&self) -> &'static [&'static str] {
        match self {
            Self::Key(_) => &[],
            Self::User(_) => &USER_NAMES,
            Self::Channel(_) => &CHANNEL_NAMES,
        }
    }

    /// Whether a record is about it.
    fn is_in(&self, record: &Record) -> bool {
        let is_text = |value: Option<String>| value.is_some_and(|value| value == self.text());
        match self {
            Self::Key(key) => record.key() == key,
            Self::User(_) | Self::Channel(_) => self
                .names()
                .iter()
                .any(|name| is_text(record.text(name)) || is_text(record.metadata_text(name))),
        }
    }

    /// How many records of a batch are about it. Input that is not a record is searched as a text.
    fn count_in(&self, stored: &StoredBatch) -> usize {
        let records = stored.batch.records();
        if matches!(self, Self::Key(key) if key == stored.batch.key()) {
            return records.len();
        }
        let records = records.iter().filter(|record| self.is_erased_from(stored, record)).count();
        // A message about another record may name it.
        if records == 0 { usize::from(self.is_mentioned_in(stored)) } else { records }
    }

    /// Whether messages of the receiver, or fields that we do not know, contain the text.
    fn is_mentioned_in(&self, stored: &StoredBatch) -> bool {
        let (text, escaped) = (self.text(), self.escaped());
        stored
            .last_error
            .iter()
            .chain(stored.attempts.iter().map(|attempt| &attempt.error))
            .any(|error| error.contains(text))
            || stored
                .unknown
                .iter()
                .any(|(name, value)| name.contains(text) || value.get().contains(&escaped))
    }

    fn is_erased_from(&self, stored: &StoredBatch, record: &Record) -> bool {
        self.is_in(record) || (stored.is_invalid_input && record.json().contains(&self.escaped()))
    }

    /// The text as it is written within a JSON string.
    fn escaped(&self) -> String {
        let quoted = self.quoted();
        quoted[1..quoted.len() - 1].to_owned()
    }

    /// The text as a JSON string.
    fn quoted(&self) -> String {
        serde_json::Value::from(self.text()).to_string()
    }
}

/// Whether to change anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Only count what there is.
    Find,
    /// Erase it.
    Erase,
}

/// What was found in one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How much is about the subject.
    pub found: u64,
    /// How much of it was erased, or would be.
    pub erased: u64,
    /// What is kept, why, and what could not be searched.
    pub notes: Vec<String>,
}

impl Tally {
    /// How much of what was found stays.
    pub fn kept(&self) -> u64 {
        self.found.saturating_sub(self.erased)
    }

    fn add(&mut self, found: usize, erased: usize) {
        self.found += found as u64;
        self.erased += erased as u64;
    }
}

#[cfg(test)]
mod tests;
