//! Figures for operators: how much is stored, what a sweep removed, how the fallback stands.

use ichido_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::StateName;

/// How much a ledger holds. `None` where counting would mean a scan that the backend refuses to make.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Claims with a good lease.
    pub running: Option<u64>,
    /// Claims in doubt.
    pub in_doubt: Option<u64>,
    /// Completed claims within retention.
    pub done: Option<u64>,
    /// Marks within retention.
    pub marks: Option<u64>,
    /// What this process answers and owes in place of the ledger, if it has a fallback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<FallbackStatus>,
}

/// What a sweep removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swept {
    /// Claims and marks whose retention was over.
    pub removed: u64,
    /// Of these, claims whose doubt ended unresolved.
    pub doubts_ended: u64,
    /// Whether the sweep stopped at its limit, so that more may be waiting.
    pub more: bool,
}

/// What a process answers and owes in place of its ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FallbackStatus {
    /// The ledger is out, and the local one answers.
    pub degraded: bool,
    /// Claims that the ledger does not know yet.
    pub owed_claims: usize,
    /// Marks that the ledger does not know yet.
    pub owed_marks: usize,
    /// Of these, keys that the ledger refuses, because it cannot read what it holds for them.
    pub refused: usize,
    /// Keys that another instance had as well, the latest first.
    pub conflicts: Vec<Conflict>,
}

/// A key that was granted or called new both here and by the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The caller's key.
    pub key: String,
    /// Whose; empty for a mark.
    pub tenant: String,
    /// Where; empty for a mark.
    pub route: String,
    /// What stores call it.
    pub index: String,
    /// What was in conflict.
    pub kind: ConflictKind,
    /// How often.
    pub count: u64,
    /// When it was last found.
    pub found_at: Timestamp,
}

/// What was in conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum ConflictKind {
    /// An event was new here, and new to another instance.
    Mark,
    /// A claim was granted here, and by the ledger to another instance.
    Claim {
        /// What the local ledger said of it when it was handed over.
        local_state: StateName,
    },
}
