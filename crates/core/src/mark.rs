//! Marks: the one-phase form for events.
//!
//! A mark answers "seen before?" and remembers the question in the same step. It cannot protect against a crash
//! between marking and doing; two-phase claims can.

use crate::{LimitError, Limits, MarkKey, Metadata, Nonce, Timestamp};

/// A question about one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The event.
    pub key: MarkKey,
    /// Names this call: asked again after a lost reply, the first answer is given again.
    pub nonce: Nonce,
    /// How long it is remembered.
    pub retention_ms: u64,
    /// Kept beside the mark.
    pub metadata: Metadata,
}

impl Request {
    /// Refuses what is outside the limits.
    pub fn check(&self) -> Result<(), LimitError> {
        if self.retention_ms == 0 {
            return Err(LimitError::Empty { what: "retention" });
        }
        LimitError::count("retention", self.retention_ms, Limits::STANDARD.retention_ms, "milliseconds")
    }
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Not seen before: the caller is the first.
    New,
    /// Seen before.
    Seen {
        /// When.
        first_seen: Timestamp,
        /// What the first caller left beside it.
        metadata: Metadata,
    },
}

/// What is remembered of a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The event.
    pub key: MarkKey,
    /// The call that was first.
    pub nonce: Nonce,
    /// When it was first seen.
    pub marked_at: Timestamp,
    /// When it is forgotten.
    pub expires_at: Timestamp,
    /// The first caller's words.
    pub metadata: Metadata,
}
