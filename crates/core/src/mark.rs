//! Marks: one-phase deduplication for events.
//!
//! A mark tells whether an event was seen before, and records the event in the same step. Unlike a claim, it cannot protect
//! against a crash between the mark and the effect.

use crate::{LimitError, Limits, MarkKey, Metadata, Nonce, Timestamp};

/// A request to mark one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The event.
    pub key: MarkKey,
    /// Identifies this call. A retry with the same nonce after a lost reply gets the first result again.
    pub nonce: Nonce,
    /// How long the mark is kept.
    pub retention_ms: u64,
    /// Stored with the mark.
    pub metadata: Metadata,
}

impl Request {
    /// Checks the limits.
    pub fn check(&self) -> Result<(), LimitError> {
        if self.retention_ms == 0 {
            return Err(LimitError::Empty { what: "retention" });
        }
        LimitError::count("retention", self.retention_ms, Limits::STANDARD.retention_ms, "milliseconds")
    }
}

/// The result of marking an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The event was not seen before.
    New,
    /// The event was seen before.
    Seen {
        /// When it was first seen.
        first_seen: Timestamp,
        /// The metadata of the first caller.
        metadata: Metadata,
    },
}

/// The result of forgetting a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Forgotten {
    /// The mark is removed: the event is new again.
    Removed,
    /// The mark that was seen is gone: it expired, or was removed or replaced. Nothing was changed.
    Gone,
}

/// The result of erasing what callers wrote in a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Erased {
    /// The text of the key and the metadata are erased. The event stays marked.
    Whole,
    /// Only the metadata is erased: this store finds events by the text of their keys.
    KeyKept,
    /// The mark that was seen is gone: it expired, or was removed or replaced. Nothing was changed.
    Gone,
}

/// Starts the key of a mark for a part of an event's content.
pub const CONTENT: &str = "content:";
/// The metadata of a content mark that names its owner.
pub const OWNER: &str = "event";

/// A mark in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The event.
    pub key: MarkKey,
    /// The call that marked it.
    pub nonce: Nonce,
    /// When it was first seen.
    pub marked_at: Timestamp,
    /// When the mark expires.
    pub expires_at: Timestamp,
    /// The metadata of the first caller.
    pub metadata: Metadata,
}

impl Record {
    /// The same without what callers wrote.
    pub fn erased(&self) -> Self {
        Self { key: self.key.erased(), metadata: self.owner(), ..self.clone() }
    }

    /// The metadata that must stay: a content mark without its owner would say that nobody handled the content.
    pub fn owner(&self) -> Metadata {
        if self.key.is_erased() {
            return self.metadata.clone();
        }
        match self.key.text().starts_with(CONTENT) {
            true => self.metadata.only(OWNER),
            false => Metadata::default(),
        }
    }
}
