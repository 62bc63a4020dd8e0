//! What notices say.

use serde::{Deserialize, Serialize};

/// Something that happened, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// When it happened, as in `2025-01-18T12:05:30Z`.
    pub at: String,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What a person must hear of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Event {
    /// A batch was moved to failed.
    Failed(Failed),
    /// A batch waited longer than it may, and was moved to failed.
    Expired(Failed),
    /// A lane is held: nothing goes to its destination until someone acts.
    Held {
        /// The destination, without secrets.
        lane: String,
        /// What the destination or the connection said.
        reason: String,
    },
    /// The spool has no room: new work is refused.
    SpoolFull {
        /// What it needs or what the disk said.
        reason: String,
    },
    /// Pieces of input are no records; they lie in failed.
    #[serde(rename = "broken")]
    InvalidInput {
        /// How many.
        count: u64,
        /// Where the last of them stood, and what is wrong with it.
        reason: String,
    },
    /// An outage that was announced is over.
    Recovered {
        /// The outage.
        outage: String,
        /// When it was announced first.
        since: String,
    },
}

/// A batch in failed: the fields that its notice must have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failed {
    /// Where its file lies.
    pub file_path: String,
    /// The last error.
    pub last_error: String,
    /// When it was first tried, as in `2025-01-18T12:05:30Z`.
    pub first_attempt: String,
    /// How many passes it had.
    pub retry_count: u64,
    /// Its key.
    pub batch_idempotency_key: String,
    /// How many records it has.
    pub records: u64,
}
