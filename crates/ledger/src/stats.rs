//! Figures for operators: how much is stored, what a sweep removed, the state of the fallback.

use ichido_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::StateName;

/// How many records a ledger holds. A field is `None` if counting would need a scan that the backend refuses to
/// make.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Claims with a valid lease.
    pub running: Option<u64>,
    /// Claims in doubt.
    pub in_doubt: Option<u64>,
    /// Completed claims within their retention.
    pub done: Option<u64>,
    /// Marks within their retention.
    pub marks: Option<u64>,
    /// The state of this process's fallback, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<FallbackStatus>,
}

/// The result of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swept {
    /// Claims and marks whose retention was over.
    pub removed: u64,
    /// Of these, claims that were in doubt and never resolved.
    pub doubts_ended: u64,
    /// Whether the sweep stopped at its limit, so that there may be more to remove.
    pub more: bool,
}

/// The result of checking everything that is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// The last commit.
    pub commit: u64,
    /// Files with commits.
    pub segments: u64,
    /// Bytes of commits.
    pub bytes: u64,
    /// Records of claims, including those that were replaced or have expired.
    pub claims: u64,
    /// Records of marks, including those that have expired.
    pub marks: u64,
    /// What is damaged, and what to do.
    pub problems: Vec<String>,
}

/// A copy of a ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backup {
    /// The last commit in the copy.
    pub commit: u64,
    /// Copied files.
    pub files: u64,
    /// Copied bytes.
    pub bytes: u64,
}

/// The state of a process's fallback.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FallbackStatus {
    /// The primary is unreachable, and the local ledger answers.
    pub degraded: bool,
    /// Claims that are pending handover.
    #[serde(rename = "owed_claims")]
    pub pending_claims: usize,
    /// Marks that are pending handover.
    #[serde(rename = "owed_marks")]
    pub pending_marks: usize,
    /// Of these, keys that the primary refuses because it cannot read the record it has.
    pub refused: usize,
    /// Keys that another instance used as well, the latest first.
    pub conflicts: Vec<Conflict>,
}

/// A key that was granted, or reported as new, both by this instance and by the primary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The caller's key.
    pub key: String,
    /// The tenant of its scope; empty for a mark.
    pub tenant: String,
    /// The route of its scope; empty for a mark.
    pub route: String,
    /// The hash that identifies the key in a store.
    pub index: String,
    /// What kind of record is in conflict.
    pub kind: ConflictKind,
    /// How often.
    pub count: u64,
    /// When the conflict was last found.
    pub found_at: Timestamp,
}

/// What kind of record is in conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum ConflictKind {
    /// The event was new here and new for another instance.
    Mark,
    /// The claim was granted here, and by the primary to another instance.
    Claim {
        /// The state of the local claim when it was handed over.
        local_state: StateName,
    },
}
