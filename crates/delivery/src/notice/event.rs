//! The content of notices.

use serde::{Deserialize, Serialize};

/// An event, and when it happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// When it happened, as in `2025-01-18T12:05:30Z`.
    pub at: String,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What operators must be told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Event {
    /// A batch was moved to failed.
    Failed(Failed),
    /// A batch exceeded its retention, and was moved to failed.
    Expired(Failed),
    /// A lane is held: nothing is sent to its destination until an operator acts.
    Held {
        /// The destination, without secrets.
        lane: String,
        /// The response of the destination, or the transport error.
        reason: String,
    },
    /// The spool is full: new batches are refused.
    SpoolFull {
        /// The quota, or the error of the disk.
        reason: String,
    },
    /// Input items are not records; they are in failed.
    #[serde(rename = "broken")]
    InvalidInput {
        /// How many.
        count: u64,
        /// The position of the last one, and what is wrong with it.
        reason: String,
    },
    /// Something in the history is unusual.
    Anomaly {
        /// What kind of thing.
        kind: String,
        /// One sentence with its numbers.
        text: String,
        /// The command that shows more.
        command: String,
        /// The page of the console that shows more, if its address is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        link: Option<String>,
    },
    /// A month's usage has reached a part of a budget.
    Budget {
        /// The tenant.
        tenant: String,
        /// The app, if the budget is for one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        app: Option<String>,
        /// The month, as in `2026-11`.
        month: String,
        /// The part that was reached, in percent.
        threshold: u8,
        /// What was used, as an exact decimal.
        used: String,
        /// What may be used.
        limit: String,
        /// `tokens`, or the currency.
        unit: String,
    },
    /// An announced outage is over.
    Recovered {
        /// The outage.
        outage: String,
        /// When it was first announced.
        since: String,
    },
}

impl Event {
    /// The name of the kind, in messages for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Failed(_) => "failed",
            Self::Expired(_) => "expired",
            Self::Held { .. } => "held",
            Self::SpoolFull { .. } => "spool_full",
            Self::InvalidInput { .. } => "invalid_input",
            Self::Anomaly { .. } => "anomaly",
            Self::Budget { .. } => "budget",
            Self::Recovered { .. } => "recovered",
        }
    }
}

/// A failed batch: the fields that its notice must contain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failed {
    /// The path of its file.
    pub file_path: String,
    /// The last error.
    pub last_error: String,
    /// When it was first tried, as in `2025-01-18T12:05:30Z`.
    pub first_attempt: String,
    /// The number of failed passes.
    pub retry_count: u64,
    /// Its key.
    pub batch_idempotency_key: String,
    /// The number of its records.
    pub records: u64,
}
